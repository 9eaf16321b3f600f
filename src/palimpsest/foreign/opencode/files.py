"""Reads OpenCode's sessions from files: exports, table dumps, and the file tree of older versions."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from palimpsest.foreign.opencode.database import info_of
from palimpsest.foreign.opencode.rows import (
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
from palimpsest.foreign.reading.files import changed, head_of, reason
from palimpsest.foreign.reading.opening import read_regular
from palimpsest.foreign.reading.transcript import ReadProblem, TranscriptSource
from palimpsest.wire.json_reading import Json, is_json, number, table_at, tables_at, text

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
        parts = _parts(row.get("parts"), key, f"{where}:messages/{index}", problems)
        messages.append(message_of(key, without_columns(info), parts))
    info = table_at(value, "info")
    return OpencodeSession(text(info, "id"), info, in_order(messages), tuple(tables_at(value, "todo"))), problems


def _parts(rows: object, message: str, where: str, problems: list[ReadProblem]) -> list[PartRow]:
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
