"""Requests for a summary that are sent again with fewer items when they were too long."""

from collections.abc import Generator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from palimpsest.core.errors import CannotFold, PromptTooLong
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Item, Opaque, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.pairs import pairs_of, rounds
from palimpsest.core.policy import Answer, Ask, Want, ask
from palimpsest.core.tokens.view_sizes import CountsTokens

RETRIES = 3
_GAP = "[The oldest part of this conversation does not fit here and was left out.]"


def ask_dropping_rounds(
    items: tuple[Item, ...], prompt: str, counter: CountsTokens, retries: int = RETRIES
) -> Generator[Want, Answer, ModelReplied]:
    """Ask about all items; while the request is too long, drop the oldest rounds and ask again, at most `retries` times.

    Raises `CannotFold` when the retries are used up or a single round is left.
    """
    while True:
        try:
            return (yield from ask(Ask(items, prompt, "summary")))
        except PromptTooLong as error:
            starts = rounds(items)
            if not retries or len(starts) < 2:
                raise CannotFold(f"too long to compact: {error.message}", kind="too_long_to_compact", where=error.where) from error
            retries -= 1
            # A conversation must begin with the user role.
            items = (Item("", "notice", Text(_GAP)), *items[starts[rounds_to_drop(items, starts, error.gap, counter)] :])


def rounds_to_drop(items: Sequence[Item], starts: Sequence[int], gap: int | None, counter: CountsTokens) -> int:
    """Return how many of the oldest rounds to drop: the fewest with `gap` tokens, else a fifth; at least one round stays."""
    most = len(starts) - 1
    if gap is None:
        return min(most, max(1, len(starts) // 5))
    size = 0
    for number in range(most):
        size += sum(counter.item(item) for item in items[starts[number] : starts[number + 1]])
        if size >= gap:
            return number + 1
    return most


def ask_halving_rounds(
    items: tuple[Item, ...], count: int, prompt: str, breakpoint_rule: str = ""
) -> Generator[Want, Answer, tuple[ModelReplied, int]]:
    """Ask about the first `count` rounds, or half as many while the request is too long; return the reply and the end of those rounds.

    Raises `CannotFold` if even one round is too long.
    """
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


class TrimmedReply(NamedTuple):
    """A reply, and how many of the oldest items were left out of its request."""

    reply: ModelReplied
    dropped: int = 0


# Codex has no bound; a server that refuses whatever it gets must not be asked for ever.
MOST_REQUESTS = 50


def ask_dropping_items(want: Ask, requests: int = MOST_REQUESTS) -> Generator[Want, Answer, TrimmedReply]:
    """Send a request; while it is too long, drop its oldest item and send it again, as Codex does, at most `requests` times.

    Raises `PromptTooLong` if the last request is still too long, or one item is left.
    """
    items = want.items
    for left in reversed(range(requests)):
        try:
            return TrimmedReply((yield from ask(replace(want, items=items))), len(want.items) - len(items))
        except PromptTooLong:
            shorter = without_oldest(items)
            if not left or not shorter:
                raise
            items = shorter
    raise CannotFold("no request was made", kind="too_long_to_compact")


def without_oldest(items: Sequence[Item]) -> tuple[Item, ...]:
    """Return the items without the oldest message, call or result; the result of a dropped call goes too, and the call of a result."""
    if not items:
        return ()
    first = _message(items[0])
    count = 1 if first is None else next((place for place, item in enumerate(items) if _message(item) != first), len(items))
    dropped = {item.id for item in items[:count]}
    for call, result in pairs_of(items):
        if not dropped.isdisjoint((call.id, result.id)):
            dropped |= {call.id, result.id}
    return tuple(item for item in items[count:] if item.id not in dropped)


def _message(item: Item) -> tuple[str, str] | None:
    """Return what the parts of one message of the provider share; `None` for what is an item of its own, such as a call."""
    content = item.content
    if isinstance(content, ToolCall | ToolResult | Opaque):
        return None
    event, _, rest = item.id.partition(".")
    origin = content.ref or (item.id if "." in rest else event)
    return ("thinking" if isinstance(content, Thinking) else getattr(content, "role", "user")), origin
