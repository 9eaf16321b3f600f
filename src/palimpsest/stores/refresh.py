"""Bringing the index up to what the logs say: only new bytes of logs that grew, whole logs that were replaced."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import Place, Usage
from palimpsest.core.ports import Lines, Shelf
from palimpsest.stores.database import Database
from palimpsest.stores.gather import Gathered, gather, print_of
from palimpsest.stores.units import SessionRow, Tally, units_of
from palimpsest.stores.words import spaced

Progress: TypeAlias = Callable[[int, int], None]
# Whoever else wants to write waits for a commit, about half a second.
_COMMIT_EVERY = 16 * 1024 * 1024
_usages = msgspec.json.Decoder(dict[str, Usage])
_places = msgspec.json.Decoder(Place)

VERSION = 1
# `words` holds no text: it is in the logs already. A unit that goes leaves its words behind under a number that is never used again;
# when a third of all are such, the index is made anew.
SCHEMA = """
CREATE TABLE sessions(
    num INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, path TEXT, title TEXT, origin TEXT, cwd TEXT, model TEXT, profile TEXT,
    created INTEGER, updated INTEGER, events INTEGER, turns INTEGER, tokens INTEGER, usage TEXT, base TEXT, opener TEXT,
    size INTEGER, mtime INTEGER, done INTEGER, last INTEGER, seq INTEGER, print TEXT, first_unit INTEGER, last_unit INTEGER);
CREATE TABLE units(
    num INTEGER PRIMARY KEY, session INTEGER, seq INTEGER, item TEXT, kind TEXT, at INTEGER, start INTEGER, length INTEGER);
