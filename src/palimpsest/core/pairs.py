"""Pairs of tool calls and results: which belong together, and where a view can be cut without separating them."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from palimpsest.core.items import MODEL_KINDS, Item, ToolCall, ToolResult, seq_of

_PAIRED = (ToolCall, ToolResult)


def pairs_of(items: Iterable[Item]) -> Iterator[tuple[Item, Item]]:
    """Yield each tool call item with the item of its result, in the order of the results.

    Logs of 0.1.0 may have several calls with one id: each result then belongs to the oldest call without a result.
    """
    waiting: dict[str, deque[Item]] = {}
    for item in items:
        content = item.content
        if isinstance(content, ToolCall):
            # A search without an id is run by the provider itself and never gets a result.
            if content.call_id or content.form != "search":
                waiting.setdefault(content.call_id, deque()).append(item)
        elif isinstance(content, ToolResult) and (queue := waiting.get(content.call_id)):
            yield queue.popleft(), item


def answered_calls(items: Iterable[Item]) -> dict[str, ToolCall]:
    """Return the tool call of each result, by the item id of the result; results without a call are omitted."""
    return {result.id: call.content for call, result in pairs_of(items) if isinstance(call.content, ToolCall)}


def unpaired(items: Iterable[Item]) -> frozenset[str]:
    """Return the ids of visible calls without a later visible result, and of visible results without an earlier visible call.

    If several calls have one id, each result belongs to the oldest of them. Results without an id are never unpaired.
    """
    waiting: dict[str, list[str]] = {}
    unpaired_results: set[str] = set()
    for item in items:
        content = item.content
        if not isinstance(content, _PAIRED) or not content.call_id or (item.mask is not None and item.hidden):
            continue
        queue = waiting.get(content.call_id)
        if isinstance(content, ToolCall):
            if queue is None:
                waiting[content.call_id] = [item.id]
            else:
                queue.append(item.id)
        elif queue is None:
            unpaired_results.add(item.id)
        elif len(queue) > 1:
            del queue[0]
        else:
            del waiting[content.call_id]
    return frozenset(unpaired_results.union(*waiting.values()))


def newly_unpaired(before: Iterable[Item], after: Iterable[Item]) -> frozenset[str]:
    """Return the ids of the items that are unpaired after an edit and were not before it."""
    return unpaired(after) - unpaired(before)


def unanswered_calls(items: Sequence[Item]) -> tuple[Item, ...]:
    """Return the visible calls without a result, in order."""
    unpaired_ids = unpaired(items)
    return tuple(item for item in items if item.id in unpaired_ids and isinstance(item.content, ToolCall))


def pending_calls(items: Sequence[Item], unpaired_ids: frozenset[str] | None = None) -> tuple[Item, ...]:
    """Return the calls of the newest reply that may still get a result; none after a new user message.

    `unpaired_ids` is `unpaired(items)`, if the caller has computed it.
    """
    newest = -1
    for item in reversed(items):
        if item.kind == "user":
            return ()
        if item.kind in MODEL_KINDS:
            newest = seq_of(item.id)
            break
    prefix = f"{newest}."
    calls = [item for item in items if item.id.startswith(prefix) and isinstance(item.content, ToolCall)]
    if unpaired_ids is None:
        # Only items with the same call id decide whether a call has a result.
        call_ids = {content.call_id for item in calls if isinstance(content := item.content, ToolCall)}
        same_ids = [item for item in items if isinstance(content := item.content, _PAIRED) and content.call_id in call_ids] if calls else []
        unpaired_ids = unpaired(same_ids)
    return tuple([item for item in calls if item.id in unpaired_ids])


def settled(items: Sequence[Item]) -> int:
    """Return how many leading items can be edited: all, or those before the reply that has pending calls."""
    pending = pending_calls(items)
    if not pending:
        return len(items)
    newest = seq_of(pending[0].id)
    return next(index for index, item in enumerate(items) if seq_of(item.id) == newest)


def safe_cuts(items: Sequence[Item]) -> tuple[int, ...]:
    """Return every index at which the items can be split without separating a call from its result; 0 and the length included."""
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


def rounds(items: Sequence[Item]) -> tuple[int, ...]:
    """Return the start index of each round: a model reply with the results and messages after it.

    Items before the first reply belong to the first round.
    """
    starts = [0] if items else []
    replied = any(item.kind in MODEL_KINDS for item in items[:1])
    for index in range(1, len(items)):
        if items[index].kind in MODEL_KINDS and items[index - 1].kind not in MODEL_KINDS:
            if replied:
                starts.append(index)
            replied = True
    return tuple(starts)
