"""Summary requests that were too long are sent again without their oldest items."""

import pytest

from palimpsest.core.errors import PromptTooLong, ProviderError
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Item, Text, ToolCall, ToolResult
from palimpsest.core.plans import Answer, Ask, Want, run_steps
from palimpsest.policies.handoff import TrimmedReply, ask_dropping_items, without_oldest

DONE = ModelReplied((Text("done", "assistant"),))


def rounds_of(count: int) -> tuple[Item, ...]:
    pairs = [
        (Item(f"{number}.0", "call", ToolCall(f"c{number}", "shell", "{}")), Item(f"{number}.1", "result", ToolResult(f"c{number}")))
        for number in range(1, count + 1)
    ]
    return (Item("0.0", "user", Text("go")), *(item for pair in pairs for item in pair))


def fits(most: int) -> list[tuple[str, ...]]:
    """The ids of the items of each request, of which the last has at most so many."""
    asked: list[tuple[str, ...]] = []

    def answer(want: Want) -> Answer:
        assert isinstance(want, Ask)
        asked.append(tuple(item.id for item in want.items))
        if len(want.items) > most:
            raise PromptTooLong("too long")
        return DONE

    answered = run_steps(ask_dropping_items(Ask(rounds_of(3), "sum up", "compact")), answer)
    assert answered == TrimmedReply(DONE, 7 - len(asked[-1]))
    return asked


@pytest.mark.states("SG-26")
def test_the_oldest_item_goes_first_each_time_and_a_call_takes_its_result_along() -> None:
    whole = ("0.0", "1.0", "1.1", "2.0", "2.1", "3.0", "3.1")
    assert fits(7) == [whole]
    assert fits(6) == [whole, whole[1:]]
    assert fits(2) == [whole, whole[1:], whole[3:], whole[5:]]


def test_the_last_item_stays_and_then_the_failure_stands() -> None:
    with pytest.raises(PromptTooLong):
        fits(1)


def test_a_server_that_refuses_everything_is_asked_fifty_times() -> None:
    asked = 0

    def answer(_: Want) -> Answer:
        nonlocal asked
        asked += 1
        raise PromptTooLong("too long")

    with pytest.raises(PromptTooLong):
        run_steps(ask_dropping_items(Ask(rounds_of(200), "sum up", "compact")), answer)
    assert asked == 50


def test_another_failure_is_not_tried_again() -> None:
    def answer(_: Want) -> Answer:
        raise ProviderError("down")

    with pytest.raises(ProviderError, match="down"):
        run_steps(ask_dropping_items(Ask(rounds_of(20), "sum up", "compact")), answer)


def test_the_parts_of_a_message_go_together_and_a_result_takes_its_call_along() -> None:
    parts = (Item("1.0", "user", Text("one")), Item("1.1", "user", Text("two")), Item("2.0", "context", Text("three")))
    call, late = Item("3.0", "call", ToolCall("a", "shell", "{}")), Item("5.0", "result", ToolResult("a"))
    others = (Item("4.0", "assistant", Text("meanwhile", "assistant")),)
    assert without_oldest((*parts, call)) == (parts[2], call)
    assert without_oldest((call, *others, late)) == others
    assert without_oldest((late,)) == without_oldest(()) == ()
