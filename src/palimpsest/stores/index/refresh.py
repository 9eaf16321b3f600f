"""Updates the index from the logs: reads only the new bytes of logs that grew, and replaced logs completely."""

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import EventRef, SessionOpened
from palimpsest.core.format.checkpoint import lost_end
from palimpsest.core.ports import CountedContext, LogFile, LogStat, Progress, RefreshReport, SessionArchive, SessionRow
from palimpsest.core.tokens.spending import Ledger
from palimpsest.stores.index.database import Database
from palimpsest.stores.index.search_text import separate_cjk
from palimpsest.stores.index.search_units import SessionRowBuilder, search_units
from palimpsest.stores.logs.segments import LogSegment, read_segments

# Bytes read between commits; other writers wait for a commit, about half a second.
_COMMIT_BYTES = 16 * 1024 * 1024
_PIECE_BYTES = 1024 * 1024
# Read again whenever a log has grown, which takes a few hundredths of a second.
_FINGERPRINTED_BYTES = 32 * _PIECE_BYTES
_LAST_LINE_BYTES = 512
_ledgers = msgspec.json.Decoder(Ledger)
_places = msgspec.json.Decoder(EventRef)
_counts = msgspec.json.Decoder(CountedContext)

# Raised too when the same log is counted otherwise than before, because `counted` keeps counts.
VERSION = 7
# `words` stores no text, because the logs have it. A deleted unit leaves its words under a number that is never used again; when a third of
# all units are deleted, the index is rebuilt. `fault` is the reason why a log could not be read completely; `shut` marks a log that could
# not be opened.
SCHEMA = """
CREATE TABLE sessions(
    num INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, path TEXT, title TEXT, origin TEXT, cwd TEXT, model TEXT, profile TEXT,
    created INTEGER, updated INTEGER, events INTEGER, turns INTEGER, tokens INTEGER, context INTEGER, ledger TEXT, base TEXT, opener TEXT,
    counted TEXT, size INTEGER, mtime INTEGER, done INTEGER, last INTEGER, seq INTEGER, print TEXT, first_unit INTEGER, last_unit INTEGER,
    bad INTEGER, first_bad INTEGER, fault TEXT, shut INTEGER);
CREATE TABLE units(
    num INTEGER PRIMARY KEY, session INTEGER, seq INTEGER, item TEXT, kind TEXT, at INTEGER, start INTEGER, length INTEGER);
CREATE TABLE counts(name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID;
INSERT INTO counts VALUES ('next', 1), ('dead', 0);
CREATE VIRTUAL TABLE words USING fts5(text, content='', tokenize="unicode61 remove_diacritics 2");
INSERT INTO words(words, rank) VALUES ('hashsize', 16777216), ('automerge', 8)
"""
# The columns of `sessions`: its number, the fields of `SessionRow`, and the fields of `ReadState`.
_ROW_FIELDS, _STATE_FIELDS = slice(1, 18), slice(18, 30)
_SAVE = "REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
# The range of numbers makes this fast: units of a session are looked up by number, not by session.
_DELETE_UNITS = """DELETE FROM units WHERE session = (SELECT num FROM sessions WHERE id = :id)
    AND num >= (SELECT first_unit FROM sessions WHERE id = :id)"""


class ReadState(Struct, frozen=True):
    """How far a log was read; the columns of the table `sessions` in this order.

    size, mtime: size in bytes and time of the last change when it was read.
    done, last, seq: bytes read, and offset and number of the last event.
    first_unit, last_unit: the range of its units.
    bad, first_bad: number of lines that are no events, and the offset of the first.
    fault, shut: why it could not be read completely, and whether it could not be opened.
    """

    size: int = -1
    mtime: int = -1
    done: int = 0
    last: int = 0
    seq: int = -1
    fingerprint: str = ""
    first_unit: int = 0
    last_unit: int = -1
    bad: int = 0
    first_bad: int = -1
    fault: str = ""
    shut: bool = False


def session_row(values: tuple[Any, ...]) -> SessionRow:
    """Return the session of a row of the table `sessions`."""
    *plain, ledger, base, opener, counted = values[_ROW_FIELDS]
    places = [place and _places.decode(place) for place in (base, opener)]
    return SessionRow(*[*plain, _ledgers.decode(ledger), *places, counted and _counts.decode(counted)])


def keep_counts(connection: sqlite3.Connection, rows: Sequence[SessionRow]) -> None:
    """Keep what was counted of logs, unless another process has read new events of them since."""
    values = [(msgspec.json.encode(row.counted).decode(), row.id, row.events) for row in rows if row.counted is not None]
    connection.executemany("UPDATE sessions SET counted = ? WHERE id = ? AND events = ?", values)


