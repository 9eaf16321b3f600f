"""OpenCode's sessions in files: exports, dumps of its tables, and the tree of small files that it kept before it had a database."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from palimpsest.foreign.opencode.database import info_of
from palimpsest.foreign.opencode.rows import (
    Message,
    Part,
    Session,
    in_order,
    message_of,
    messages_of,
    parse,
    part_of,
    try_parse,
    without_columns,
)
from palimpsest.foreign.reading.transcript import ReadProblem, TranscriptSource
from palimpsest.wire.json_reading import Json, is_json, number, table_at, tables_at, text

_HEAD = 16 * 1024
# An export may begin with a line for people, so the JSON begins at the first line that opens an object.
_BEGINS = re.compile(rb'^\s*\{\s*"(?:info|messages|project|session|message|part|todo)"\s*:', re.MULTILINE)
_SESSION = re.compile(rb'"ses_[0-9A-Za-z]')


def may_be_export(path: Path) -> bool:
    """Whether a file begins like an export or a dump of tables; cheap, for it is asked about every file of a folder."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
    return _BEGINS.search(_plain(head)) is not None


def sources_in(path: Path) -> Iterator[TranscriptSource | ReadProblem]:
    """The sessions of an export or a dump; nothing if it is neither."""
    try:
        value = _value(path.read_bytes())
    except (ValueError, RecursionError) as error:
        with path.open("rb") as file:
            if _SESSION.search(_plain(file.read(_HEAD))):
                yield ReadProblem(str(path), f"this export cannot be read: {error}")
        return
    facts = path.stat()
    changed = f"{facts.st_size}-{facts.st_mtime_ns}"
    if _is_export(value):
        info = table_at(value, "info")
        yield TranscriptSource("opencode", str(path), text(info, "id"), changed, text(info, "parentID"))
    elif _is_dump(value):
        rows = sorted(tables_at(value, "session"), key=lambda row: (number(row, "time_created"), text(row, "id")))
        yield from (
            TranscriptSource("opencode", str(path), text(row, "id"), changed, text(row, "parent_id")) for row in rows if text(row, "id")
        )


def read_session(path: Path, session: str) -> tuple[Session | None, list[ReadProblem]]:
    """A session of an export or a dump; `ValueError` if the file is broken."""
    value = _value(path.read_bytes())
    return _of_export(value, str(path)) if _is_export(value) else _of_dump(value, session, str(path))


def _plain(data: bytes) -> bytes:
    """Some shells write what a program prints in two bytes a letter."""
    if data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        return data.decode("utf-16", "replace").encode()
    return data.removeprefix(b"\xef\xbb\xbf")


def _value(data: bytes) -> Json:
    plain = _plain(data)
    found = _BEGINS.search(plain)
    return parse(plain[found.start() if found else 0 : plain.rfind(b"}") + 1])


def _is_export(value: Json) -> bool:
    return bool(text(table_at(value, "info"), "id")) and isinstance(value.get("messages"), list)


def _is_dump(value: Json) -> bool:
    return all(isinstance(value.get(name), list) for name in ("session", "message", "part"))


def _of_export(value: Json, where: str) -> tuple[Session | None, list[ReadProblem]]:
    bad: list[ReadProblem] = []
    messages: list[Message] = []
    rows = value["messages"]
    for place, row in enumerate(rows if isinstance(rows, list) else ()):
        info = table_at(row, "info") if is_json(row) else {}
        if not is_json(row) or not info:
            bad.append(ReadProblem(f"{where}:messages/{place}", "this is not a message"))
            continue
        key = text(info, "id") or f"message-{place}"
        parts = _parts(row.get("parts"), key, f"{where}:messages/{place}", bad)
        messages.append(message_of(key, without_columns(info), parts))
    info = table_at(value, "info")
    return Session(text(info, "id"), info, in_order(messages), tuple(tables_at(value, "todo"))), bad


def _parts(rows: object, message: str, where: str, bad: list[ReadProblem]) -> list[Part]:
    parts: list[Part] = []
    for place, row in enumerate(rows if isinstance(rows, list) else ()):
        if is_json(row):
            parts.append(part_of(text(row, "id") or f"{message}-{place}", without_columns(row)))
        else:
            bad.append(ReadProblem(f"{where}/parts/{place}", "this is not a part"))
    return parts


