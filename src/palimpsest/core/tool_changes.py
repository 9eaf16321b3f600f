"""Tools that come and go during a session, and another effort: what an item of the view says about it, and what holds by a view."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from palimpsest.core.items import Item, Opaque, Value

TOOL_CHANGES: Final = "tool_changes"
"""The source of the items that say it."""


class ToolChange(Value, frozen=True):
    """The names of tools that can be called from here on, and of those that cannot be any more; `effort` is empty if it stays."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    effort: str = ""


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(ToolChange).decode


class PlacedChange(NamedTuple):
    """What an item changes where it stands: a tool that is there already is not added, and one that is not is not removed."""

    item: Item
    change: ToolChange
    available: frozenset[str]


def tool_changes_content(change: ToolChange) -> Opaque:
    """The content of an item that says it; no provider takes it as it is, and no other model is sent a text for it."""
    return Opaque("", "", _encode(change).decode())


def is_tool_change(item: Item) -> bool:
    """Whether an item says it to the model: a masked one does not."""
    return item.source == TOOL_CHANGES and item.mask is None and isinstance(item.content, Opaque) and not item.content.provider


def placed_changes(items: Iterable[Item], declared: Iterable[str], deferred: Iterable[str]) -> Iterator[PlacedChange]:
    """What the items of a view change, in order, and the tools that are `available` after each.

    Without a change those that are `declared` are available, but for the `deferred` ones. Names that are not declared are left out.
    """
    known = frozenset(declared)
    available = known.difference(deferred)
    for item in items:
        if not is_tool_change(item) or not isinstance(item.content, Opaque):
            continue
        said = _decode(item.content.data)
        added = tuple(name for name in said.added if name in known and name not in available)
        removed = tuple(name for name in said.removed if name in available)
        available = available.difference(removed).union(added)
        yield PlacedChange(item, ToolChange(added, removed, said.effort), available)


def stated_effort(items: Iterable[Item]) -> str:
    """The effort that the items of a view state last; empty if none does."""
    stated = [_decode(item.content.data).effort for item in items if is_tool_change(item) and isinstance(item.content, Opaque)]
    return next((effort for effort in reversed(stated) if effort), "")
