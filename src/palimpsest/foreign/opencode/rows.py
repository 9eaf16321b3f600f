"""Rows of OpenCode's sessions, messages and parts, the same for every storage form."""

import re
from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from palimpsest.core.items import Value
from palimpsest.foreign.reading.files import without
from palimpsest.foreign.reading.transcript import ReadProblem
from palimpsest.wire.json_reading import Json, is_json, number, table_at, text

# Twelve hexadecimal digits of an id are its time, 4,096 per millisecond; they wrap around every 2^36 milliseconds.
_TIME = re.compile(r"[a-z]+_([0-9a-f]{12})")
_TIME_WRAP = 1 << 48
_ENDED = frozenset({"completed", "error"})
# Fields that the database keeps in columns, and files inside each row.
_COLUMNS = frozenset({"id", "sessionID", "messageID"})
_LONE_SURROGATE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)


class PartRow(Value, frozen=True):
    """A part of a message. `type` is text, reasoning, tool, file, compaction and so on; `status` is the state of a tool call."""

    id: str
    type: str
    data: Json
    state: Json
    status: str


def part_of(row_id: str, data: Json) -> PartRow:
    """A part from its row."""
    state = table_at(data, "state")
    return PartRow(row_id, text(data, "type"), data, state, text(state, "status"))


class MessageRow(Value, frozen=True):
    """A message of the user or the model, with its parts in order.

    It is open while a model may still be writing it, or if the program died meanwhile. `content_digest` is a digest of what a model
    could see of it: a row with other changes is not read again. That of an open message starts with `~`.
    """

    id: str
    role: str
    created: int
    completed: int
    error: str
    is_open: bool
    content_digest: str
    data: Json
    parts: tuple[PartRow, ...] = ()


def message_of(row_id: str, data: Json, parts: Iterable[PartRow]) -> MessageRow:
    """A message from its row and its parts."""
    time, role = table_at(data, "time"), text(data, "role")
    ordered = parts_in_order(row_id, parts)
    error = text(table_at(data, "error"), "name") or ("Error" if data.get("error") else "")
    completed = number(time, "completed")
    if role == "assistant":
        ended = completed or error or text(data, "finish")
        is_open = not ended or any(part.type == "tool" and part.status not in _ENDED for part in ordered)
    else:
        is_open = not ordered
    visible = [(part.id, part.type, part.status, text(part.data, "text")) for part in ordered]
    content_digest = ("~" if is_open else "") + digest((role, error, visible))
    return MessageRow(row_id, role, number(time, "created"), completed, error, is_open, content_digest, data, ordered)


class OpencodeSession(Value, frozen=True):
    """A session: its row, messages in order of time, todo list, and the program's data folder."""

    id: str
    info: Json
    messages: tuple[MessageRow, ...] = ()
    todo: tuple[Json, ...] = ()
    diff: object = None
    folder: str = ""


def digest(value: object) -> str:
    """The first 12 hexadecimal digits of a digest of a value."""
    return blake2b(msgspec.json.encode(value), digest_size=6).hexdigest()


def without_columns(row: Json) -> Json:
    """A row from a file as the database keeps it, without ids."""
    return without(row, *_COLUMNS)


def parse(data: bytes) -> Json:
    """The JSON object in some bytes; lone surrogates are replaced. Raises `ValueError` if there is none."""
    data.decode()
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError:
        value = msgspec.json.decode(_LONE_SURROGATE.sub(lambda found: rb"\ufffd" if found[1] else found[0], data))
    if not is_json(value):
        raise ValueError("it is not a JSON object")
    return value


def try_parse(data: object, where: str) -> Json | ReadProblem:
    """The JSON object in some bytes, or a problem."""
    try:
        return parse(data if isinstance(data, bytes) else str(data).encode())
    except (ValueError, RecursionError) as error:
        return ReadProblem(where, f"this row cannot be read: {error}")


def row_or_none(row: Json | ReadProblem, problems: list[ReadProblem]) -> Json | None:
    """The row; None if it could not be read, and then its problem is added."""
    if isinstance(row, ReadProblem):
        problems.append(row)
        return None
    return row


def in_order(messages: Iterable[MessageRow]) -> tuple[MessageRow, ...]:
    """Messages sorted by time, then by id; not by id alone, because the time in an id wraps around."""
    return tuple(sorted(messages, key=lambda message: (message.created, message.id)))


def parts_in_order(message_id: str, parts: Iterable[PartRow]) -> tuple[PartRow, ...]:
    """The parts of a message sorted by the time in their ids, relative to the message's own, then by id."""
    start = _time_of(message_id)
    sortable: list[tuple[int, str, int, PartRow]] = []
    for index, part in enumerate(parts):
        time = _time_of(part.id)
        offset = 0 if start is None or time is None else (time - start + _TIME_WRAP // 2) % _TIME_WRAP
        sortable.append((offset, part.id, index, part))
    return tuple(part for *_, part in sorted(sortable, key=lambda each: each[:3]))


def _time_of(row_id: str) -> int | None:
    found = _TIME.match(row_id)
    return int(found[1], 16) if found else None


def messages_of(rows: Iterable[tuple[str, Json]], parts: dict[str, list[PartRow]]) -> tuple[MessageRow, ...]:
    """Messages with their parts, in order."""
    return in_order(message_of(key, data, parts.get(key, ())) for key, data in rows)
