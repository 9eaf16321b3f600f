"""Masks when the cache is cold, masks inside the cache, and a variant that masks nothing at all."""

import json

import pytest
from claude_work import MEASURED, SONNET, claude, edits
from workplace import START, offline, reply, say, use

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.core.events import EventRef, SessionOpened, Usage
from palimpsest.core.items import Mask, Text, ToolCall
from palimpsest.stores.in_memory import FixedClock
from palimpsest.stores.sessions import MemoryResultFiles
from palimpsest.wire.encode import encode
from palimpsest.wire.models import ModelCard

CLEARED = "[Old tool result content cleared]"
MINUTE = 60_000
CACHED = {"cached_microcompact": "on"}


def away(
    minutes: float,
    name: str = "claude-code",
    *,
    used: int = 60_000,
    results: int = 9,
    size: int = 1_000,
    cached: bool = False,
    model: ModelCard = SONNET,
    child: bool = False,
) -> Session:
    """Some results, a last reply, and then idle time."""
    clock = FixedClock(START)
    opened = SessionOpened("s", opener=EventRef("parent", 3) if child else None)
    session = claude(name, CACHED if cached else None, model=model, clock=clock, opened=opened)
    say(session, "go")
    for number in range(results):
        use(session, f"c{number}", "Bash", json.dumps({"command": f"make {number}"}), f"{number}" + "x" * (4 * size - 1))
    if results:
        reply(session, Text("Done.", "assistant"), usage=Usage(input=used))
    clock.time += int(minutes * MINUTE)
    return session


def masked(session: Session) -> list[int]:
    results = [item for item in session.log.view.items if item.kind == "result"]
    return [number for number, item in enumerate(results) if item.mask is not None]


@pytest.mark.states("CC-25")
def test_after_60_idle_minutes_all_but_the_newest_5_maskable_results_show_the_cleared_string_and_no_file_is_written() -> None:
    session = away(60)
    offline(session, run_policies(session, "before_call"))
    assert masked(session) == [0, 1, 2, 3]
    assert {item.mask.text for item in session.log.view.items if item.mask} == {CLEARED}
    assert [edit.by for edit in edits(session)] == ["clear_idle"]
    assert isinstance(session.environment.keep, MemoryResultFiles)
    assert session.environment.keep.files == {}
    assert offline(session, run_policies(session, "before_call")).events == ()


@pytest.mark.states("CC-26")
def test_at_59_minutes_without_an_assistant_message_or_in_a_sub_agent_the_idle_mask_rests() -> None:
    for session in (away(59), away(600, results=0), away(600, child=True), away(600, results=5)):
        assert offline(session, run_policies(session, "before_call")).events == ()


@pytest.mark.states("CC-26")
def test_when_it_acts_the_cached_kind_does_not() -> None:
    session = away(61, used=140_000, results=9, size=12_000, cached=True)
    offline(session, run_policies(session, "before_call"))
    assert [(edit.by, len(edit.edits)) for edit in edits(session)] == [("clear_idle", 1)]
    session = away(1, used=140_000, results=9, size=12_000, cached=True)
    offline(session, run_policies(session, "before_call"))
    assert [edit.by for edit in edits(session)] == ["clear_cached"]
    # Where the idle mask has nothing to do the cached kind may.
    session = away(61, used=140_000, results=5, size=25_000, cached=True)
    offline(session, run_policies(session, "before_call"))
    assert [edit.by for edit in edits(session)] == ["clear_cached"]


@pytest.mark.states("CC-26")
def test_when_it_acts_the_token_kind_does_not_either_until_the_next_call() -> None:
    session = away(61, used=150_000, results=6, size=12_000)
    offline(session, run_policies(session, "before_call"))
    assert ([edit.by for edit in edits(session)], masked(session)) == (["clear_idle"], [0])
    reply(session, Text("Back.", "assistant"), usage=Usage(input=140_000))
    offline(session, run_policies(session, "before_call"))
    assert ([edit.by for edit in edits(session)], masked(session)) == (["clear_idle", "clear_results"], [0, 1, 2])


def messages(session: Session) -> bytes:
    """The encoded messages, byte for byte."""
    body = encode(session.log.view, session.card, (), session.params).body
    return body[body.index(b'"messages":[') :].partition(b',"context_management"')[0].removesuffix(b"}")


def dropped(session: Session) -> list[str]:
    """The tool uses whose results the provider is asked to clear."""
    body = json.loads(encode(session.log.view, session.card, (), session.params).body)
    uses: list[str] = [
        block["tool_use_id"] for message in body["messages"] for block in message["content"] if block["type"] == "tool_result"
    ]
    return [name for edit in body.get("context_management", {"edits": []})["edits"] for name in uses[: -edit["keep"]["value"]]]


@pytest.mark.states("CC-27")
def test_the_cached_kind_leaves_the_encoded_messages_byte_equal_and_repeats_all_earlier_edits_in_every_later_request() -> None:
    session = away(1, used=140_000, results=9, size=10_000, cached=True)
    before = messages(session)
    offline(session, run_policies(session, "before_call"))
    (edit,) = edits(session)
    (mask,) = edit.edits
    assert isinstance(mask, Mask)
    assert (mask.form, len(mask.ids), edit.by) == ("cached", 5, "clear_cached")
    assert messages(session) == before
    assert dropped(session) == ["c0", "c1", "c2", "c3", "c4"]
    for number in range(9, 14):
        use(session, f"c{number}", "Bash", "{}", "x" * 40_000)
    reply(session, Text("More.", "assistant"), usage=Usage(input=150_000))
    assert dropped(session)[:5] == ["c0", "c1", "c2", "c3", "c4"]
    offline(session, run_policies(session, "before_call"))
    assert dropped(session) == [f"c{number}" for number in range(10)]
    assert messages(session).startswith(before[:1_000])


@pytest.mark.states("CC-27")
def test_after_a_fold_edits_that_name_folded_results_are_forgotten_and_a_card_without_cache_editing_gets_the_token_kind() -> None:
    session = away(1, used=140_000, results=9, size=10_000, cached=True)
    offline(session, run_policies(session, "before_call"))
    offline(session, run_policies(session, "asked"))
    assert set(dropped(session)) <= {item.content.call_id for item in session.log.view.items if isinstance(item.content, ToolCall)}
    session = away(1, used=140_000, results=9, size=10_000)
    offline(session, run_policies(session, "before_call"))
    assert [edit.by for edit in edits(session)] == ["clear_results"]
    assert dropped(session) == []


@pytest.mark.parametrize("minutes", [1, 30 * 60])
@pytest.mark.states("CC-28")
def test_no_result_is_ever_masked_neither_by_size_nor_after_30_hours(minutes: int) -> None:
    for cached in (False, True):
        session = away(minutes, MEASURED, used=160_000, results=14, size=5_000, cached=cached)
        assert offline(session, run_policies(session, "before_call")).events == ()
        assert masked(session) == []
