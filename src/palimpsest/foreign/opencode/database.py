"""Reads OpenCode's database read-only: the tables of sessions, messages, parts and todos, and no others."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec

from palimpsest.foreign.opencode.rows import OpencodeSession, PartRow, messages_of, part_of, row_or_none, try_parse
from palimpsest.foreign.reading.database import query, rows_of, tables_of, text_value
from palimpsest.foreign.reading.transcript import ReadProblem, TranscriptSource
from palimpsest.wire.json_reading import Json

TABLES = frozenset({"session", "message", "part", "todo"})
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


def database_sources(path: Path) -> Iterator[TranscriptSource | ReadProblem]:
    """The sessions of a database, oldest first; nothing if it belongs to another program."""
    try:
        found = query(path, TABLES, _sessions)
    except sqlite3.Error as error:
        yield ReadProblem(str(path), f"the database cannot be read: {error}")
        return
    yield from (TranscriptSource("opencode", str(path), key, changed, parent) for key, changed, parent in found)


def read_database_session(path: Path, session: str) -> tuple[OpencodeSession | None, list[ReadProblem]]:
    """A consistent snapshot of a session, and its problems. Raises `sqlite3.Error` if the database cannot be read."""
    return query(path, TABLES, lambda connection: _session(connection, session, str(path)))


def _tables(connection: sqlite3.Connection) -> frozenset[str]:
    return tables_of(connection) & TABLES


def _sessions(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    if not {"session", "message", "part"} <= _tables(connection):
        return []
    part_stamps = dict(connection.execute("SELECT session_id, max(time_updated) || '-' || count(*) FROM part GROUP BY session_id"))
    found = connection.execute("SELECT id, time_updated, parent_id FROM session ORDER BY time_created, id")
    return [(text_value(key), f"{updated}-{text_value(part_stamps.get(key, b''))}", text_value(parent)) for key, updated, parent in found]


def _session(connection: sqlite3.Connection, session: str, where: str) -> tuple[OpencodeSession | None, list[ReadProblem]]:
    problems: list[ReadProblem] = []
    rows = _rows(connection, "SELECT * FROM session WHERE id = ?", session)
    if not rows:
        return None, problems
    parts: dict[str, list[PartRow]] = {}
    for key, message, data in connection.execute("SELECT id, message_id, data FROM part WHERE session_id = ?", (session,)):
        found = row_or_none(try_parse(data, f"{where}:part/{text_value(key)}"), problems)
        if found is not None:
            parts.setdefault(text_value(message), []).append(part_of(text_value(key), found))
    messages = [
        (text_value(key), found)
        for key, data in connection.execute("SELECT id, data FROM message WHERE session_id = ?", (session,))
        if (found := row_or_none(try_parse(data, f"{where}:message/{text_value(key)}"), problems)) is not None
    ]
    todo = _rows(connection, "SELECT * FROM todo WHERE session_id = ? ORDER BY position", session) if "todo" in _tables(connection) else []
    return OpencodeSession(session, info_of(rows[0]), messages_of(messages, parts), tuple(todo), folder=str(Path(where).parent)), problems


def _rows(connection: sqlite3.Connection, statement: str, session: str) -> list[Json]:
    rows = rows_of(connection, statement, session)
    return [{name: text_value(value) if isinstance(value, bytes) else value for name, value in row.items()} for row in rows]


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
