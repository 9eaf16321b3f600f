"""The verbatim tail of OpenCode 1.18, by its own estimate and by that of the documents."""

import pytest
from msgspec.structs import replace
from workplace import START, online, reply, say, use

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Environment, Session, inline
from palimpsest.audit.sizes import SIZE_RULES
from palimpsest.core.events import SessionOpened
from palimpsest.core.items import Item, Text, ToolCall, ToolResult, text_of
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.tokens import SizeRule
from palimpsest.peers.summaries import MARKER, Anchor, tail_start
from palimpsest.policies.named import profile
from palimpsest.providers.retrying import NO_RETRIES
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.wire.models import card

RULES = [SIZE_RULES[name] for name in ("opencode", "opencode-1.18")]


def session_with(usable: int, settings: dict[str, str] | None = None) -> Session:
    """A session under 1.18 whose model leaves so many tokens for what is read."""
    model = replace(card("claude-sonnet-4-5"), window=usable + 1_000, reply=1_000, input_limit=None)
    environment = Environment(MemorySessions(), MemoryBlobs(), FixedClock(START, 1_000), offload=inline, retries=NO_RETRIES)
    return Session.create(SessionOpened("s"), profile("opencode-1.18", settings or {}), model, environment)


@pytest.mark.parametrize(("usable", "budget"), [(168_000, 15_000), (4_000, 2_000), (10_000, 2_500)])
@pytest.mark.states("OC-18")
def test_the_tail_may_have_a_quarter_of_the_room_within_bounds(usable: int, budget: int) -> None:
    assert Anchor(transcript="text").tail_budget(session_with(usable).situation("asked")) == budget


def conversation(*turn_sizes: tuple[int, ...]) -> list[Item]:
    """Turns of a user item and replies, each of so many characters of text."""
    items: list[Item] = []
    for sizes in turn_sizes:
        for place, size in enumerate(sizes):
            number = f"{len(items)}.0"
            content = Text("u" * size) if place == 0 else Text("a" * size, "assistant")
            items.append(Item(number, "user" if place == 0 else "assistant", content))
    return items


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.states("OC-18")
def test_the_number_of_turns_can_be_capped_and_none_keeps_no_tail(rule: SizeRule) -> None:
    items = conversation((40, 40), (40, 40), (40, 40))
    counter = TokenCounter(rule)
    assert tail_start(items, 1_000, counter, 0) == 6
    assert tail_start(items, 1_000, counter, 1) == 4
    assert tail_start(items, 1_000, counter, 2) == 2


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.states("OC-19")
def test_a_turn_too_big_is_split_at_the_earliest_place_whose_rest_fits_and_pairs_stay_whole(rule: SizeRule) -> None:
    counter = TokenCounter(rule)
    items = conversation((40, 40), (40, 400, 40, 40))
    fits = counter.item(items[4]) + counter.item(items[5])
    assert tail_start(items, fits, counter) == 4
    assert tail_start(items, fits - 1, counter) == 5
    assert tail_start(items, fits + counter.item(items[3]), counter) == 3
    items = [
        *conversation((40, 40)),
        Item("7.0", "user", Text("go")),
        Item("8.0", "call", ToolCall("c", "bash", "x" * 400)),
        Item("9.0", "result", ToolResult("c", (Text("y" * 40),))),
        Item("10.0", "assistant", Text("z" * 40, "assistant")),
    ]
    last = counter.item(items[5])
    # The result alone would fit as well, but not without its call.
    assert tail_start(items, last + counter.item(items[4]), counter) == 5
    assert tail_start(items, last + counter.item(items[4]) + counter.item(items[3]), counter) == 3


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.states("OC-20")
def test_when_the_tail_would_reach_the_first_item_none_is_kept(rule: SizeRule) -> None:
    counter = TokenCounter(rule)
    items = conversation((40, 40), (40, 40))
    whole = sum(counter.item(item) for item in items)
    assert tail_start(items, whole, counter) == 4
    assert tail_start(items, whole - 1, counter) == 1


@pytest.mark.states("OC-18")
def test_as_measured_the_tail_is_what_its_own_estimate_of_the_wire_json_lets_fit() -> None:
    session = session_with(168_000)
    for number in range(60):
        say(session, f"turn {number}")
        use(session, f"c{number}", "bash", '{"command":"make"}', "x" * 2_000)
        reply(session, Text("done", "assistant"))
    before = session.log.view.items
    kept = tail_start(before, 15_000, TokenCounter(SIZE_RULES["opencode-1.18"]))
    assert kept % 4 == 0 or before[kept].kind in {"call", "assistant"}
    online(session, run_policies(session, "asked"), Scripted("we fixed it"))
    after = session.log.view.items
    assert [text_of(item.content) for item in after[:2]] == [MARKER, "we fixed it"]
    assert after[2:] == before[kept:]
    tokens = sum(session.counter.item(item) for item in after[2:])
    assert 13_000 < tokens <= 15_000
    # By the length of the texts alone, as the documents count, more of them would have stayed.
    assert tail_start(before, 15_000, TokenCounter(SIZE_RULES["opencode"])) < kept


@pytest.mark.parametrize(("setting", "kept"), [({"compaction.tail_turns": "0"}, 0), ({"compaction.tail_turns": "1"}, 4)])
@pytest.mark.states("OC-18")
def test_as_measured_the_setting_caps_the_turns_of_the_tail(setting: dict[str, str], kept: int) -> None:
    session = session_with(168_000, setting)
    for number in range(3):
        say(session, f"turn {number}")
        use(session, f"c{number}", "bash", '{"command":"make"}', "x" * 200)
        reply(session, Text("done", "assistant"))
    before = session.log.view.items
    online(session, run_policies(session, "asked"), Scripted("we fixed it"))
    assert session.log.view.items[2:] == before[len(before) - kept :]
