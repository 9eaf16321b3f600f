"""Budget thresholds, used tokens and decisions."""

import pytest

from palimpsest.audit.sizes import claude_list_size, claude_size, responses_size
from palimpsest.core.budget import percent_until, used
from palimpsest.core.items import Item, Signature, Text, Thinking, ToolResult
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.view import Reported, View
from palimpsest.policies.budgets import percent_left


def _text(item_id: str, text: str, kind: str = "user") -> Item:
    return Item(item_id, "assistant" if kind == "assistant" else "user", Text(text))


@pytest.mark.states("CC-07")
def test_used_is_the_last_reported_total_and_the_estimate_of_what_was_appended_since() -> None:
    items = (_text("1.0", "x" * 4_000), _text("3.0", "reply", "assistant"), Item("5.0", "result", ToolResult("c", (Text("x" * 400),))))
    view = View(items=(*items, _text("6.0", "x" * 40)), reported=Reported(50_000, seq=3))
    assert used(view, TokenCounter(claude_size), tools_tokens=9_999) == 50_000 + 100 + 10


def test_an_edit_changes_only_what_was_counted_and_what_the_provider_alone_knows_stays() -> None:
    measured = (_text("1.0", "x" * 4_000), _text("3.0", "x" * 400, "assistant"))
    folded = (_text("5.0.0", "x" * 80), _text("6.0", "x" * 40))
    counter = TokenCounter(claude_size)
    reported = Reported(50_000, 3, measured=measured)
    assert used(View(items=folded, reported=reported), counter, tools_tokens=9_999) == 50_000 - 1_100 + 20 + 10
    assert used(View(items=(*measured, *folded), reported=reported), counter) == 50_000 + 20 + 10


def test_an_estimate_above_the_report_does_not_make_a_view_smaller_than_its_share() -> None:
    reported = Reported(600, 3, measured=(_text("1.0", "x" * 4_000),))
    assert used(View(items=(_text("5.0", "x" * 400),), reported=reported), TokenCounter(claude_size)) == 60


@pytest.mark.states("CC-07")
def test_without_a_report_everything_is_estimated_with_head_and_tools() -> None:
    view = View(head=(_text("0.0", "x" * 80),), items=(_text("1.0", "x" * 400),))
    assert used(view, TokenCounter(claude_size), tools_tokens=7) == 20 + 100 + 7


@pytest.mark.states("CC-08")
def test_a_view_without_usage_counts_four_thirds_of_its_sum_rounded_up() -> None:
    view = View(head=(_text("0.0", "x" * 80),), items=(_text("1.0", "x" * 400),))

    def whole(tokens: int) -> int:
        return claude_list_size((tokens,))

    assert used(view, TokenCounter(claude_size), unreported=whole) == 160
    assert used(View(items=view.items, reported=Reported(50, seq=1)), TokenCounter(claude_size), unreported=whole) == 50


def _signed_view(reported: Reported | None) -> View:
    signature = Signature("openai", "gpt-5.5", "x" * 4_000)
    return View(
        items=(
            _text("1.0", "first"),
            Item("3.0", "thinking", Thinking("", signature, "sealed")),
            _text("3.1", "done", "assistant"),
            _text("5.0", "second"),
            Item("7.0", "thinking", Thinking("", signature, "sealed")),
            _text("7.1", "done", "assistant"),
            Item("8.0", "result", ToolResult("c", (Text("ok"),))),
        ),
        reported=reported,
    )


@pytest.mark.states("CX-20")
def test_used_adds_the_items_after_the_newest_model_item() -> None:
    view = _signed_view(Reported(1_000, seq=7))
    result = responses_size(ToolResult("c", (Text("ok"),)))
    assert used(view, TokenCounter(responses_size)) == 1_000 + result


@pytest.mark.states("CX-20")
def test_old_encrypted_reasoning_is_added_where_the_server_does_not_count_it() -> None:
    view = _signed_view(Reported(1_000, seq=7))
    result = responses_size(ToolResult("c", (Text("ok"),)))
    assert used(view, TokenCounter(responses_size), old_signatures=True) == 1_000 + result + 588


@pytest.mark.states("CX-20")
def test_encrypted_reasoning_after_the_newest_user_message_is_not_added() -> None:
    view = _signed_view(Reported(1_000, seq=8))
    assert used(View(items=view.items[3:], reported=view.reported), TokenCounter(responses_size), old_signatures=True) == 1_000


@pytest.mark.parametrize(("total", "left"), [(0, 100), (12_000, 100), (135_200, 50), (244_800, 6), (258_400, 0), (400_000, 0)])
@pytest.mark.states("CX-22")
def test_percent_left_leaves_the_baseline_out_on_both_sides(total: int, left: int) -> None:
    assert percent_left(total, 258_400) == left


@pytest.mark.states("CX-22")
def test_a_window_of_the_baseline_has_nothing_left() -> None:
    assert (percent_left(0, 12_000), percent_left(0, 8_000)) == (0, 0)


def test_the_share_until_a_level_is_zero_at_and_past_it() -> None:
    assert [percent_until(tokens, 155_000) for tokens in (0, 135_000, 155_000, 160_000)] == [100, 12, 0, 0]
    assert percent_until(5, 0) == 0
