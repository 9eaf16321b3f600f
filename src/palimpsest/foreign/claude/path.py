"""The path from the first to the newest line of a Claude Code session, and the branches that were left."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from palimpsest.wire.json_reading import Json, text

GroupKind: TypeAlias = Literal["reply", "result", "text", "attachment", "fold", "steering", "note"]


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A parsed line: its number, the byte offset where it stops, its id, its time in milliseconds, and its JSON."""

    number: int
    stop: int
    uuid: str
    at: int
    json: Json

    @property
    def key(self) -> str:
        """The id of the line, or `L` and its number if it has none."""
        return self.uuid or f"L{self.number}"


@dataclass(slots=True, eq=False)
class LineGroup:
    """A group of lines that form one event. They are dropped once the event is yielded."""

    kind: GroupKind
    lines: list[SourceLine] = field(default_factory=list)
    follows: "LineGroup | None" = None
    # The later group that this one was moved before; a rewind to this one must go to that one.
    moved_before: "LineGroup | None" = None
    # Lines of a reply with the number of contents of each.
    part_counts: list[tuple[str, int]] = field(default_factory=list)
    key: str = ""
    # Whether this is the first group with this message id.
    is_first: bool = True
    # What a compaction keeps: lines between boundary and summary with their groups, and groups after the summary.
    kept_before: list[tuple[str, "LineGroup"]] = field(default_factory=list)
    kept_after: list["LineGroup"] = field(default_factory=list)
    boundary: Json = field(default_factory=dict)
    # Whether the boundary folded already, so that the summary is only inserted.
    only_adds: bool = False
    # Text typed during a turn, if the file has only the queue operations of it.
    typed_text: str = ""

    @property
    def rewind_key(self) -> str:
        """Key of the event to rewind to if the conversation continues from here."""
        group = self
        while group.moved_before is not None:
            group = group.moved_before
        return group.key


@dataclass(slots=True, eq=False)
class _TreePlace:
    """A group in the tree of all branches: the place before it, its depth, and the depth of the newest message up to it (-1: none).

    `shortcut` is a place further up; with it, the place at any depth is found in a number of steps that grows with the logarithm.
    """

    group: LineGroup
    depth: int
    message_depth: int
    parent: "_TreePlace | None"
    shortcut: "_TreePlace | None"


def _next_place(group: LineGroup, parent: _TreePlace, *, is_message: bool) -> _TreePlace:
    """The place of a group that follows a place. Shortcuts have the lengths of a skew-binary number, as in a skip list."""
    depth, near = parent.depth + 1, parent.shortcut
    far = near.shortcut if near is not None else None
    shortcut = parent
    if near is not None and far is not None and parent.depth - near.depth == near.depth - far.depth:
        shortcut = far
    return _TreePlace(group, depth, depth if is_message else parent.message_depth, parent, shortcut)


def _ancestor(place: _TreePlace, depth: int) -> _TreePlace:
    """The place at a depth on the way from the root to a place."""
    while place.depth > depth:
        up = place.shortcut if place.shortcut is not None and place.shortcut.depth >= depth else place.parent
        if up is None:
            break
        place = up
    return place


class ConversationPath:
    """The groups from the root to the newest one, and the group of each line. Going back takes no longer in a longer session."""

    def __init__(self, root: LineGroup) -> None:
        self._root = root
        self._groups: dict[str, LineGroup] = {}
        self._tip = _TreePlace(root, 0, -1, None, None)
        self._places = {root: self._tip}
        self._moved: dict[LineGroup, LineGroup] = {}
        self._copies: dict[str, str] = {}

    def __contains__(self, uuid: str) -> bool:
        return uuid in self._groups

    def group_of(self, uuid: str) -> LineGroup | None:
        """The group that a line belongs to or follows."""
        return self._groups.get(uuid)

    def origin(self, uuid: str) -> tuple[str, LineGroup] | None:
        """The line that first showed the content of a line, and its group."""
        uuid = self._copies.get(uuid, uuid)
        group = self._groups.get(uuid)
        return None if group is None else (uuid, group)

    def add_copy(self, uuid: str, original: str) -> None:
        """Record that a line repeats the content of another one."""
        self._copies[uuid] = self._copies.get(original, original)

    def attach(self, uuid: str, parent: str) -> None:
        """Record a line without content: lines that follow it follow the group before it."""
        if uuid:
            self._groups[uuid] = self._groups.get(parent, self._tip.group)

    def assign(self, uuid: str, group: LineGroup) -> None:
        """Add a line to a group."""
        if uuid:
            self._groups[uuid] = group

    def append(self, uuid: str, group: LineGroup, *, is_message: bool) -> None:
        """Append a group. `is_message` is true for replies and text of the user."""
        self.assign(uuid, group)
        self._tip = self._places[group] = _next_place(group, self._tip, is_message=is_message)

    def rewind_target(self, line: Json, *, is_message: bool) -> LineGroup | None:
        """The group that a line rewinds to; None if it continues.

        Results of parallel calls are siblings, so only a line that leaves replies or text of the user behind begins a branch. A line
        whose parent is not in the file continues.
        """
        parent, newest_message = text(line, "parentUuid"), self._tip.message_depth
        if not parent:
            return self._root if is_message and newest_message >= 0 and "parentUuid" in line else None
        group = self._groups.get(parent)
        if group is None:
            return None
        group = self._moved.get(group, group)
        place = self._on_path(group)
        if place is None:
            return group
        return group if is_message and place.depth < newest_message else None

    def _on_path(self, group: LineGroup) -> _TreePlace | None:
        """The place of a group; None if it is not on the current path."""
        place = self._places.get(group)
        return place if place is not None and _ancestor(self._tip, place.depth) is place else None

    def move_after(self, groups: Iterable[LineGroup], fold: LineGroup) -> None:
        """Record that a compaction preserved these groups: lines that follow them follow the compaction."""
        self._moved.update(dict.fromkeys(groups, fold))

    def rewind(self, group: LineGroup) -> None:
        """Make an earlier group the end of the path."""
        self._tip = self._places[group]

    def between(self, first: str, last: str) -> list[LineGroup]:
        """The groups from one line to another along the path, both included; empty if one is not on the path."""
        start, place = (self._on_path(group) if (group := self._groups.get(uuid)) else None for uuid in (first, last))
        found: list[LineGroup] = []
        while start is not None and place is not None and place.depth >= start.depth:
            found.append(place.group)
            place = place.parent
        return found[::-1]
