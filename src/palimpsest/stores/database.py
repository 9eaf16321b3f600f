"""A disposable SQLite database; maps SQLite errors to `StoreError`."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from palimpsest.core.errors import Locked, StoreError
from palimpsest.stores.files import make_private_folder

BUSY_SECONDS = 1.0
# The path of a database that is in memory on purpose.
MEMORY = ":memory:"
# A full disk is reported so if a page or the shared memory of readers, a file beside the database, cannot grow.
_FAILED_WRITES = frozenset(
    {sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE}
    | {sqlite3.SQLITE_IOERR_SHMMAP}
)


class Database:
    """A connection to a database of a schema and version; in memory, with the reason in `note`, if the file cannot be written.

    Raises `StoreError` if the file cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], schema: str, version: int) -> None:
        self.path = Path(path)
        self.note = ""
        self._schema = schema
        self._version = version
        if path == MEMORY:
            self.connection = self._connect_memory()
            return
        try:
            self.connection = self._open_or_recreate()
        except (sqlite3.OperationalError, OSError) as error:
            if isinstance(error, sqlite3.OperationalError) and not is_unwritable(error):
                raise self.store_error(error) from error
            self.connection = self._fall_back_to_memory((isinstance(error, OSError) and error.strerror) or str(error))

    @property
    def size(self) -> int:
        """Size of the database in bytes."""
        (pages,) = self.connection.execute("PRAGMA page_count").fetchone()
        (page_bytes,) = self.connection.execute("PRAGMA page_size").fetchone()
        return int(pages) * int(page_bytes)

    def _open_or_recreate(self) -> sqlite3.Connection:
        try:
            return self._open()
        except sqlite3.DatabaseError as error:
            if not is_damaged(error):
                raise
            self._unlink()
            return self._open()

    def _open(self) -> sqlite3.Connection:
        make_private_folder(self.path.parent)
        # Sessions are private; SQLite gives its side files the mode of this file.
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

    def _fall_back_to_memory(self, why: str) -> sqlite3.Connection:
        copy = self._copy_in_memory()
        how = "built again" if copy is None else "copied from the file"
        self.note = f"{self.path} cannot be written ({why}): the index is kept in memory and {how} each time"
        return copy or self._connect_memory()

    def _copy_in_memory(self) -> sqlite3.Connection | None:
        """Return a copy of the file in memory, so that only logs that changed are read again; none if it cannot be read."""
        copy = sqlite3.connect(MEMORY, isolation_level=None, check_same_thread=False)
        try:
            # An immutable file is read without the side files of SQLite, which could not be made here.
            with closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as source:
                source.backup(copy)
            if self._is_current(copy):
                return copy
        except sqlite3.Error:
            pass
        copy.close()
        return None

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
            # Another process may be writing already; the freed pages then go with the next purge.
            with suppress(sqlite3.OperationalError):
                _compact(connection)

    def _is_current(self, connection: sqlite3.Connection) -> bool:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        return bool(version == self._version)

    def _wipe(self, connection: sqlite3.Connection) -> None:
        """Drop every table of any version and create the schema."""
        for form in ("CREATE VIRTUAL%", "CREATE %"):
            found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE ?", (form,)).fetchall()
            for (name,) in found:
                quoted = name.replace('"', '""')
                connection.execute(f'DROP TABLE IF EXISTS "{quoted}"')
        for statement in filter(str.strip, self._schema.split(";")):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {self._version}")

    def wipe(self) -> None:
        """Empty the database within the same file, so that other processes can keep it open; no old word stays on the disk."""
        with self.writing():
            self._wipe(self.connection)
        self.compact()

    def compact(self) -> bool:
        """Remove freed pages from the file; return false while another process reads, because old pages stay until it ends."""
        return _compact(self.connection)

    def recreate(self) -> None:
        """Delete a damaged file and create a new one."""
        self.close()
        self._unlink()
        self.connection = self._open()

    def continue_in_memory(self, why: str) -> None:
        """Replace the database by one in memory, because the file cannot be written any more."""
        self.close()
        self.connection = self._fall_back_to_memory(why)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Run a block in a transaction: all of its changes are made, or none."""
        connection = self.connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            # SQLite has already rolled back if the disk failed.
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def store_error(self, error: sqlite3.Error) -> StoreError:
        """Return an error of SQLite as a `StoreError`, or as `Locked` if another process holds the database."""
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
    """Return whether the file is damaged or no database."""
    return _code(error) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def is_unwritable(error: sqlite3.Error) -> bool:
    """Return whether the file, a side file or the folder cannot be written, or not as much as is needed."""
    return getattr(error, "sqlite_errorcode", 0) in _FAILED_WRITES or _code(error) in {
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_FULL,
    }


def _code(error: sqlite3.Error) -> int:
    """Return the primary error code, which extended codes have in their low byte."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
