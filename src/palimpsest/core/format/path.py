"""Paths through a log: the ranges of events from the first event to the tip of a branch."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Final, Self, TypeAlias

from palimpsest.core.items import Value

# The undone edits: by event, the indexes of its edits; an empty set means all of them.
UndoneEdits: TypeAlias = Mapping[int, frozenset[int]]
NOTHING_UNDONE: Final[UndoneEdits] = {}


class EventRange(Value, frozen=True):
    """Consecutive events `first` to `last`, both included."""

    first: int
    last: int


_first = attrgetter("first")


class Path(Value, frozen=True):
    """The events from the first to the tip of a branch, as ranges in order."""

    ranges: tuple[EventRange, ...] = ()

    @property
    def tip(self) -> int:
        """The last event, or -1 if the path is empty."""
        return self.ranges[-1].last if self.ranges else -1

    def __contains__(self, seq: int) -> bool:
        place = bisect_right(self.ranges, seq, key=_first) - 1
        return place >= 0 and seq <= self.ranges[place].last

    def upto(self, seq: int) -> Self:
        """Return the part of the path up to event `seq`."""
        return type(self)(tuple(EventRange(part.first, min(part.last, seq)) for part in self.ranges if part.first <= seq))

    def then(self, seq: int, parent: int) -> Self:
        """Return the path to event `seq`, which follows `parent`."""
        ranges = self.ranges
        if ranges and parent == ranges[-1].last:
            if seq == parent + 1:
                return type(self)((*ranges[:-1], EventRange(ranges[-1].first, seq)))
            return type(self)((*ranges, EventRange(seq, seq)))
        return type(self)((*self.upto(parent).ranges, EventRange(seq, seq)))


def path_to(seq: int, first: int, jumps: Iterable[tuple[int, int]]) -> Path:
    """Return the path to `seq` in a file that begins with event `first`; a jump is an event and its parent."""
    parents = dict(jumps)
    starts = sorted(parents)
    ranges: list[EventRange] = []
    last = seq
    while True:
        place = bisect_right(starts, last)
        start = starts[place - 1] if place else first
        ranges.append(EventRange(start, last))
        parent = parents.get(start)
        if parent is None or parent < first:
            return Path(tuple(reversed(ranges)))
        last = parent
