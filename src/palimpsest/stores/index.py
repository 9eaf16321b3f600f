"""The search index over all sessions in SQLite, and its update from the logs, which reads only new bytes."""

import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, suppress
from hashlib import blake2b
from typing import Any, Self, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from palimpsest.core.errors import Locked, PalimpsestError
from palimpsest.core.events import EventRef, SessionOpened
from palimpsest.core.lines import decode_line, lost_end
from palimpsest.core.ports import CountedContext, Hit, LogFile, LogStat, Progress, RefreshReport, SessionArchive, SessionRow, UnitKind
from palimpsest.core.spending import ChildRecord, Ledger
from palimpsest.stores.database import Database, is_damaged, is_unwritable
from palimpsest.stores.index_units import Query, SessionRowBuilder, read_query, search_units, separate_cjk, snippet
from palimpsest.stores.log_segments import LogSegment, read_segments

# Bytes read between commits; other writers wait for a commit, about half a second.
_COMMIT_BYTES = 16 * 1024 * 1024
_PIECE_BYTES = 1024 * 1024
# Read again whenever a log has grown, which takes a few hundredths of a second.
_FINGERPRINTED_BYTES = 32 * _PIECE_BYTES
_LAST_LINE_BYTES = 512
_ledgers = msgspec.json.Decoder(Ledger)
_places = msgspec.json.Decoder(EventRef)
_counts = msgspec.json.Decoder(CountedContext)
_children = msgspec.json.Decoder(tuple[ChildRecord, ...])

# Raised too when the same log is counted otherwise than before, because `counted` keeps counts.
VERSION = 8
# `words` stores no text, because the logs have it. A deleted unit leaves its words under a number that is never used again; when a third of
# all units are deleted, the index is rebuilt. `fault` is the reason why a log could not be read completely; `shut` marks a log that could
# not be opened.
SCHEMA = """
CREATE TABLE sessions(
    num INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, path TEXT, title TEXT, origin TEXT, cwd TEXT, model TEXT, profile TEXT,
    created INTEGER, updated INTEGER, events INTEGER, turns INTEGER, tokens INTEGER, context INTEGER, ledger TEXT, base TEXT, opener TEXT,
    counted TEXT, children TEXT, size INTEGER, mtime INTEGER, done INTEGER, last INTEGER, seq INTEGER, print TEXT, first_unit INTEGER,
    last_unit INTEGER, bad INTEGER, first_bad INTEGER, fault TEXT, shut INTEGER);
CREATE TABLE units(
    num INTEGER PRIMARY KEY, session INTEGER, seq INTEGER, item TEXT, kind TEXT, at INTEGER, start INTEGER, length INTEGER);
CREATE TABLE counts(name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID;
INSERT INTO counts VALUES ('next', 1), ('dead', 0);
CREATE VIRTUAL TABLE words USING fts5(text, content='', tokenize="unicode61 remove_diacritics 2");
INSERT INTO words(words, rank) VALUES ('hashsize', 16777216), ('automerge', 8)
"""
# The columns of `sessions`: its number, the fields of `SessionRow`, and the fields of `ReadState`.
_ROW_FIELDS, _STATE_FIELDS = slice(1, 19), slice(19, 31)
_SAVE = "REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
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
    *plain, ledger, base, opener, counted, children = values[_ROW_FIELDS]
    places = [place and _places.decode(place) for place in (base, opener)]
    return SessionRow(*[*plain, _ledgers.decode(ledger), *places, counted and _counts.decode(counted), _children.decode(children)])


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
        *plain, ledger, base, opener, counted, children = msgspec.structs.astuple(row)
        coded = (value if value is None else msgspec.json.encode(value).decode() for value in (ledger, base, opener, counted, children))
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


T = TypeVar("T")
_OPEN_LOGS = 32
# Deleted units below this number are no reason to rebuild.
_FEW_UNITS = 10_000

# The documents of the full-text index whose unit was deleted.
_DEAD = "CREATE TEMP TABLE dead AS SELECT id FROM words_docsize WHERE id NOT IN (SELECT num FROM units)"
# FTS5 deletes a document only by its words; its text is not stored, but the index can list them.
_VOCABULARY = "CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab('main', 'words', 'instance')"
_DEAD_WORDS = (
    "CREATE TEMP TABLE gone AS SELECT doc, group_concat(term, ' ') AS text FROM vocabulary WHERE doc IN (SELECT id FROM dead) GROUP BY doc"
)
_DELETE = "INSERT INTO words(words, rowid, text) SELECT 'delete', id, coalesce(text, '') FROM dead LEFT JOIN gone ON doc = id"
# Words of more than 32 KiB are cut when they are indexed, perhaps within a character, and then cannot be deleted by name.
_REMAINING = "SELECT EXISTS(SELECT 1 FROM vocabulary WHERE doc IN (SELECT id FROM dead))"

