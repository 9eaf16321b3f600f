"""Tokens that background work of memory has used on each day, in one database for all processes of a home."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from palimpsest.core.errors import StoreError
from palimpsest.core.items import Value
from palimpsest.stores.files import store_errors

_TABLE: Final = "CREATE TABLE IF NOT EXISTS spending (day TEXT PRIMARY KEY, read INTEGER NOT NULL, written INTEGER NOT NULL)"
_WAIT_SECONDS: Final = 10.0


class Tokens(Value, frozen=True):
    """Tokens of requests and of replies."""

    read: int = 0
    written: int = 0


class DaySpending:
    """What was used on a day (`YYYY-MM-DD`, UTC). Adding takes place at once, so that parallel workers see each other's use."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "jobs.sqlite"

    def used(self, day: str) -> Tokens:
        """Return what was used on a day. Raises `StoreError` if the database cannot be read."""
        with self._opened() as database:
            row = database.execute("SELECT read, written FROM spending WHERE day = ?", (day,)).fetchone()
        return Tokens() if row is None else Tokens(*row)

    def add(self, day: str, tokens: Tokens) -> None:
        """Count further tokens of a day. Raises `StoreError` if they cannot be stored."""
        with self._opened() as database, database:
            database.execute(
                "INSERT INTO spending VALUES (?, ?, ?) ON CONFLICT (day) DO UPDATE SET read = read + ?2, written = written + ?3",
                (day, tokens.read, tokens.written),
            )

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        with store_errors(self._path.parent, "create"):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with closing(sqlite3.connect(self._path, timeout=_WAIT_SECONDS)) as database:
                database.execute(_TABLE)
                yield database
        except sqlite3.Error as error:
            raise StoreError(f"cannot count the tokens of memory: {error}", where=str(self._path)) from error
