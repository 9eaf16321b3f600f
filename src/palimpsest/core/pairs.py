"""Calls and their results: which belong together, and where a view may be cut without parting them."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from palimpsest.core.items import Item, ToolCall, ToolResult, seq_of

_HALVES = (ToolCall, ToolResult)


def pairs_of(items: Iterable[Item]) -> Iterator[tuple[Item, Item]]:
    """The items of calls, each with the item of the result that answers it, in the order of the results.

    Logs of 0.1.0 may have several calls with one id: each result answers the oldest that has none yet.
    """
    waiting: dict[str, deque[Item]] = {}
    for item in items:
        content = item.content
        if isinstance(content, ToolCall):
            # The provider runs a search without an id by itself: no result will ever name it.
            if content.call_id or content.form != "search":
                waiting.setdefault(content.call_id, deque()).append(item)
        elif isinstance(content, ToolResult) and (queue := waiting.get(content.call_id)):
            yield queue.popleft(), item


def answered_calls(items: Iterable[Item]) -> dict[str, ToolCall]:
    """The call that each result answers, by the item id of the result; results without a call are left out."""
    return {result.id: call.content for call, result in pairs_of(items) if isinstance(call.content, ToolCall)}


def unpaired(items: Iterable[Item]) -> frozenset[str]:
    """The items that show without their other half: calls that no later result answers, results that no earlier call asked for.

    Of several calls with one id each result answers the oldest; results without an id stand alone by right.
    """
    waiting: dict[str, list[str]] = {}
    lone: set[str] = set()
    for item in items:
        content = item.content
        if not isinstance(content, _HALVES) or not content.call_id or (item.mask is not None and item.hidden):
            continue
        queue = waiting.get(content.call_id)
        if isinstance(content, ToolCall):
            if queue is None:
                waiting[content.call_id] = [item.id]
            else:
                queue.append(item.id)
        elif queue is None:
            lone.add(item.id)
        elif len(queue) > 1:
            del queue[0]
        else:
            del waiting[content.call_id]
    return frozenset(lone.union(*waiting.values()))


def newly_unpaired(before: Iterable[Item], after: Iterable[Item]) -> frozenset[str]:
    """The items that show without their other half after an edit, and did not before."""
    return unpaired(after) - unpaired(before)


def _call_id(item: Item) -> str:
    return item.content.call_id if isinstance(item.content, ToolCall | ToolResult) else ""


def unanswered_calls(items: Sequence[Item]) -> tuple[Item, ...]:
    """The calls that show and that no result answers yet, in order."""
    lone = unpaired(items)
    return tuple(item for item in items if item.id in lone and isinstance(item.content, ToolCall))


def pending_calls(items: Sequence[Item], lone: frozenset[str] | None = None) -> tuple[Item, ...]:
    """The unanswered calls of the newest reply: their results may still come, unless the user has gone on."""
    newest = -1
    for item in reversed(items):
        if item.kind == "user":
            return ()
        if _of_model(item):
            newest = seq_of(item.id)
            break
    own = f"{newest}."
    calls = [item for item in items if item.id.startswith(own) and isinstance(item.content, ToolCall)]
    if lone is None:
        # Whether a call is answered hangs on nothing but what has its id.
        ids = {_call_id(item) for item in calls}
        lone = (
            unpaired([item for item in items if isinstance(half := item.content, _HALVES) and half.call_id in ids]) if ids else frozenset()
        )
    return tuple([item for item in calls if item.id in lone])


def settled(items: Sequence[Item]) -> int:
    """How many items from the start can be edited: all, or those before the reply whose calls still wait for results."""
    pending = pending_calls(items)
    if not pending:
        return len(items)
    newest = seq_of(pending[0].id)
    return next(index for index, item in enumerate(items) if seq_of(item.id) == newest)


def safe_cuts(items: Sequence[Item]) -> tuple[int, ...]:
    """Every index at which a view can be cut in two with each call on the side of its result; both ends included."""
    ends = {call.id: result.id for call, result in pairs_of(items)}
    if not ends:
        return tuple(range(len(items) + 1))
    cuts = [0]
    open_results: set[str] = set()
    for index, item in enumerate(items, 1):
        if isinstance(item.content, ToolCall):
            if item.id in ends:
                open_results.add(ends[item.id])
        elif isinstance(item.content, ToolResult):
            open_results.discard(item.id)
        if not open_results:
            cuts.append(index)
    return tuple(cuts)


def widen(items: Sequence[Item], first: int, last: int) -> tuple[int, int]:
    """The smallest run around `first` to `last` (both included) that parts no pair."""
    cuts = safe_cuts(items)
    start = max(cut for cut in cuts if cut <= first)
    stop = min(cut for cut in cuts if cut > last)
    return start, stop - 1


def rounds(items: Sequence[Item]) -> tuple[int, ...]:
    """Where each round begins: a reply of the model with the results and words that follow it; the opening belongs to the first."""
    starts = [0] if items else []
    replied = any(_of_model(item) for item in items[:1])
    for index in range(1, len(items)):
        if _of_model(items[index]) and not _of_model(items[index - 1]):
            if replied:
                starts.append(index)
            replied = True
    return tuple(starts)


def _of_model(item: Item) -> bool:
    return item.kind in {"assistant", "thinking", "call"}
