"""Situations with literal numbers: items of a given size, prefixes that are cached up to some of them, and a card."""

from collections.abc import Sequence

from palimpsest.core.budget import Budget
from palimpsest.core.calls import Health
from palimpsest.core.items import Content, Item, Text, ToolCall, ToolResult, kind_of
from palimpsest.core.plans import Cache, CachedPrefix, ModelCard, Moment, Situation, Use
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.view import View
from palimpsest.wire.models import card

NOW = 1_000_000
CLAUDE = card("claude-sonnet-4-5")


def size(content: Content) -> int:
    """A text of `x7000` weighs 7,000 tokens and so does a result of it; everything else weighs nothing but a stub, which weighs 20."""
    match content:
        case Text(text=text) if text.startswith("x"):
            return int(text[1:])
        case ToolResult(parts=parts):
            return sum(size(part) for part in parts)
        case Text(text=text) if text.startswith("["):
            return 20
        case _:
            return 0


def words(item_id: str, tokens: int) -> Item:
    """Words of the user of some size."""
    return Item(item_id, "user", Text(f"x{tokens}"))


def used(number: int, tool: str, args: str, tokens: int) -> tuple[Item, Item]:
    """A call and its result of some size, as items of events `number` and `number + 1`."""
    call = ToolCall(f"c{number}", tool, args)
    result = ToolResult(f"c{number}", (Text(f"x{tokens}"),))
    return Item(f"{number}.0", kind_of(call), call), Item(f"{number + 1}.0", "result", result)


def prefix(last: str, tokens: int, *, age: int = 0, ttl: int = 300_000) -> CachedPrefix:
    """A cached prefix that was used some time ago."""
    return CachedPrefix(last, tokens, NOW - age, ttl)


def situation(
    items: Sequence[Item],
    *,
    uses: dict[str, Use] | None = None,
    prefixes: Sequence[CachedPrefix] = (),
    calls: int = 0,
    model: ModelCard = CLAUDE,
    head: Sequence[Item] = (),
    moment: Moment = "before_call",
    cache: Cache | None = None,
    pins: frozenset[str] = frozenset(),
    held: frozenset[str] = frozenset(),
    compact_at: int | None = 160_000,
    window: int = 200_000,
) -> Situation:
    """One moment in which everything weighs what its text says."""
    view = View(head=tuple(head), items=tuple(items), pins=pins, held=held)
    tokens = TokenCounter(size).sizes_of(view)
    return Situation(
        view=view,
        budget=Budget(window, compact_at=compact_at),
        card=model,
        moment=moment,
        tokens=tokens,
        used=tokens.total(view),
        now=NOW,
        health=Health(calls=calls),
        cache=cache or Cache(tuple(prefixes), automatic=model.cache == "automatic"),
        uses=uses or {},
    )
