"""Pinned items: those that the user named, those that show a pinned file, and the other half of their call and result pairs."""

from palimpsest.audit.tools.calls import action_of
from palimpsest.core.events.event_items import numbers_of
from palimpsest.core.items import ToolCall
from palimpsest.core.pairs import pairs_of
from palimpsest.core.view import View


def pinned(view: View) -> frozenset[str]:
    """The ids of the items that no policy may hide."""
    if not view.pins:
        return frozenset()
    paths = tuple(name for name in view.pins if numbers_of(name) is None)
    pinned_by_path: dict[str, bool] = {}
    found: set[str] = set()
    for item in view.items:
        if item.id in view.pins or (paths and isinstance(item.content, ToolCall) and _shows(item.content, paths, pinned_by_path)):
            found.add(item.id)
    for call, result in pairs_of(view.items) if found else ():
        if call.id in found or result.id in found:
            found.update((call.id, result.id))
    return frozenset(found)


def _shows(call: ToolCall, paths: tuple[str, ...], pinned_by_path: dict[str, bool]) -> bool:
    """Whether a call shows one of the pinned files; `pinned_by_path` caches the answer, because most paths occur many times."""
    for access in action_of(call).paths:
        if access.how != "search":
            path = access.path
            if path not in pinned_by_path:
                pinned_by_path[path] = any(same_path(path, pin) for pin in paths)
            if pinned_by_path[path]:
                return True
    return False


def same_path(one: str, other: str) -> bool:
    """Whether two paths are equal, or one of them ends with the other at a folder boundary."""
    one, other = one.removeprefix("./"), other.removeprefix("./")
    return one == other or one.endswith(f"/{other}") or other.endswith(f"/{one}")
