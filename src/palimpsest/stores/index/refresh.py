"""Bringing the index up to what the logs say: only new bytes of logs that grew, whole logs that were replaced."""

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import EventRef, Usage
from palimpsest.core.ports import LogFile, LogStat, Progress, RefreshReport, SessionArchive, SessionRow
from palimpsest.stores.index.database import Database
from palimpsest.stores.index.gather import Gathered, gather, print_of
from palimpsest.stores.index.units import Tally, units_of
from palimpsest.stores.index.words import spaced

# Whoever else wants to write waits for a commit, about half a second.
_COMMIT_EVERY = 16 * 1024 * 1024
_usages = msgspec.json.Decoder(dict[str, Usage])
_places = msgspec.json.Decoder(EventRef)

VERSION = 2
# `words` holds no text: it is in the logs already. A unit that goes leaves its words behind under a number that is never used again;
# when a third of all are such, the index is made anew. `fault` says why not all of a log could be read; one that is `shut` could not even
# be opened.
SCHEMA = """
CREATE TABLE sessions(
    num INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, path TEXT, title TEXT, origin TEXT, cwd TEXT, model TEXT, profile TEXT,
    created INTEGER, updated INTEGER, events INTEGER, turns INTEGER, tokens INTEGER, usage TEXT, base TEXT, opener TEXT,
    size INTEGER, mtime INTEGER, done INTEGER, last INTEGER, seq INTEGER, print TEXT, first_unit INTEGER, last_unit INTEGER,
    bad INTEGER, first_bad INTEGER, fault TEXT, shut INTEGER);
CREATE TABLE units(
    num INTEGER PRIMARY KEY, session INTEGER, seq INTEGER, item TEXT, kind TEXT, at INTEGER, start INTEGER, length INTEGER);
CREATE TABLE counts(name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID;
INSERT INTO counts VALUES ('next', 1), ('dead', 0);
CREATE VIRTUAL TABLE words USING fts5(text, content='', tokenize="unicode61 remove_diacritics 2");
INSERT INTO words(words, rank) VALUES ('hashsize', 16777216), ('automerge', 8)
"""
ROW_COLUMNS = "id, path, title, origin, cwd, model, profile, created, updated, events, turns, tokens, usage, base, opener"
SEEN_COLUMNS = "size, mtime, done, last, seq, print, first_unit, last_unit, bad, first_bad, fault, shut"


class Seen(Struct, frozen=True):
    """How far a log was read: size and time when it was looked at, bytes done, where the last line begins, its units, what was bad."""

    size: int = -1
    mtime: int = -1
    done: int = 0
    last: int = 0
    seq: int = -1
    print: str = ""
    first_unit: int = 0
    last_unit: int = -1
    bad: int = 0
    first_bad: int = -1
    fault: str = ""
    shut: bool = False


def row_of(values: tuple[Any, ...]) -> SessionRow:
    """A session as the table has it."""
    *plain, usage, base, opener = values
    return SessionRow(*[*plain, _usages.decode(usage), base and _places.decode(base), opener and _places.decode(opener)])


