"""What the user pinned, as items: those named, those that show a pinned file, and the other half of each call or result."""

from palimpsest.audit.tools import action_of
from palimpsest.core.items import Item, ToolCall, ToolResult
from palimpsest.core.project import numbers_of
from palimpsest.core.view import View


def pinned(view: View) -> frozenset[str]:
    """The ids of the items that no policy may hide."""
    if not view.pins:
        return frozenset()
    paths = tuple(name for name in view.pins if numbers_of(name) is None)
    named = {item.id for item in view.items if item.id in view.pins or (paths and _shows(item, paths))}
    calls = {item.content.call_id for item in view.items if item.id in named and isinstance(item.content, ToolCall | ToolResult)}
    halves = (item.id for item in view.items if isinstance(item.content, ToolCall | ToolResult) and item.content.call_id in calls)
    return frozenset(named.union(halves))


def _shows(item: Item, paths: tuple[str, ...]) -> bool:
    if not isinstance(item.content, ToolCall):
        return False
    touched = [each.path for each in action_of(item.content).paths if each.how != "search"]
    return any(same_path(path, pin) for path in touched for pin in paths)


def same_path(one: str, other: str) -> bool:
    """Whether two paths are the same, one of them perhaps written from nearer by."""
    one, other = one.removeprefix("./"), other.removeprefix("./")
    return one == other or one.endswith(f"/{other}") or other.endswith(f"/{one}")