def _of_dump(value: Json, session: str, where: str) -> tuple[Session | None, list[ReadProblem]]:
    bad: list[ReadProblem] = []
    row = next((row for row in tables_at(value, "session") if text(row, "id") == session), None)
    if row is None:
        return None, bad
    parts: dict[str, list[Part]] = {}
    for each in tables_at(value, "part"):
        if text(each, "session_id") == session and (data := _data(each, "part", where, bad)) is not None:
            parts.setdefault(text(each, "message_id"), []).append(part_of(text(each, "id"), data))
    messages = [
        (text(each, "id"), data)
        for each in tables_at(value, "message")
        if text(each, "session_id") == session and (data := _data(each, "message", where, bad)) is not None
    ]
    todo = sorted(
        (each for each in tables_at(value, "todo") if text(each, "session_id") == session), key=lambda each: number(each, "position")
    )
    return Session(session, info_of(row), messages_of(messages, parts), tuple(todo)), bad


def _data(row: Json, table: str, where: str, bad: list[ReadProblem]) -> Json | None:
    """The data of a row, which a dump may hold as an object or as the text that the database has."""
    data = row.get("data")
    found = data if is_json(data) else try_parse(data, f"{where}:{table}/{text(row, 'id')}")
    if isinstance(found, ReadProblem):
        bad.append(found)
        return None
    return found


def tree_of(path: Path) -> Path | None:
    """The storage folder that a file of a session stands in, if it stands in one."""
    folder = path.parent.parent
    return folder.parent if path.suffix == ".json" and folder.name == "session" and path.stem.startswith("ses_") else None


def sessions_in_tree(storage: Path) -> Iterator[TranscriptSource | ReadProblem]:
    """The sessions of a storage folder, oldest first."""
    found: list[tuple[int, TranscriptSource]] = []
    for path in sorted(storage.glob("session/*/*.json")):
        if tree_of(path) is None:
            continue
        info = _file(path)
        if isinstance(info, ReadProblem):
            yield info
            continue
        key = text(info, "id") or path.stem
        created = number(table_at(info, "time"), "created")
        try:
            touched = _touched(storage, path, key)
        except OSError as error:
            yield ReadProblem(str(path), f"its messages cannot be read: {error.strerror or error}")
            continue
        found.append((created, TranscriptSource("opencode", str(path), key, touched, text(info, "parentID"))))
    yield from (source for _, source in sorted(found, key=lambda each: (each[0], each[1].session)))


def read_tree(path: Path, storage: Path) -> tuple[Session | None, list[ReadProblem]]:
    """A session of a storage folder; a file that is being written is read the next time."""
    bad: list[ReadProblem] = []
    info = _file(path)
    if isinstance(info, ReadProblem):
        return None, [info]
    session = text(info, "id") or path.stem
    messages: list[Message] = []
    for file in _files_of(storage, "message", session):
        row = _kept(_file(file), bad)
        if row is None:
            continue
        key = text(row, "id") or file.stem
        parts = [
            part_of(text(part, "id") or each.stem, without_columns(part))
            for each in _files_of(storage, "part", key, session)
            if (part := _kept(_file(each), bad)) is not None
        ]
        messages.append(message_of(key, without_columns(row), parts))
    todo = _list(storage / "todo" / f"{session}.json", bad)
    rows = tuple(each for each in todo if is_json(each))
    diff = _list(storage / "session_diff" / f"{session}.json", bad) or None
    return Session(session, info, in_order(messages), rows, diff, str(storage.parent)), bad


def _kept(row: Json | ReadProblem, bad: list[ReadProblem]) -> Json | None:
    if isinstance(row, ReadProblem):
        bad.append(row)
        return None
    return row


def _files_of(storage: Path, kind: str, owner: str, session: str = "") -> list[Path]:
    # The oldest versions kept everything below `session`.
    for folder in (storage / kind / owner, storage / "session" / kind / session / owner):
        if folder.is_dir():
            return sorted(folder.glob("*.json"))
    return []


def _file(path: Path) -> Json | ReadProblem:
    try:
        return try_parse(path.read_bytes(), str(path))
    except OSError as error:
        return ReadProblem(str(path), f"it cannot be read: {error.strerror or error}")


def _list(path: Path, bad: list[ReadProblem]) -> list[object]:
    try:
        value = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as error:
        bad.append(ReadProblem(str(path), f"it cannot be read: {error}"))
        return []
    return value if isinstance(value, list) else []


def _touched(storage: Path, path: Path, session: str) -> str:
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
