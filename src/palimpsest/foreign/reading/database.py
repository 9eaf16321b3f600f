"""Reads SQLite databases of other programs: read-only, only the tables that a format names, and without leaving files beside them."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar
from urllib.parse import quote

from palimpsest.foreign.reading.opening import open_regular

QueryResult = TypeVar("QueryResult")

HEADER = b"SQLite format 3\x00"
# Seconds to wait for a lock of the program that is writing.
_TIMEOUT_SECONDS = 5.0
_ALLOWED_ACTIONS = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_FUNCTION})
_SCHEMA_TABLES = frozenset({"sqlite_master", "sqlite_schema"})


def is_database(path: Path) -> bool:
    """Whether a file is an SQLite database."""
    with open_regular(path) as file:
        return file.read(len(HEADER)) == HEADER


def query(path: Path, tables: frozenset[str], run: Callable[[sqlite3.Connection], QueryResult]) -> QueryResult:
    """The result of `run` on a read-only connection that reads `tables` alone. Texts are bytes. Raises `sqlite3.Error`."""
    if not _uses_wal(path):
        return _query_once(path, tables, "mode=ro", run)
    if not _beside(path, "wal").exists():
        found = _query_once(path, tables, "mode=ro&immutable=1", run)
        if not _beside(path, "wal").exists():
            return found
        # A writer appeared meanwhile, so read again with locking.
    if _beside(path, "shm").exists():
        return _query_once(path, tables, "mode=ro", run)
    # A writer crashed and left its log. Reading that would create a file beside it, so a copy is read.
    with TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        for each in (path, _beside(path, "wal")):
            shutil.copyfile(each, copy.with_name(each.name))
        return _query_once(copy, tables, "mode=ro", run)


def _query_once(path: Path, tables: frozenset[str], options: str, run: Callable[[sqlite3.Connection], QueryResult]) -> QueryResult:
    connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?{options}", uri=True, timeout=_TIMEOUT_SECONDS, isolation_level=None)
    with closing(connection):
        connection.text_factory = bytes
        connection.set_authorizer(partial(_authorize, tables))
        connection.execute("BEGIN")
        return run(connection)


def _uses_wal(path: Path) -> bool:
    with open_regular(path) as file:
        return file.read(20)[18:] == b"\x02\x02"


def _beside(path: Path, kind: str) -> Path:
    return path.with_name(f"{path.name}-{kind}")


def _authorize(
    tables: frozenset[str], action: int, first: str | None, _second: str | None, _database: str | None, _trigger: str | None
) -> int:
    """Allow only reading the known tables, whatever a statement says."""
    if action in _ALLOWED_ACTIONS or (action == sqlite3.SQLITE_READ and (first in tables or first in _SCHEMA_TABLES)):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def tables_of(connection: sqlite3.Connection) -> frozenset[str]:
    """The names of the tables in a database."""
    return frozenset(
        name.decode("utf-8", "replace") for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    )


def text_value(value: object) -> str:
    """A value of a row as text; empty for NULL."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else "" if value is None else str(value)


def rows_of(connection: sqlite3.Connection, statement: str, *values: object) -> list[dict[str, object]]:
    """The rows of a query by column name."""
    cursor = connection.execute(statement, values)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]
