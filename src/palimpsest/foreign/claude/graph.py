"""Where the lines of a Claude Code session stand: on the way to the newest line, or on a branch that was left."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from palimpsest.wire.json_reading import Json, text

Sort: TypeAlias = Literal["reply", "result", "text", "attachment", "fold", "steering", "note"]


@dataclass(frozen=True, slots=True)
class Held:
    """A line that was read: its number, where it ends, its own id, its time, and what it says."""

    number: int
    stop: int
    uuid: str
    at: int
    line: Json

    @property
    def key(self) -> str:
        """The id of the line, or its place where it has none."""
        return self.uuid or f"L{self.number}"


@dataclass(slots=True, eq=False)
class Entry:
    """One fact in the making: its lines until it is told, and what it follows if that is not the fact before."""

    sort: Sort
    lines: list[Held] = field(default_factory=list)
    after: "Entry | None" = None
    # The entry that it was told before although it came later: whoever goes back to this one goes back to that one.
    jumped: "Entry | None" = None
    # The lines of a reply and how many contents each brought.
    spans: list[tuple[str, int]] = field(default_factory=list)
    key: str = ""
    # Whether a message of this id was not seen before.
    fresh: bool = True
    # What an edit keeps: lines between a boundary and its summary, with the entries they belong to, and entries after the summary.
    early: list[tuple[str, "Entry"]] = field(default_factory=list)
    late: list["Entry"] = field(default_factory=list)
    boundary: Json = field(default_factory=dict)
    # Whether the boundary before this summary has folded already, so that the summary only adds to what is preserved.
    added: bool = False
    # What the user had typed during a turn, where only its way through a queue is in the file.
    words: str = ""

    @property
    def end(self) -> str:
        """The key of the fact to go back to, if the conversation goes on from here."""
        entry = self
        while entry.jumped is not None:
            entry = entry.jumped
        return entry.key


class Trail:
    """The entries from the root to the newest one, and the entry that each line belongs to."""

    def __init__(self, root: Entry) -> None:
        self._root = root
        self._entries: dict[str, Entry] = {}
        self._before: dict[Entry, Entry] = {}
        self._order = [root]
        self._places = {root: 0}
        self._weighty: list[int] = []
        self._heavy: set[Entry] = set()
        self._moved: dict[Entry, Entry] = {}
        self._copies: dict[str, str] = {}

    def __contains__(self, uuid: str) -> bool:
        return uuid in self._entries

    def entry(self, uuid: str) -> Entry | None:
        """The entry that a line belongs to or follows."""
        return self._entries.get(uuid)

    def named(self, uuid: str) -> tuple[str, Entry] | None:
        """The line that brought what a line shows, and its entry: of a copy the line that it is a copy of."""
        uuid = self._copies.get(uuid, uuid)
        entry = self._entries.get(uuid)
        return None if entry is None else (uuid, entry)

    def copied(self, uuid: str, original: str) -> None:
        """A line shows once more what another one brought."""
        self._copies[uuid] = self._copies.get(original, original)

    def passed(self, uuid: str, parent: str) -> None:
        """A line that brings nothing into the conversation: who follows it follows what stands before it."""
        if uuid:
            self._entries[uuid] = self._entries.get(parent, self._order[-1])

    def joined(self, uuid: str, entry: Entry) -> None:
        """One more line of an entry."""
        if uuid:
            self._entries[uuid] = entry

    def stepped(self, uuid: str, entry: Entry, *, weighty: bool) -> None:
        """A new entry at the end of the way; words of a user and replies are weighty."""
        self.joined(uuid, entry)
        self._before[entry] = self._order[-1]
        if weighty:
            self._heavy.add(entry)
            self._weighty.append(len(self._order))
        self._places[entry] = len(self._order)
        self._order.append(entry)

    def branch(self, line: Json, *, weighty: bool) -> Entry | None:
        """The entry that a line goes back to; none if it goes on.

        Results of calls that ran side by side stand beside one another, so only what leaves words or replies behind is a branch.
        A line whose parent is not in the file goes on.
        """
        parent = text(line, "parentUuid")
        if not parent:
            return self._root if weighty and self._weighty and "parentUuid" in line else None
        entry = self._entries.get(parent)
        if entry is None:
            return None
        entry = self._moved.get(entry, entry)
        place = self._places.get(entry)
        if place is None:
            return entry
        return entry if weighty and self._weighty and place < self._weighty[-1] else None

    def moved(self, entries: Iterable[Entry], fold: Entry) -> None:
        """What a compaction preserved stands after it from now on: who follows it goes on."""
        self._moved.update(dict.fromkeys(entries, fold))

    def back(self, entry: Entry) -> None:
        """The way now ends with an earlier entry."""
        way = [entry]
        while way[-1] in self._before:
            way.append(self._before[way[-1]])
        self._order = way[::-1]
        self._places = {each: place for place, each in enumerate(self._order)}
        self._weighty = [place for place, each in enumerate(self._order) if each in self._heavy]

    def between(self, first: str, last: str) -> list[Entry]:
        """The entries from one line to another, both included, along the way."""
        start, stop = (self._places.get(entry) if (entry := self._entries.get(uuid)) else None for uuid in (first, last))
        return [] if start is None or stop is None else self._order[start : stop + 1]
