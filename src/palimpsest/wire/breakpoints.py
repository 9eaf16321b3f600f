"""Places cache breakpoints: one rule per imitated program, at most four per request and one per block."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec.structs import replace

from palimpsest.core.plans import Cache
from palimpsest.core.view import View
from palimpsest.wire.encoding import BlockKind, Fragment, Message
from palimpsest.wire.request import MAX_BREAKPOINTS, BreakpointRule, Params

HEAD = -1

BlockPosition: TypeAlias = tuple[int, int]
"""A block: the index of its message, or HEAD, and its index within."""


def breakpoint_positions(
    rule: BreakpointRule, heads: int, messages: Sequence[Message], anchors: Sequence[str] = ()
) -> tuple[BlockPosition, ...]:
    """The blocks that get a breakpoint, in the order they are sent; `anchors` are item ids.

    The rules of other programs know no anchors: these get the breakpoints that such a rule leaves free.
    """
    if rule == "none":
        return ()
    if rule == "palimpsest":
        return tuple(sorted(set(palimpsest(heads, messages, anchors))))[-MAX_BREAKPOINTS:]
    own = set(_RULES[rule](heads, messages))
    free = [position for position in _find(messages, set(anchors)) if position not in own][: max(0, MAX_BREAKPOINTS - len(own))]
    return tuple(sorted({*own, *free}))[-MAX_BREAKPOINTS:]


def palimpsest(heads: int, messages: Sequence[Message], anchors: Sequence[str]) -> list[BlockPosition]:
    """Our rule: the end of the head, the anchors and the tail."""
    positions = [(HEAD, heads - 1)] if heads else []
    return positions + _find(messages, set(anchors)) + _tails(range(len(messages) - 1, len(messages)), messages)


def _second_and_third_and_both_sides(heads: int, messages: Sequence[Message]) -> list[BlockPosition]:
    """The second and third head block, and the ends of the last message of each side."""
    return _second_and_third(heads) + _tails((_last(messages, by_model=True), _last(messages, by_model=False)), messages)


def _second_and_third_and_user(heads: int, messages: Sequence[Message]) -> list[BlockPosition]:
    """The second and third head block, and the end of the last message of the user."""
    return _second_and_third(heads) + _tails((_last(messages, by_model=False),), messages)


def _second_and_third_and_model(heads: int, messages: Sequence[Message]) -> list[BlockPosition]:
    """The second and third head block, and the end of the last message of the model."""
    return _second_and_third(heads) + _tails((_last(messages, by_model=True),), messages)


def _first_two_and_last_two(heads: int, messages: Sequence[Message]) -> list[BlockPosition]:
    """The first two head blocks, and the ends of the last two messages."""
    first = [(HEAD, index) for index in range(min(heads, 2))]
    return first + _tails(range(max(len(messages) - 2, 0), len(messages)), messages)


# The rules of other programs, under the words that logs have for them.
_RULES: Mapping[
    Literal["claude-code", "claude-code-2.1.325", "claude-code-2.1.325-fold", "opencode"],
    Callable[[int, Sequence[Message]], list[BlockPosition]],
] = {
    "claude-code": _second_and_third_and_both_sides,
    "claude-code-2.1.325": _second_and_third_and_user,
    "claude-code-2.1.325-fold": _second_and_third_and_model,
    "opencode": _first_two_and_last_two,
}


def with_anchors(params: Params, cache: Cache, now: int) -> Params:
    """The parameters with the anchors from the cache state: the frontier of the newest edit, and the longest live cached prefix."""
    best = cache.best(now)
    return replace(params, frontier=cache.frontier, entry="" if best.startswith("head:") else best)


def anchors(view: View, fragments: Sequence[Fragment], params: Params, wire: str) -> tuple[str, ...]:
    """Item ids between head and tail that get a breakpoint: the frontier, and the end of the longest live cached prefix.

    Without `params.entry` the latter is the newest breakpoint of the previous call whose item is still sent.
    """
    positions: list[str] = []
    if params.frontier:
        positions += _nearest(fragments, params.frontier)
    if params.entry and _nearest(fragments, params.entry) == [params.entry]:
        return (*positions, params.entry)
    last = view.call
    if last is not None and last.wire == wire:
        for name in reversed(last.breakpoints):
            if name.startswith("head:"):
                break
            if _nearest(fragments, name) == [name]:
                positions.append(name)
                break
    return tuple(positions)


def breakpoint_label(position: BlockPosition, messages: Sequence[Message]) -> str:
    """The label of a breakpoint in a request: `head:n`, or the id of its item."""
    message, block = position
    return f"head:{block}" if message == HEAD else messages[message][1][block].item.id


def cache_control(ttl: Literal["5m", "1h"]) -> bytes:
    """The closing bytes of a block with a cache breakpoint."""
    return b',"cache_control":{"type":"ephemeral","ttl":"1h"}}' if ttl == "1h" else b',"cache_control":{"type":"ephemeral"}}'


def _nearest(fragments: Sequence[Fragment], item_id: str) -> list[str]:
    """The item itself, or the last one before it that is sent and may carry a breakpoint."""
    positions = False
    for fragment in reversed(fragments):
        positions = positions or fragment.item.id == item_id
        if positions and fragment.place and fragment.place != BlockKind.THINKING:
            return [fragment.item.id]
    return []


def _find(messages: Sequence[Message], wanted: set[str]) -> list[BlockPosition]:
    """The last block of each wanted item, searched from the end, where most of them are."""
    positions: list[BlockPosition] = []
    for index in range(len(messages) - 1, -1, -1):
        if not wanted:
            break
        blocks = messages[index][1]
        for at in range(len(blocks) - 1, -1, -1):
            name = blocks[at].item.id
            if name in wanted:
                wanted.remove(name)
                positions.append((index, at))
    return positions


def _second_and_third(heads: int) -> list[BlockPosition]:
    return [(HEAD, index) for index in (1, 2) if index < heads]


def _last(messages: Sequence[Message], *, by_model: bool) -> int:
    return max((index for index, (from_model, _) in enumerate(messages) if from_model is by_model), default=-1)


def _tails(indices: Iterable[int], messages: Sequence[Message]) -> list[BlockPosition]:
    return [(index, len(messages[index][1]) - 1) for index in indices if index >= 0]