Hits: TypeAlias = list[Hit]
Rows: TypeAlias = list[SessionRow]
_UnitRow: TypeAlias = tuple[str, int, str, UnitKind, int, int, int]


def selection(
    match: str,
    *,
    ranked: bool = False,
    limit: int = 20,
    session: str | None = None,
    kind: UnitKind | None = None,
    before: int | None = None,
    after: int | None = None,
) -> tuple[str, tuple[str | int, ...]]:
    """Return the SQL of a search and its values. Unranked, all matches are read and sorted by time, about 2 µs for each."""
    conditions: list[tuple[str, str | int | None]] = [
        ("u.session = (SELECT num FROM sessions WHERE id = ?)", session),
        # Without this range a frequent word would be looked up in every session.
        ("words.rowid >= (SELECT first_unit FROM sessions WHERE id = ?)", session),
        ("words.rowid <= (SELECT last_unit FROM sessions WHERE id = ?)", session),
        ("u.kind = ?", kind),
        ("u.at < ?", before),
        ("u.at >= ?", after),
    ]
    where = "".join(f" AND {text}" for text, value in conditions if value is not None)
    order = "rank" if ranked else "u.at DESC, words.rowid DESC"
    statement = f"""SELECT s.id, u.seq, u.item, u.kind, u.at, u.start, u.length
        FROM words CROSS JOIN units u ON u.num = words.rowid CROSS JOIN sessions s ON s.num = u.session
        WHERE words MATCH ?{where} ORDER BY {order} LIMIT ?"""  # noqa: S608 - made of the constants above
    return statement, (match, *(value for _, value in conditions if value is not None), limit)


def _purge_words(database: Database) -> bool:
    """Delete the words of deleted units; return false if some remain, so that the index must be rebuilt.

    Raises `Locked` while another process reads the index.
    """
    connection = database.connection
    with database.writing():
        try:
            connection.execute(_DEAD)
            connection.execute(_VOCABULARY)
            connection.execute(_DEAD_WORDS)
            connection.execute(_DELETE)
            # A deleted word stays in the file until its segment is merged with the older ones.
            connection.execute("INSERT INTO words(words) VALUES ('optimize')")
            (remaining,) = connection.execute(_REMAINING).fetchone()
            if not remaining:
                connection.execute("UPDATE counts SET value = 0 WHERE name = 'dead'")
        finally:
            for table in ("vocabulary", "gone", "dead"):
                connection.execute(f"DROP TABLE IF EXISTS temp.{table}")
    if remaining:
        return False
    if not database.compact():
        message = "another process is reading the index; the deleted words leave its file when that one ends"
        raise Locked(message, where=str(database.path))
    return True


