"""Reader of OpenCode sessions from its database, its exports, and the file tree of older versions."""

import os
import re
import sqlite3
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

import msgspec

from palimpsest.core.ports import Blobs
from palimpsest.exchange.files import (
    changed,
    current_walk,
    head_of,
    is_database,
    query,
    read_regular,
    reason,
    rows_of,
    tables_of,
    text_value,
)
from palimpsest.exchange.opencode.events import read_events
from palimpsest.exchange.opencode.rows import (
    MessageRow,
    OpencodeSession,
    PartRow,
    in_order,
    message_of,
    messages_of,
    parse,
    part_of,
    row_or_none,
    try_parse,
    without_columns,
)
from palimpsest.exchange.transcript import ReadOutput, ReadPosition, ReadProblem, TranscriptSource
from palimpsest.wire.json_reading import Json, is_json, number, table_at, tables_at, text

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
    return query(path, TABLES, lambda connection: _database_session(connection, session, str(path)))


def _tables(connection: sqlite3.Connection) -> frozenset[str]:
    return tables_of(connection) & TABLES


def _sessions(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    if not {"session", "message", "part"} <= _tables(connection):
        return []
    part_stamps = dict(connection.execute("SELECT session_id, max(time_updated) || '-' || count(*) FROM part GROUP BY session_id"))
    found = connection.execute("SELECT id, time_updated, parent_id FROM session ORDER BY time_created, id")
    return [(text_value(key), f"{updated}-{text_value(part_stamps.get(key, b''))}", text_value(parent)) for key, updated, parent in found]


def _database_session(connection: sqlite3.Connection, session: str, where: str) -> tuple[OpencodeSession | None, list[ReadProblem]]:
    problems: list[ReadProblem] = []
    rows = _opencode_rows(connection, "SELECT * FROM session WHERE id = ?", session)
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
    todo = (
        _opencode_rows(connection, "SELECT * FROM todo WHERE session_id = ? ORDER BY position", session)
        if "todo" in _tables(connection)
        else []
    )
    return OpencodeSession(session, info_of(rows[0]), messages_of(messages, parts), tuple(todo), folder=str(Path(where).parent)), problems


def _opencode_rows(connection: sqlite3.Connection, statement: str, session: str) -> list[Json]:
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


_HEAD = 16 * 1024
# An export may start with a line of text, so the JSON starts at the first line with an object.
_JSON_START = re.compile(rb'^\s*\{\s*"(?:info|messages|project|session|message|part|todo)"\s*:', re.MULTILINE)
_SESSION = re.compile(rb'"ses_[0-9A-Za-z]')


def may_be_export(path: Path) -> bool:
    """Whether a file starts like an export or a table dump; reads only 16 KiB."""
    return _JSON_START.search(_utf8(head_of(path, _HEAD))) is not None


def export_sources(path: Path) -> Iterator[TranscriptSource | ReadProblem]:
    """The sessions of an export or a dump; nothing if the file is neither."""
    try:
        value = _value(read_regular(path))
    except (ValueError, RecursionError) as error:
        if _SESSION.search(_utf8(head_of(path, _HEAD))):
            yield ReadProblem(str(path), f"this export cannot be read: {error}")
        return
    found: list[tuple[str, str]] = []
    if _is_export(value):
        info = table_at(value, "info")
        found = [(text(info, "id"), text(info, "parentID"))]
    elif all(isinstance(value.get(name), list) for name in ("session", "message", "part")):
        rows = sorted(tables_at(value, "session"), key=lambda row: (number(row, "time_created"), text(row, "id")))
        found = [(text(row, "id"), text(row, "parent_id")) for row in rows if text(row, "id")]
    yield from (TranscriptSource("opencode", str(path), session, changed(path), parent) for session, parent in found)


def read_exported_session(path: Path, session: str) -> tuple[OpencodeSession | None, list[ReadProblem]]:
    """A session of an export or a dump, and its problems. Raises `ValueError` if the file is damaged."""
    value = _value(read_regular(path))
    return _session_in_export(value, str(path)) if _is_export(value) else _session_in_dump(value, session, str(path))


def _utf8(data: bytes) -> bytes:
    """The text as UTF-8; some shells write output as UTF-16."""
    if data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        return data.decode("utf-16", "replace").encode()
    return data.removeprefix(b"\xef\xbb\xbf")


def _value(data: bytes) -> Json:
    utf8 = _utf8(data)
    found = _JSON_START.search(utf8)
    return parse(utf8[found.start() if found else 0 : utf8.rfind(b"}") + 1])


def _is_export(value: Json) -> bool:
    return bool(text(table_at(value, "info"), "id")) and isinstance(value.get("messages"), list)


def _session_in_export(value: Json, where: str) -> tuple[OpencodeSession | None, list[ReadProblem]]:
    problems: list[ReadProblem] = []
    messages: list[MessageRow] = []
    rows = value["messages"]
    for index, row in enumerate(rows if isinstance(rows, list) else ()):
        info = table_at(row, "info") if is_json(row) else {}
        if not is_json(row) or not info:
            problems.append(ReadProblem(f"{where}:messages/{index}", "this is not a message"))
            continue
        key = text(info, "id") or f"message-{index}"
        parts = _opencode_parts(row.get("parts"), key, f"{where}:messages/{index}", problems)
        messages.append(message_of(key, without_columns(info), parts))
    info = table_at(value, "info")
    return OpencodeSession(text(info, "id"), info, in_order(messages), tuple(tables_at(value, "todo"))), problems


def _opencode_parts(rows: object, message: str, where: str, problems: list[ReadProblem]) -> list[PartRow]:
    parts: list[PartRow] = []
    for index, row in enumerate(rows if isinstance(rows, list) else ()):
        if is_json(row):
            parts.append(part_of(text(row, "id") or f"{message}-{index}", without_columns(row)))
        else:
            problems.append(ReadProblem(f"{where}/parts/{index}", "this is not a part"))
    return parts


def _session_in_dump(value: Json, session: str, where: str) -> tuple[OpencodeSession | None, list[ReadProblem]]:
    problems: list[ReadProblem] = []
    row = next((row for row in tables_at(value, "session") if text(row, "id") == session), None)
    if row is None:
        return None, problems
    parts: dict[str, list[PartRow]] = {}
    for each in tables_at(value, "part"):
        if text(each, "session_id") == session and (data := _data(each, "part", where, problems)) is not None:
            parts.setdefault(text(each, "message_id"), []).append(part_of(text(each, "id"), data))
    messages = [
        (text(each, "id"), data)
        for each in tables_at(value, "message")
        if text(each, "session_id") == session and (data := _data(each, "message", where, problems)) is not None
    ]
    todo = sorted(
        (each for each in tables_at(value, "todo") if text(each, "session_id") == session), key=lambda each: number(each, "position")
    )
    return OpencodeSession(session, info_of(row), messages_of(messages, parts), tuple(todo)), problems


def _data(row: Json, table: str, where: str, problems: list[ReadProblem]) -> Json | None:
    """The data of a row, which a dump may have as an object or as JSON text."""
    data = row.get("data")
    return data if is_json(data) else row_or_none(try_parse(data, f"{where}:{table}/{text(row, 'id')}"), problems)


def tree_of(path: Path) -> Path | None:
    """The storage folder of a session's file; None if it is in none."""
    folder = path.parent.parent
    return folder.parent if path.suffix == ".json" and folder.name == "session" and path.stem.startswith("ses_") else None


def sessions_in_tree(storage: Path) -> Iterator[TranscriptSource | ReadProblem]:
    """The sessions of a storage folder, oldest first."""
    found: list[tuple[int, TranscriptSource]] = []
    for path in sorted(storage.glob("session/*/*.json")):
        if tree_of(path) is None:
            continue
        info = _read_file(path)
        if isinstance(info, ReadProblem):
            yield info
            continue
        key = text(info, "id") or path.stem
        created = number(table_at(info, "time"), "created")
        try:
            stamp = _change_stamp(storage, path, key)
        except OSError as error:
            yield ReadProblem(str(path), f"its messages cannot be read: {error.strerror or error}")
            continue
        found.append((created, TranscriptSource("opencode", str(path), key, stamp, text(info, "parentID"))))
    yield from (source for _, source in sorted(found, key=lambda each: (each[0], each[1].session)))


def read_tree(path: Path, storage: Path) -> tuple[OpencodeSession | None, list[ReadProblem]]:
    """A session of a storage folder, and its problems. Files that are being written are read the next time."""
    problems: list[ReadProblem] = []
    info = _read_file(path)
    if isinstance(info, ReadProblem):
        return None, [info]
    session = text(info, "id") or path.stem
    messages: list[MessageRow] = []
    for file in _files_of(storage, "message", session):
        row = row_or_none(_read_file(file), problems)
        if row is None:
            continue
        key = text(row, "id") or file.stem
        parts = [
            part_of(text(part, "id") or each.stem, without_columns(part))
            for each in _files_of(storage, "part", key, session)
            if (part := row_or_none(_read_file(each), problems)) is not None
        ]
        messages.append(message_of(key, without_columns(row), parts))
    todo = _read_list(storage / "todo" / f"{session}.json", problems)
    rows = tuple(each for each in todo if is_json(each))
    diff = _read_list(storage / "session_diff" / f"{session}.json", problems) or None
    return OpencodeSession(session, info, in_order(messages), rows, diff, str(storage.parent)), problems


def _files_of(storage: Path, kind: str, owner: str, session: str = "") -> list[Path]:
    # The oldest versions had everything below `session`.
    for folder in (storage / kind / owner, storage / "session" / kind / session / owner):
        if folder.is_dir():
            return sorted(folder.glob("*.json"))
    return []


def _read_file(path: Path) -> Json | ReadProblem:
    try:
        return try_parse(read_regular(path), str(path))
    except OSError as error:
        return ReadProblem(str(path), reason(error))


def _read_list(path: Path, problems: list[ReadProblem]) -> list[object]:
    try:
        value = msgspec.json.decode(read_regular(path))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as error:
        problems.append(ReadProblem(str(path), f"it cannot be read: {error}"))
        return []
    return value if isinstance(value, list) else []


def _change_stamp(storage: Path, path: Path, session: str) -> str:
    """A stamp that differs once a file of the session has changed: the newest modification time and the number of files."""
    files = [path]
    for message in _files_of(storage, "message", session):
        files += [message, *_files_of(storage, "part", message.stem, session)]
    newest = 0
    for file in files:
        try:
            newest = max(newest, file.stat().st_mtime_ns)
        except OSError:
            continue
    return f"{newest}-{len(files)}"


# Folders with thousands of files and no session.
_SKIPPED_FOLDERS = frozenset({"node_modules", ".git"})
# What the program keeps beside its database; `storage` is read as a whole.
_PROGRAM_FOLDERS = frozenset({"storage", "snapshot", "log", "bin", "repos", "tool-output"})
_SUFFIXES = (".json", ".jsonl", ".db", ".sqlite")


class OpencodeFormat:
    """OpenCode. Its three storage forms have the same rows and yield the same events."""

    name = "opencode"

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The data folder by `XDG_DATA_HOME`, and the default one."""
        folders = [environment.get("XDG_DATA_HOME", ""), str(home / ".local" / "share")]
        return tuple(dict.fromkeys(Path(folder) / "opencode" for folder in folders if folder))

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """The sessions in a file, or in all files below a folder."""
        try:
            if path.is_dir():
                yield from _sources_below(path)
            elif path.is_file():
                yield from _sources_in_file(path)
        except OSError as error:
            yield ReadProblem(str(path), reason(error))

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The events of a session; after a position only what is new or has changed since."""
        try:
            session, problems = _session(Path(source.path), source.session)
        except (OSError, ValueError, RecursionError, sqlite3.Error) as error:
            yield ReadProblem(source.path, f"the session {source.session} cannot be read: {error}")
            return
        yield from problems
        if session is None:
            yield ReadProblem(source.path, f"there is no session {source.session} any more")
            return
        yield from read_events(session, blobs, position)


def _session(path: Path, session: str) -> tuple[OpencodeSession | None, list[ReadProblem]]:
    storage = tree_of(path)
    if storage is not None:
        return read_tree(path, storage)
    if is_database(path):
        return read_database_session(path, session)
    return read_exported_session(path, session)


def _sources_in_file(path: Path) -> Iterator[TranscriptSource | ReadProblem]:
    if is_database(path):
        yield from database_sources(path)
    elif may_be_export(path):
        yield from export_sources(path)
    elif (storage := tree_of(path)) is not None:
        yield from (each for each in sessions_in_tree(storage) if isinstance(each, ReadProblem) or each.path == str(path))


def _sources_below(path: Path) -> Iterator[TranscriptSource | ReadProblem]:
    for found in current_walk().folders(str(path)):
        if isinstance(found, ReadProblem):
            yield found
            continue
        name, folders, listing = found
        folder, names = Path(name), sorted((*listing.files, *listing.others))
        storage = folder if folder.name == "storage" else folder / "storage"
        databases = [each for each in names if each.startswith("opencode") and each.endswith(".db")]
        others = [each for each in names if each.endswith(_SUFFIXES) and each not in databases]
        of_databases, of_others = (chain.from_iterable(_guarded(folder / each) for each in some) for some in (databases, others))
        if databases or os.path.isdir(storage / "session"):  # noqa: PTH112  # Path.is_dir would raise for a folder without permission
            folders[:] = [] if storage == folder else [each for each in folders if each not in _PROGRAM_FOLDERS]
            yield from _without_duplicates(chain(of_databases, sessions_in_tree(storage), of_others))
        else:
            yield from of_others
        folders[:] = [each for each in folders if each not in _SKIPPED_FOLDERS]


def _guarded(path: Path) -> Iterator[TranscriptSource | ReadProblem]:
    try:
        if path.is_file():
            yield from _sources_in_file(path)
    except OSError as error:
        yield ReadProblem(str(path), reason(error))


def _without_duplicates(found: Iterator[TranscriptSource | ReadProblem]) -> Iterator[TranscriptSource | ReadProblem]:
    """Each session once. The program leaves the file tree behind when it moves to the database, so the first one counts."""
    session_ids: set[str] = set()
    for each in found:
        if isinstance(each, ReadProblem):
            yield each
        elif each.session not in session_ids:
            session_ids.add(each.session)
            yield each
