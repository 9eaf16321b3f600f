"""The token counter counts each item of a view once, and gives out the sizes of a view as a value."""

from collections.abc import Callable

import pytest
from histories import Step, new_log, steps, tell
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.audit.sizes import claude_size, responses_size
from palimpsest.core.items import Content, Cover, Item, Text, ToolResult, frozen
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.tokens import CountsTokens, TokenSizes
from palimpsest.core.view import View, shown


def _item(number: int, text: str = "abcdefgh", mask: Cover | None = None) -> Item:
    return Item(f"{number}.0", "user", Text(text), mask=mask)


def _counting() -> tuple[Callable[[Content], int], list[Content]]:
    asked: list[Content] = []

    def rule(content: Content) -> int:
        asked.append(content)
        return claude_size(content)

    return rule, asked


def test_the_size_of_a_view_is_that_of_its_head_and_items() -> None:
    view = View(head=(_item(0, "x" * 40),), items=(_item(1), _item(2)))
    assert TokenCounter(claude_size).total(view) == 14


def test_an_item_is_counted_once_however_often_the_view_grows() -> None:
    rule, asked = _counting()
    counter = TokenCounter(rule)
    items: tuple[Item, ...] = ()
    for number in range(50):
        items = (*items, _item(number))
        assert counter.total(View(items=items)) == 2 * (number + 1)
    assert len(asked) == 50


def test_after_an_edit_only_changed_items_are_counted_again() -> None:
    rule, asked = _counting()
    counter = TokenCounter(rule)
    items = tuple(_item(number) for number in range(10))
    counter.total(View(items=items))
    masked = (*items[:3], _item(3, mask=Cover("gone")), *items[4:])
    assert counter.total(View(items=masked)) == 19
    assert len(asked) == 11


def test_a_rule_that_raises_once_leaves_sizes_that_are_right_afterwards() -> None:
    def rule(content: Content) -> int:
        if broken and isinstance(content, Text) and content.text == "new":
            raise ValueError("odd")
        return 2

    broken = True
    counter = TokenCounter(rule)
    before = (_item(1), _item(2), _item(3))
    after = View(items=(before[0], _item(4, "new"), _item(5)))
    counter.total(View(items=before))
    with pytest.raises(ValueError, match="odd"):
        counter.total(after)
    broken = False

    assert (counter.unscaled_sizes(before), counter.total(after)) == ([2, 2, 2], 6)


def test_items_that_left_the_view_are_forgotten() -> None:
    counter = TokenCounter(claude_size)
    items = tuple(_item(number) for number in range(100))
    counter.total(View(items=items))
    counter.total(View(items=items[90:]))
    assert counter.remembered == 10


def test_a_masked_item_has_the_size_of_its_cover_and_a_hidden_one_none() -> None:
    counter = TokenCounter(claude_size)
    assert counter.item(_item(1, "x" * 400, Cover("[cleared]"))) == 3
    assert counter.item(_item(1, "x" * 400, Cover())) == 0
    assert counter.item(_item(1, "x" * 400)) == 100


def test_an_item_under_a_cached_cover_is_counted_while_it_stays_in_the_request() -> None:
    text = _item(1, "x" * 400, Cover("[cleared]", "cached"))
    result = Item("2.0", "result", ToolResult("c1", (Text("x" * 400),)), mask=Cover("", "cached"))
    named = Item("3.0", "result", ToolResult("c1", (Text("x" * 400),)), mask=Cover("[cleared]", "cached"))
    view = View(items=(text, result, named))
    plain, dropping = TokenCounter(claude_size), TokenCounter(claude_size, drops_cached=True)
    assert [plain.item(item) for item in view.items] == [100, 100, 100]
    # Only results can be dropped: a text under such a cover is sent whatever the card says.
    assert [dropping.item(item) for item in view.items] == [100, 0, 3]
    assert (plain.total(view), dropping.total(view)) == (300, 103)


def test_a_masked_result_keeps_its_frame() -> None:
    item = Item("2.0", "result", ToolResult("c1", (Text("x" * 400),), error=True), mask=Cover("[cleared]"))
    assert shown(item) == ToolResult("c1", (Text("[cleared]"),), error=True)
    assert TokenCounter(responses_size).item(item) == responses_size(ToolResult("c1", (Text("[cleared]"),)))


def test_the_factor_can_change_without_counting_again() -> None:
    rule, asked = _counting()
    counter = TokenCounter(rule)
    view = View(items=(_item(1, "x" * 400),))
    assert counter.total(view) == 100
    counter.factor = 1.5
    assert (counter.total(view), counter.item(view.items[0]), counter.raw(view)) == (150, 150, 100)
    assert len(asked) == 1


def test_the_same_id_with_another_content_is_counted_again() -> None:
    counter = TokenCounter(claude_size)
    assert (counter.item(_item(1, "x" * 8)), counter.item(_item(1, "x" * 80))) == (2, 20)


def test_a_new_head_replaces_the_old_one() -> None:
    counter = TokenCounter(claude_size)
    counter.total(View(head=(_item(0, "x" * 40),), items=(_item(1),)))
    assert counter.total(View(head=(_item(5, "x" * 80),), items=(_item(1),))) == 22
    assert counter.total(View()) == 0


