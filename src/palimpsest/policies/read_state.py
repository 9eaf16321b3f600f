"""Which files the model has in view, and which it must read again before it may edit them."""

from collections.abc import Iterator

from palimpsest.audit.tools import action_of
from palimpsest.core.items import Item, ToolResult
from palimpsest.core.pairs import answered_calls
from palimpsest.core.view import View

# What a tool does that leaves the model knowing the content of a file.
KNOWING = frozenset({"read", "edit", "write"})


def known_paths(view: View) -> frozenset[str]:
    """The files whose content shows: what an unmasked result read, edited or wrote, without those that were forgotten."""
    return frozenset(path for _, path, result in _touches(view) if result.mask is None) - must_read_again(view)


def read_paths(view: View) -> frozenset[str]:
    """The files that an unmasked Read shows."""
    return frozenset(path for how, path, result in _touches(view) if how == "read" and result.mask is None)


def must_read_again(view: View) -> frozenset[str]:
    """The files that only masked Reads named: an edit of one has to wait until it was read again."""
    masked = frozenset(path for how, path, result in _touches(view) if how == "read" and result.mask is not None)
    return masked - read_paths(view)


def _touches(view: View) -> Iterator[tuple[str, str, Item]]:
    """How each call touched which path, and its result; a call that failed touched nothing."""
    calls = answered_calls(view.items)
    for item in view.items:
        if isinstance(item.content, ToolResult) and not item.content.error and item.id in calls:
            action = action_of(calls[item.id])
            if action.kind in KNOWING:
                yield from ((action.kind, touched.path, item) for touched in action.paths)
