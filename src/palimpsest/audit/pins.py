"""What the user pinned, as items: those named, those that show a pinned file, and the other half of each call or result."""

from palimpsest.audit.tools import action_of
from palimpsest.core.event_items import numbers_of
from palimpsest.core.items import ToolCall, ToolResult
from palimpsest.core.view import View


def pinned(view: View) -> frozenset[str]:
    """The ids of the items that no policy may hide."""
    if not view.pins:
        return frozenset()
    paths = tuple(name for name in view.pins if numbers_of(name) is None)
    # The halves of calls by their call, so that one walk over the view is enough.
    halves: dict[str, list[str]] = {}
    named: set[str] = set()
    calls: set[str] = set()
    known: dict[str, bool] = {}
    for item in view.items:
        name, content = item.id, item.content
        if isinstance(content, ToolCall):
            halves.setdefault(content.call_id, []).append(name)
            if name in view.pins or (paths and _shows(content, paths, known)):
                calls.add(content.call_id)
        elif isinstance(content, ToolResult):
            halves.setdefault(content.call_id, []).append(name)
            if name in view.pins:
                calls.add(content.call_id)
        elif name in view.pins:
            named.add(name)
    return frozenset(named.union(*(halves[call_id] for call_id in calls)))


def _shows(call: ToolCall, paths: tuple[str, ...], known: dict[str, bool]) -> bool:
    """Whether a call shows one of some files; `known` remembers that of each path, for most are touched again and again."""
    for touched in action_of(call).paths:
        if touched.how != "search":
            path = touched.path
            if path not in known:
                known[path] = any(same_path(path, pin) for pin in paths)
            if known[path]:
                return True
    return False


def same_path(one: str, other: str) -> bool:
    """Whether two paths are the same, one of them perhaps written from nearer by."""
    one, other = one.removeprefix("./"), other.removeprefix("./")
    return one == other or one.endswith(f"/{other}") or other.endswith(f"/{one}")
