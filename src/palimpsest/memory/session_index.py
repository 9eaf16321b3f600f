"""Indexes over the past sessions of a home, one for each project, and the job that keeps them current after turns."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

import msgspec

from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events import Event, SessionOpened
from palimpsest.core.items import Value
from palimpsest.core.plans import JobEnd, JobLimits, JobMoment, JobPlan, JobSituation
from palimpsest.core.ports import LogStat, SessionArchive
from palimpsest.core.text import counted
from palimpsest.memory.past_sessions import event_id, session_units
from palimpsest.memory.recall_index import RecallIndex, encode_index, erase, erased_share
from palimpsest.memory.recall_store import LogRow, RecallFile, Stored, read_index
from palimpsest.memory.recall_terms import RecallUnit
from palimpsest.memory.store import RECALL_FILE, all_tombstones, project_scope
from palimpsest.stores.home import Home
from palimpsest.stores.log_segments import read_segments

if TYPE_CHECKING:
    from palimpsest.memory.recall_ranking import Similar
    from palimpsest.memory.vectors import Embedder, UnitVectors


# Units behind a snapshot: reading them takes about a sixth of a millisecond each.
_LONGEST_TAIL: Final = 500
# An index of which so much was erased is built again.
_MOST_ERASED: Final = 0.5
# Bytes of one log; a longer one is not read.
_LARGEST_LOG: Final = 512 * 1024 * 1024
_encode = msgspec.msgpack.Encoder().encode


class Refreshed(Value, frozen=True):
    """What bringing the indexes up to date came to: logs that were read, those that are left for the next time, and units added."""

    read: int = 0
    left: int = 0
    units: int = 0


class SessionIndexes:
    """The indexes over the sessions of a store, in one database. A session belongs to the project of its folder.

    `forgotten` returns the events, as `session:seq`, of what was forgotten: they are in no index. `embedding` makes vectors of the turns,
    if they are wanted. Several threads may use it, one at a time. Raises `StoreError` if the database cannot be opened.
    """

    def __init__(
        self,
        path: Path,
        store: SessionArchive,
        forgotten: Callable[[], frozenset[str]] = frozenset,
        embedding: "Embedder | None" = None,
    ) -> None:
        self._path = path
        self._store = store
        self._embedding = embedding
        self._makers: dict[str, UnitVectors] = {}
        self._forgotten = forgotten
        self._file = RecallFile(path)
        self._lock = Lock()
        self._loaded: dict[str, tuple[tuple[int, int], RecallIndex]] = {}

    def close(self) -> None:
        """Close the database."""
        self._file.close()

    def refresh(self, seconds: float, *, without: frozenset[str] = frozenset()) -> Refreshed:
        """Read the logs that are new or changed, the newest first, for at most some seconds; `without` are sessions to leave alone."""
        with self._lock:
            return self._refresh(time.monotonic() + seconds, without)

    def _refresh(self, deadline: float, without: frozenset[str]) -> Refreshed:
        rows = self._file.logs()
        stats = {stat.session: stat for stat in self._store.stats() if stat.session not in without}
        changed = [stat for stat in stats.values() if not _is_read(rows.get(stat.session), stat)]
        gone = [row for session, row in rows.items() if session not in stats and session not in without]
        again = [rows[stat.session] for stat in changed if stat.session in rows]
        self._erase([*gone, *again])
        read = units = 0
        for stat in sorted(changed, key=lambda stat: (-stat.changed, stat.session)):
            if read and time.monotonic() > deadline:
                break
            read += 1
            units += self._add(stat)
        self._compact()
        return Refreshed(read, len(changed) - read, units)

    def index(self, part: str) -> RecallIndex:
        """Return the index over the sessions of a project; a damaged one is empty, and is built again by the next refresh."""
        with self._lock:
            return self._index(part)

    def similar(self, part: str, query: str) -> "Similar | None":
        """Return the similarity of a query to the turns of a project, as `index` returns them; `None` without embeddings."""
        if self._embedding is None:
            return None
        from palimpsest.memory.vectors import (
            UnitVectors,  # few sessions want them
            query_similarity,
        )

        with self._lock:
            index = self._index(part)
            maker = self._makers.setdefault(part, UnitVectors(self._embedding, self._path, part))
            return query_similarity(self._embedding, index, query, maker.refresh(index))

    def parts(self) -> tuple[str, ...]:
        """Return the projects that have sessions."""
        return self._file.parts()

    def _index(self, part: str) -> RecallIndex:
        state = self._file.state(part)
        known = self._loaded.get(part)
        if known is not None and known[0] == state:
            return known[1]
        stored = self._file.stored(part)
        index = self._read(part, stored)
        self._loaded[part] = ((stored.generation, stored.last), index)
        return index

    def _read(self, part: str, stored: Stored) -> RecallIndex:
        try:
            return read_index(stored)
        except BadInput:
            self._file.drop((part,))
            return RecallIndex()

    def _erase(self, rows: Iterable[LogRow]) -> None:
        """Remove the units of sessions that were deleted, or that changed and are read again."""
        by_part: dict[str, set[str]] = {}
        for row in rows:
            by_part.setdefault(row.part, set()).add(row.session)
        for part, sessions in by_part.items():
            index = self._index(part)
            gone = [each for each in index.numbers if event_id(each).rpartition(":")[0] in sessions]
            erase(index, gone)
            self._file.save_vectors(part, {}, gone)
            if erased_share(index) > _MOST_ERASED:
                index = RecallIndex(unit for unit in index.units if unit.id)
            self._loaded.pop(part, None)
            self._file.save({part: encode_index(index)})
            self._file.forget_logs(sessions)

    def _add(self, stat: LogStat) -> int:
        """Add the units of one log and return how many; a log that cannot be read has those of its readable beginning."""
        events: list[Event] = []
        if stat.size <= _LARGEST_LOG:
            with suppress(PalimpsestError, OSError), closing(self._store.open(stat.session)) as lines:
                for segment in read_segments(lines, 0):
                    events += (line.event for line in segment.lines)
        opened = events[0].body if events else None
        part = self._scope(opened.cwd) if isinstance(opened, SessionOpened) else ""
        forgotten = self._forgotten()
        # A unit may state what other events say, so these are left out before units are made.
        found = list(_units(stat.session, [event for event in _on_path(events) if f"{stat.session}:{event.seq}" not in forgotten]))
        row = LogRow(stat.session, part, stat.size, stat.changed)
        self._file.add(part, [(unit.id, _encode(unit)) for unit in found], row)
        return len(found)

    def _scope(self, folder: str) -> str:
        """Return the project of a folder; one that is known stays known when the folder is gone."""
        if not folder:
            return ""
        known = self._file.projects().get(folder)
        if known is None:
            known = project_scope(Path(folder) if Path(folder).is_dir() else Path(os.path.realpath(folder)))
            self._file.save_project(folder, known)
        return known

    def _compact(self) -> None:
        """Make new snapshots of indexes to which much was added since."""
        for part in self._file.parts():
            stored = self._file.stored(part) if self._file.tail_size(part) > _LONGEST_TAIL else None
            if stored is not None:
                self._file.compact(part, encode_index(self._read(part, stored)), stored)


def _units(session: str, events: list[Event]) -> Iterator[RecallUnit]:
    """Yield the units of a session, each id once."""
    seen: set[str] = set()
    for unit in session_units(session, events):
        if unit.id not in seen:
            seen.add(unit.id)
            yield unit


def _on_path(events: list[Event]) -> list[Event]:
    """Return the events from the first to the newest without those that the user went back behind."""
    parents = {event.seq: event.parent for event in events}
    path: set[int] = set()
    seq: int | None = events[-1].seq if events else None
    while seq is not None and seq in parents and seq not in path:
        path.add(seq)
        seq = parents[seq]
    return [event for event in events if event.seq in path]


def _is_read(row: LogRow | None, stat: LogStat) -> bool:
    return row is not None and (row.size, row.changed) == (stat.size, stat.changed)


def open_sessions(folder: Path, store: SessionArchive, embedding: "Embedder | None" = None) -> SessionIndexes:
    """Return the indexes over the sessions of a home, without what was forgotten there. Raises `StoreError` if they cannot be opened."""
    return SessionIndexes(folder / "memory" / RECALL_FILE, store, lambda: forgotten_events(folder), embedding)


def unread_sessions(folder: Path, store: SessionArchive) -> int:
    """Return how many sessions of a home are not in the index, or have grown since. Nothing is read into it or written."""
    place = folder / "memory" / RECALL_FILE
    rows: dict[str, LogRow] = {}
    if place.is_file():
        with closing(RecallFile(place)) as stored:
            rows = stored.logs()
    return sum(not _is_read(rows.get(stat.session), stat) for stat in store.stats())


def forgotten_events(folder: Path) -> frozenset[str]:
    """Return the events, as `session:seq`, of all that was forgotten in the home of this folder."""
    return frozenset(event for stone in all_tombstones(folder / "memory", only_readable=True) for event in stone.evidence)


NAME: Final = "past_sessions"
# Seconds of reading after one turn: the first index of a large home is made over several turns.
_SECONDS: Final = 60.0
_LIMITS: Final = JobLimits(calls=0, seconds=600.0, pause_ms=30_000)


@dataclass(frozen=True, slots=True)
class IndexPastSessions:
    """Reads logs that are new or changed since into the index over past sessions; that of this session is left for later."""

    home: Home
    folder: Path
    limits: JobLimits = _LIMITS
    name: str = NAME
    moments: frozenset[JobMoment] = frozenset({"turn_ends"})

    def plan(self, situation: JobSituation) -> JobPlan:
        """Refresh the index at once: plans run in threads of their own. `None` if there was nothing to read."""
        with closing(open_sessions(self.folder, self.home.store)) as sessions:
            done = sessions.refresh(_SECONDS, without=frozenset((situation.session,)))
        if not done.read:
            return None
        left = f", {done.left:,} are left" if done.left else ""
        return JobEnd(why=f"read {counted(done.read, 'session')}{left}")
