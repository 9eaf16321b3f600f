"""Asks again with less when a question is too long: whole rounds go, oldest first, a fifth of them and then half each time."""

from collections.abc import Generator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from palimpsest.core.errors import PromptTooLong
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Item
from palimpsest.core.pairs import rounds, safe_cuts
from palimpsest.core.policy import Answer, Ask, Want, ask

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
