"""Calls and their results: which belong together, and where a view may be cut without parting them."""

from collections.abc import Iterable, Sequence

from palimpsest.core.items import Item, ToolCall, ToolResult, seq_of


def parted(before: Sequence[Item], after: Sequence[Item]) -> tuple[str, ...]:
    """The call ids whose call and result both showed before, and of which one is now hidden or stands after its answer."""
    whole = _pairs(before)
    shown: dict[str, list[str]] = {}
    for item in after:
        call_id = _call_id(item)
        if call_id in whole and not item.hidden:
            shown.setdefault(call_id, []).append(item.kind)
    return tuple(call_id for call_id in whole if shown.get(call_id, _BOTH) != _BOTH)


_BOTH = ["call", "result"]


def _pairs(items: Sequence[Item]) -> dict[str, None]:
    called: set[str] = set()
    whole: dict[str, None] = {}
    for item in items:
        if item.hidden:
            continue
        if isinstance(item.content, ToolCall):
            called.add(item.content.call_id)
        elif isinstance(item.content, ToolResult) and item.content.call_id in called:
            whole[item.content.call_id] = None
    return whole


def _call_id(item: Item) -> str:
    return item.content.call_id if isinstance(item.content, ToolCall | ToolResult) else ""


def open_calls(items: Iterable[Item]) -> tuple[Item, ...]:
    """The calls that no result answers yet, in order."""
    waiting: dict[str, Item] = {}
    for item in items:
        match item.content:
            case ToolCall(call_id=call_id):
                waiting[call_id] = item
            case ToolResult(call_id=call_id):
                waiting.pop(call_id, None)
            case _:
                pass
    return tuple(waiting.values())


def waiting(items: Sequence[Item]) -> tuple[Item, ...]:
    """The open calls of the newest reply: their results may still come, unless the user has gone on."""
    newest = -1
    for item in reversed(items):
        if item.kind == "user":
            return ()
        if _of_model(item):
            newest = seq_of(item.id)
            break
    return tuple(item for item in open_calls(items) if seq_of(item.id) == newest)


def safe_cuts(items: Sequence[Item]) -> tuple[int, ...]:
    """Every index at which a view can be cut in two with each call on the side of its result; both ends included."""
    last_use: dict[str, int] = {}
    for index, item in enumerate(items):
        call_id = _call_id(item)
        if call_id:
            last_use[call_id] = index
    cuts = [0]
    reach = -1
    for index, item in enumerate(items):
        call_id = _call_id(item)
        if call_id:
            reach = max(reach, last_use[call_id])
        if reach <= index:
            cuts.append(index + 1)
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
