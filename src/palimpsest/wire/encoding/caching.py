"""Where cache breakpoints go: one rule per program that places them, each at most four and never two on one block."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec.structs import replace

from palimpsest.core.situation import Cache
from palimpsest.core.view import View
from palimpsest.wire.encoding.alternate import Message
from palimpsest.wire.encoding.fragments import Fragment, Place
from palimpsest.wire.request import MAX_BREAKPOINTS, BreakpointRule, Params

HEAD = -1

Spot: TypeAlias = tuple[int, int]
"""A block: the number of its message, or HEAD, and its number within."""


def spots(rule: BreakpointRule, heads: int, messages: Sequence[Message], anchors: Sequence[str] = ()) -> tuple[Spot, ...]:
    """The blocks that carry a breakpoint, in the order they are sent; our own rule puts one on head, tail and the items `anchors`."""
    if rule == "none":
        return ()
    wanted = palimpsest(heads, messages, anchors) if rule == "palimpsest" else _RULES[rule](heads, messages)
    return tuple(sorted(set(wanted)))[-MAX_BREAKPOINTS:]


def palimpsest(heads: int, messages: Sequence[Message], anchors: Sequence[str]) -> list[Spot]:
    """The end of the head, the anchors (the frontier and the best live entry), the tail."""
    found = [(HEAD, heads - 1)] if heads else []
    return found + _find(messages, set(anchors)) + _tails(range(len(messages) - 1, len(messages)), messages)


def claude_code(heads: int, messages: Sequence[Message]) -> list[Spot]:
    """The second and third block of the head, the end of the last message of either side."""
    last_said = max((index for index, (said, _) in enumerate(messages) if said), default=-1)
    return _second_and_third(heads) + _tails((last_said, _last_heard(messages)), messages)


def claude_code_2_1_325(heads: int, messages: Sequence[Message]) -> list[Spot]:
    """The second and third block of the head, the end of the last user message."""
    return _second_and_third(heads) + _tails((_last_heard(messages),), messages)


def claude_code_2_1_325_fold(heads: int, messages: Sequence[Message]) -> list[Spot]:
    """In a request for a summary: the second and third block of the head, the end of the last message of the model."""
    last_said = max((index for index, (said, _) in enumerate(messages) if said), default=-1)
    return _second_and_third(heads) + _tails((last_said,), messages)


def opencode(heads: int, messages: Sequence[Message]) -> list[Spot]:
    """The first two blocks of the head, the ends of the last two messages."""
    first = [(HEAD, index) for index in range(min(heads, 2))]
    return first + _tails(range(max(len(messages) - 2, 0), len(messages)), messages)


_RULES: Mapping[
    Literal["claude-code", "claude-code-2.1.325", "claude-code-2.1.325-fold", "opencode"], Callable[[int, Sequence[Message]], list[Spot]]
] = {
    "claude-code": claude_code,
    "claude-code-2.1.325": claude_code_2_1_325,
    "claude-code-2.1.325-fold": claude_code_2_1_325_fold,
    "opencode": opencode,
}


def anchored(params: Params, cache: Cache, now: int) -> Params:
    """The parameters with what our own rule puts one on between head and tail: where the newest edit began, and the best live entry."""
    best = cache.best(now)
    return replace(params, frontier=cache.frontier, entry="" if best.startswith("head:") else best)


def anchors(view: View, fragments: Sequence[Fragment], params: Params, wire: str) -> tuple[str, ...]:
    """The items that our own rule puts one on between head and tail: the frontier, and the best live entry.

    When no entry is named that is the newest breakpoint of the last call that still stands.
    """
    found: list[str] = []
    if params.frontier:
        found += _nearest(fragments, params.frontier)
    if params.entry and _nearest(fragments, params.entry) == [params.entry]:
        return (*found, params.entry)
    last = view.call
    if last is not None and last.wire == wire:
        for name in reversed(last.breakpoints):
            if name.startswith("head:"):
                break
            if _nearest(fragments, name) == [name]:
                found.append(name)
                break
    return tuple(found)


def label(spot: Spot, messages: Sequence[Message]) -> str:
    """How a request reports a breakpoint: `head:n`, or the id of the item that carries it."""
    message, block = spot
    return f"head:{block}" if message == HEAD else messages[message][1][block].item.id


def control(ttl: Literal["5m", "1h"]) -> bytes:
    """The end of a block that carries a breakpoint."""
    return b',"cache_control":{"type":"ephemeral","ttl":"1h"}}' if ttl == "1h" else b',"cache_control":{"type":"ephemeral"}}'


def _nearest(fragments: Sequence[Fragment], item_id: str) -> list[str]:
    """The item itself, or the last one before it that is sent and may carry a breakpoint."""
    found = False
    for fragment in reversed(fragments):
        found = found or fragment.item.id == item_id
        if found and fragment.place and fragment.place != Place.THINKING:
            return [fragment.item.id]
    return []


def _find(messages: Sequence[Message], wanted: set[str]) -> list[Spot]:
    """The last block of each wanted item, from the end on, for that is where most of them are."""
    found: list[Spot] = []
    for index in range(len(messages) - 1, -1, -1):
        if not wanted:
            break
        blocks = messages[index][1]
        for at in range(len(blocks) - 1, -1, -1):
            name = blocks[at].item.id
            if name in wanted:
                wanted.remove(name)
                found.append((index, at))
    return found


def _second_and_third(heads: int) -> list[Spot]:
    return [(HEAD, index) for index in (1, 2) if index < heads]


def _last_heard(messages: Sequence[Message]) -> int:
    return max((index for index, (said, _) in enumerate(messages) if not said), default=-1)


def _tails(indices: Iterable[int], messages: Sequence[Message]) -> list[Spot]:
    return [(index, len(messages[index][1]) - 1) for index in indices if index >= 0]
