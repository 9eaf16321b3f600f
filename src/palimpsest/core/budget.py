"""The token budget of a model, how much of it is used, and the census of the items that use it."""

from collections.abc import Callable
from typing import Literal, TypeAlias

from palimpsest.core.items import Thinking, Value
from palimpsest.core.tokens import CountsTokens
from palimpsest.core.view import Reported, View


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


def used(
    view: View,
    counter: CountsTokens,
    tools_tokens: int = 0,
    *,
    old_signatures: bool = False,
    unreported: Callable[[int], int] = int,
) -> int:
    """Return the tokens of the next request: the last reported total plus an estimate of what changed since.

    So what only the provider sees stays in the number when the view is edited, until the next report. Without a report everything is
    estimated, and `unreported` adjusts that estimate, for example by a margin. `old_signatures` adds the signed thinking before the
    newest user message, for servers that omit it from their reports.
    """
    if view.reported is None:
        return unreported(counter.total(view)) + tools_tokens
    total = measured_tokens(view.reported, view, counter)
    if view.reported.measured is None:
        total += counter.scaled(sum(counter.unscaled_sizes(view.since(view.reported.seq))))
    return total + old_signatures_size(view, counter) if old_signatures else total


def measured_tokens(reported: Reported, view: View, counter: CountsTokens) -> int:
    """Return the reported tokens plus the estimated difference between the items of a view and those that the report measured.

    If the view only grew since the report, these are the reported tokens, without the newer items.
    """
    if reported.measured is None:
        return reported.tokens
    measured, present = sum(counter.unscaled_sizes(reported.measured)), sum(counter.unscaled_sizes(view.items))
    total = reported.tokens + counter.scaled(present - measured)
    # An estimate that is too high would subtract more than there was; then the report shrinks in proportion.
    return total if present >= measured else max(total, reported.tokens * present // measured)


def old_signatures_size(view: View, counter: CountsTokens) -> int:
    """Return the tokens of the signed thinking before the newest user message."""
    newest = max((index for index, item in enumerate(view.items) if item.kind in ("user", "steering")), default=0)
    before = view.items[:newest]
    return sum(counter.item(item) for item in before if isinstance(item.content, Thinking) and item.content.signature is not None)


def percent_until(used_tokens: int, level: int) -> int:
    """Return the share of a threshold that is still free, in whole percent; 0 if it is reached."""
    return max(0, level - used_tokens) * 100 // level if level > 0 else 0


TOOLS = "tools"
RowForm: TypeAlias = Literal["documents", "measured"]
"""Which rows a table of the window has: those that documents of Claude Code describe, or those that its later versions show."""
SYSTEM_ROW, TOOLS_ROW, MEMORY_ROW, SKILLS_ROW, MESSAGES_ROW = "System prompt", "System tools", "Memory files", "Skills", "Messages"
_ROW_OF_SOURCE = {"instructions": MEMORY_ROW, "memory": MEMORY_ROW, "cards": MEMORY_ROW, "skills": SKILLS_ROW}


def window_rows(view: View, counter: CountsTokens, tools_tokens: int = 0, form: RowForm = "measured") -> dict[str, int]:
    """Return the tokens of a request by what they are for. The documented rows count memory files and skills as messages."""
    own_rows = _ROW_OF_SOURCE if form == "measured" else {}
    rows = dict.fromkeys((SYSTEM_ROW, TOOLS_ROW, *dict.fromkeys(own_rows.values()), MESSAGES_ROW), 0)
    rows[TOOLS_ROW] = tools_tokens
    for usual, items in ((SYSTEM_ROW, view.head), (MESSAGES_ROW, view.items)):
        for item, size in zip(items, counter.unscaled_sizes(items), strict=True):
            rows[own_rows.get(item.source, usual) if item.kind == "context" else usual] += size
    return {name: tokens if name == TOOLS_ROW else counter.scaled(tokens) for name, tokens in rows.items()}


class CensusItem(Value, frozen=True, omit_defaults=False, gc=False):
    """One visible item and its size in tokens."""

    id: str
    kind: str
    tokens: int
    masked: bool
    source: str = ""


class Census(Value, frozen=True, omit_defaults=False):
    """Tokens of a view by kind, source and item. `used` is based on the provider's report; the others are estimates with another sum."""

    window: int
    used: int
    free: int
    buffer: int
    by_kind: dict[str, int]
    by_source: dict[str, int]
    items: tuple[CensusItem, ...]


def census(view: View, counter: CountsTokens, budget: Budget, tools_tokens: int = 0, total: int | None = None) -> Census:
    """Return the sizes of everything that the next request would contain; `total` is its size by another count than `used`."""
    items = tuple(
        CensusItem(item.id, item.kind, counter.item(item), item.mask is not None, item.source) for item in (*view.head, *view.items)
    )
    by_kind: dict[str, int] = {}
    by_source: dict[str, int] = {}
    for item in items:
        by_kind[item.kind] = by_kind.get(item.kind, 0) + item.tokens
        if item.source:
            by_source[item.source] = by_source.get(item.source, 0) + item.tokens
    if tools_tokens:
        by_kind[TOOLS] = tools_tokens
    total = used(view, counter, tools_tokens) if total is None else total
    free = max(0, budget.window - total - budget.buffer)
    return Census(budget.window, total, free, budget.buffer, by_kind, by_source, items)
