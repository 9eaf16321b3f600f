"""One SQLite file that can be thrown away: opened, wiped, and its errors told as ours."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from palimpsest.core.errors import Locked, StoreError

BUSY_SECONDS = 1.0
# The path of a database that was never meant to be a file.
MEMORY = ":memory:"


class Database:
    """A connection to a file of this schema and version; in memory, with a `note` that says why, when the file cannot be written."""

    def __init__(self, path: str | os.PathLike[str], schema: str, version: int) -> None:
        self.path = Path(path)
        self.note = ""
        self._schema = schema
        self._version = version
        if path == MEMORY:
            self.connection = self._connect_memory()
            return
        try:
            self.connection = self._open_or_renew()
        except (sqlite3.OperationalError, OSError) as error:
            if isinstance(error, sqlite3.OperationalError) and not is_unwritable(error):
                raise self.refused(error) from error
            self.connection = self._in_memory(str(error))

    @property
    def size(self) -> int:
        """Bytes of all pages."""
        (pages,) = self.connection.execute("PRAGMA page_count").fetchone()
        (page_bytes,) = self.connection.execute("PRAGMA page_size").fetchone()
        return int(pages) * int(page_bytes)

    def _open_or_renew(self) -> sqlite3.Connection:
        try:
            return self._open()
        except sqlite3.DatabaseError as error:
            if not is_damaged(error):
                raise
            self._unlink()
            return self._open()

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The words of private sessions: SQLite gives its side files the mode of this one.
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=BUSY_SECONDS, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA journal_size_limit=1048576")
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _in_memory(self, why: str) -> sqlite3.Connection:
        self.note = f"{self.path} cannot be written ({why}): the index is kept in memory and made anew each time"
        return self._connect_memory()

    def _connect_memory(self) -> sqlite3.Connection:
        connection = sqlite3.connect(MEMORY, isolation_level=None, check_same_thread=False)
        self._prepare(connection)
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA cache_size=-16000")
        if self._is_current(connection):
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            if not self._is_current(connection):
                self._wipe(connection)
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        (freed,) = connection.execute("PRAGMA freelist_count").fetchone()
        if freed:
            # Somebody who came just now may write already; then what was freed goes with the next purge.
            with suppress(sqlite3.OperationalError):
                _compact(connection)

    def _is_current(self, connection: sqlite3.Connection) -> bool:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        return bool(version == self._version)

    def _wipe(self, connection: sqlite3.Connection) -> None:
        """Drop every table, of whatever version, and begin anew."""
        for form in ("CREATE VIRTUAL%", "CREATE %"):
            found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE ?", (form,)).fetchall()
            for (name,) in found:
                quoted = name.replace('"', '""')
                connection.execute(f'DROP TABLE IF EXISTS "{quoted}"')
        for statement in filter(str.strip, self._schema.split(";")):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {self._version}")

    def wipe(self) -> None:
        """Begin anew within the same file, so that whoever has it open goes on; nothing of the old words stays on the disk."""
        with self.writing():
            self._wipe(self.connection)
        self.compact()

    def compact(self) -> bool:
        """Write the file anew without what was freed in it; false while another process reads, for then old pages stay until it ends."""
        return _compact(self.connection)

    def renew(self) -> None:
        """Throw a damaged file away and begin a new one."""
        self.close()
        self._unlink()
        self.connection = self._open()

    def give_up(self, why: str) -> None:
        """Go on in memory, for the file cannot be written any more."""
        self.close()
        self.connection = self._in_memory(why)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A block in which changes are made, all or none."""
        connection = self.connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            # SQLite takes a transaction back by itself when the disk fails.
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Let go of the file."""
        self.connection.close()

    def refused(self, error: sqlite3.Error) -> StoreError:
        """An error of SQLite as one line for a person."""
        if _code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            return Locked("another process is writing the index; try again in a moment", where=str(self.path))
        return StoreError(f"the index cannot be used ({error}); it can be deleted without loss", where=str(self.path))

    def _unlink(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                Path(f"{self.path}{suffix}").unlink()


def _compact(connection: sqlite3.Connection) -> bool:
    connection.execute("VACUUM")
    (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


def is_damaged(error: sqlite3.Error) -> bool:
    """Whether the file is no database any more."""
    return _code(error) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def is_unwritable(error: sqlite3.Error) -> bool:
    """Whether the file or its folder may not be written."""
    return _code(error) in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}


def _code(error: sqlite3.Error) -> int:
    """The primary code; extended ones carry it in their low byte."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