def fingerprint(lines: LogFile, last: int, done: int) -> str:
    """Return a digest of the first 32 MiB of a log and of the line at `last`, whose hash chain covers all lines before it.

    The chain alone is not enough, because it stays valid when a line is redacted.
    """
    digest = blake2b(lines.read(last, min(_LAST_LINE_BYTES, done - last)), digest_size=32)
    for start in range(0, min(_FINGERPRINTED_BYTES, done), _PIECE_BYTES):
        digest.update(lines.read(start, min(_PIECE_BYTES, done - start, _FINGERPRINTED_BYTES - start)))
    return digest.hexdigest()


class Refresher:
    """One update of an index from the logs."""

    def __init__(self, database: Database, store: SessionArchive, progress: Progress | None = None) -> None:
        self._database = database
        self._connection = database.connection
        self._store = store
        self._progress = progress
        self._read = self._bytes = self._bad = self._deleted = 0
        self._skipped: list[tuple[str, str]] = []

    def run(self) -> RefreshReport:
        """Read what is new in the logs, the least recently changed log first, so that units are mostly numbered by time."""
        stats = {stat.session: stat for stat in self._store.stats()}
        indexed = known_stats(self._connection)
        readable_again = self._readable_again(stats.keys())
        changed = sorted(
            (stat.changed, session)
            for session, stat in stats.items()
            if session in readable_again or indexed.get(session) != (stat.size, stat.changed)
        )
        deleted = indexed.keys() - stats.keys()
        total = sum(stats[session].size for _, session in changed)
        waiting = iter(changed)
        while deleted or changed:
            with self._database.writing():
                for session in deleted:
                    forget(self._connection, session)
                    self._deleted += 1
                deleted = set()
                if self._index_some(stats[session] for _, session in waiting):
                    break
            if self._progress is not None:
                self._progress(self._bytes, max(total, self._bytes))
        return RefreshReport(self._read, self._bytes, tuple(self._skipped), self._bad, self._deleted)

    def _readable_again(self, existing: Collection[str]) -> set[str]:
        """Return logs that could not be opened before and can be now; a change of permissions does not change the time of a file."""
        readable: set[str] = set()
        for (session,) in self._connection.execute("SELECT id FROM sessions WHERE shut").fetchall():
            if session in existing:
                with suppress(PalimpsestError, OSError):
                    self._store.open(session).close()
                    readable.add(session)
        return readable

    def _index_some(self, waiting: Iterator[LogStat]) -> bool:
        """Index logs until it is time to commit; return whether none is left."""
        stop = self._bytes + _COMMIT_BYTES
        for stat in waiting:
            try:
                self._index_log(*stat)
            except (PalimpsestError, OSError) as error:
                self._record_unopened(*stat, self._skip(stat.name, error))
            if self._bytes >= stop:
                return False
        return True

    def _index_log(self, session: str, path: str, size: int, mtime: int) -> None:
        found = self._connection.execute("SELECT * FROM sessions WHERE id = ?", (session,)).fetchone()
        state = ReadState() if found is None else ReadState(*found[_STATE_FIELDS])
        if (state.size, state.mtime) == (size, mtime) and not state.shut:
            return
        with closing(self._store.open(session)) as lines:
            number, row = None, SessionRow(session)
            if found is not None:
                number = found[0]
                # A changed log of the same size was touched or redacted at an unknown place, so that it is read again.
                if size != state.size and fingerprint(lines, state.last, state.done) == state.fingerprint:
                    row = session_row(found)
                else:
                    forget(self._connection, session)
                    number, state = None, ReadState()
            self._read += 1
            self._index_new_lines(
                lines,
                number,
                msgspec.structs.replace(state, size=size, mtime=mtime, fault="", shut=False),
                msgspec.structs.replace(row, path=path),
            )

    def _index_new_lines(self, lines: LogFile, number: int | None, state: ReadState, row: SessionRow) -> None:
        if number is None:
            (number,) = self._connection.execute("INSERT INTO sessions(id) VALUES (?) RETURNING num", (row.id,)).fetchone()
        (unit,) = self._connection.execute("SELECT value FROM counts WHERE name = 'next'").fetchone()
        row_builder = SessionRowBuilder(row)
        first, bad, first_bad, done, last, seq, fault = unit, 0, -1, state.done, state.last, state.seq, ""
        try:
            for run in read_segments(lines, state.done, state.last):
                unit = self._insert(run, number, unit, row_builder)
                fault = fault or run.fault or _fault_of_opening(run, row.id)
                first_bad = run.first_bad if not bad else first_bad
                bad += run.bad
                self._bytes += run.end - done
                done = run.end
                if run.lines:
                    last, seq = run.lines[-1].start, run.lines[-1].event.seq
        except (PalimpsestError, OSError) as error:
            # The events before the failure stay; the rest is read when the file changes.
            fault = self._skip(row.path, error)
        else:
            fault = fault or lost_end(lines, seq)
            self._skipped += [(row.path, fault)] if fault else []
        if bad:
            self._bad += bad
            self._skipped.append((row.path, _bad_lines_text(bad, first_bad)))
        new_state = msgspec.structs.replace(
            state,
            done=done,
            last=last,
            seq=seq,
            fingerprint=_fingerprint_or_empty(lines, last, done),
            first_unit=state.first_unit or first,
            last_unit=unit - 1 if unit > first else state.last_unit,
            bad=state.bad + bad,
            first_bad=state.first_bad if state.bad else first_bad,
            fault=fault,
        )
        self._connection.execute("UPDATE counts SET value = ? WHERE name = 'next'", (unit,))
        self._save(number, new_state, row_builder.row)

    def _skip(self, path: str, error: PalimpsestError | OSError) -> str:
        why = error.message if isinstance(error, PalimpsestError) else str(error)
        self._skipped.append((path, why))
        return why

    def _record_unopened(self, session: str, path: str, size: int, mtime: int, why: str) -> None:
        """Record a log that could not be opened; earlier rows of it stay."""
        found = self._connection.execute("SELECT num FROM sessions WHERE id = ?", (session,)).fetchone()
        if found is None:
            (number,) = self._connection.execute("INSERT INTO sessions(id) VALUES (?) RETURNING num", (session,)).fetchone()
            self._save(number, ReadState(size, mtime, fault=why, shut=True), SessionRow(session, path))
        else:
            self._connection.execute(
                "UPDATE sessions SET size = ?, mtime = ?, fault = ?, shut = 1 WHERE num = ?", (size, mtime, why, *found)
            )

    def _insert(self, run: LogSegment, number: int, unit: int, row_builder: SessionRowBuilder) -> int:
        phrase_spans: list[tuple[int | str, ...]] = []
        texts: list[tuple[int, str]] = []
        for line in run.lines:
            row_builder.add(line.event)
            for found in search_units(line.event):
                phrase_spans.append((unit, number, line.event.seq, found.item, found.kind, line.event.at, line.start, line.length))
                texts.append((unit, separate_cjk(found.text)))
                unit += 1
        self._connection.executemany("INSERT INTO units VALUES (?, ?, ?, ?, ?, ?, ?, ?)", phrase_spans)
        self._connection.executemany("INSERT INTO words(rowid, text) VALUES (?, ?)", texts)
        return unit

    def _save(self, number: int, state: ReadState, row: SessionRow) -> None:
        *plain, ledger, base, opener, counted = msgspec.structs.astuple(row)
        coded = (value if value is None else msgspec.json.encode(value).decode() for value in (ledger, base, opener, counted))
        self._connection.execute(_SAVE, (number, *plain, *coded, *msgspec.structs.astuple(state)))


