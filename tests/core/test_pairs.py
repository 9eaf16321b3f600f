from histories import Step, new_log, steps, tell, widen
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.items import (
    Item,
    Text,
    ToolCall,
    ToolResult,
    answered_calls,
    kind_of,
    newly_unpaired,
    pairs_of,
    rounds,
    safe_cuts,
    settled,
    unanswered_calls,
    unpaired,
)

SAID = Item("1.0", "user", Text("go"))
FIRST = Item("2.0", "call", ToolCall("a", "read", "{}"))
SECOND = Item("2.1", "call", ToolCall("b", "read", "{}"))
FIRST_RESULT = Item("3.0", "result", ToolResult("a"))
SECOND_RESULT = Item("4.0", "result", ToolResult("b"))
ANSWER = Item("5.0", "assistant", Text("done", "assistant"))
TURN = (SAID, FIRST, SECOND, FIRST_RESULT, SECOND_RESULT, ANSWER)


def test_a_view_is_cut_only_where_no_call_is_pending() -> None:
    assert safe_cuts(TURN) == (0, 1, 5, 6)


def test_a_range_is_widened_to_whole_pairs() -> None:
    assert widen(TURN, 2, 3) == (1, 4)
    assert widen(TURN, 0, 0) == (0, 0)


def test_calls_without_a_result_are_open() -> None:
    assert unanswered_calls(TURN[:4]) == (SECOND,)
    assert unanswered_calls(TURN) == ()


def test_items_before_a_reply_with_pending_calls_can_be_edited() -> None:
    assert settled(TURN[:4]) == 1
    assert settled(TURN) == 6
    assert settled(()) == 0


def test_a_pair_is_unpaired_if_one_item_is_missing_or_the_result_comes_first() -> None:
    assert newly_unpaired(TURN, (SAID, FIRST, SECOND, SECOND_RESULT, ANSWER)) == {"2.0"}
    assert newly_unpaired(TURN, (SAID, SECOND_RESULT, SECOND, ANSWER)) == {"2.1", "4.0"}
    assert newly_unpaired(TURN, (SAID, ANSWER)) == frozenset()


def test_a_call_that_was_unpaired_before_is_not_newly_unpaired() -> None:
    assert newly_unpaired(TURN[:3], (SAID,)) == frozenset()


def test_of_calls_that_share_an_id_each_result_answers_the_oldest() -> None:
    again = (Item("6.0", "call", ToolCall("a", "read", "{}")), Item("7.0", "result", ToolResult("a")))
    assert unpaired((*TURN, *again)) == frozenset()
    assert newly_unpaired((*TURN, *again), again) == frozenset()
    assert unpaired((*TURN, *again[:1])) == {"6.0"}


def test_a_result_without_an_id_is_never_unpaired() -> None:
    assert unpaired((Item("1.0", "result", ToolResult("")),)) == frozenset()


def test_a_round_is_a_reply_with_what_follows_it_and_the_opening_belongs_to_the_first() -> None:
    assert rounds(TURN) == (0, 5)
    assert rounds((SAID,)) == (0,)
    assert rounds(()) == ()


@given(steps)
def test_cutting_at_a_safe_cut_separates_no_pair(history: list[Step]) -> None:
    items = tell(new_log(), history).view.items
    for cut in safe_cuts(items):
        assert newly_unpaired(items, items[:cut]) == newly_unpaired(items, items[cut:]) == frozenset()


Half = tuple[str, str]
halves: st.SearchStrategy[list[Half]] = st.lists(st.tuples(st.sampled_from(("call", "result", "user")), st.sampled_from(("a", "b", ""))))


def view_of(halves: list[Half]) -> list[Item]:
    """A view of calls, results and messages, with ids as a log of 0.1.0 may have them."""
    contents = [
        ToolCall(name, "read", "{}") if kind == "call" else ToolResult(name) if kind == "result" else Text(name) for kind, name in halves
    ]
    return [Item(f"{place}.0", kind_of(content), content) for place, content in enumerate(contents)]


def uniquely_named(halves: list[Half]) -> list[Half]:
    """The same halves, each call with an id of its own, each result with that of the oldest call of its old id that has no result yet."""
    named: list[Half] = []
    for place, (kind, name) in enumerate(halves):
        answered = {new for other, new in named if other == "result"}
        calls = [number for number in range(place) if halves[number] == ("call", name) and f"unique_{number}" not in answered]
        named.append((kind, f"unique_{calls[0] if kind == 'result' and calls else place}"))
    return named


@given(halves)
def test_with_repeated_ids_pairs_and_safe_cuts_are_those_of_unique_ids(halves: list[Half]) -> None:
    repeated, unique = view_of(halves), view_of(uniquely_named(halves))
    calls = {item.content.call_id: item.id for item in unique if isinstance(item.content, ToolCall)}
    results = {item.id: item.content.call_id for item in unique if isinstance(item.content, ToolResult)}
    answers = [(calls[call_id], item) for item, call_id in results.items() if call_id in calls]
    assert [(call.id, result.id) for call, result in pairs_of(repeated)] == answers
    assert safe_cuts(repeated) == safe_cuts(unique)
    assert [widen(repeated, place, place) for place in range(len(halves))] == [widen(unique, place, place) for place in range(len(halves))]


def test_each_result_is_found_with_the_call_that_it_answers() -> None:
    one, two = ToolCall("call_0", "read", "1"), ToolCall("call_0", "read", "2")
    items = [Item("1.0", "call", one), Item("1.1", "call", two), *(Item(f"{seq}.0", "result", ToolResult("call_0")) for seq in (2, 3, 4))]
    assert answered_calls(items) == {"2.0": one, "3.0": two}
