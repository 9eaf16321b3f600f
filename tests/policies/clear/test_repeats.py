"""Results whose text shows elsewhere are masked where that costs nothing, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from situations import prefix, situation

from palimpsest.core.items import Item, Mask, Text, ToolCall, ToolResult, kind_of
from palimpsest.core.plans import Cache, Situation, Use, proposal_of
from palimpsest.policies.clear import HideRepeats, ShownResult, repeats


def read(number: int, text: str, *, error: bool = False) -> tuple[Item, Item]:
    """A read and its result, whose text says how many tokens it has."""
    call = ToolCall(f"c{number}", "Read", '{"file_path":"a.py"}')
    result = ToolResult(f"c{number}", (Text(text),), error=error)
    return Item(f"{number}.0", kind_of(call), call), Item(f"{number + 1}.0", "result", result)


def with_items(*items: Item, cached: str = "", pins: frozenset[str] = frozenset(), edited: bool = False) -> Situation:
    """A situation in which every result is large and the items up to `cached` are in the cache."""
    uses = {item.id: Use(1, kind="read") for item in items if item.kind == "result"}
    prefixes = (prefix(cached, 5_000),) if cached else ()
    return situation(items, uses=uses, cache=Cache(prefixes, edited=edited), pins=pins)


def masks(given: Situation) -> tuple[Mask, ...]:
    return tuple(edit for edit in proposal_of(HideRepeats().plan(given)).edits if isinstance(edit, Mask))


def stub(where: str, holder: str) -> str:
    return f"[the same text stands {where}, in the result of Read a.py, id {holder}]"


FIRST, SECOND, OTHER = "x900", "x900", "x800"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(
            with_items(*read(1, FIRST), *read(3, SECOND), cached="2.0"),
            (Mask(("4.0",), stub("above", "2.0")),),
            id="new, before it is sent",
        ),
        pytest.param(with_items(*read(1, FIRST), *read(3, SECOND)), (Mask(("2.0",), stub("below", "4.0")),), id="the older one when cold"),
        pytest.param(with_items(*read(1, FIRST), *read(3, SECOND), cached="4.0"), (), id="not what is cached"),
        pytest.param(with_items(*read(1, FIRST), *read(3, OTHER)), (), id="different texts"),
        pytest.param(with_items(*read(1, FIRST), *read(3, SECOND, error=True), cached="2.0"), (), id="not an error"),
        pytest.param(with_items(*read(1, FIRST), *read(3, SECOND), cached="2.0", pins=frozenset({"4.0"})), (), id="not what is pinned"),
        pytest.param(with_items(*read(1, FIRST), *read(3, SECOND), cached="2.0", edited=True), (), id="not twice before a call"),
        pytest.param(with_items(), (), id="nothing there"),
    ],
)
def test_a_repeat_is_masked_where_no_cached_byte_changes(given: Situation, expected: tuple[Mask, ...]) -> None:
    assert masks(given) == expected


def test_a_part_of_a_text_that_shows_is_a_repeat_and_the_last_holder_is_named() -> None:
    part = "x700 a line that is long enough to be found"
    whole = f"before\n{part}\nafter"
    found = [
        ShownResult(0, "1.0", part),
        ShownResult(1, "2.0", whole),
        ShownResult(2, "3.0", f"{whole}\nand more"),
        ShownResult(3, "4.0", "z"),
    ]
    assert {name: holder.id for name, holder in repeats(found, found).items()} == {"1.0": "3.0", "2.0": "3.0"}
    # Of equal ones the newest stays, however many there are.
    equal = [ShownResult(place, f"{place}.0", part) for place in range(9)]
    assert {name: holder.id for name, holder in repeats(equal, equal).items()} == {f"{place}.0": "8.0" for place in range(8)}


WORDS = ["", "one", "one one", "two two", "three", "four four four", "five", "sixsix", "seven seven", "eight"]
LINES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map("\n".join)


@given(st.lists(LINES, max_size=12), st.integers(0, 12))
@pytest.mark.states("PA-29")
def test_every_masked_text_stands_in_a_result_that_stays(texts: list[str], cached: int) -> None:
    shown = [ShownResult(place, f"{place}.0", text) for place, text in enumerate(texts)]
    found = repeats(shown, shown[cached:])
    by_id = {each.id: each for each in shown}
    assert all(holder.id not in found and by_id[name].text in holder.text for name, holder in found.items())
    assert all(by_id[name].place >= cached for name in found)
    # And none is left: no other free text stands in one that stays, its longest line as a whole line.
    staying = [each for each in shown if each.id not in found]
    pairs = [(each, other) for each in staying if each.place >= cached for other in staying if other is not each]
    assert not any(each.text in other.text and longest_line(each.text) in other.text.split("\n") for each, other in pairs)


def longest_line(text: str) -> str:
    return max(text.split("\n"), key=len)