class Refresher:
    """One refresh of an index."""

    def __init__(self, database: Database, store: SessionArchive, progress: Progress | None = None) -> None:
        self._database = database
        self._connection = database.connection
        self._store = store
        self._progress = progress
        self._read = self._bytes = self._bad = self._gone = 0
        self._skipped: list[tuple[str, str]] = []

    def run(self) -> RefreshReport:
        """Read what is new, the log that changed longest ago first, so that units are numbered by time as far as may be."""
        stats = {stat.session: stat for stat in self._store.stats()}
        known = known_stats(self._connection)
        again = self._opened_again(stats.keys())
        changed = sorted(
            (stat.changed, session)
            for session, stat in stats.items()
            if session in again or known.get(session) != (stat.size, stat.changed)
        )
        gone = known.keys() - stats.keys()
        total = sum(stats[session].size for _, session in changed)
        waiting = iter(changed)
        while gone or changed:
            with self._database.writing():
                for session in gone:
                    forget(self._connection, session)
                    self._gone += 1
                gone = set()
                if self._take_some(stats[session] for _, session in waiting):
                    break
            if self._progress is not None:
                self._progress(self._bytes, max(total, self._bytes))
        return RefreshReport(self._read, self._bytes, tuple(self._skipped), self._bad, self._gone)

    def _opened_again(self, there: Collection[str]) -> set[str]:
        """Logs that could not be opened and can be now: a change of their mode is no change of their time."""
        again: set[str] = set()
        for (session,) in self._connection.execute("SELECT id FROM sessions WHERE shut").fetchall():
            if session in there:
                with suppress(PalimpsestError, OSError):
                    self._store.open(session).close()
                    again.add(session)
        return again

    def _take_some(self, waiting: Iterator[LogStat]) -> bool:
        """Take logs until it is time to commit; whether none is left."""
        stop = self._bytes + _COMMIT_EVERY
        for stat in waiting:
            try:
                self._take(*stat)
            except (PalimpsestError, OSError) as error:
                self._shut(*stat, self._skip(stat.name, error))
            if self._bytes >= stop:
                return False
        return True

    def _take(self, session: str, path: str, size: int, mtime: int) -> None:
        found = self._connection.execute(f"SELECT num, {SEEN_COLUMNS}, {ROW_COLUMNS} FROM sessions WHERE id = ?", (session,)).fetchone()  # noqa: S608 - column names
        seen = Seen() if found is None else Seen(*found[1 : 1 + len(Seen.__struct_fields__)])
        if (seen.size, seen.mtime) == (size, mtime) and not seen.shut:
            return
        lines = self._store.open(session)
        try:
            number, row = None, SessionRow(session)
            if found is not None:
                number = found[0]
                # A changed log of the same size was touched or redacted: nobody knows where, so it is read again.
                if size != seen.size and print_of(lines, seen.last, seen.done) == seen.print:
                    row = row_of(found[1 + len(Seen.__struct_fields__) :])
                else:
                    forget(self._connection, session)
                    number, seen = None, Seen()
            self._read += 1
            self._index(
                lines,
                number,
                msgspec.structs.replace(seen, size=size, mtime=mtime, fault="", shut=False),
                msgspec.structs.replace(row, path=path),
            )
        finally:
            lines.close()

    def _index(self, lines: LogFile, number: int | None, seen: Seen, row: SessionRow) -> None:
        if number is None:
            (number,) = self._connection.execute("INSERT INTO sessions(id) VALUES (?) RETURNING num", (row.id,)).fetchone()
        (unit,) = self._connection.execute("SELECT value FROM counts WHERE name = 'next'").fetchone()
        tally = Tally(row)
        first, bad, first_bad, done, last, seq, fault = unit, 0, -1, seen.done, seen.last, seen.seq, ""
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
            fault = self._skip(row.path, error)
        if bad:
            self._bad += bad
            self._skipped.append((row.path, _no_events(bad, first_bad)))
        fresh = msgspec.structs.replace(
            seen,
            done=done,
            last=last,
            seq=seq,
            print=_print_of(lines, last, done),
            first_unit=seen.first_unit or first,
            last_unit=unit - 1 if unit > first else seen.last_unit,
            bad=seen.bad + bad,
            first_bad=seen.first_bad if seen.bad else first_bad,
            fault=fault,
        )
        self._connection.execute("UPDATE counts SET value = ? WHERE name = 'next'", (unit,))
        self._save(number, fresh, tally.row)

    def _skip(self, path: str, error: PalimpsestError | OSError) -> str:
        why = error.message if isinstance(error, PalimpsestError) else str(error)
        self._skipped.append((path, why))
        return why

    def _shut(self, session: str, path: str, size: int, mtime: int, why: str) -> None:
        """Remember how a log was that could not be opened; what is known of it stays."""
        found = self._connection.execute("SELECT num FROM sessions WHERE id = ?", (session,)).fetchone()
        if found is None:
            (number,) = self._connection.execute("INSERT INTO sessions(id) VALUES (?) RETURNING num", (session,)).fetchone()
            self._save(number, Seen(size, mtime, fault=why, shut=True), SessionRow(session, path))
        else:
            self._connection.execute(
                "UPDATE sessions SET size = ?, mtime = ?, fault = ?, shut = 1 WHERE num = ?", (size, mtime, why, *found)
            )

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

    def _save(self, number: int, seen: Seen, row: SessionRow) -> None:
        *plain, usage, base, opener = msgspec.structs.astuple(row)
        coded = (value if value is None else msgspec.json.encode(value).decode() for value in (usage, base, opener))
        values = (*plain, *coded, *msgspec.structs.astuple(seen))
        columns = ", ".join(f"{name} = ?" for name in f"{ROW_COLUMNS}, {SEEN_COLUMNS}".split(", "))
        self._connection.execute(f"UPDATE sessions SET {columns} WHERE num = ?", (*values, number))  # noqa: S608 - column names


def forget(connection: sqlite3.Connection, session: str) -> None:
    """Take a session out of the list and out of what is found; its words stay in the file until they are purged."""
    where = "session = (SELECT num FROM sessions WHERE id = :id) AND num >= (SELECT first_unit FROM sessions WHERE id = :id)"
    gone = connection.execute(f"DELETE FROM units WHERE {where}", {"id": session}).rowcount  # noqa: S608 - a constant
    connection.execute("UPDATE counts SET value = value + ? WHERE name = 'dead'", (gone,))
    connection.execute("DELETE FROM sessions WHERE id = ?", (session,))


def known_stats(connection: sqlite3.Connection) -> dict[str, tuple[int, int]]:
    """Size and time of each log when it was last looked at."""
    return {session: (size, mtime) for session, size, mtime in connection.execute("SELECT id, size, mtime FROM sessions")}


def known_faults(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Path and reason of each log of which not all could be read."""
    found = connection.execute("SELECT path, bad, first_bad, fault FROM sessions WHERE bad > 0 OR fault != '' ORDER BY path").fetchall()
    return [(path, "; ".join(filter(None, (fault, _no_events(bad, first_bad))))) for path, bad, first_bad, fault in found]


def _no_events(bad: int, first_bad: int) -> str:
    return f"{bad} {'line is' if bad == 1 else 'lines are'} no event; the first at byte {first_bad}" if bad else ""


def _print_of(lines: LogFile, last: int, done: int) -> str:
    """The print of a log; without one, where the disk fails, it is read again from its beginning next time."""
    try:
        return print_of(lines, last, done)
    except (PalimpsestError, OSError):
        return ""
