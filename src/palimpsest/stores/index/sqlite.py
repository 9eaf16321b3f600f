"""The index of all sessions: which there are, and where a word stands; it can always be made anew from the logs."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import Self, TypeAlias, TypeVar

from palimpsest.core.errors import Locked, PalimpsestError
from palimpsest.core.format.codec import decode_line
from palimpsest.core.ports import Hit, LogFile, Progress, RefreshReport, SessionArchive, SessionRow, UnitKind
from palimpsest.stores.index.database import Database, is_damaged, is_unwritable
from palimpsest.stores.index.purge import purge
from palimpsest.stores.index.refresh import (
    ROW_COLUMNS,
    SCHEMA,
    VERSION,
    Refresher,
    forget,
    known_faults,
    known_stats,
    row_of,
)
from palimpsest.stores.index.units import units_of
from palimpsest.stores.index.words import Query, read_query, snippet

T = TypeVar("T")
_OPEN_LOGS = 32
_FEW = 10_000


Hits: TypeAlias = list[Hit]
Rows: TypeAlias = list[SessionRow]
_Found: TypeAlias = tuple[str, int, str, UnitKind, int, int, int]


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
    """The statement of a search, and its values; by number downwards SQLite stops at the limit and sorts nothing."""
    conditions: list[tuple[str, str | int | None]] = [
        ("u.session = (SELECT num FROM sessions WHERE id = ?)", session),
        # Without this range, a frequent word would be looked up in every session.
        ("words.rowid >= (SELECT first_unit FROM sessions WHERE id = ?)", session),
        ("words.rowid <= (SELECT last_unit FROM sessions WHERE id = ?)", session),
        ("u.kind = ?", kind),
        ("u.at < ?", before),
        ("u.at >= ?", after),
    ]
    where = "".join(f" AND {text}" for text, value in conditions if value is not None)
    order = "rank" if ranked else "words.rowid DESC"
    statement = f"""SELECT s.id, u.seq, u.item, u.kind, u.at, u.start, u.length
        FROM words CROSS JOIN units u ON u.num = words.rowid CROSS JOIN sessions s ON s.num = u.session
        WHERE words MATCH ?{where} ORDER BY {order} LIMIT ?"""  # noqa: S608 - made of the constants above
    return statement, (match, *(value for _, value in conditions if value is not None), limit)


class SqliteIndex:
    """What can be searched and listed without reading the logs.

    Nothing here is on the way of an append. Call `refresh` before a search that must see the newest lines; `list` does so by itself.
    It may be used from any thread, by one at a time. `note` says why the index is in memory, when it is.
    """

    def __init__(self, path: str | os.PathLike[str], store: SessionArchive) -> None:
        self._store = store
        self._database = Database(path, SCHEMA, VERSION)
        self._logs: dict[str, LogFile] = {}

    @property
    def note(self) -> str:
        """Why the index is kept in memory; empty when it is not."""
        return self._database.note

    @property
    def size(self) -> int:
        """Bytes of the database, without what SQLite keeps beside it."""
        return self._guarded(lambda: self._database.size)

    def stats_changed(self) -> bool:
        """Whether some log is not as the index last saw it; no file is opened."""
        return self._guarded(self._stats_changed)

    def _stats_changed(self) -> bool:
        return {stat.session: (stat.size, stat.changed) for stat in self._store.stats()} != known_stats(self._database.connection)

    def refresh(self, progress: Progress | None = None) -> RefreshReport:
        """Read what is new in the logs; a log that cannot be read is reported and stops nothing."""
        return self._guarded(lambda: self._refresh(progress))

    def _refresh(self, progress: Progress | None) -> RefreshReport:
        self._close_logs()
        report = Refresher(self._database, self._store, progress).run()
        counts: dict[str, int] = dict(self._database.connection.execute("SELECT name, value FROM counts"))
        if counts["dead"] > max(_FEW, counts["next"] // 3):
            return self._rebuild(progress)
        return report

    def faults(self) -> list[tuple[str, str]]:
        """Path and reason of each log of which not all could be read when the index last looked at it."""
        return self._guarded(lambda: known_faults(self._database.connection))

    def forget(self, session: str) -> None:
        """Take a session that was deleted out of the index, and its words out of the file."""
        self._close_logs()
        self._guarded(lambda: self._forget(session))

    def _forget(self, session: str) -> None:
        with self._database.writing():
            forget(self._database.connection, session)
        self._purge(None)

    def purge(self, progress: Progress | None = None) -> bool:
        """Take the words of all that is gone out of the file: of deleted, redacted and replaced logs; whether there was anything."""
        return self._guarded(lambda: self._purge(progress))

    def _purge(self, progress: Progress | None) -> bool:
        (dead,) = self._database.connection.execute("SELECT value FROM counts WHERE name = 'dead'").fetchone()
        if dead and not purge(self._database):
            self._rebuild(progress)
        return bool(dead)

    def rebuild(self, progress: Progress | None = None) -> RefreshReport:
        """Make the index anew from the logs."""
        return self._guarded(lambda: self._rebuild(progress))

    def _rebuild(self, progress: Progress | None) -> RefreshReport:
        self._close_logs()
        self._database.wipe()
        return Refresher(self._database, self._store, progress).run()

    def list(self, *, refresh: bool = True) -> Rows:
        """All sessions in which something happened, the one with the newest event first.

        It refreshes first when a log has changed, unless told not to; while another process writes the index, it lists what is known.
        """
        if refresh and self.stats_changed():
            with suppress(Locked):
                self.refresh()
        return self._guarded(self._list)

    def _list(self) -> Rows:
        found = self._database.connection.execute(f"SELECT {ROW_COLUMNS} FROM sessions WHERE events > 0 ORDER BY updated DESC, id")  # noqa: S608 - names
        return [row_of(values) for values in found]

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
        """Pieces with all words of the query: "quoted phrases", prefix* and -not; anything else is taken as words.

        Newest first means last indexed first: within a session by event; between sessions by when their new lines were indexed,
        which for sessions read in one go is the time of their last change. `ranked` puts the best match first. `before` and `after`
        are milliseconds since 1970, `after` itself included.
        """
        wanted = read_query(query)
        if not wanted.match:
            return []
        statement, values = selection(wanted.match, ranked=ranked, limit=limit, session=session, kind=kind, before=before, after=after)
        found: list[_Found] = self._guarded(lambda: self._database.connection.execute(statement, values).fetchall())
        return [self._hit(one, wanted, marks, width) for one in found]

    def _hit(self, found: _Found, query: Query, marks: tuple[str, str], width: int) -> Hit:
        session, seq, item, kind, at, start, length = found
        try:
            event = decode_line(self._log(session).read(start, length), session, start)
        except (PalimpsestError, OSError):
            return Hit(session, seq, item, kind, at, "")
        text = next((unit.text for unit in units_of(event) if (unit.item, unit.kind) == (item, kind)), "")
        return Hit(session, seq, item, kind, at, snippet(query.wanted, text, marks, width))

    def _log(self, session: str) -> LogFile:
        """A log held open for the snippets of this and the next searches."""
        lines = self._logs.pop(session, None) or self._store.open(session)
        self._logs[session] = lines
        if len(self._logs) > _OPEN_LOGS:
            self._logs.pop(next(iter(self._logs))).close()
        return lines

    def _guarded(self, work: Callable[[], T]) -> T:
        """Do something with the database; a damaged one is made anew first, and one that cannot be written is left for memory."""
        try:
            return work()
        except sqlite3.Error as error:
            if is_damaged(error):
                self._database.renew()
            elif is_unwritable(error) and not self._database.note:
                self._database.give_up(str(error))
            else:
                raise self._database.refused(error) from error
        try:
            self._refresh(None)
            return work()
        except sqlite3.Error as error:
            raise self._database.refused(error) from error

    def _close_logs(self) -> None:
        while self._logs:
            self._logs.popitem()[1].close()

    def close(self) -> None:
        """Let go of the database and of the logs."""
        self._close_logs()
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
