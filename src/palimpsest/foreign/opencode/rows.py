"""OpenCode's sessions, messages and parts as rows, the same from whichever of its places they come."""

import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b

import msgspec

from palimpsest.core.items import Value
from palimpsest.foreign.reading.transcript import ReadProblem
from palimpsest.wire.json_reading import Json, is_json, number, table_at, text

# Twelve hexadecimal digits of an id are its time, 4,096 steps a millisecond; they begin again from zero every 2^36 milliseconds.
_TIME = re.compile(r"[a-z]+_([0-9a-f]{12})")
_ROUND = 1 << 48
_ENDED = frozenset({"completed", "error"})
# What the database keeps in columns of their own, and the files inside each row.
_COLUMNS = frozenset({"id", "sessionID", "messageID"})
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)


class Part(Value, frozen=True):
    """A piece of a message: its `type` is text, reasoning, tool, file, compaction and so on; `status` tells how a call of a tool stands."""

    id: str
    type: str
    data: Json
    state: Json
    status: str


def part_of(row_id: str, data: Json) -> Part:
    """A part from its row."""
    state = table_at(data, "state")
    return Part(row_id, text(data, "type"), data, state, text(state, "status"))


class Message(Value, frozen=True):
    """A message of a user or of a model, with its parts in order.

    It is `open` while a model may still be writing it, or was when its program died. `essence` is a digest of what a model
    could see of it: a row that changed only beside that is not told again. That of an open message begins with `~`.
    """

    id: str
    role: str
    created: int
    completed: int
    error: str
    open: bool
    essence: str
    data: Json
    parts: tuple[Part, ...] = ()


def message_of(row_id: str, data: Json, parts: Iterable[Part]) -> Message:
    """A message from its row and the parts that belong to it."""
    time, role = table_at(data, "time"), text(data, "role")
    ordered = parts_in_order(row_id, parts)
    error = text(table_at(data, "error"), "name") or ("Error" if data.get("error") else "")
    completed = number(time, "completed")
    if role == "assistant":
        ended = completed or error or text(data, "finish")
        is_open = not ended or any(part.type == "tool" and part.status not in _ENDED for part in ordered)
    else:
        is_open = not ordered
    words = [(part.id, part.type, part.status, text(part.data, "text")) for part in ordered]
    essence = ("~" if is_open else "") + digest((role, error, words))
    return Message(row_id, role, number(time, "created"), completed, error, is_open, essence, data, ordered)


class Session(Value, frozen=True):
    """A session, its messages in the order of time, its list of things to do, and the folder where the program keeps its data."""

    id: str
    info: Json
    messages: tuple[Message, ...] = ()
    todo: tuple[Json, ...] = ()
    diff: object = None
    folder: str = ""

    @property
    def parent(self) -> str:
        """The session that opened it."""
        return text(self.info, "parentID")


def digest(value: object) -> str:
    """A short digest of a value."""
    return blake2b(msgspec.json.encode(value), digest_size=6).hexdigest()


def without_columns(row: Json) -> Json:
    """A row of a file as the database keeps it: ids stand beside it."""
    return {name: value for name, value in row.items() if name not in _COLUMNS}


def parse(data: bytes) -> Json:
    """A JSON object; halves of characters, which a cut in the middle of one leaves, are put right. `ValueError` if it is none."""
    data.decode()
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError:
        value = msgspec.json.decode(_ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], data))
    if not is_json(value):
        raise ValueError("it is not a JSON object")
    return value


def try_parse(data: object, where: str) -> Json | ReadProblem:
    """A JSON object, or why there is none."""
    try:
        return parse(data if isinstance(data, bytes) else str(data).encode())
    except (ValueError, RecursionError) as error:
        return ReadProblem(where, f"this row cannot be read: {error}")


def in_order(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Messages by time; by id only where that is the same, for the time in an id begins again now and then."""
    return tuple(sorted(messages, key=lambda message: (message.created, message.id)))


def parts_in_order(message_id: str, parts: Iterable[Part]) -> tuple[Part, ...]:
    """The parts of a message by the time in their ids, counted from the message's own; others by their ids."""
    start = _time_of(message_id)
    keyed: list[tuple[int, str, int, Part]] = []
    for place, part in enumerate(parts):
        time = _time_of(part.id)
        ahead = 0 if start is None or time is None else (time - start + _ROUND // 2) % _ROUND
        keyed.append((ahead, part.id, place, part))
    return tuple(part for *_, part in sorted(keyed, key=lambda each: each[:3]))


def _time_of(row_id: str) -> int | None:
    found = _TIME.match(row_id)
    return int(found[1], 16) if found else None


def messages_of(rows: Iterable[tuple[str, Json]], parts: dict[str, list[Part]]) -> tuple[Message, ...]:
    """Messages with the parts that belong to them."""
    return in_order(message_of(key, data, parts.get(key, ())) for key, data in rows)


def tokens_of(table: Json) -> tuple[int, int, int, int, int]:
    """Input, cache read, cache written, output with thinking, thinking."""
    cache = table_at(table, "cache")
    fresh, output, thought = number(table, "input"), number(table, "output"), number(table, "reasoning")
    read, written = number(cache, "read"), number(cache, "write")
    # Rows that name a total count thinking apart from output; older ones count it as part of it.
    total = number(table, "total")
    whole = output + thought if total and fresh + read + written + output + thought <= total else max(output, thought)
    return fresh, read, written, whole, thought


def tool_parts(messages: Iterable[Message]) -> Iterator[tuple[Message, Part]]:
    """Every call of a tool."""
    return ((message, part) for message in messages for part in message.parts if part.type == "tool")
