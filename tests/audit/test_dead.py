"""What is remembered from one look to the next changes nothing: dead results, masks, pins and what is cached are as if looked at anew."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from situations import prefix, situation, used, words
from working_days import PROFILE, Step, steps, take_back, tell
from workplace import START, reply, work

from palimpsest.audit.dead import Dead, dead_of, masks_of, stub_of, with_masks
from palimpsest.audit.pins import pinned, same_path
from palimpsest.audit.pricing.warm import warm_of
from palimpsest.audit.tools.calls import action_of
from palimpsest.audit.uses import ages_for, dies_at
from palimpsest.core.edits import Mask
from palimpsest.core.items import Item, Text, ToolCall, ToolResult
from palimpsest.core.situation import Situation, Use
from palimpsest.core.tokens.counter import TokenCounter
from palimpsest.core.tokens.sizes import palimpsest_size
from palimpsest.core.view import View
from palimpsest.stores.ephemeral import FixedClock
from palimpsest.wire.models.cards import card


def by_definition(now: Situation, *, held: bool, patience: float) -> list[Dead]:
    """The dead results of a view, one by one, with everything worked out for each."""
    found: list[Dead] = []
    for place, item in enumerate(now.view.items):
        use = now.uses.get(item.id)
        spared = item.id in pinned(now.view) or (item.id in now.view.held and not held)
        if use is None or item.mask is not None or spared:
            continue
        dies = use.died if patience == 1.0 else dies_at(use, ages_for(patience))
        if dies is None or dies > now.health.calls:
            continue
        counter = TokenCounter(now.tokens.rule, now.tokens.factor)
        tokens = counter.item(item)
        mask = Mask((item.id,), stub_of(now.view.items, place, tokens, counter.factor))
        call_id = item.content.call_id if isinstance(item.content, ToolResult) else ""
        gain = tokens - counter.content(ToolResult(call_id, (Text(mask.text),)))
        if gain > 0:
            found.append(Dead(place, gain, now.health.calls - dies + 1, mask))
    return found[::-1]


@settings(max_examples=60)
@given(st.lists(st.tuples(steps, st.sampled_from([1.0, 1.004, 1.2, 1.33])), max_size=4), st.booleans(), st.sampled_from([0.5, 1.0]))
def test_a_session_that_is_looked_at_again_and_again_has_the_same_dead(
    parts: list[tuple[list[Step], float]], held: bool, patience: float
) -> None:
    session = work(replace(PROFILE, size_rule="palimpsest"), clock=FixedClock(START, 1_000))
    for told, factor in parts:
        tell(session, told, take_back)
        for _ in range(9):
            reply(session, Text("go on", "assistant"))
        session.counter.factor = factor
        now = session.situation("before_call")
        expected = by_definition(now, held=held, patience=patience)
        for _ in range(2):
            found = with_masks(dead_of(now, held=held, patience=patience), now)
            assert found == expected
            assert masks_of(found) == tuple(each.mask for each in reversed(expected))


def test_without_its_mask_a_result_frees_all_of_it_and_with_it_less() -> None:
    now = situation(used(2, "Bash", '{"command":"make"}', 900), uses={"3.0": Use(0, died=1)}, calls=3)
    assert dead_of(now) == [Dead(1, 900, 3)]
    found = with_masks(dead_of(now), now)
    assert found == [Dead(1, 880, 3, Mask(("3.0",), "[Bash make: 900 tokens, id 3.0]"))]
    assert dead_of(now) == [Dead(1, 900, 3)]
    assert with_masks(found, now) == found


def test_a_result_that_is_smaller_than_its_stub_stays() -> None:
    now = situation(used(2, "Bash", "{}", 20), uses={"3.0": Use(0, died=1)}, calls=3)
    assert (dead_of(now), with_masks(dead_of(now), now)) == ([Dead(1, 20, 3)], [])


@given(
    st.lists(st.integers(1, 4_000), min_size=1, max_size=20),
    st.sets(st.integers(0, 19)),
    st.integers(0, 19),
    st.integers(0, 90_000),
    st.sampled_from(["claude-sonnet-4-5", "gpt-5"]),
)
def test_what_is_cached_before_some_places_is_what_is_cached_before_them_among_all(
    sizes: list[int], asked: set[int], end: int, tokens: int, model: str
) -> None:
    items = tuple(words(f"{number}.0", size) for number, size in enumerate(sizes))
    last = min(end, len(items) - 1)
    now = situation(items, prefixes=[prefix("0.0", min(tokens, 100)), prefix(f"{last}.0", tokens)], model=card(model))
    places = sorted(place for place in asked if place < len(items))
    some, every = warm_of(now, places), warm_of(now)
    assert [some.before(place) for place in places] == [every.before(place) for place in places]
    assert some.all == every.all


def test_items_are_not_walked_for_what_ends_within_the_head() -> None:
    class Unwalked(tuple[Item, ...]):
        __slots__ = ()

        def __getitem__(self, place: object) -> Item:  # type: ignore[override]  # no item may be asked for
            raise AssertionError(place)

    head = (words("head:0", 10), words("head:1", 10))
    view = View(head=head, items=Unwalked((words("1.0", 5), words("2.0", 5))))
    now = replace(situation((), head=head, prefixes=[prefix("head:0", 10), prefix("head:1", 20)]), view=view)
    assert (warm_of(now).head, warm_of(now).all) == (20, 20)


@settings(max_examples=60)
@given(steps, st.sets(st.sampled_from(["src/f1.py", "f2.py", "./src/f3.py", "1.0", "4.0", "7.0", "9.0"])))
def test_pins_are_the_items_named_those_that_show_a_file_and_their_other_halves(told: list[Step], pins: set[str]) -> None:
    session = work(PROFILE)
    tell(session, told)
    items = session.log.view.items
    named = {item.id for item in items if item.id in pins}
    for item in items:
        if isinstance(item.content, ToolCall):
            shown = [each.path for each in action_of(item.content).paths if each.how != "search"]
            named |= {item.id for path in shown for pin in pins if not pin[0].isdigit() and same_path(path, pin)}
    calls = {item.content.call_id for item in items if item.id in named and isinstance(item.content, ToolCall | ToolResult)}
    halves = {item.id for item in items if isinstance(item.content, ToolCall | ToolResult) and item.content.call_id in calls}
    assert pinned(View(items=items, pins=frozenset(pins))) == named | halves


def test_sizes_are_those_of_the_view_that_was_asked_for() -> None:
    counter = TokenCounter(palimpsest_size)
    items = tuple(words(f"{number}.0", 10**number) for number in range(6))
    for end in (2, 3, 6, 4):
        assert counter.sizes_of(View(items=items[:end])).sizes == tuple(palimpsest_size(item.content) for item in items[:end])
