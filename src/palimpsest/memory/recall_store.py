"""The database of recall: snapshots of indexes, uses of notes, and the removal of forgotten notes from the indexes."""

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Value
from palimpsest.memory.past_sessions import event_id
from palimpsest.memory.recall_index import RecallIndex, decode_index, encode_index, erase
from palimpsest.memory.recall_terms import RecallUnit
from palimpsest.memory.shown import IndexedNote
from palimpsest.memory.store import RECALL_FILE
from palimpsest.stores.database import Database, is_damaged

_VERSION: Final = 1
# `part` names an index: those of notes are named by their scope, those of past sessions by the scope of their project. `tail` are the units
# that were added since the snapshot of their part.
_SCHEMA: Final = """
CREATE TABLE snapshots(part TEXT PRIMARY KEY, data BLOB NOT NULL, generation INTEGER NOT NULL);
CREATE TABLE tail(number INTEGER PRIMARY KEY, part TEXT NOT NULL, id TEXT NOT NULL, data BLOB NOT NULL);
CREATE INDEX tail_of_part ON tail(part);
CREATE TABLE logs(session TEXT PRIMARY KEY, part TEXT NOT NULL, size INTEGER, changed INTEGER);
CREATE TABLE projects(folder TEXT PRIMARY KEY, scope TEXT NOT NULL);
CREATE TABLE usage(part TEXT, name TEXT, uses INTEGER, shown INTEGER, last_used TEXT, PRIMARY KEY(part, name))
"""
# Added to a database that was made before there were vectors. `digest` is that of the model and the text that a vector is of.
_VECTORS: Final = "CREATE TABLE IF NOT EXISTS vectors(part TEXT, id TEXT, digest BLOB, data BLOB, PRIMARY KEY(part, id))"

Result = TypeVar("Result")


