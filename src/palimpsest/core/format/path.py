"""The way from the root of a log to its tip: runs of event numbers, one per branch taken."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Final, Self, TypeAlias

from palimpsest.core.items import Value

# Edits that were undone: by event, the indexes of its edits; no index means all of them.
Skip: TypeAlias = Mapping[int, frozenset[int]]
NOTHING_UNDONE: Final[Skip] = {}


class EventRange(Value, frozen=True):
    """Events `first` to `last`, both included, that follow one another."""

    first: int
    last: int


class Path(Value, frozen=True):
    """The runs from root to tip, in order."""

    runs: tuple[EventRange, ...] = ()

    @property
    def tip(self) -> int:
        """The last event, or -1 of an empty log."""
        return self.runs[-1].last if self.runs else -1

    def __contains__(self, seq: int) -> bool:
        return any(run.first <= seq <= run.last for run in self.runs)

    def upto(self, seq: int) -> Self:
        """The part of the path that ends with an event of it."""
        kept = tuple(EventRange(run.first, min(run.last, seq)) for run in self.runs if run.first <= seq)
        return type(self)(kept)

    def then(self, seq: int, parent: int) -> Self:
        """The path after one more event."""
        runs = self.runs
        if runs and parent == runs[-1].last:
            if seq == parent + 1:
                return type(self)((*runs[:-1], EventRange(runs[-1].first, seq)))
            return type(self)((*runs, EventRange(seq, seq)))
        return type(self)((*self.upto(parent).runs, EventRange(seq, seq)))


def path_to(seq: int, first: int, jumps: Iterable[tuple[int, int]]) -> Path:
    """The path that ends with `seq` in a file that begins at `first`; a jump is an event whose parent is not the one before it."""
    parents = dict(jumps)
    starts = sorted(parents)
    runs: list[EventRange] = []
    last = seq
    while True:
        place = bisect_right(starts, last)
        start = starts[place - 1] if place else first
        runs.append(EventRange(start, last))
        parent = parents.get(start)
        if parent is None or parent < first:
            return Path(tuple(reversed(runs)))
        last = parent
