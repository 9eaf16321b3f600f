"""The database of memory's background work, one file for all processes of a home, with transactions that are seen at once."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from palimpsest.core.errors import StoreError
from palimpsest.stores.files import open_in_folder, store_errors
from palimpsest.stores.index.database import is_damaged

FILE_NAME: Final = "jobs.sqlite"
# Another process holds the file for some milliseconds at most.
_WAIT_SECONDS: Final = 10.0
_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS jobs (
        kind TEXT NOT NULL, key TEXT NOT NULL, status TEXT NOT NULL, token TEXT NOT NULL DEFAULT '', lease_until INTEGER NOT NULL DEFAULT 0,
        retries_left INTEGER NOT NULL, retry_at INTEGER NOT NULL DEFAULT 0, watermark INTEGER NOT NULL,
        success_watermark INTEGER NOT NULL DEFAULT -1, started_at INTEGER NOT NULL DEFAULT 0, finished_at INTEGER NOT NULL DEFAULT 0,
        succeeded_at INTEGER NOT NULL DEFAULT 0, error TEXT NOT NULL DEFAULT '', baseline TEXT NOT NULL DEFAULT '',
        PRIMARY KEY (kind, key))""",
    """CREATE TABLE IF NOT EXISTS rollouts (
        session TEXT PRIMARY KEY, scope TEXT NOT NULL, stem TEXT NOT NULL, source_at INTEGER NOT NULL, made_at INTEGER NOT NULL,
        uses INTEGER NOT NULL DEFAULT 0, last_used INTEGER NOT NULL DEFAULT 0, selected_at INTEGER NOT NULL DEFAULT -1)""",
    "CREATE TABLE IF NOT EXISTS facts (session TEXT PRIMARY KEY, scope TEXT NOT NULL, data BLOB NOT NULL)",
    """CREATE TABLE IF NOT EXISTS stage1_outputs (
        root TEXT NOT NULL, thread_id TEXT NOT NULL, source_updated_at INTEGER NOT NULL, raw_memory TEXT NOT NULL,
        rollout_summary TEXT NOT NULL, rollout_slug TEXT NOT NULL, stem TEXT NOT NULL, cwd TEXT NOT NULL, branch TEXT NOT NULL,
        user_words TEXT NOT NULL, generated_at INTEGER NOT NULL, usage_count INTEGER NOT NULL DEFAULT 0,
        last_usage INTEGER NOT NULL DEFAULT 0, selected_for_phase2 INTEGER NOT NULL DEFAULT -1, PRIMARY KEY (root, thread_id))""",
    "CREATE TABLE IF NOT EXISTS spending (day TEXT PRIMARY KEY, read INTEGER NOT NULL, written INTEGER NOT NULL)",
)


class JobsDatabase:
    """The file `jobs.sqlite` of a folder. It is made with the first transaction; a crash leaves the state before or after one."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME

    @property
    def exists(self) -> bool:
        """Whether anything was ever written."""
        return self.path.exists()

    def compact(self) -> None:
        """Remove freed pages from the file. Raises `StoreError` if it cannot be used."""
        try:
            with closing(sqlite3.connect(self.path, timeout=_WAIT_SECONDS, isolation_level=None)) as database:
                database.execute("VACUUM")
        except sqlite3.Error as error:
            raise self._store_error(error) from error

    def delete(self) -> None:
        """Delete the file with its side files; what it counts is counted again."""
        for path in self.path.parent.glob(f"{self.path.name}*"):
            with store_errors(path, "delete"):
                path.unlink(missing_ok=True)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the database for one change, which takes place as a whole or not at all. Raises `StoreError` if it cannot be used."""
        if not self.path.exists():
            with store_errors(self.path, "create"):
                os.close(open_in_folder(self.path, os.O_RDWR | os.O_CREAT))
        try:
            with closing(sqlite3.connect(self.path, timeout=_WAIT_SECONDS, isolation_level=None)) as database:
                # What is deleted is overwritten, so that nothing of what was forgotten stays in the file.
                database.execute("PRAGMA secure_delete=ON")
                database.execute("BEGIN IMMEDIATE")
                try:
                    for table in _TABLES:
                        database.execute(table)
                    yield database
                    database.execute("COMMIT")
                except BaseException:
                    if database.in_transaction:
                        database.execute("ROLLBACK")
                    raise
        except sqlite3.Error as error:
            raise self._store_error(error) from error

    def _store_error(self, error: sqlite3.Error) -> StoreError:
        """Return an error of SQLite with advice. A damaged file is not made again here, since it counts what the day may still cost."""
        advice = "; delete it, then sessions are read again and the tokens of this day count from 0" if is_damaged(error) else ""
        return StoreError(f"cannot use the database of memory's jobs: {error}{advice}", where=str(self.path))