class SqliteIndex:
    """Lists and searches sessions without reading the logs.

    Appends to a log do not update it: call `refresh` before a search that must find the newest lines; `list` does so itself. It may be
    used from any thread, by one at a time. Methods raise `StoreError` if the database fails, `Locked` if another process writes it.
    """

    def __init__(self, path: str | os.PathLike[str], store: SessionArchive) -> None:
        self._store = store
        self._database = Database(path, SCHEMA, VERSION)
        self._logs: dict[str, LogFile] = {}

    @property
    def note(self) -> str:
        """Why the index is in memory; empty if it is in a file."""
        return self._database.note

    @property
    def size(self) -> int:
        """Size of the database in bytes, without the side files of SQLite."""
        return self._guarded(lambda: self._database.size)

    def stats_changed(self) -> bool:
        """Return whether a log changed since the last refresh, without opening a file."""
        stats = {stat.session: (stat.size, stat.changed) for stat in self._store.stats()}
        return stats != self._guarded(lambda: known_stats(self._database.connection))

    def refresh(self, progress: Progress | None = None) -> RefreshReport:
        """Read what is new in the logs; logs that cannot be read are listed in the report."""
        return self._guarded(lambda: self._refresh(progress))

    def _refresh(self, progress: Progress | None) -> RefreshReport:
        self._close_logs()
        report = Refresher(self._database, self._store, progress).run()
        counts: dict[str, int] = dict(self._database.connection.execute("SELECT name, value FROM counts"))
        if counts["dead"] > max(_FEW_UNITS, counts["next"] // 3):
            return self._rebuild(progress)
        return report

    def faults(self) -> list[tuple[str, str]]:
        """Return path and reason of each log that could not be read completely at the last refresh."""
        return self._guarded(lambda: known_faults(self._database.connection))

    def forget(self, *sessions: str) -> None:
        """Delete sessions from the index and their words from the file."""
        self._close_logs()
        self._guarded(lambda: self._forget(sessions))

    def _forget(self, sessions: tuple[str, ...]) -> None:
        with self._database.writing():
            for session in sessions:
                forget(self._database.connection, session)
        self._purge(None)

    def purge(self, progress: Progress | None = None) -> bool:
        """Delete the words of deleted, redacted and replaced logs from the file; return whether there were any."""
        return self._guarded(lambda: self._purge(progress))

    def _purge(self, progress: Progress | None) -> bool:
        (dead,) = self._database.connection.execute("SELECT value FROM counts WHERE name = 'dead'").fetchone()
        if dead and not _purge_words(self._database):
            self._rebuild(progress)
        return bool(dead)

    def rebuild(self, progress: Progress | None = None) -> RefreshReport:
        """Rebuild the index from the logs."""
        return self._guarded(lambda: self._rebuild(progress))

    def _rebuild(self, progress: Progress | None) -> RefreshReport:
        self._close_logs()
        self._database.wipe()
        return Refresher(self._database, self._store, progress).run()

    def list(self, *, refresh: bool = True) -> Rows:
        """Return all sessions with events, the one with the newest event first.

        Refreshes first if a log has changed and `refresh` is true; while another process writes the index, the list may be outdated.
        """
        if refresh and self.stats_changed():
            with suppress(Locked):
                self.refresh()
        statement = "SELECT * FROM sessions WHERE events > 0 ORDER BY updated DESC, id DESC"
        return [session_row(values) for values in self._guarded(lambda: self._database.connection.execute(statement).fetchall())]

    def keep_counts(self, rows: Sequence[SessionRow]) -> None:
        """Keep the field `counted` of rows of the list, until their logs change."""
        self._guarded(lambda: self._keep_counts(rows))

    def _keep_counts(self, rows: Sequence[SessionRow]) -> None:
        with self._database.writing():
            keep_counts(self._database.connection, rows)

    def search(
        self,
        query: str,
        *,
        ranked: bool = False,
        limit: int = 20,
        session: str | None = None,
        kind: UnitKind | None = None,
        before: int | None = None,
        after: int | None = None,
        marks: tuple[str, str] = ("[", "]"),
        width: int = 160,
    ) -> Hits:
        """Return texts that match a query of words, "quoted phrases", prefix* and -not; everything else counts as words.

        The text of the newest event comes first, whichever session it is in; with `ranked` the best match. `before` (exclusive) and
        `after` (inclusive) are milliseconds since 1970. `width` is the length of a snippet in characters, and `marks` enclose the matches
        in it; without a width no snippets are read.
        """
        parsed = read_query(query)
        if not parsed.match:
            return []
        statement, values = selection(parsed.match, ranked=ranked, limit=limit, session=session, kind=kind, before=before, after=after)
        found: list[_UnitRow] = self._guarded(lambda: self._database.connection.execute(statement, values).fetchall())
        return [self._hit(row, parsed, marks, width) for row in found]

    def _hit(self, found: _UnitRow, query: Query, marks: tuple[str, str], width: int) -> Hit:
        session, seq, item, kind, at, start, length = found
        if not width:
            return Hit(session, seq, item, kind, at, "")
        try:
            event = decode_line(self._log(session).read(start, length), session, start)
        except (PalimpsestError, OSError):
            return Hit(session, seq, item, kind, at, "")
        text = next((unit.text for unit in search_units(event) if (unit.item, unit.kind) == (item, kind)), "")
        return Hit(session, seq, item, kind, at, snippet(query.wanted, text, marks, width))

    def _log(self, session: str) -> LogFile:
        """Return an open log for snippets; it stays open for the next searches."""
        lines = self._logs.pop(session, None) or self._store.open(session)
        self._logs[session] = lines
        if len(self._logs) > _OPEN_LOGS:
            self._logs.pop(next(iter(self._logs))).close()
        return lines

    def _guarded(self, work: Callable[[], T]) -> T:
        """Run a function on the database, and once more after recreating a damaged file or leaving an unwritable one for memory."""
        try:
            return work()
        except sqlite3.Error as error:
            if is_damaged(error):
                self._database.recreate()
            elif is_unwritable(error) and not self._database.note:
                self._database.continue_in_memory(str(error))
            else:
                raise self._database.store_error(error) from error
        try:
            self._refresh(None)
            return work()
        except sqlite3.Error as error:
            raise self._database.store_error(error) from error

    def _close_logs(self) -> None:
        while self._logs:
            self._logs.popitem()[1].close()

    def close(self) -> None:
        """Close the database and the open logs."""
        self._close_logs()
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