class NoteUse(Value, frozen=True):
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
    """A log that was read: the index that has its units, and its size in bytes and change in nanoseconds since 1970 when it was read."""

    session: str
    part: str
    size: int = -1
    changed: int = -1


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

    def vectors(self, part: str) -> dict[str, tuple[bytes, bytes]]:
        """Return the digest and the vector of each unit of an index that has one, by id."""
        self._write(lambda connection: connection.execute(_VECTORS))
        rows = self._read("SELECT id, digest, data FROM vectors WHERE part = ?", part)
        return {each: (bytes(digest), bytes(data)) for each, digest, data in rows}

    def save_vectors(self, part: str, made: Mapping[str, tuple[bytes, bytes]], gone: Iterable[str]) -> None:
        """Add or replace vectors of units, and delete those of units that are gone."""

        def replace(connection: sqlite3.Connection) -> None:
            connection.execute(_VECTORS)
            connection.executemany("DELETE FROM vectors WHERE part = ? AND id = ?", [(part, each) for each in gone])
            connection.executemany("REPLACE INTO vectors VALUES (?, ?, ?, ?)", [(part, each, *made[each]) for each in made])

        self._write(replace)

    def drop_vectors(self, part: str) -> None:
        """Delete all vectors of an index; they are made again when they are missing."""

        def delete(connection: sqlite3.Connection) -> None:
            connection.execute(_VECTORS)
            connection.execute("DELETE FROM vectors WHERE part = ?", (part,))

        self._write(delete)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def snapshot(self, part: str) -> bytes | None:
        """Return the snapshot of an index, if there is one."""
        row = self._read("SELECT data FROM snapshots WHERE part = ?", part)
        return bytes(row[0][0]) if row else None

    def stored(self, part: str) -> Stored:
        """Return the snapshot of an index with the units that were added since, as they belong together."""

        def read() -> Stored:
            with self._database.writing():
                execute = self._database.connection.execute
                rows = execute("SELECT data, generation FROM snapshots WHERE part = ?", (part,)).fetchall()
                tail = execute("SELECT number, data FROM tail WHERE part = ? ORDER BY number", (part,)).fetchall()
            data, generation = (bytes(rows[0][0]), int(rows[0][1])) if rows else (None, 0)
            return Stored(data, generation, tuple(bytes(each) for _, each in tail), tail[-1][0] if tail else 0)

        return self._mended(read, Stored())

    def state(self, part: str) -> tuple[int, int]:
        """Return the generation of a snapshot and the number of the last unit that was added since; they change with the index."""
        rows = self._read("SELECT generation FROM snapshots WHERE part = ?", part)
        ((last,),) = self._read("SELECT coalesce(max(number), 0) FROM tail WHERE part = ?", part) or [(0,)]
        return (int(rows[0][0]) if rows else 0), int(last)

    def parts(self) -> tuple[str, ...]:
        """Return the names of the indexes of past sessions."""
        return tuple(part for (part,) in self._read("SELECT DISTINCT part FROM logs ORDER BY part"))

    def tail_size(self, part: str) -> int:
        """Return how many units were added since the snapshot of an index."""
        ((count,),) = self._read("SELECT count(*) FROM tail WHERE part = ?", part) or [(0,)]
        return int(count)

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
        """Add units to the tail of an index together with the log that they are from."""

        def insert(connection: sqlite3.Connection) -> None:
            connection.executemany("INSERT INTO tail(part, id, data) VALUES (?, ?, ?)", [(part, *unit) for unit in units])
            _save_row(connection, row)

        self._write(insert)

    def drop(self, parts: Iterable[str]) -> None:
        """Forget indexes of past sessions with the logs that were read for them, so that they are built again."""

        def delete(connection: sqlite3.Connection) -> None:
            for part in parts:
                for table in ("tail", "snapshots", "logs"):
                    connection.execute(f"DELETE FROM {table} WHERE part = ?", (part,))  # noqa: S608 - fixed names

        self._write(delete)

    def logs(self) -> dict[str, LogRow]:
        """Return the logs that were read, by session."""
        return {row[0]: LogRow(*row) for row in self._read("SELECT session, part, size, changed FROM logs")}

    def forget_logs(self, sessions: Iterable[str]) -> None:
        """Forget that logs were read, such as those of deleted sessions."""
        self._write(lambda connection: connection.executemany("DELETE FROM logs WHERE session = ?", [(each,) for each in sessions]))

    def projects(self) -> dict[str, str]:
        """Return the scope of each project folder that is known."""
        return dict(self._read("SELECT folder, scope FROM projects"))

    def save_project(self, folder: str, scope: str) -> None:
        """Record the scope of a project folder; it stays when the folder is gone."""
        self._write(lambda connection: connection.execute("REPLACE INTO projects VALUES (?, ?)", (folder, scope)))

    def usage(self, part: str) -> dict[str, NoteUse]:
        """Return how often the notes of a scope were used, by name."""
        rows = self._read("SELECT name, uses, shown, last_used FROM usage WHERE part = ?", part)
        return {name: NoteUse(uses, shown, last) for name, uses, shown, last in rows}

    def add_usage(self, part: str, added: Mapping[str, NoteUse]) -> None:
        """Count further uses of notes."""

        def count(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "INSERT INTO usage VALUES (?, ?, ?, ?, ?) ON CONFLICT (part, name) DO UPDATE SET"
                " uses = uses + ?3, shown = shown + ?4, last_used = max(last_used, ?5)",
                [(part, name, each.uses, each.shown, each.last_used) for name, each in added.items()],
            )

        self._write(count)

    def subtract_usage(self, part: str, taken: Mapping[str, NoteUse]) -> None:
        """Take off uses that were written into the files of notes; what was counted meanwhile stays."""

        def subtract(connection: sqlite3.Connection) -> None:
            rows = [(each.uses, each.shown, part, name) for name, each in taken.items()]
            connection.executemany("UPDATE usage SET uses = uses - ?, shown = shown - ? WHERE part = ? AND name = ?", rows)
            connection.execute("DELETE FROM usage WHERE part = ? AND uses <= 0 AND shown <= 0", (part,))

        self._write(subtract)

    def remove_usage(self, part: str, names: Iterable[str]) -> None:
        """Forget the use of notes that were forgotten."""
        rows = [(part, name) for name in names]
        self._write(lambda connection: connection.executemany("DELETE FROM usage WHERE part = ? AND name = ?", rows))

    def purge(self) -> None:
        """Remove what was deleted from the side files too; while another process reads, that is left to the next purge."""
        self._mended(lambda: self._database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone(), None)

    def _read(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        return self._mended(lambda: self._database.connection.execute(query, values).fetchall(), [])

    def _write(self, change: Callable[[sqlite3.Connection], object]) -> None:
        def write() -> None:
            with self._database.writing():
                change(self._database.connection)

        self._mended(write, None)

    def _mended(self, work: Callable[[], Result], otherwise: Result) -> Result:
        """Return the result of some work; if the file is damaged, make it again and return `otherwise`. Raises `StoreError` else."""
        try:
            return work()
        except sqlite3.DatabaseError as error:
            if not is_damaged(error):
                raise self._database.store_error(error) from error
            self._database.recreate()
            self._secure()
            return otherwise


def _replace(connection: sqlite3.Connection, part: str, data: bytes, last: int | None) -> None:
    """Replace a snapshot, and delete the units added since up to number `last`, or all."""
    row = connection.execute("SELECT generation FROM snapshots WHERE part = ?", (part,)).fetchone()
    upto = 2**62 if last is None else last
    connection.execute("DELETE FROM tail WHERE part = ? AND number <= ?", (part, upto))
    # Deleted first, so that the pages of the old bytes are overwritten and not only written in part.
    connection.execute("DELETE FROM snapshots WHERE part = ?", (part,))
    connection.execute("INSERT INTO snapshots VALUES (?, ?, ?)", (part, data, (row[0] if row else 0) + 1))


def _save_row(connection: sqlite3.Connection, row: LogRow) -> None:
    connection.execute("REPLACE INTO logs VALUES (?, ?, ?, ?)", (row.session, row.part, row.size, row.changed))


ENTRIES: Final = " entries"
"""What the name of the entries of an index ends with, behind the name of the index."""
_entries = msgspec.msgpack.Decoder(dict[str, IndexedNote])
_units = msgspec.msgpack.Decoder(RecallUnit)
encode_entries = msgspec.msgpack.Encoder().encode


def decode_entries(data: bytes) -> dict[str, IndexedNote]:
    """Return the entries of an index of notes. Raises `msgspec.DecodeError` if they are none."""
    return _entries.decode(data)


def opened(path: Path) -> "closing[RecallFile]":
    """Return a context in which a database of recall is open. Raises `StoreError` if it cannot be opened."""
    return closing(RecallFile(path))


def sessions_file(index_file: Path) -> Path:
    """Return the database over past sessions of the home that the database of a scope is in."""
    return index_file.parent.parent / RECALL_FILE


def read_index(stored: "Stored") -> RecallIndex:
    """Return an index from its snapshot and the units that were added since. Raises `BadInput` if the snapshot cannot be used."""
    index = RecallIndex() if stored.snapshot is None else decode_index(stored.snapshot)
    for data in stored.tail:
        try:
            unit = _units.decode(data)
        except msgspec.DecodeError as error:
            raise BadInput(f"a unit of the index is damaged: {error}", where="memory") from error
        # Two processes that read a log at the same time both add its units.
        if unit.id not in index.numbers:
            index.add(unit)
    return index


def forget_notes(index_file: Path, scope: str, names: Sequence[str], evidence: Iterable[str]) -> None:
    """Remove notes, and the events that they came from, from the databases, so that no byte of them stays there."""
    if index_file.exists():
        with opened(index_file) as stored:
            _erase_notes(stored, scope, tuple(names))
            stored.remove_usage(scope, names)
            stored.drop_vectors(scope)
            stored.purge()
    erase_evidence(sessions_file(index_file), evidence)


def erase_evidence(file: Path, evidence: Iterable[str]) -> None:
    """Remove the units of events, given as `session:seq`, from the database over past sessions."""
    by_session: dict[str, set[str]] = {}
    for each in evidence:
        by_session.setdefault(each.rpartition(":")[0], set()).add(each)
    if not by_session or not file.exists():
        return
    with opened(file) as stored:
        rows = stored.logs()
        parts = {rows[session].part for session in by_session if session in rows}
        gone = frozenset().union(*by_session.values())
        for part in parts:
            try:
                index = read_index(stored.stored(part))
            except BadInput:
                stored.drop((part,))
                continue
            quoting = {unit.session for unit in index.units if not gone.isdisjoint(unit.sources)}
            erase(index, [each for each in index.numbers if event_id(each) in gone or event_id(each).rpartition(":")[0] in quoting])
            stored.save({part: encode_index(index)})
            # A vector is of a unit with the one before it.
            stored.drop_vectors(part)
            # Units of other events that state what these say are made again, without it, when the log is read next.
            stored.forget_logs(quoting)
        stored.purge()


def _erase_notes(stored: "RecallFile", part: str, names: tuple[str, ...]) -> None:
    data, entries = stored.snapshot(part), stored.snapshot(part + ENTRIES)
    if data is None:
        return
    try:
        index, known = decode_index(data), decode_entries(entries or b"")
    except (BadInput, msgspec.DecodeError):
        index, known = RecallIndex(), {}
    erase(index, names)
    kept = {name: entry for name, entry in known.items() if name not in names}
    stored.save({part: encode_index(index), part + ENTRIES: encode_entries(kept)})