def forget(connection: sqlite3.Connection, session: str) -> None:
    """Delete a session from the list and from search results; its words stay in the file until the next purge."""
    deleted = connection.execute(_DELETE_UNITS, {"id": session}).rowcount
    connection.execute("UPDATE counts SET value = value + ? WHERE name = 'dead'", (deleted,))
    connection.execute("DELETE FROM sessions WHERE id = ?", (session,))


def known_stats(connection: sqlite3.Connection) -> dict[str, tuple[int, int]]:
    """Return size and time of the last change of each log, as of the last refresh."""
    return {session: (size, mtime) for session, size, mtime in connection.execute("SELECT id, size, mtime FROM sessions")}


def known_faults(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return path and reason of each log that could not be read completely."""
    found = connection.execute("SELECT path, bad, first_bad, fault FROM sessions WHERE bad > 0 OR fault != '' ORDER BY path").fetchall()
    return [(path, "; ".join(filter(None, (fault, _bad_lines_text(bad, first_bad))))) for path, bad, first_bad, fault in found]


def _fault_of_opening(run: LogSegment, session: str) -> str:
    """Return a sentence if the segment opens another session than the one of its file; else empty."""
    opened = run.lines[0].event.body if run.lines else None
    if not isinstance(opened, SessionOpened) or opened.session == session:
        return ""
    return f"this is the log of session {opened.session}"


def _bad_lines_text(bad: int, first_bad: int) -> str:
    return f"{bad} {'line is' if bad == 1 else 'lines are'} no event; the first at byte {first_bad}" if bad else ""


def _fingerprint_or_empty(lines: LogFile, last: int, done: int) -> str:
    """Return the fingerprint of a log; empty if reading fails, so that the log is read from its beginning next time."""
    try:
        return fingerprint(lines, last, done)
    except (PalimpsestError, OSError):
        return ""