CREATE TABLE counts(name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID;
INSERT INTO counts VALUES ('next', 1), ('dead', 0);
CREATE VIRTUAL TABLE words USING fts5(text, content='', tokenize="unicode61 remove_diacritics 2");
INSERT INTO words(words, rank) VALUES ('hashsize', 16777216), ('automerge', 8)
"""
ROW_COLUMNS = "id, path, title, origin, cwd, model, profile, created, updated, events, turns, tokens, usage, base, opener"
SEEN_COLUMNS = "size, mtime, done, last, seq, print, first_unit, last_unit"


class Stated(Shelf, Protocol):
    """A shelf that can say how its files are without opening them."""

    def stats(self) -> Iterable[tuple[str, str, int, int]]:
        """Of each session its id, path, size in bytes and time of the last change in nanoseconds."""
        ...


class RefreshReport(Struct, frozen=True):
    """What a refresh did: logs and bytes read, logs with something unreadable and why, and how many vanished."""

    read: int = 0
    bytes: int = 0
    skipped: tuple[tuple[str, str], ...] = ()
    bad_lines: int = 0
    gone: int = 0


class Seen(Struct, frozen=True):
    """How far a log was read: size and time when it was looked at, bytes done, where the last line begins, and its units."""

    size: int = -1
    mtime: int = -1
    done: int = 0
    last: int = 0
    seq: int = -1
    print: str = ""
    first_unit: int = 0
    last_unit: int = -1


def row_of(values: tuple[Any, ...]) -> SessionRow:
    """A session as the table has it."""
    *plain, usage, base, opener = values
    return SessionRow(*[*plain, _usages.decode(usage), base and _places.decode(base), opener and _places.decode(opener)])


class Refresher:
    """One refresh of an index."""

    def __init__(self, database: Database, shelf: Stated, progress: Progress | None = None) -> None:
        self._database = database
        self._connection = database.connection
        self._shelf = shelf
        self._progress = progress
        self._read = self._bytes = self._bad = self._gone = 0
        self._skipped: list[tuple[str, str]] = []

    def run(self) -> RefreshReport:
        """Read what is new, the log that changed longest ago first, so that units are numbered by time as far as may be."""
        stats = {session: (path, size, mtime) for session, path, size, mtime in self._shelf.stats()}
        known = known_stats(self._connection)
        changed = sorted((mtime, session) for session, (_, size, mtime) in stats.items() if known.get(session) != (size, mtime))
        gone = known.keys() - stats.keys()
        total = sum(stats[session][1] for _, session in changed)
        waiting = iter(changed)
        while gone or changed:
            with self._database.writing():
                for session in gone:
                    self._forget(session)
                    self._gone += 1
                gone = set()
                if self._take_some((session, *stats[session]) for _, session in waiting):
                    break
            if self._progress is not None:
                self._progress(self._bytes, max(total, self._bytes))
        return RefreshReport(self._read, self._bytes, tuple(self._skipped), self._bad, self._gone)

    def _take_some(self, waiting: Iterator[tuple[str, str, int, int]]) -> bool:
        """Take logs until it is time to commit; whether none is left."""
        stop = self._bytes + _COMMIT_EVERY
        for session, path, size, mtime in waiting:
            try:
                self._take(session, path, size, mtime)
            except (PalimpsestError, OSError) as error:
                self._skip(path, error)
            if self._bytes >= stop:
                return False
        return True

    def _take(self, session: str, path: str, size: int, mtime: int) -> None:
        found = self._connection.execute(f"SELECT num, {SEEN_COLUMNS}, {ROW_COLUMNS} FROM sessions WHERE id = ?", (session,)).fetchone()  # noqa: S608 - column names
        if found is not None and (found[1], found[2]) == (size, mtime):
            return
        lines = self._shelf.open(session)
        try:
            number, seen, row = None, Seen(), SessionRow(session)
            if found is not None:
                number, seen = found[0], Seen(*found[1:9])
                # A changed log of the same size was touched or redacted: nobody knows where, so it is read again.
                if size != seen.size and print_of(lines, seen.last, seen.done) == seen.print:
                    row = row_of(found[9:])
                else:
                    self._forget(session)
                    number, seen = None, Seen()
            self._read += 1
            self._index(lines, number, msgspec.structs.replace(seen, size=size, mtime=mtime), msgspec.structs.replace(row, path=path))
        finally:
            lines.close()

    def _index(self, lines: Lines, number: int | None, seen: Seen, row: SessionRow) -> None:
        if number is None:
            (number,) = self._connection.execute("INSERT INTO sessions(id) VALUES (?) RETURNING num", (row.id,)).fetchone()
        (unit,) = self._connection.execute("SELECT value FROM counts WHERE name = 'next'").fetchone()
        tally = Tally(row)
        first, bad, first_bad, done, last, seq = unit, 0, -1, seen.done, seen.last, seen.seq
        try:
            for run in gather(lines, seen.done):
                unit = self._insert(run, number, unit, tally)
                first_bad = run.first_bad if not bad else first_bad
                bad += run.bad
                self._bytes += run.end - done
                done = run.end
                if run.lines:
                    last, seq = run.lines[-1].start, run.lines[-1].event.seq
        except (PalimpsestError, OSError) as error:
            # What could be read stays; the rest is tried again when the file changes.
            self._skip(row.path, error)
        if bad:
            self._bad += bad
            self._skipped.append((row.path, f"{bad} {'line is' if bad == 1 else 'lines are'} no event; the first at byte {first_bad}"))
        units = (seen.first_unit or first, unit - 1 if unit > first else seen.last_unit)
        fresh = Seen(seen.size, seen.mtime, done, last, seq, print_of(lines, last, done), *units)
        self._connection.execute("UPDATE counts SET value = ? WHERE name = 'next'", (unit,))
        self._store(number, fresh, tally.row)

    def _skip(self, path: str, error: PalimpsestError | OSError) -> None:
        self._skipped.append((path, error.message if isinstance(error, PalimpsestError) else str(error)))

    def _insert(self, run: Gathered, number: int, unit: int, tally: Tally) -> int:
        places: list[tuple[int | str, ...]] = []
        texts: list[tuple[int, str]] = []
        for line in run.lines:
            tally.take(line.event)
            for found in units_of(line.event):
                places.append((unit, number, line.event.seq, found.item, found.kind, line.event.at, line.start, line.length))
                texts.append((unit, spaced(found.text)))
                unit += 1
        self._connection.executemany("INSERT INTO units VALUES (?, ?, ?, ?, ?, ?, ?, ?)", places)
        self._connection.executemany("INSERT INTO words(rowid, text) VALUES (?, ?)", texts)
        return unit

    def _store(self, number: int, seen: Seen, row: SessionRow) -> None:
        *plain, usage, base, opener = msgspec.structs.astuple(row)
        coded = (value if value is None else msgspec.json.encode(value).decode() for value in (usage, base, opener))
        values = (*plain, *coded, *msgspec.structs.astuple(seen))
        columns = ", ".join(f"{name} = ?" for name in f"{ROW_COLUMNS}, {SEEN_COLUMNS}".split(", "))
        self._connection.execute(f"UPDATE sessions SET {columns} WHERE num = ?", (*values, number))  # noqa: S608 - column names

    def _forget(self, session: str) -> None:
        where = "session = (SELECT num FROM sessions WHERE id = ?1) AND num >= (SELECT first_unit FROM sessions WHERE id = ?1)"
        gone = self._connection.execute(f"DELETE FROM units WHERE {where}", (session,)).rowcount  # noqa: S608 - a constant
        self._connection.execute("UPDATE counts SET value = value + ? WHERE name = 'dead'", (gone,))
        self._connection.execute("DELETE FROM sessions WHERE id = ?", (session,))


def known_stats(connection: sqlite3.Connection) -> dict[str, tuple[int, int]]:
    """Size and time of each log when it was last looked at."""
    return {session: (size, mtime) for session, size, mtime in connection.execute("SELECT id, size, mtime FROM sessions")}
