"""Several steps side by side: what each of them asks is asked at once."""

from collections.abc import Generator, Iterable
from typing import TypeVar

from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.policy import Answer, Ask, AskTogether, Replies, Want

Result = TypeVar("Result")


def together(steps: Iterable[Generator[Want, Answer, Result]], most: int) -> Generator[Want, Answer, tuple[Result, ...]]:
    """Run steps to their ends, at most so many at a time, and return their results in order. Wants other than `Ask` are refused.

    What one of them raises ends the others, which are closed, so that each can give back what it holds.
    """
    waiting = list(enumerate(steps))
    running: dict[int, tuple[Generator[Want, Answer, Result], Ask]] = {}
    results: dict[int, Result] = {}
    started: list[Generator[Want, Answer, Result]] = [each for _, each in waiting]

    def advance(number: int, each: Generator[Want, Answer, Result], given: Answer | PalimpsestError) -> None:
        try:
            want = each.throw(given) if isinstance(given, PalimpsestError) else each.send(given)
        except StopIteration as stop:
            results[number] = stop.value
            running.pop(number, None)
            return
        if not isinstance(want, Ask):
            raise BadInput(f"steps side by side can only ask, not {type(want).__name__}", where="memory")
        running[number] = (each, want)

    try:
        while waiting or running:
            while waiting and len(running) < max(1, most):
                number, each = waiting.pop(0)
                advance(number, each, None)
            if not running:
                continue
            asked = dict(running)
            answer = yield AskTogether(tuple(want for _, want in asked.values()))
            if not isinstance(answer, Replies):
                raise BadInput(f"questions were answered with {type(answer).__name__}", where="memory")
            for (number, (each, _)), given in zip(asked.items(), answer.answers, strict=True):
                advance(number, each, given)
        return tuple(results[number] for number in sorted(results))
    finally:
        for each in started:
            each.close()
