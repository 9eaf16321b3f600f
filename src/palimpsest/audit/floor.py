"""The floor: parts of a request that cannot be left out, namely head, tools, pins and the last user request, with their tokens."""

from palimpsest.audit.pins import pinned
from palimpsest.core.errors import TooFull
from palimpsest.core.items import Item, Text, Value
from palimpsest.core.pairs import pending_calls
from palimpsest.core.situation import Situation
from palimpsest.core.view import View

# Without these sources the model would not know its permissions and open tasks.
REQUIRED_SOURCES = frozenset({"mode", "permissions", "tasks"})


class FloorPart(Value, frozen=True):
    """One part of the floor, its tokens, and advice how to shrink it."""

    name: str
    tokens: int
    advice: str = ""


class Floor(Value, frozen=True):
    """The parts of the floor; `ids` are the items of the conversation among them."""

    parts: tuple[FloorPart, ...]
    ids: frozenset[str] = frozenset()

    @property
    def tokens(self) -> int:
        """Tokens of all parts."""
        return sum(part.tokens for part in self.parts)


def last_request(view: View) -> tuple[Item, ...]:
    """The last request of the user, with the steering messages since."""
    messages = [item for item in view.items if item.kind in ("user", "steering")]
    newest = next((item for item in reversed(messages) if item.kind == "user"), None)
    if newest is None:
        return tuple(messages[-1:])
    start = next(place for place, item in enumerate(messages) if _event(item) == _event(newest))
    return tuple(messages[start:])


def floor_of(situation: Situation) -> Floor:
    """The floor of the current view."""
    view, counter = situation.view, situation.tokens
    pins, request, pending = pinned(view), last_request(view), pending_calls(view.items)
    request_ids = frozenset(item.id for item in request)
    source_ids = frozenset(fact.id for source, fact in view.facts.items() if source in REQUIRED_SOURCES) - request_ids
    pending_ids = frozenset(item.id for item in pending) - pins
    pinned_items = [item for item in view.items if item.id in pins and item.id not in request_ids | source_ids]
    largest_head = sorted(view.head, key=lambda item: -counter.item(item))[:1]
    largest_pins = sorted(pinned_items, key=lambda item: -counter.item(item))[:3]
    parts = [
        FloorPart("head", _sum(situation, view.head), f"shorten {largest_head[0].source or largest_head[0].id}" if largest_head else ""),
        FloorPart("tools", situation.tools_tokens, "offer fewer tools"),
        FloorPart("pins", _sum(situation, pinned_items), f"unpin {', '.join(item.id for item in largest_pins)}" if largest_pins else ""),
        FloorPart("last request", _sum(situation, request), "put long parts of it into a file"),
        FloorPart(
            "mode and tasks",
            _sum(situation, [item for item in view.items if item.id in source_ids]) + _tasks(situation),
            "close what is done",
        ),
        FloorPart("pending calls", _sum(situation, [item for item in pending if item.id in pending_ids]), "let them finish"),
    ]
    return Floor(tuple(part for part in parts if part.tokens), pins | request_ids | pending_ids | (source_ids & frozenset(view.ids)))


def token_limit(situation: Situation) -> int | None:
    """The most tokens that a request may have, or `None` if the card has no window."""
    level = situation.budget.block_at or situation.budget.window
    return level or None


def check_floor(situation: Situation) -> Floor:
    """The floor of the current view. Raises `TooFull` if it alone exceeds the limit."""
    floor, limit = floor_of(situation), token_limit(situation)
    if limit is not None and floor.tokens >= limit:
        raise too_full(situation, floor, limit)
    return floor


def too_full(situation: Situation, floor: Floor, limit: int) -> TooFull:
    """The error that lists the parts of the floor with their tokens and advice."""
    part_list = "; ".join(f"{part.name} {part.tokens:,}" + (f" ({part.advice})" if part.advice else "") for part in floor.parts)
    return TooFull(f"what cannot be left out has {floor.tokens:,} tokens, and {limit:,} fit: {part_list}", where=situation.session)


def _sum(situation: Situation, items: tuple[Item, ...] | list[Item]) -> int:
    return sum(situation.tokens.item(item) for item in items)


def _tasks(situation: Situation) -> int:
    """Tokens of the open tasks, of which the first 60 characters are always listed."""
    lines = "\n".join(f"- {task[:60]}" for task in situation.listed_evidence.tasks)
    return situation.tokens.content(Text(lines)) if lines else 0


def _event(item: Item) -> str:
    return item.id.partition(".")[0]
