"""Cache simulator: computes the bill of a request from its blocks, its cache breakpoints and the simulated cache state."""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from palimpsest.audit.pricing.bill import EMPTY_CACHE, Block, Breakpoint, CacheContents, Prompt, bill, cache_rules
from palimpsest.core.events import Usage
from palimpsest.core.items import Item, Opaque, Text, Thinking, ToolCall, ToolResult, shared_prefix_length
from palimpsest.core.view import View, shown
from palimpsest.wire.encoding.breakpoints import HEAD, BlockPosition, anchors, breakpoint_label, breakpoint_positions
from palimpsest.wire.encoding.fragments import Fragment, Place
from palimpsest.wire.encoding.messages import Message
from palimpsest.wire.encoding.sendable import role_of
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.request import BreakpointRule, Params


class Billed(NamedTuple):
    """What a request was billed, and where it had its cache breakpoints."""

    usage: Usage
    breakpoints: tuple[str, ...]


class Layout:
    """A view as the blocks and messages of a request, in the order of the view; views that only grow are followed at their end."""

    def __init__(self, weigh: Callable[[Item], int]) -> None:
        self._weigh = weigh
        self._clear()

    def _clear(self) -> None:
        self._head: tuple[Item, ...] = ()
        self._items: tuple[Item, ...] = ()
        # How many fragments there are up to each item; hidden ones have none.
        self._ends: list[int] = []
        self.blocks: list[Block] = []
        self.fragments: list[Fragment] = []
        self.messages: list[Message] = []
        self.starts: list[int] = []

    def show(self, head: tuple[Item, ...], items: tuple[Item, ...]) -> None:
        """Lay out a view; only what is new in it is looked at, or what stands behind the first place that an edit changed."""
        known = len(self._items)
        if head != self._head:
            self._clear()
            known = 0
            self.blocks = [(_key(item), self._weigh(item)) for item in head]
        elif items[:known] != self._items:
            known = shared_prefix_length(self._items, items)
            self._cut(known)
        self._head, self._items = head, items
        for item in items[known:]:
            self._add(item)

    def _cut(self, items: int) -> None:
        """Go back to where only so many items were laid out."""
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
            fragment = Fragment(item, _place(item))
            said = fragment.place > Place.RESULT
            if not self.messages or self.messages[-1][0] is not said:
                self.messages.append((said, []))
                self.starts.append(len(self.blocks))
            self.messages[-1][1].append(fragment)
            self.fragments.append(fragment)
            self.blocks.append((_key(item), self._weigh(item)))
        self._ends.append(len(self.fragments))

    @property
    def heads(self) -> int:
        """How many blocks the head has."""
        return len(self._head)

    def place_of(self, spot: BlockPosition) -> int:
        """The number of a block among all of them."""
        message, block = spot
        return block if message == HEAD else self.starts[message] + block


class CacheSimulator:
    """The simulated cache of one session with one model, request by request."""

    def __init__(self, card: ModelCard, weigh: Callable[[Item], int], ttl: Literal["5m", "1h"] = "5m") -> None:
        self._card = card
        self._rules = cache_rules(card)
        self._long = ttl == "1h"
        self._layout = Layout(weigh)
        self._weigh = weigh
        self._prompt = Prompt()
        self._kept: CacheContents = EMPTY_CACHE

    def size(self, view: View) -> int:
        """Tokens of the request that shows a view."""
        self._layout.show(view.head, view.items)
        self._prompt = Prompt.of(self._layout.blocks, self._prompt)
        return self._prompt.tokens

    def turn(self, view: View, params: Params, now: int) -> Billed:
        """Bill the request of a call."""
        self.size(view)
        layout, marked = self._layout, self._marked(view, params)
        usage = self._bill(self._prompt, [layout.place_of(spot) for spot in marked], now)
        return Billed(usage, tuple(dict.fromkeys(breakpoint_label(spot, layout.messages) for spot in marked)))

    def breakpoints(self, view: View, params: Params) -> tuple[str, ...]:
        """The items, or `head:n`, at the cache breakpoints of the request that shows a view."""
        self.size(view)
        return tuple(dict.fromkeys(breakpoint_label(spot, self._layout.messages) for spot in self._marked(view, params)))

    def _marked(self, view: View, params: Params) -> list[BlockPosition]:
        layout = self._layout
        rule = params.breakpoint_rule if self._rules.kind == "breakpoints" else "none"
        wanted = anchors(view, layout.fragments, params, self._card.wire) if rule == "palimpsest" else ()
        return list(breakpoint_positions(rule, layout.heads, layout.messages, wanted))

    def tokens(self, items: Iterable[Item]) -> int:
        """Tokens of some items."""
        return sum(self._weigh(item) for item in items)

    def aside(self, head: tuple[Item, ...], items: Iterable[Item], rule: BreakpointRule, now: int) -> Billed:
        """Bill a request beside the conversation; what it shares with it from the start is read from the same cache."""
        layout = Layout(self._weigh)
        layout.show(head, tuple(items))
        rule = rule if self._rules.kind == "breakpoints" else "none"
        marked = breakpoint_positions(rule, layout.heads, layout.messages)
        return Billed(self._bill(Prompt.of(layout.blocks), [layout.place_of(spot) for spot in marked], now), ())

    def _bill(self, prompt: Prompt, breakpoints: Iterable[int], now: int) -> Usage:
        billed = bill(prompt, self._kept, now, self._rules, [Breakpoint(at, self._long) for at in sorted(set(breakpoints))])
        self._kept = billed.contents
        return billed.usage


def _key(item: Item) -> str:
    """What stands for the bytes of an item as it is shown."""
    mask = item.mask
    return item.id if mask is None or mask.form == "cached" else f"{item.id}~{mask.text}"


def _place(item: Item) -> int:
    match item.content:
        case ToolResult():
            return Place.RESULT
        case ToolCall():
            return Place.CALL
        case Thinking():
            return Place.THINKING
        case Text(role=role):
            return Place.ASSISTANT if role == "assistant" else Place.USER
        case Opaque():
            return Place.ASSISTANT if role_of(item) == "assistant" else Place.USER
        case _:
            return Place.ASSISTANT if item.kind == "assistant" else Place.USER
