"""Tools that come and go inside a conversation with Anthropic: blocks of system messages, which leave everything before them as it was."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from palimpsest.core.tool_changes import ToolChange, placed_changes
from palimpsest.wire.encoding.breakpoints import HEAD, BlockPosition
from palimpsest.wire.encoding.fragments import Fragment, dump
from palimpsest.wire.encoding.messages import CHANGED, Message
from palimpsest.wire.encoding.tools import Names
from palimpsest.wire.request import Tool, is_deferred

TOOL_CHANGES_BETA: Final = "mid-conversation-tool-changes-2026-07-01"


def in_tool_changes(fragments: Iterable[Fragment]) -> bool:
    """Whether a list tells the model of a change."""
    return any(fragment.group == CHANGED for fragment in fragments)


def with_tool_changes(fragments: list[Fragment], tools: Sequence[Tool], names: Names) -> list[Fragment]:
    """The fragments with the blocks of the changes among them; one that changes nothing in this request is left out."""
    if not in_tool_changes(fragments):
        return fragments
    said = [fragment.item for fragment in fragments if fragment.group == CHANGED]
    deferred = [tool.name for tool in tools if is_deferred(tool, "anthropic")]
    bodies = {placed.item.id: _blocks(placed.change, names) for placed in placed_changes(said, names, deferred)}
    whole = (replace(each, body=bodies.get(each.item.id, b"")) if each.group == CHANGED else each for each in fragments)
    return [fragment for fragment in whole if fragment.group != CHANGED or fragment.body]


def _blocks(change: ToolChange, names: Names) -> bytes:
    return b",".join([*_references("tool_removal", change.removed, names), *_references("tool_addition", change.added, names)])


def _references(kind: str, tools: tuple[str, ...], names: Names) -> Iterator[bytes]:
    for tool in tools:
        yield dump({"type": kind, "tool": {"type": "tool_reference", "name": names[tool]}})


def without_change_positions(positions: tuple[BlockPosition, ...], messages: Sequence[Message]) -> tuple[BlockPosition, ...]:
    """The breakpoints, each moved from a change of tools to the block before it that may have one."""
    moved: set[BlockPosition] = set()
    for message, block in positions:
        place, at = message, block
        while place != HEAD and messages[place][1][at].group == CHANGED:
            place, at = (place, at - 1) if at else (place - 1, len(messages[place - 1][1]) - 1)
        moved.add((place, at))
    return tuple(sorted(moved)) if len(moved) < len(positions) or moved != set(positions) else positions
