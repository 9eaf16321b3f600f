"""The token counter counts each item of a view once."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from palimpsest.audit.pricing.size_rules import claude_size, codex_size
from palimpsest.core.items import Content, Cover, Item, Text, ToolResult
from palimpsest.core.tokens.counter import TokenCounter
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
    assert TokenCounter(codex_size).item(item) == codex_size(ToolResult("c1", (Text("[cleared]"),)))


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
