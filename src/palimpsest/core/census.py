"""Who fills the room: tokens by kind, by source and by item."""

from palimpsest.core.budget import Budget, used
from palimpsest.core.items import Item, Value
from palimpsest.core.token_sizes import CountsTokens
from palimpsest.core.view import View

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
