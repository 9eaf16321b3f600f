"""The rows of stage one: what is kept of each finished session, by the folder of the memory that it belongs to."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from palimpsest.stores.notes.jobs_database import JobsDatabase

_COLUMNS: Final = (
    "thread_id, source_updated_at, raw_memory, rollout_summary, rollout_slug, stem, cwd, branch, user_words, generated_at, usage_count,"
    " last_usage, selected_for_phase2"
)


class StageRows:
    """The rows of one folder of memory."""

    def __init__(self, database: JobsDatabase, root: str) -> None:
        self._database = database
        self._root = root

    def all(self) -> tuple[tuple[str | int, ...], ...]:
        """Return all rows, by session; what they say is opaque here."""
        if not self._database.exists:
            return ()
        with self._database.transaction() as database:
            found = database.execute(f"SELECT {_COLUMNS} FROM stage1_outputs WHERE root = ? ORDER BY thread_id", (self._root,))  # noqa: S608 - fixed names
            return tuple(found)

    def count_use(self, sessions: Iterable[str], at: int) -> int:
        """Count one use of each session at a time, and return how many of them have a row."""
        if not self._database.exists:
            return 0
        with self._database.transaction() as database:
            each = (
                "UPDATE stage1_outputs SET usage_count = usage_count + 1, last_usage = max(last_usage, ?) WHERE root = ? AND thread_id = ?"
            )
            return sum(database.execute(each, (at, self._root, session)).rowcount for session in dict.fromkeys(sessions))

    def drop(self, sessions: Iterable[str]) -> None:
        """Delete rows."""
        with self._database.transaction() as database:
            database.executemany(
                "DELETE FROM stage1_outputs WHERE root = ? AND thread_id = ?", [(self._root, session) for session in sessions]
            )

    def put(self, database: sqlite3.Connection, row: Sequence[str | int]) -> None:
        """Add or replace a row, up to `generated_at`, within a transaction, unless that of newer events is there; its uses stay."""
        database.execute(
            "INSERT INTO stage1_outputs (root, thread_id, source_updated_at, raw_memory, rollout_summary, rollout_slug, stem, cwd, branch,"
            " user_words, generated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (root, thread_id) DO UPDATE SET"
            " source_updated_at = ?3, raw_memory = ?4, rollout_summary = ?5, rollout_slug = ?6, stem = ?7, cwd = ?8, branch = ?9,"
            " user_words = ?10, generated_at = ?11 WHERE source_updated_at <= ?3",
            (self._root, *row),
        )

    def delete(self, database: sqlite3.Connection, session: str) -> bool:
        """Delete a row within a transaction. Returns whether there was one."""
        return database.execute("DELETE FROM stage1_outputs WHERE root = ? AND thread_id = ?", (self._root, session)).rowcount == 1

    def mark_selected(self, database: sqlite3.Connection, selected: Mapping[str, int]) -> None:
        """State which rows a consolidation has read, with the time of their last event, within a transaction."""
        database.execute("UPDATE stage1_outputs SET selected_for_phase2 = -1 WHERE root = ?", (self._root,))
        database.executemany(
            "UPDATE stage1_outputs SET selected_for_phase2 = ? WHERE root = ? AND thread_id = ?",
            [(at, self._root, session) for session, at in selected.items()],
        )
