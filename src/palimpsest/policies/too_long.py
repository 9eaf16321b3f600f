"""What to do when the request for a summary is itself too long: drop the oldest rounds, or fold fewer of them."""

from collections.abc import Generator, Sequence

from palimpsest.core.errors import CannotFold, PromptTooLong
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Item, Text
from palimpsest.core.pairs import rounds
from palimpsest.core.policy import Answer, Ask, Want, ask
from palimpsest.core.token_sizes import CountsTokens

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
