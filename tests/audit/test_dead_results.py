"""Caching changes nothing: dead results, masks, pins and warm prefixes equal those computed without caches."""

from dataclasses import replace
from typing import Never

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as replace_struct
from situations import prefix, situation, used, words
from stubs import stub_of
from working_days import PROFILE, Step, steps, take_back, tell
from workplace import START, reply, work

from palimpsest.audit.cache import warm_prefixes
from palimpsest.audit.gate import pinned, same_path
from palimpsest.audit.tool_calls import action_of
from palimpsest.audit.uses import DeadResult, dead_results, dies_at, lifespans_for, masks_of, with_masks
from palimpsest.core.items import Item, Mask, Text, ToolCall, ToolResult
from palimpsest.core.plans import Situation, Use
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.tokens import palimpsest_size
from palimpsest.core.view import View
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.models import card


def by_definition(now: Situation, *, held: bool, patience: float) -> list[DeadResult]:
    """The dead results of a view, each computed without caches."""
    found: list[DeadResult] = []
    for place, item in enumerate(now.view.items):
        use = now.uses.get(item.id)
        spared = item.id in pinned(now.view) or (item.id in now.view.held and not held)
        if use is None or item.mask is not None or spared:
            continue
        dies = use.died if patience == 1.0 else dies_at(use, lifespans_for(patience))
        if dies is None or dies > now.health.calls:
            continue
        counter = TokenCounter(now.tokens.rule, now.tokens.factor)
        tokens = counter.item(item)
        # A stub tells the size by a factor that does not change with every call.
        rounded = TokenCounter(now.tokens.rule, round(counter.factor, 2))
        mask = Mask((item.id,), stub_of(now.view.items, place, rounded.item(item), counter.factor))
        call_id = item.content.call_id if isinstance(item.content, ToolResult) else ""
        gain = tokens - counter.content(ToolResult(call_id, (Text(mask.text),)))
        if gain > 0:
            found.append(DeadResult(place, gain, now.health.calls - dies + 1, mask))
    return found[::-1]


@settings(max_examples=60)
@given(st.lists(st.tuples(steps, st.sampled_from([1.0, 1.004, 1.2, 1.33])), max_size=4), st.booleans(), st.sampled_from([0.5, 1.0]))
def test_repeated_runs_find_the_same_dead_results(parts: list[tuple[list[Step], float]], held: bool, patience: float) -> None:
    session = work(replace(PROFILE, size_rule="palimpsest"), clock=FixedClock(START, 1_000))
    for sampled_steps, factor in parts:
        tell(session, sampled_steps, take_back)
        for _ in range(9):
            reply(session, Text("go on", "assistant"))
        session.counter.factor = factor
        now = session.situation("before_call")
        expected = by_definition(now, held=held, patience=patience)
        for _ in range(2):
            found = with_masks(dead_results(now, held=held, patience=patience), now)
            assert found == expected
            assert masks_of(found) == tuple(each.mask for each in reversed(expected))


def test_without_its_mask_a_result_frees_all_of_it_and_with_it_less() -> None:
    now = situation(used(2, "Bash", '{"command":"make"}', 900), uses={"3.0": Use(0, died=1)}, calls=3)
    assert dead_results(now) == [DeadResult(1, 900, 3)]
    found = with_masks(dead_results(now), now)
    assert found == [DeadResult(1, 880, 3, Mask(("3.0",), "[Bash make: 900 tokens, id 3.0]"))]
    assert dead_results(now) == [DeadResult(1, 900, 3)]
    assert with_masks(found, now) == found


def test_a_result_that_is_smaller_than_its_stub_stays() -> None:
    now = situation(used(2, "Bash", "{}", 20), uses={"3.0": Use(0, died=1)}, calls=3)
    assert (dead_results(now), with_masks(dead_results(now), now)) == ([DeadResult(1, 20, 3)], [])


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
    some, every = warm_prefixes(now, places), warm_prefixes(now)
    assert [some.before(place) for place in places] == [every.before(place) for place in places]
    assert some.longest == every.longest


def test_items_are_not_walked_for_what_ends_within_the_head() -> None:
    class Unwalked(tuple[Item, ...]):
        __slots__ = ()

        def __getitem__(self, place: object) -> Never:
            raise AssertionError(place)

    head = (words("head:0", 10), words("head:1", 10))
    view = View(head=head, items=Unwalked((words("1.0", 5), words("2.0", 5))))
    now = replace(situation((), head=head, prefixes=[prefix("head:0", 10), prefix("head:1", 20)]), view=view)
    assert (warm_prefixes(now).head, warm_prefixes(now).longest) == (20, 20)


@settings(max_examples=60)
@given(steps, st.sets(st.sampled_from(["src/f1.py", "f2.py", "./src/f3.py", "1.0", "4.0", "7.0", "9.0"])))
def test_pins_are_the_named_items_those_that_show_a_file_and_their_pairs(sampled_steps: list[Step], pins: set[str]) -> None:
    session = work(PROFILE)
    tell(session, sampled_steps)
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


def test_a_large_result_dies_sooner_than_a_small_one_and_a_report_does_not() -> None:
    sizes = (350, 700, 1_400, 2_800, 11_200)
    items = tuple(item for number, size in enumerate(sizes) for item in used(2 * number + 2, "Bash", "{}", size))
    uses = {f"{2 * number + 3}.0": Use(0, kind="other") for number in range(len(sizes))}
    died_after = {
        size: next(calls for calls in range(100) if place in _dead_places(items, uses, calls))
        for size, place in zip(sizes, range(1, 2 * len(sizes), 2), strict=True)
    }
    assert died_after == {350: 16, 700: 8, 1_400: 4, 2_800: 2, 11_200: 1}
    reports = {name: replace_struct(use, kind="report") for name, use in uses.items()}
    assert (_dead_places(items, reports, 39), _dead_places(items, reports, 40)) == ([], [9, 7, 5, 3, 1])


def _dead_places(items: tuple[Item, ...], uses: dict[str, Use], calls: int) -> list[int]:
    return [result.place for result in dead_results(situation(items, uses=uses, calls=calls), usual=1_400)]
