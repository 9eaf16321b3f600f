"""The database of recall: snapshots of indexes with what was added since, how far logs were read, and how often notes were used."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from palimpsest.core.items import Value
from palimpsest.stores.index.database import Database, is_damaged

FILE: Final = "index.sqlite"
_VERSION: Final = 1
# `part` names an index: those of notes are named by their scope, those of past sessions by the scope of their project. `tail` are the units
# that were added since the snapshot of their part.
_SCHEMA: Final = """
CREATE TABLE snapshots(part TEXT PRIMARY KEY, data BLOB NOT NULL, generation INTEGER NOT NULL);
CREATE TABLE tail(number INTEGER PRIMARY KEY, part TEXT NOT NULL, id TEXT NOT NULL, data BLOB NOT NULL);
CREATE INDEX tail_of_part ON tail(part);
CREATE TABLE logs(session TEXT PRIMARY KEY, part TEXT NOT NULL, size INTEGER, changed INTEGER, done INTEGER, last INTEGER, print TEXT);
CREATE TABLE projects(folder TEXT PRIMARY KEY, scope TEXT NOT NULL);
CREATE TABLE usage(part TEXT, name TEXT, uses INTEGER, shown INTEGER, last_used TEXT, PRIMARY KEY(part, name));
CREATE TABLE counted(session TEXT PRIMARY KEY, seq INTEGER NOT NULL)
"""


class Usage(Value, frozen=True):
    """How often a note was cited and shown since this was last written into its file, and the time of the last citation."""

    uses: int = 0
    shown: int = 0
    last_used: str = ""


class Stored(Value, frozen=True):
    """A snapshot of an index and the units that were added since. `last` is the number of the last of them."""

    snapshot: bytes | None = None
    generation: int = 0
    tail: tuple[bytes, ...] = ()
    last: int = 0


class LogRow(Struct, frozen=True):
    """How far the log of a session was read: its size and change when it was read, the bytes that were read, and its last line.

    `part` is the index that has its units; `fingerprint` tells whether the bytes that were read are still the same.
    """

    session: str
    part: str
    size: int = -1
    changed: int = -1
    done: int = 0
    last: int = 0
    fingerprint: str = ""


class RecallFile:
    """One database file, which can be deleted without loss but that of usage. A damaged one, or one of another version, is made again.

    Several threads may use it, one at a time. Raises `StoreError` if the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._database = Database(path, _SCHEMA, _VERSION)
        self._secure()

    def _secure(self) -> None:
        # Freed pages are overwritten, so that nothing of what was forgotten stays in the file.
        self._database.connection.execute("PRAGMA secure_delete=ON")

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def snapshot(self, part: str) -> bytes | None:
        """Return the snapshot of an index, if there is one."""
        row = self._read("SELECT data FROM snapshots WHERE part = ?", part)
        return bytes(row[0][0]) if row else None

    def stored(self, part: str) -> Stored:
        """Return the snapshot of an index with the units that were added since, as they belong together."""
        found = Stored()
        with self._mended(), self._database.writing():
            execute = self._database.connection.execute
            rows = execute("SELECT data, generation FROM snapshots WHERE part = ?", (part,)).fetchall()
            tail = execute("SELECT number, data FROM tail WHERE part = ? ORDER BY number", (part,)).fetchall()
            data, generation = (bytes(rows[0][0]), int(rows[0][1])) if rows else (None, 0)
            found = Stored(data, generation, tuple(bytes(each) for _, each in tail), tail[-1][0] if tail else 0)
        return found

    def state(self, part: str) -> tuple[int, int]:
        """Return the generation of a snapshot and the number of the last unit that was added since; they change with the index."""
        rows = self._read("SELECT generation FROM snapshots WHERE part = ?", part)
        ((last,),) = self._read("SELECT coalesce(max(number), 0) FROM tail WHERE part = ?", part) or [(0,)]
        return (int(rows[0][0]) if rows else 0), int(last)

    def parts(self) -> tuple[str, ...]:
        """Return the names of the indexes of past sessions."""
        return tuple(part for (part,) in self._read("SELECT DISTINCT part FROM logs ORDER BY part"))

    def save(self, snapshots: Mapping[str, bytes], *, purge: bool = False) -> None:
        """Replace snapshots with all that was added since. With `purge` nothing of the old ones stays on the disk."""

        def replace(connection: sqlite3.Connection) -> None:
            for part, data in snapshots.items():
                _replace(connection, part, data, None)

        self._write(replace)
        if purge:
            self.purge()

    def compact(self, part: str, data: bytes, of: Stored) -> bool:
        """Replace a snapshot by one that has the units added since, unless another process did so meanwhile. Returns whether it did."""
        done: list[bool] = []

        def replace(connection: sqlite3.Connection) -> None:
            row = connection.execute("SELECT generation FROM snapshots WHERE part = ?", (part,)).fetchone()
            if (row[0] if row else 0) == of.generation:
                _replace(connection, part, data, of.last)
                done.append(True)

        self._write(replace)
        return bool(done)

    def add(self, part: str, units: Iterable[tuple[str, bytes]], row: LogRow) -> None:
        """Add units to the tail of an index together with how far their log was read."""

        def insert(connection: sqlite3.Connection) -> None:
            connection.executemany("INSERT INTO tail(part, id, data) VALUES (?, ?, ?)", [(part, *unit) for unit in units])
            _save_row(connection, row)

        self._write(insert)

    def drop(self, parts: Iterable[str]) -> None:
        """Forget indexes of past sessions with how far their logs were read, so that they are built again."""

        def delete(connection: sqlite3.Connection) -> None:
            for part in parts:
                for table in ("tail", "snapshots", "logs"):
                    connection.execute(f"DELETE FROM {table} WHERE part = ?", (part,))  # noqa: S608 - fixed names

        self._write(delete)

    def logs(self) -> dict[str, LogRow]:
        """Return how far each log was read."""
        return {row[0]: LogRow(*row) for row in self._read("SELECT session, part, size, changed, done, last, print FROM logs")}

    def save_log(self, row: LogRow) -> None:
        """Record how far a log was read."""
        self._write(lambda connection: _save_row(connection, row))

    def forget_logs(self, sessions: Iterable[str]) -> None:
        """Forget how far logs were read, such as those of deleted sessions."""
        self._write(lambda connection: connection.executemany("DELETE FROM logs WHERE session = ?", [(each,) for each in sessions]))

    def projects(self) -> dict[str, str]:
        """Return the scope of each project folder that is known."""
        return dict(self._read("SELECT folder, scope FROM projects"))

    def save_project(self, folder: str, scope: str) -> None:
        """Record the scope of a project folder; it stays when the folder is gone."""
        self._write(lambda connection: connection.execute("REPLACE INTO projects VALUES (?, ?)", (folder, scope)))

    def usage(self, part: str) -> dict[str, Usage]:
        """Return how often the notes of a scope were used, by name."""
        rows = self._read("SELECT name, uses, shown, last_used FROM usage WHERE part = ?", part)
        return {name: Usage(uses, shown, last) for name, uses, shown, last in rows}

    def add_usage(self, part: str, added: Mapping[str, Usage]) -> None:
        """Count further uses of notes."""

        def count(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "INSERT INTO usage VALUES (?, ?, ?, ?, ?) ON CONFLICT (part, name) DO UPDATE SET"
                " uses = uses + ?3, shown = shown + ?4, last_used = max(last_used, ?5)",
                [(part, name, each.uses, each.shown, each.last_used) for name, each in added.items()],
            )

        self._write(count)

    def remove_usage(self, part: str, names: Iterable[str]) -> None:
        """Forget the use of notes: it was written into their files, or they were forgotten."""
        rows = [(part, name) for name in names]
        self._write(lambda connection: connection.executemany("DELETE FROM usage WHERE part = ? AND name = ?", rows))

    def counted(self, session: str) -> int:
        """Return the last event of a session whose citations were counted; -1 if there is none."""
        rows = self._read("SELECT seq FROM counted WHERE session = ?", session)
        return int(rows[0][0]) if rows else -1

    def save_counted(self, session: str, seq: int) -> None:
        """Record up to which event the citations of a session were counted."""
        self._write(lambda connection: connection.execute("REPLACE INTO counted VALUES (?, ?)", (session, seq)))

    def purge(self) -> None:
        """Remove what was deleted from the side files too; while another process reads, that is left to the next purge."""
        with self._mended():
            self._database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def _read(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        with self._mended():
            found = self._database.connection.execute(query, values).fetchall()
        return found

    def _write(self, change: Callable[[sqlite3.Connection], object]) -> None:
        with self._mended(), self._database.writing():
            change(self._database.connection)

    @contextmanager
    def _mended(self) -> Iterator[None]:
        """Make a damaged file again; what the block was to read or write is then lost. Raises `StoreError` for other failures."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if not is_damaged(error):
                raise self._database.store_error(error) from error
            self._database.recreate()
            self._secure()


def _replace(connection: sqlite3.Connection, part: str, data: bytes, last: int | None) -> None:
    """Replace a snapshot, and delete the units added since up to number `last`, or all."""
    row = connection.execute("SELECT generation FROM snapshots WHERE part = ?", (part,)).fetchone()
    upto = 2**62 if last is None else last
    connection.execute("DELETE FROM tail WHERE part = ? AND number <= ?", (part, upto))
    # Deleted first, so that the pages of the old bytes are overwritten and not only written in part.
    connection.execute("DELETE FROM snapshots WHERE part = ?", (part,))
    connection.execute("INSERT INTO snapshots VALUES (?, ?, ?)", (part, data, (row[0] if row else 0) + 1))


def _save_row(connection: sqlite3.Connection, row: LogRow) -> None:
    values = (row.session, row.part, row.size, row.changed, row.done, row.last, row.fingerprint)
    connection.execute("REPLACE INTO logs VALUES (?, ?, ?, ?, ?, ?, ?)", values)
