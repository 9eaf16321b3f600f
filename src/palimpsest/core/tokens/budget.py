"""The token budget of a model, how much of it is used, and by which items."""

from collections.abc import Callable
from typing import Literal, TypeAlias

from palimpsest.core.items import Item, Thinking, Value
from palimpsest.core.tokens.view_sizes import CountsTokens
from palimpsest.core.view import View

Decision: TypeAlias = Literal["rest", "warn", "clear", "compact", "block"]

CODEX_BASELINE = 12_000


class Budget(Value, frozen=True):
    """The thresholds of one model under one budget rule, in tokens (`bytes_at`: bytes). A threshold of `None` is never reached.

    `reply` is reserved for the reply and `buffer` is kept free of items. From `error_at` on, the warning is shown as an error.
    """

    window: int
    reply: int = 0
    buffer: int = 0
    warn_at: int | None = None
    clear_at: int | None = None
    compact_at: int | None = None
    block_at: int | None = None
    bytes_at: int | None = None
    error_at: int | None = None


def decide(used_tokens: int, budget: Budget, used_bytes: int = 0) -> Decision:
    """The strongest level reached, each with `>=`; a stronger one calls for all that the weaker ones do."""
    if _reached(used_tokens, budget.block_at):
        return "block"
    if _reached(used_tokens, budget.compact_at) or _reached(used_bytes, budget.bytes_at):
        return "compact"
    if _reached(used_tokens, budget.clear_at):
        return "clear"
    return "warn" if _reached(used_tokens, budget.warn_at) else "rest"


def _reached(size: int, level: int | None) -> bool:
    return level is not None and size >= level


def used(
    view: View,
    counter: CountsTokens,
    tools_tokens: int = 0,
    *,
    old_seals: bool = False,
    unreported: Callable[[int], int] = int,
) -> int:
    """The last reported total and the estimate of what was appended since; without a report the estimate of everything.

    `unreported` is what a rule makes of such a whole estimate (a margin, say).
    `old_seals` adds sealed thinking before the newest user message, for servers that leave it out of what they report.
    """
    if view.reported is None:
        return unreported(counter.total(view)) + tools_tokens
    total = view.reported.tokens
    for item in view.since(view.reported.seq):
        total += counter.item(item)
    return total + old_seals_size(view, counter) if old_seals else total


def old_seals_size(view: View, counter: CountsTokens) -> int:
    """Tokens of the sealed thinking that stands before the newest user message."""
    newest = max((index for index, item in enumerate(view.items) if item.kind in ("user", "steering")), default=0)
    before = view.items[:newest]
    return sum(counter.item(item) for item in before if isinstance(item.content, Thinking) and item.content.signature is not None)


def percent_left(total: int, effective_window: int) -> int:
    """What codex shows as left: the first 12,000 tokens count on neither side."""
    room = effective_window - CODEX_BASELINE
    if room <= 0:
        return 0
    left = room - max(0, total - CODEX_BASELINE)
    # Halves are rounded up, in whole numbers.
    return (200 * min(room, max(0, left)) + room) // (2 * room)


def percent_until(used_tokens: int, level: int) -> int:
    """The share of a level that is still free, in whole percent; 0 at or past it."""
    return max(0, level - used_tokens) * 100 // level if level > 0 else 0


TOOLS = "tools"


class CensusItem(Value, frozen=True, omit_defaults=False, gc=False):
    """One item of the view and what it weighs as it is shown."""

    id: str
    kind: str
    tokens: int
    masked: bool
    source: str = ""


class Census(Value, frozen=True, omit_defaults=False):
    """The room of a view; `used` follows what the provider reported, the parts are estimates and need not sum to it."""

    window: int
    used: int
    free: int
    buffer: int
    by_kind: dict[str, int]
    by_source: dict[str, int]
    items: tuple[CensusItem, ...]


def census(view: View, counter: CountsTokens, budget: Budget, tools_tokens: int = 0) -> Census:
    """Everything that the next request would carry, with its weight."""
    items = tuple(_counted(item, counter) for part in (view.head, view.items) for item in part)
    by_kind: dict[str, int] = {}
    by_source: dict[str, int] = {}
    for item in items:
        by_kind[item.kind] = by_kind.get(item.kind, 0) + item.tokens
        if item.source:
            by_source[item.source] = by_source.get(item.source, 0) + item.tokens
    if tools_tokens:
        by_kind[TOOLS] = tools_tokens
    total = used(view, counter, tools_tokens)
    free = max(0, budget.window - total - budget.buffer)
    return Census(budget.window, total, free, budget.buffer, by_kind, by_source, items)


def _counted(item: Item, counter: CountsTokens) -> CensusItem:
    return CensusItem(item.id, item.kind, counter.item(item), item.mask is not None, item.source)
