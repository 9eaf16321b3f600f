"""The search index over all sessions in SQLite; it can always be rebuilt from the logs."""

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self, TypeAlias, TypeVar

from palimpsest.core.errors import Locked, PalimpsestError
from palimpsest.core.format.codec import decode_line
from palimpsest.core.ports import Hit, LogFile, Progress, RefreshReport, SessionArchive, SessionRow, UnitKind
from palimpsest.stores.index.database import Database, is_damaged, is_unwritable
from palimpsest.stores.index.refresh import SCHEMA, VERSION, Refresher, forget, keep_counts, known_faults, known_stats, session_row
from palimpsest.stores.index.search_text import Query, read_query, snippet
from palimpsest.stores.index.search_units import search_units

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
