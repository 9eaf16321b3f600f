"""Where a verbatim tail begins: whole turns from the end, the first that is too long split where its rest fits."""

from collections.abc import Sequence

from palimpsest.core.items import Item
from palimpsest.core.pairs import safe_cuts
from palimpsest.core.tokens.view_sizes import CountsTokens


def tail_start(items: Sequence[Item], budget: int, counter: CountsTokens, turns: int | None = None) -> int:
    """The index of the first item of the tail; all of them are summarised when it would reach back to the beginning."""
    end = len(items)
    starts = [index for index, item in enumerate(items) if item.kind == "user" and (index == 0 or items[index - 1].kind != "user")]
    begun, rest = end, budget
    for number, start in enumerate(reversed(starts)):
        if turns is not None and number >= turns:
            break
        size = sum(counter.item(item) for item in items[start:begun])
        if size > rest:
            begun = _split(items, start, begun, rest, counter)
            break
        begun, rest = start, rest - size
    return end if begun == 0 else begun


def _split(items: Sequence[Item], start: int, stop: int, rest: int, counter: CountsTokens) -> int:
    """The earliest place inside a turn from which the rest of it fits, with every call on the side of its result."""
    safe = frozenset(safe_cuts(items))
    best, size = stop, 0
    for index in range(stop - 1, start, -1):
        size += counter.item(items[index])
        if size > rest:
            break
        if index in safe:
            best = index
    return best
