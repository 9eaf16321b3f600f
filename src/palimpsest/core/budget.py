"""The room a model leaves: levels in tokens and bytes, how much is used, and what that calls for."""

from collections.abc import Callable
from typing import Literal, TypeAlias

from palimpsest.core.items import Thinking, Value
from palimpsest.core.token_sizes import CountsTokens
from palimpsest.core.view import View

Decision: TypeAlias = Literal["rest", "warn", "clear", "compact", "block"]

CODEX_BASELINE = 12_000


class Budget(Value, frozen=True):
    """Levels of one model under one rule; a level that is `None` is never reached. `buffer` is the room kept free of items.

    From `error_at` on a warning is no longer a matter of course: whoever shows it does so as an error.
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
    return sum(counter.item(item) for item in before if isinstance(item.content, Thinking) and item.content.seal is not None)


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
