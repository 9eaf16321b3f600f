"""Cache simulator: computes the bill of a request from its blocks, its cache breakpoints and the simulated cache state."""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from palimpsest.audit.pricing.bill import EMPTY_CACHE, Block, Breakpoint, CacheContents, Prompt, bill, cache_rules
from palimpsest.core.events import Usage
from palimpsest.core.items import Item, Opaque, Text, Thinking, ToolCall, ToolResult, shared_prefix_length
from palimpsest.core.view import View, shown
from palimpsest.wire.encoding.breakpoints import HEAD, BlockPosition, anchors, breakpoint_label, breakpoint_positions
from palimpsest.wire.encoding.fragments import BlockKind, Fragment
from palimpsest.wire.encoding.messages import Message
from palimpsest.wire.encoding.sendable import role_of
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.request import BreakpointRule, Params


class BilledRequest(NamedTuple):
    """Usage of a request, and the items at its cache breakpoints."""

    usage: Usage
    breakpoints: tuple[str, ...]


class BlockLayout:
    """The blocks and messages of a request, in the order of the view; updated incrementally when the view grows."""

    def __init__(self, count: Callable[[Item], int]) -> None:
        self._count = count
        self._clear()

    def _clear(self) -> None:
        self._head: tuple[Item, ...] = ()
        self._items: tuple[Item, ...] = ()
        # Number of fragments up to each item; hidden items have none.
        self._ends: list[int] = []
        self.blocks: list[Block] = []
        self.fragments: list[Fragment] = []
        self.messages: list[Message] = []
        self.starts: list[int] = []

    def update(self, head: tuple[Item, ...], items: tuple[Item, ...]) -> None:
        """Update the layout to a view; only items after the first changed one are processed."""
        unchanged = len(self._items)
        if head != self._head:
            self._clear()
            unchanged = 0
            self.blocks = [(_content_key(item), self._count(item)) for item in head]
        elif items[:unchanged] != self._items:
            unchanged = shared_prefix_length(self._items, items)
            self._cut(unchanged)
        self._head, self._items = head, items
        for item in items[unchanged:]:
            self._add(item)

    def _cut(self, items: int) -> None:
        """Remove all but the first `items` items from the layout."""
        count = self._ends[items - 1] if items else 0
        del self._ends[items:]
        del self.fragments[count:]
        place = self.heads + count
        del self.blocks[place:]
        while self.starts and self.starts[-1] >= place:
            self.starts.pop()
            self.messages.pop()
        if self.messages:
            del self.messages[-1][1][place - self.starts[-1] :]

    def _add(self, item: Item) -> None:
        content = item.content if item.mask is None else shown(item)
        if content is not None:
            fragment = Fragment(item, _place_of(item))
            from_assistant = fragment.place > BlockKind.RESULT
            if not self.messages or self.messages[-1][0] is not from_assistant:
                self.messages.append((from_assistant, []))
                self.starts.append(len(self.blocks))
            self.messages[-1][1].append(fragment)
            self.fragments.append(fragment)
            self.blocks.append((_content_key(item), self._count(item)))
        self._ends.append(len(self.fragments))

    @property
    def heads(self) -> int:
        """Number of blocks of the head."""
        return len(self._head)

    def place_of(self, spot: BlockPosition) -> int:
        """Return the index of a block among all blocks of the request."""
        message, block = spot
        return block if message == HEAD else self.starts[message] + block


class CacheSimulator:
    """Simulated cache of one session with one model; bills one request after the other."""

    def __init__(self, card: ModelCard, count: Callable[[Item], int], ttl: Literal["5m", "1h"] = "5m") -> None:
        self._card = card
        self._rules = cache_rules(card)
        self._long = ttl == "1h"
        self._layout = BlockLayout(count)
        self._count = count
        self._prompt = Prompt()
        self._kept: CacheContents = EMPTY_CACHE

    def size(self, view: View) -> int:
        """Return the tokens of the request for a view."""
        self._layout.update(view.head, view.items)
        self._prompt = Prompt.of(self._layout.blocks, self._prompt)
        return self._prompt.tokens

    def turn(self, view: View, params: Params, now: int) -> BilledRequest:
        """Bill the request of a turn call at time `now`, in milliseconds."""
        self.size(view)
        layout, breakpoint_spots = self._layout, self._breakpoint_spots(view, params)
        usage = self._bill(self._prompt, [layout.place_of(spot) for spot in breakpoint_spots], now)
        return BilledRequest(usage, tuple(dict.fromkeys(breakpoint_label(spot, layout.messages) for spot in breakpoint_spots)))

    def breakpoints(self, view: View, params: Params) -> tuple[str, ...]:
        """Return the item ids, or `head:n`, at the cache breakpoints of the request for a view."""
        self.size(view)
        return tuple(dict.fromkeys(breakpoint_label(spot, self._layout.messages) for spot in self._breakpoint_spots(view, params)))

    def _breakpoint_spots(self, view: View, params: Params) -> list[BlockPosition]:
        layout = self._layout
        rule = params.breakpoint_rule if self._rules.kind == "breakpoints" else "none"
        wanted = anchors(view, layout.fragments, params, self._card.wire) if rule == "palimpsest" else ()
        return list(breakpoint_positions(rule, layout.heads, layout.messages, wanted))

    def tokens(self, items: Iterable[Item]) -> int:
        """Return the tokens of some items."""
        return sum(self._count(item) for item in items)

    def aside(self, head: tuple[Item, ...], items: Iterable[Item], rule: BreakpointRule, now: int) -> BilledRequest:
        """Bill a side request; a prefix that it shares with the conversation is read from the same cache."""
        layout = BlockLayout(self._count)
        layout.update(head, tuple(items))
        rule = rule if self._rules.kind == "breakpoints" else "none"
        breakpoint_spots = breakpoint_positions(rule, layout.heads, layout.messages)
        return BilledRequest(self._bill(Prompt.of(layout.blocks), [layout.place_of(spot) for spot in breakpoint_spots], now), ())

    def _bill(self, prompt: Prompt, breakpoints: Iterable[int], now: int) -> Usage:
        billed = bill(prompt, self._kept, now, self._rules, [Breakpoint(at, self._long) for at in sorted(set(breakpoints))])
        self._kept = billed.contents
        return billed.usage


def _content_key(item: Item) -> str:
    """Return a key that differs whenever the encoded bytes of an item differ."""
    mask = item.mask
    return item.id if mask is None or mask.form == "cached" else f"{item.id}~{mask.text}"


def _place_of(item: Item) -> int:
    match item.content:
        case ToolResult():
            return BlockKind.RESULT
        case ToolCall():
            return BlockKind.CALL
        case Thinking():
            return BlockKind.THINKING
        case Text(role=role):
            return BlockKind.ASSISTANT if role == "assistant" else BlockKind.USER
        case Opaque():
            return BlockKind.ASSISTANT if role_of(item) == "assistant" else BlockKind.USER
        case _:
            return BlockKind.ASSISTANT if item.kind == "assistant" else BlockKind.USER
