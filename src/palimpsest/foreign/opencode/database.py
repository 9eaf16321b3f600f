"""OpenCode's database, opened for reading only: sessions, messages, parts and things to do, and no other table."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar
from urllib.parse import quote

import msgspec

from palimpsest.foreign.opencode.rows import Part, Session, messages_of, part_of, try_parse
from palimpsest.foreign.reading.transcript import ReadProblem, TranscriptSource
from palimpsest.wire.json_reading import Json

Looked = TypeVar("Looked")

HEADER = b"SQLite format 3\x00"
TABLES = frozenset({"session", "message", "part", "todo"})
# How long to wait for the program that is writing, in seconds.
_PATIENCE = 5.0
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_FUNCTION})
_CATALOGUE = frozenset({"sqlite_master", "sqlite_schema"})
_TEXTS = {
    "slug": "slug",
    "project_id": "projectID",
    "workspace_id": "workspaceID",
    "directory": "directory",
    "path": "path",
    "parent_id": "parentID",
    "title": "title",
    "version": "version",
    "agent": "agent",
}
_JSONS = ("model", "metadata", "revert", "permission")
_TIMES = ("created", "updated", "compacting", "archived")


def is_database(path: Path) -> bool:
    """Whether a file is an SQLite database."""
    with path.open("rb") as file:
        return file.read(len(HEADER)) == HEADER


def sources_in(path: Path) -> Iterator[TranscriptSource | ReadProblem]:
    """The sessions of a database, oldest first; nothing if it is of another program."""
    try:
        found = look(path, _sessions)
    except sqlite3.Error as error:
        yield ReadProblem(str(path), f"the database cannot be read: {error}")
        return
    yield from (TranscriptSource("opencode", str(path), key, changed, parent) for key, changed, parent in found)


def read_session(path: Path, session: str) -> tuple[Session | None, list[ReadProblem]]:
    """A session as it stands now, all of it at one moment; `sqlite3.Error` if the database cannot be read."""
    return look(path, lambda connection: _session(connection, session, str(path)))


def look(path: Path, reading: Callable[[sqlite3.Connection], Looked]) -> Looked:
    """What a look at the database brings, without leaving a trace beside it."""
    if not _logs_writes(path):
        return _once(path, "mode=ro", reading)
    if not _beside(path, "wal").exists():
        found = _once(path, "mode=ro&immutable=1", reading)
        if not _beside(path, "wal").exists():
            return found
        # Somebody began to write meanwhile: look again, now side by side with them.
    if _beside(path, "shm").exists():
        return _once(path, "mode=ro", reading)
    # A writer died and left its log: reading that makes a file beside it, so a copy is read.
    with TemporaryDirectory() as folder:
        copied = Path(folder) / path.name
        for each in (path, _beside(path, "wal")):
            shutil.copyfile(each, copied.with_name(each.name))
        return _once(copied, "mode=ro", reading)


def _once(path: Path, how: str, reading: Callable[[sqlite3.Connection], Looked]) -> Looked:
    connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?{how}", uri=True, timeout=_PATIENCE, isolation_level=None)
    with closing(connection):
        connection.text_factory = bytes
        connection.set_authorizer(_authorize)
        connection.execute("BEGIN")
        return reading(connection)


def _logs_writes(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(20)[18:] == b"\x02\x02"


def _beside(path: Path, kind: str) -> Path:
    return path.with_name(f"{path.name}-{kind}")


def _authorize(action: int, first: str | None, second: str | None, _database: str | None, _trigger: str | None) -> int:
    """Reading the named tables is all that is allowed here, whatever a statement says."""
    if action in _ALLOWED or (action == sqlite3.SQLITE_READ and first in TABLES | _CATALOGUE):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {name.decode() for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")} & TABLES


def _sessions(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    if not {"session", "message", "part"} <= _tables(connection):
        return []
    touched = dict(connection.execute("SELECT session_id, max(time_updated) || '-' || count(*) FROM part GROUP BY session_id"))
    found = connection.execute("SELECT id, time_updated, parent_id FROM session ORDER BY time_created, id")
    return [(_said(key), f"{updated}-{_said(touched.get(key, b''))}", _said(parent)) for key, updated, parent in found]


def _said(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else "" if value is None else str(value)


def _session(connection: sqlite3.Connection, session: str, where: str) -> tuple[Session | None, list[ReadProblem]]:
    bad: list[ReadProblem] = []
    rows = _rows(connection, "SELECT * FROM session WHERE id = ?", session)
    if not rows:
        return None, bad
    parts: dict[str, list[Part]] = {}
    for key, message, data in connection.execute("SELECT id, message_id, data FROM part WHERE session_id = ?", (session,)):
        found = try_parse(data, f"{where}:part/{_said(key)}")
        if isinstance(found, ReadProblem):
            bad.append(found)
        else:
            parts.setdefault(_said(message), []).append(part_of(_said(key), found))
    messages: list[tuple[str, Json]] = []
    for key, data in connection.execute("SELECT id, data FROM message WHERE session_id = ?", (session,)):
        found = try_parse(data, f"{where}:message/{_said(key)}")
        if isinstance(found, ReadProblem):
            bad.append(found)
        else:
            messages.append((_said(key), found))
    todo = _rows(connection, "SELECT * FROM todo WHERE session_id = ? ORDER BY position", session) if "todo" in _tables(connection) else []
    return Session(session, info_of(rows[0]), messages_of(messages, parts), tuple(todo), folder=str(Path(where).parent)), bad


def _rows(connection: sqlite3.Connection, statement: str, session: str) -> list[Json]:
    cursor = connection.execute(statement, (session,))
    names = [column[0] for column in cursor.description]
    rows = [dict(zip(names, row, strict=True)) for row in cursor]
    return [{name: _said(value) if isinstance(value, bytes) else value for name, value in row.items()} for row in rows]


def info_of(row: Json) -> Json:
    """A row of the session table in the shape that exports and files have."""
    info: Json = {"id": row.get("id")}
    info |= {name: row[column] for column, name in _TEXTS.items() if row.get(column) is not None}
    info |= {name: _json(row[name]) for name in _JSONS if row.get(name) is not None}
    if row.get("share_url"):
        info["share"] = {"url": row["share_url"]}
    summary = {name: row[f"summary_{name}"] for name in ("additions", "deletions", "files") if row.get(f"summary_{name}") is not None}
    if row.get("summary_diffs") is not None:
        summary["diffs"] = _json(row["summary_diffs"])
    if summary:
        info["summary"] = summary
    if "cost" in row:
        info["cost"] = row["cost"]
    if "tokens_input" in row:
        cache = {"read": row.get("tokens_cache_read"), "write": row.get("tokens_cache_write")}
        info["tokens"] = {name: row.get(f"tokens_{name}") for name in ("input", "output", "reasoning")} | {"cache": cache}
    info["time"] = {name: row[f"time_{name}"] for name in _TIMES if row.get(f"time_{name}") is not None}
    return info


def _json(value: object) -> object:
    try:
        return msgspec.json.decode(value) if isinstance(value, str) else value
    except msgspec.DecodeError:
        return value
