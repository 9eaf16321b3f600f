"""Summary requests that were too long are sent again with fewer rounds."""

from collections.abc import Sequence

import pytest

from palimpsest.core.errors import PromptTooLong, ProviderError
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Item, Text, ToolCall, ToolResult
from palimpsest.core.policy import Answer, Ask, Want, run_steps
from palimpsest.policies.summarize.shorten import TrimmedReply, ask_dropping_items, start_after_drop

DONE = ModelReplied((Text("done", "assistant"),))


def rounds_of(count: int) -> tuple[Item, ...]:
    pairs = [
        (Item(f"{number}.0", "call", ToolCall(f"c{number}", "shell", "{}")), Item(f"{number}.1", "result", ToolResult(f"c{number}")))
        for number in range(1, count + 1)
    ]
    return (Item("0.0", "user", Text("go")), *(item for pair in pairs for item in pair))


def fits(most: int, seen: list[int]) -> Sequence[int]:
    def answer(want: Want) -> Answer:
        assert isinstance(want, Ask)
        seen.append(len(want.items))
        if len(want.items) > most:
            raise PromptTooLong("too long")
        return DONE

    answered = run_steps(ask_dropping_items(Ask(rounds_of(20), "sum up", "compact")), answer)
    assert answered == TrimmedReply(DONE, 41 - seen[-1])
    return seen


def test_a_fifth_of_the_rounds_goes_first_and_then_half_each_time() -> None:
    assert fits(41, []) == [41]
    assert fits(35, []) == [41, 32]
    assert fits(5, []) == [41, 32, 16, 8, 4]


def test_after_five_requests_the_failure_stands() -> None:
    with pytest.raises(PromptTooLong):
        fits(3, [])


def test_another_failure_is_not_tried_again() -> None:
    def answer(_: Want) -> Answer:
        raise ProviderError("down")

    with pytest.raises(ProviderError, match="down"):
        run_steps(ask_dropping_items(Ask(rounds_of(20), "sum up", "compact")), answer)


def test_a_single_round_cannot_be_made_smaller_and_a_late_result_keeps_its_call() -> None:
    assert start_after_drop(rounds_of(1), 2) is None
    call, late = Item("1.0", "call", ToolCall("a", "shell", "{}")), Item("3.0", "result", ToolResult("a"))
    others = (Item("2.0", "assistant", Text("meanwhile", "assistant")), Item("2.1", "user", Text("well?")))
    assert start_after_drop((call, *others, late), 2) is None
    last = Item("4.0", "assistant", Text("done", "assistant"))
    assert start_after_drop((call, *others, late, last), 2) == 4