_texts = st.lists(st.tuples(st.integers(0, 30), st.text(max_size=20), st.sampled_from([None, Cover(), Cover("cover")])), max_size=12)


@given(st.lists(_texts, max_size=6))
def test_a_counter_that_counted_other_views_agrees_with_a_new_one(views: list[list[tuple[int, str, Cover | None]]]) -> None:
    used = TokenCounter(claude_size)
    for contents in views:
        unique = {number: (text, mask) for number, text, mask in contents}
        view = View(items=tuple(_item(number, text, mask) for number, (text, mask) in unique.items()))
        assert used.total(view) == TokenCounter(claude_size).total(view)


def test_the_items_of_the_view_are_not_counted_again() -> None:
    rule, asked = _counting()
    view = View(head=(_item(0, "x" * 40),), items=(_item(1), _item(2)))
    sizes = TokenCounter(rule, 1.5).sizes_of(view)
    asked.clear()
    assert (sizes.total(view), sizes.raw(view), sizes.in_order(view)) == (21, 14, (2, 2))
    assert ([sizes.item(item) for item in (*view.head, *view.items)], asked) == ([15, 3, 3], [])


def test_an_equal_item_that_is_another_object_is_not_counted_again() -> None:
    rule, asked = _counting()
    sizes = TokenCounter(rule).sizes_of(View(items=(_item(1),)))
    asked.clear()
    assert (sizes.item(_item(1)), sizes.total(View(items=(_item(1),))), asked) == (2, 2, [])


def test_items_and_contents_that_are_not_in_the_view_are_counted_by_the_rule() -> None:
    sizes = TokenCounter(claude_size, 2.0).sizes_of(View(items=(_item(1),)))
    assert (sizes.item(_item(7, "x" * 80)), sizes.item(_item(1, "x" * 80)), sizes.content(Text("x" * 40))) == (40, 40, 20)


def test_a_masked_item_has_the_size_of_its_cover_and_a_cached_cover_counts_if_the_provider_drops_results() -> None:
    hidden, covered = _item(1, "x" * 400, Cover()), _item(1, "x" * 400, Cover("[cleared]"))
    dropped = Item("2.0", "result", ToolResult("c1", (Text("x" * 400),)), mask=Cover("", "cached"))
    plain, dropping = TokenSizes(claude_size), TokenSizes(claude_size, drops_cached=True)
    assert [plain.item(item) for item in (hidden, covered, dropped)] == [0, 3, 100]
    assert [dropping.item(item) for item in (hidden, covered, dropped)] == [0, 3, 0]


def test_later_counts_do_not_change_an_earlier_value() -> None:
    counter, view = TokenCounter(claude_size), View(items=(_item(1),))
    sizes = counter.sizes_of(view)
    counter.factor = 3.0
    larger = View(items=(*view.items, _item(2)))
    grown = counter.sizes_of(larger)
    assert (sizes.total(view), sizes.places_in(view), grown.total(view), grown.places_in(larger)) == (
        2,
        {"1.0": 0},
        6,
        {"1.0": 0, "2.0": 1},
    )


def test_the_value_is_created_once_while_view_and_factor_stay() -> None:
    counter, view = TokenCounter(claude_size), View(items=(_item(1),))
    first = counter.sizes_of(view)
    assert counter.sizes_of(View(items=view.items, seq=9)) is first
    counter.factor = 1.5
    assert counter.sizes_of(view) == TokenSizes(claude_size, 1.5, items=view.items, sizes=(2,), raw_total=2, newer=frozen({"1.0": 0}))


@pytest.mark.parametrize("grows_by", [1, 3, 40])
def test_places_are_right_however_fast_a_view_grows_and_after_masks(grows_by: int) -> None:
    counter, items = TokenCounter(claude_size), tuple(_item(number) for number in range(200))
    for end in range(0, 200, grows_by):
        masked = (*items[: end // 2], *[_item(number, mask=Cover("gone")) for number in range(end // 2, end)])
        for view in (View(items=items[:end]), View(items=masked), View(items=items[:end])):
            assert counter.sizes_of(view).places_in(view) == {f"{number}.0": number for number in range(end)}


@settings(max_examples=60)
@given(steps)
def test_the_sizes_of_any_view_answer_for_every_other_view_as_a_counter_does(history: list[Step]) -> None:
    log = new_log()
    views = [log.view, *[tell(log, [step]).view for step in history]]
    kept = TokenCounter(claude_size, 1.33)
    middle = kept.sizes_of(views[len(views) // 2])
    for view in views:
        counter = TokenCounter(claude_size, 1.33)
        assert _answers(middle, view) == _answers(counter, view) == _answers(kept, view) == _answers(kept.sizes_of(view), view)
        assert (middle.raw(view), middle.in_order(view)) == (counter.raw(view), counter.sizes_of(view).sizes)
        assert kept.sizes_of(view).places_in(view) == {item.id: place for place, item in enumerate(view.items)}


def _answers(counts: CountsTokens, view: View) -> tuple[int, list[int], list[int]]:
    items = (*view.head, *view.items)
    return counts.total(view), [counts.item(item) for item in items], [counts.content(item.content) for item in items]
