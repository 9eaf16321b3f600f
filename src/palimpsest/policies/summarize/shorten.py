"""Asks again with less when the request for a summary is too long: by halves, or by whole rounds from the oldest on."""

from collections.abc import Generator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from palimpsest.core.errors import CannotFold, PromptTooLong
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Item, Text
from palimpsest.core.pairs import rounds, safe_cuts
from palimpsest.core.policy import Answer, Ask, Want, ask
from palimpsest.core.tokens.view_sizes import CountsTokens

RETRIES = 3
_GAP = "[The oldest part of this conversation does not fit here and was left out.]"


def ask_dropping(
    items: tuple[Item, ...], prompt: str, counter: CountsTokens, retries: int = RETRIES
) -> Generator[Want, Answer, ModelReplied]:
    """The reply to all rounds, or to those that are left after whole rounds were dropped from the start, again and again."""
    for left in range(retries, -1, -1):
        try:
            return (yield from ask(Ask(items, prompt, "summary")))
        except PromptTooLong as error:
            starts = rounds(items)
            if not left or len(starts) < 2:
                raise CannotFold(f"too long to compact: {error.message}", kind="too_long_to_compact", where=error.where) from error
            items = _after_gap(items[starts[drops(items, starts, error.gap, counter)] :])
    raise CannotFold("too long to compact", kind="too_long_to_compact")


def drops(items: Sequence[Item], starts: Sequence[int], gap: int | None, counter: CountsTokens) -> int:
    """How many of the oldest rounds go: the fewest that cover a known gap, else a fifth of them; one round always stays."""
    most = len(starts) - 1
    if gap is None:
        return min(most, max(1, len(starts) // 5))
    size = 0
    for number in range(most):
        size += sum(counter.item(item) for item in items[starts[number] : starts[number + 1]])
        if size >= gap:
            return number + 1
    return most


def _after_gap(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """A conversation has to begin with the user: a line that tells of the gap stands in front."""
    return (Item("", "notice", Text(_GAP)), *items)


def ask_halving(
    items: tuple[Item, ...], count: int, prompt: str, breakpoint_rule: str = ""
) -> Generator[Want, Answer, tuple[ModelReplied, int]]:
    """The reply to the first `count` rounds, or to half as many, and so on down to one; and where the rounds that it covers end."""
    starts = (*rounds(items), len(items))
    while count >= 1:
        end = starts[count]
        try:
            reply = yield from ask(Ask(items[:end], prompt, "summary", breakpoint_rule=breakpoint_rule))
        except PromptTooLong:
            count //= 2
        else:
            return reply, end
    raise CannotFold("exhausted: not even the oldest round fits a request of its own", kind="exhausted")


REQUESTS = 5


class Answered(NamedTuple):
    """A reply, and how many of the oldest items it did not see."""

    reply: ModelReplied
    dropped: int = 0


def ask_with_less(want: Ask, requests: int = REQUESTS) -> Generator[Want, Answer, Answered]:
    """The reply to a question about as many of its items as fit, after at most so many requests."""
    items = want.items
    for number in range(1, requests):
        try:
            reply = yield from ask(replace(want, items=items))
        except PromptTooLong:
            start = next_start(items, 5 if number == 1 else 2)
            if start is None:
                raise
            items = items[start:]
        else:
            return Answered(reply, len(want.items) - len(items))
    reply = yield from ask(replace(want, items=items))
    return Answered(reply, len(want.items) - len(items))


def next_start(items: Sequence[Item], share: int) -> int | None:
    """Where the items begin that are left when one part in `share` of the rounds is dropped, with no call parted from its result."""
    starts = rounds(items)
    if len(starts) < 2:
        return None
    wanted = starts[min(len(starts) - 1, -(-len(starts) // share))]
    cut = next(cut for cut in safe_cuts(items) if cut >= wanted)
    return cut if cut < len(items) else None
