"""What is kept of finished sessions: summaries as files of a scope, a row for each that says how it is used, and counted facts."""

import os
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Value
from palimpsest.stores.files import make_private_folder, store_errors, write_private
from palimpsest.stores.notes.jobs_database import JobsDatabase

FOLDER: Final = "rollouts"
# Bytes of one file, and files of one scope that are read.
LARGEST_SUMMARY: Final = 64 * 1024
MOST_SUMMARIES: Final = 5_000
_COLUMNS: Final = "session, scope, stem, source_at, made_at, uses, last_used, selected_at"


class RolloutRow(Value, frozen=True):
    """A summary and how it is used. Times are milliseconds since 1970; `source_at` is the last event of the session that it is of.

    `selected_at` is the `source_at` with which the last consolidation read it, -1 if it did not.
    """

    session: str
    scope: str
    stem: str
    source_at: int
    made_at: int
    uses: int = 0
    last_used: int = 0
    selected_at: int = -1


class RolloutRows:
    """The rows of all summaries of a home."""

    def __init__(self, database: JobsDatabase) -> None:
        self._database = database

    def all(self, scope: str = "") -> tuple[RolloutRow, ...]:
        """Return the rows of a scope, or of all, by session."""
        if not self._database.exists:
            return ()
        with self._database.transaction() as database:
            found = database.execute(f"SELECT {_COLUMNS} FROM rollouts WHERE ?1 IN ('', scope) ORDER BY session", (scope,))  # noqa: S608 - fixed names
            return tuple(RolloutRow(*each) for each in found)

    def of(self, session: str) -> tuple[RolloutRow, ...]:
        """Return the row of a session, if it has one."""
        if not self._database.exists:
            return ()
        with self._database.transaction() as database:
            found = database.execute(f"SELECT {_COLUMNS} FROM rollouts WHERE session = ?", (session,))  # noqa: S608 - fixed names
            return tuple(RolloutRow(*each) for each in found)

    def count_use(self, sessions: Iterable[str], at: int) -> int:
        """Count one use of each summary at a time, and return how many of them exist."""
        with self._database.transaction() as database:
            each = "UPDATE rollouts SET uses = uses + 1, last_used = max(last_used, ?) WHERE session = ?"
            return sum(database.execute(each, (at, session)).rowcount for session in dict.fromkeys(sessions))

    def drop(self, sessions: Iterable[str]) -> None:
        """Delete rows."""
        with self._database.transaction() as database:
            database.executemany("DELETE FROM rollouts WHERE session = ?", [(session,) for session in sessions])

    def facts(self, scope: str) -> tuple[bytes, ...]:
        """Return the facts of the sessions of a scope, by session; they are opaque here."""
        if not self._database.exists:
            return ()
        with self._database.transaction() as database:
            found = database.execute("SELECT data FROM facts WHERE scope = ? ORDER BY session", (scope,))
            return tuple(bytes(data) for (data,) in found)

    def fact_sessions(self) -> dict[str, str]:
        """Return the scope of each session that has facts."""
        if not self._database.exists:
            return {}
        with self._database.transaction() as database:
            return dict(database.execute("SELECT session, scope FROM facts").fetchall())

    def drop_facts(self, sessions: Iterable[str]) -> None:
        """Delete the facts of sessions."""
        with self._database.transaction() as database:
            database.executemany("DELETE FROM facts WHERE session = ?", [(session,) for session in sessions])

    def adopt(self, rows: Iterable[RolloutRow]) -> None:
        """Add rows of files that have none, such as after the database was deleted; a row that exists stays."""
        with self._database.transaction() as database:
            for row in rows:
                put_row(database, row, replaces=False)


def put_row(database: sqlite3.Connection, row: RolloutRow, *, replaces: bool = True) -> None:
    """Add or replace a row within a transaction; its uses stay."""
    then = "UPDATE SET scope = ?2, stem = ?3, source_at = ?4, made_at = ?5" if replaces else "NOTHING"
    database.execute(
        f"INSERT INTO rollouts (session, scope, stem, source_at, made_at) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (session) DO {then}",  # noqa: S608 - two fixed texts
        (row.session, row.scope, row.stem, row.source_at, row.made_at),
    )


def put_facts(database: sqlite3.Connection, session: str, scope: str, data: bytes) -> None:
    """Add or replace the facts of a session within a transaction."""
    database.execute(
        "INSERT INTO facts VALUES (?1, ?2, ?3) ON CONFLICT (session) DO UPDATE SET scope = ?2, data = ?3", (session, scope, data)
    )


def delete_row(database: sqlite3.Connection, session: str) -> bool:
    """Delete a row within a transaction. Returns whether there was one."""
    return database.execute("DELETE FROM rollouts WHERE session = ?", (session,)).rowcount == 1


def mark_selected(database: sqlite3.Connection, scope: str, selected: Mapping[str, int]) -> None:
    """State which summaries a consolidation has read, with the time of their last event, within a transaction."""
    database.execute("UPDATE rollouts SET selected_at = -1 WHERE scope = ?", (scope,))
    database.executemany("UPDATE rollouts SET selected_at = ? WHERE session = ?", [(at, session) for session, at in selected.items()])


class RolloutFiles:
    """The folder of summaries of one scope. Texts are opaque here; each file is written in one step."""

    def __init__(self, scope_folder: Path) -> None:
        self.folder = scope_folder / FOLDER

    def read(self) -> dict[str, str]:
        """Return the texts by stem. Links, other kinds of files, and files that are too large or no text are left out."""
        try:
            names = sorted(entry.name for entry in os.scandir(self.folder) if entry.name.endswith(".md"))[:MOST_SUMMARIES]
        except (FileNotFoundError, NotADirectoryError):
            return {}
        texts = {name.removesuffix(".md"): _text(self.folder / name) for name in names}
        return {stem: text for stem, text in texts.items() if text is not None}

    def write(self, stem: str, text: str) -> None:
        """Write a summary. Raises `StoreError` if it cannot be written."""
        with store_errors(self.folder, "create"):
            # One by one: parents that are made along the way would be readable by others.
            for folder in (self.folder.parent.parent, self.folder.parent, self.folder):
                make_private_folder(folder)
        write_private(self._path(stem), text.encode())

    def delete(self, stem: str) -> None:
        """Delete a summary, if it exists."""
        path = self._path(stem)
        with store_errors(path, "delete"):
            path.unlink(missing_ok=True)

    def _path(self, stem: str) -> Path:
        if not stem or stem.startswith(".") or not all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in stem):
            raise BadInput("the name of a summary has letters, digits, - and _", where=stem[:80])
        return self.folder / f"{stem}.md"


def _text(path: Path) -> str | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            data = file.read(LARGEST_SUMMARY + 1)
        return data.decode() if len(data) <= LARGEST_SUMMARY else None
    except (OSError, UnicodeDecodeError):
        return None
