"""Cache simulator: computes the bill of a request from its blocks, its cache breakpoints and the simulated cache state."""

from collections.abc import Callable, Iterable

from palimpsest.audit.pricing.bill import EMPTY_CACHE, Block, Breakpoint, CacheContents, Prompt, bill, cache_rules
from palimpsest.core.events import Usage
from palimpsest.core.items import Item, Thinking, ToolCall, ToolResult, shared_prefix_length
from palimpsest.core.view import View, shown
from palimpsest.wire.encoding.breakpoints import HEAD, BlockPosition, anchors, breakpoint_label, breakpoint_positions
from palimpsest.wire.encoding.fragments import BlockKind, Fragment
from palimpsest.wire.encoding.messages import Message
from palimpsest.wire.encoding.sendable import role_of
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.request import MAX_BREAKPOINTS, BreakpointRule, Params


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

    def places_of(self, spots: Iterable[BlockPosition]) -> set[int]:
        """Return the indexes of blocks among all blocks of the request."""
        return {block if message == HEAD else self.starts[message] + block for message, block in spots}


class CacheSimulator:
    """Simulated cache of one session with one model; bills one request after the other.

    With `anchored`, a breakpoint that another program leaves free stands at the end of the cached prefix, as the gateway sets it.
    """

    def __init__(self, card: ModelCard, count: Callable[[Item], int], *, anchored: bool = False) -> None:
        self._card = card
        self._anchored = anchored
        self._rules = cache_rules(card)
        self._layout = BlockLayout(count)
        self._count = count
        self._prompt = Prompt()
        self._kept: CacheContents = EMPTY_CACHE

    def size(self, view: View) -> int:
        """Return the tokens of the request for a view."""
        self._layout.update(view.head, view.items)
        self._prompt = Prompt.of(self._layout.blocks, self._prompt)
        return self._prompt.tokens

    def turn(self, view: View, params: Params, now: int) -> Usage:
        """Bill the request of a turn call at time `now`, in milliseconds."""
        self.size(view)
        return self._bill(self._layout.places_of(self._breakpoint_spots(view, params)), self._prompt, params, now)

    def aside(self, view: View, params: Params, now: int) -> Usage:
        """Bill a side request; it reads the longest prefix that the conversation has in the cache, wherever its own breakpoints are.

        Claude Code marks the last assistant message of a summary request. That stands before the only entry which a call after a pause
        wrote, so that by the marks alone the request would write everything again; where no recording tells, programs are billed less.
        """
        layout = BlockLayout(self._count)
        layout.update(view.head, view.items)
        prompt = Prompt.of(layout.blocks)
        spots = breakpoint_positions(self._rule(params), layout.heads, layout.messages)
        places = layout.places_of(spots)
        return self._bill(places | set(self._longest_entry(prompt, now)[: MAX_BREAKPOINTS - len(places)]), prompt, params, now)

    def breakpoints(self, view: View, params: Params) -> tuple[str, ...]:
        """Return the item ids, or `head:n`, at the cache breakpoints of the request for a view."""
        self.size(view)
        return tuple(dict.fromkeys(breakpoint_label(spot, self._layout.messages) for spot in self._breakpoint_spots(view, params)))

    def _rule(self, params: Params) -> BreakpointRule:
        return params.breakpoint_rule if self._rules.kind == "breakpoints" else "none"

    def _breakpoint_spots(self, view: View, params: Params) -> Iterable[BlockPosition]:
        layout, rule = self._layout, self._rule(params)
        wanted: tuple[str, ...] = (params.entry,) if self._anchored and params.entry else ()
        if rule == "palimpsest":
            wanted = anchors(view, layout.fragments, params, self._card.wire)
        return breakpoint_positions(rule, layout.heads, layout.messages, wanted)

    def _longest_entry(self, prompt: Prompt, now: int) -> tuple[int, ...]:
        """Return the last block of the longest live cached prefix of a prompt; nothing if there is none."""
        live = [entry for entry in self._kept.entries if now - entry.used < entry.ttl and entry.at_block < len(prompt.links)]
        return tuple(sorted(entry.at_block for entry in live if prompt.links[entry.at_block] == entry.link)[-1:])

    def _bill(self, places: set[int], prompt: Prompt, params: Params, now: int) -> Usage:
        billed = bill(prompt, self._kept, now, self._rules, [Breakpoint(at, params.ttl == "1h") for at in sorted(places)])
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
        case _:
            return BlockKind.ASSISTANT if role_of(item) == "assistant" else BlockKind.USER
