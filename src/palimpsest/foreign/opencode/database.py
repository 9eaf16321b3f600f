"""Reads OpenCode's database read-only: the tables of sessions, messages, parts and todos, and no others."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar
from urllib.parse import quote

import msgspec

from palimpsest.foreign.opencode.rows import OpencodeSession, PartRow, messages_of, part_of, row_or_none, try_parse
from palimpsest.foreign.reading.opening import open_regular
from palimpsest.foreign.reading.transcript import ReadProblem, TranscriptSource
from palimpsest.wire.json_reading import Json

QueryResult = TypeVar("QueryResult")

HEADER = b"SQLite format 3\x00"
TABLES = frozenset({"session", "message", "part", "todo"})
# Seconds to wait for a lock of the program that is writing.
_TIMEOUT_SECONDS = 5.0
_ALLOWED_ACTIONS = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_FUNCTION})
_SCHEMA_TABLES = frozenset({"sqlite_master", "sqlite_schema"})
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
    with open_regular(path) as file:
        return file.read(len(HEADER)) == HEADER


def sources_in(path: Path) -> Iterator[TranscriptSource | ReadProblem]:
    """The sessions of a database, oldest first; nothing if it belongs to another program."""
    try:
        found = query(path, _sessions)
    except sqlite3.Error as error:
        yield ReadProblem(str(path), f"the database cannot be read: {error}")
        return
    yield from (TranscriptSource("opencode", str(path), key, changed, parent) for key, changed, parent in found)


def read_session(path: Path, session: str) -> tuple[OpencodeSession | None, list[ReadProblem]]:
    """A consistent snapshot of a session, and its problems. Raises `sqlite3.Error` if the database cannot be read."""
    return query(path, lambda connection: _session(connection, session, str(path)))


def query(path: Path, run: Callable[[sqlite3.Connection], QueryResult]) -> QueryResult:
    """The result of `run` on a read-only connection; leaves no files beside the database."""
    if not _uses_wal(path):
        return _query_once(path, "mode=ro", run)
    if not _beside(path, "wal").exists():
        found = _query_once(path, "mode=ro&immutable=1", run)
        if not _beside(path, "wal").exists():
            return found
        # A writer appeared meanwhile, so read again with locking.
    if _beside(path, "shm").exists():
        return _query_once(path, "mode=ro", run)
    # A writer crashed and left its log. Reading that would create a file beside it, so a copy is read.
    with TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        for each in (path, _beside(path, "wal")):
            shutil.copyfile(each, copy.with_name(each.name))
        return _query_once(copy, "mode=ro", run)


def _query_once(path: Path, options: str, run: Callable[[sqlite3.Connection], QueryResult]) -> QueryResult:
    connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?{options}", uri=True, timeout=_TIMEOUT_SECONDS, isolation_level=None)
    with closing(connection):
        connection.text_factory = bytes
        connection.set_authorizer(_authorize)
        connection.execute("BEGIN")
        return run(connection)


def _uses_wal(path: Path) -> bool:
    with open_regular(path) as file:
        return file.read(20)[18:] == b"\x02\x02"


def _beside(path: Path, kind: str) -> Path:
    return path.with_name(f"{path.name}-{kind}")


def _authorize(action: int, first: str | None, second: str | None, _database: str | None, _trigger: str | None) -> int:
    """Allow only reading the known tables, whatever a statement says."""
    if action in _ALLOWED_ACTIONS or (action == sqlite3.SQLITE_READ and first in TABLES | _SCHEMA_TABLES):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {name.decode() for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")} & TABLES


def _sessions(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    if not {"session", "message", "part"} <= _tables(connection):
        return []
    part_stamps = dict(connection.execute("SELECT session_id, max(time_updated) || '-' || count(*) FROM part GROUP BY session_id"))
    found = connection.execute("SELECT id, time_updated, parent_id FROM session ORDER BY time_created, id")
    return [(_text(key), f"{updated}-{_text(part_stamps.get(key, b''))}", _text(parent)) for key, updated, parent in found]


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else "" if value is None else str(value)


def _session(connection: sqlite3.Connection, session: str, where: str) -> tuple[OpencodeSession | None, list[ReadProblem]]:
    problems: list[ReadProblem] = []
    rows = _rows(connection, "SELECT * FROM session WHERE id = ?", session)
    if not rows:
        return None, problems
    parts: dict[str, list[PartRow]] = {}
    for key, message, data in connection.execute("SELECT id, message_id, data FROM part WHERE session_id = ?", (session,)):
        found = row_or_none(try_parse(data, f"{where}:part/{_text(key)}"), problems)
        if found is not None:
            parts.setdefault(_text(message), []).append(part_of(_text(key), found))
    messages = [
        (_text(key), found)
        for key, data in connection.execute("SELECT id, data FROM message WHERE session_id = ?", (session,))
        if (found := row_or_none(try_parse(data, f"{where}:message/{_text(key)}"), problems)) is not None
    ]
    todo = _rows(connection, "SELECT * FROM todo WHERE session_id = ? ORDER BY position", session) if "todo" in _tables(connection) else []
    return OpencodeSession(session, info_of(rows[0]), messages_of(messages, parts), tuple(todo), folder=str(Path(where).parent)), problems


def _rows(connection: sqlite3.Connection, statement: str, session: str) -> list[Json]:
    cursor = connection.execute(statement, (session,))
    names = [column[0] for column in cursor.description]
    rows = [dict(zip(names, row, strict=True)) for row in cursor]
    return [{name: _text(value) if isinstance(value, bytes) else value for name, value in row.items()} for row in rows]


def info_of(row: Json) -> Json:
    """A row of the session table in the shape of exports and files."""
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
