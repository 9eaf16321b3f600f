from histories import Step, new_log, steps, tell
from hypothesis import given

from palimpsest.core.items import Item, Text, ToolCall, ToolResult
from palimpsest.core.pairs import parted, rounds, safe_cuts, settled, unanswered_calls, unpaired, widen

SAID = Item("1.0", "user", Text("go"))
FIRST = Item("2.0", "call", ToolCall("a", "read", "{}"))
SECOND = Item("2.1", "call", ToolCall("b", "read", "{}"))
FIRST_RESULT = Item("3.0", "result", ToolResult("a"))
SECOND_RESULT = Item("4.0", "result", ToolResult("b"))
ANSWER = Item("5.0", "assistant", Text("done", "assistant"))
TURN = (SAID, FIRST, SECOND, FIRST_RESULT, SECOND_RESULT, ANSWER)


def test_a_view_is_cut_only_where_no_call_waits_for_its_result() -> None:
    assert safe_cuts(TURN) == (0, 1, 5, 6)


def test_a_run_is_widened_to_whole_pairs() -> None:
    assert widen(TURN, 2, 3) == (1, 4)
    assert widen(TURN, 0, 0) == (0, 0)


def test_calls_without_a_result_are_open() -> None:
    assert unanswered_calls(TURN[:4]) == (SECOND,)
    assert unanswered_calls(TURN) == ()


def test_what_comes_before_a_reply_whose_calls_wait_can_be_edited() -> None:
    assert settled(TURN[:4]) == 1
    assert settled(TURN) == 6
    assert settled(()) == 0


def test_a_pair_is_parted_when_one_half_is_gone_or_comes_first() -> None:
    assert parted(TURN, (SAID, FIRST, SECOND, SECOND_RESULT, ANSWER)) == {"2.0"}
    assert parted(TURN, (SAID, SECOND_RESULT, SECOND, ANSWER)) == {"2.1", "4.0"}
    assert parted(TURN, (SAID, ANSWER)) == frozenset()


def test_a_call_that_was_open_before_is_not_parted() -> None:
    assert parted(TURN[:3], (SAID,)) == frozenset()


def test_of_calls_that_share_an_id_each_result_answers_the_oldest() -> None:
    again = (Item("6.0", "call", ToolCall("a", "read", "{}")), Item("7.0", "result", ToolResult("a")))
    assert unpaired((*TURN, *again)) == frozenset()
    assert parted((*TURN, *again), again) == frozenset()
    assert unpaired((*TURN, *again[:1])) == {"6.0"}


def test_a_result_without_an_id_stands_alone_by_right() -> None:
    assert unpaired((Item("1.0", "result", ToolResult("")),)) == frozenset()


def test_a_round_is_a_reply_with_what_follows_it_and_the_opening_belongs_to_the_first() -> None:
    assert rounds(TURN) == (0, 5)
    assert rounds((SAID,)) == (0,)
    assert rounds(()) == ()


@given(steps)
def test_cutting_at_any_safe_place_parts_no_pair(told: list[Step]) -> None:
    items = tell(new_log(), told).view.items
    for cut in safe_cuts(items):
        assert parted(items, items[:cut]) == parted(items, items[cut:]) == frozenset()
