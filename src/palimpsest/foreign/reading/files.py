"""Finds and reads files of other programs: lines and JSON documents of any content, also while they grow."""

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Raw, structs

from palimpsest.core.items import Value
from palimpsest.foreign.reading.opening import bounded_lines, open_regular, read_regular
from palimpsest.foreign.reading.transcript import ReadEvent, ReadPosition, ReadProblem, TranscriptSource
from palimpsest.foreign.reading.walking import current_walk
from palimpsest.wire.json_reading import Json, is_json, shorten

# Bytes of a file that are read to detect its format: the line that identifies it is first and short.
HEAD = 256 * 1024

# Levels of a JSON value; readers descend into it with the stack of Python, which has a thousand.
_MOST_LEVELS = 200

State = TypeVar("State")


class FileLine(NamedTuple):
    """A complete line of a file: its number from 1, the byte offsets where it starts and stops, and its bytes."""

    number: int
    start: int
    stop: int
    data: bytes


class ReadExtent(Value, frozen=True):
    """How much of a file was read: the number of lines or messages, and a digest of them to detect changes."""

    count: int = msgspec.field(default=0, name="told")
    digest: str = ""


def sources_below(
    path: Path, suffixes: tuple[str, ...], sources_in: Callable[[Path], Iterable[TranscriptSource | ReadProblem]]
) -> Iterator[TranscriptSource | ReadProblem]:
    """What `sources_in` finds in the file itself, or in every file below a folder; a file that cannot be read is a problem."""
    for file in files_below(path, suffixes):
        if isinstance(file, ReadProblem):
            yield file
            continue
        try:
            yield from sources_in(file)
        except OSError as error:
            yield ReadProblem(str(file), reason(error))


def files_below(path: Path, suffixes: tuple[str, ...]) -> Iterator[Path | ReadProblem]:
    """The file itself, or every file with a suffix below a folder, in sorted order; symbolic links to folders are not followed.

    Pipes and devices are skipped, because opening one may block forever.
    """
    if not path.is_dir():
        if os.path.lexists(path) and not _is_special(path):
            yield path
        return
    for found in current_walk().folders(str(path)):
        if isinstance(found, ReadProblem):
            yield found
            continue
        folder, _, listing = found
        names = sorted(name for name in (*listing.files, *listing.others) if name.endswith(suffixes))
        yield from (file for name in names if not _is_special(file := Path(folder, name)))


def _is_special(path: Path) -> bool:
    """Whether a path exists and is not a regular file. Paths that cannot be examined are not special: opening them reports the reason."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def reason(error: OSError) -> str:
    """Why a file could not be read, in one line."""
    return f"it cannot be read: {error.strerror or error}"


def head_of(path: Path, size: int = HEAD) -> bytes:
    """The first bytes of a file; empty if it is not a regular file. Raises `OSError` if it does not exist."""
    if not path.is_file():
        path.stat()
        return b""
    with open_regular(path) as file:
        return file.read(size)


def first_object(head: bytes) -> Json:
    """The JSON object on the first line that is not blank; empty if that line is something else."""
    line = head.lstrip().partition(b"\n")[0]
    found = decoded(line) if line.startswith(b"{") else None
    return found if is_json(found) else {}


def changed(path: Path) -> str:
    """A stamp that differs once a file has changed: size and modification time."""
    status = path.stat()
    return f"{status.st_size}-{status.st_mtime_ns}"


def whole_lines(path: Path, offset: int = 0, number: int = 0) -> Iterator[FileLine]:
    """The complete lines of a file from a byte offset on, without blank ones. A last line that is still being written is left out."""
    with open_regular(path) as file:
        file.seek(max(0, offset - 1))
        # The line at the offset was read before its newline was written.
        if offset and file.read(1) != b"\n":
            offset += len(file.readline())
        for data, length in bounded_lines(file):
            number += 1
            start, offset = offset, offset + length
            if data.strip() and (data.endswith(b"\n") or decoded(data) is not None):
                yield FileLine(number, start, offset, data)


def still_there(path: Path, start: int, stop: int, digest: str) -> bool:
    """Whether the bytes from `start` to `stop` still have that digest; with an empty digest, whether the file is at least that long."""
    with open_regular(path) as file:
        file.seek(start)
        data = file.read(stop - start)
    return len(data) == stop - start and (not digest or digest_of(data) == digest)


def decoded(data: bytes) -> object:
    """A JSON value, or None if the bytes are none or are nested more than 200 levels deep.

    Accepts what other writers get wrong: control characters, NaN and lone surrogates.
    """
    value = _decoded(data)
    # A value is only walked where its brackets would suffice, because walking costs as much as decoding.
    return None if data.count(b"}") + data.count(b"]") > _MOST_LEVELS and _is_deep(value) else value


def _decoded(data: bytes) -> object:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        value: object = json.loads(data, strict=False, parse_constant=lambda _: None)
        return msgspec.json.decode(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def _is_deep(value: object) -> bool:
    """Whether a value has more levels than readers may descend into; found level by level, without recursion."""
    level = [value]
    for _ in range(_MOST_LEVELS):
        if not level:
            return False
        nested = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [child for children in nested for child in children if isinstance(child, dict | list)]
    return bool(level)


def object_on(line: FileLine, path: Path) -> Json | ReadProblem:
    """The JSON object on a line, or a problem that quotes the line."""
    value = decoded(line.data)
    if is_json(value):
        return value
    return ReadProblem(f"{path}:{line.number}", f"this is not a JSON object: {shorten(line.data[:400], 60)!r}")


def without(table: Json, *names: str) -> Json:
    """An object without some of its fields."""
    return {name: value for name, value in table.items() if name not in names}


def rest_of(table: Json, *used: str) -> Raw:
    """The fields of an object without those in `used`, as JSON."""
    return raw_of(without(table, *used))


def raw_of(value: object) -> Raw:
    """A value as JSON, with integers of any size."""
    try:
        return Raw(msgspec.json.encode(value))
    except OverflowError:
        return Raw(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def digest_of(data: bytes) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of some bytes."""
    return sha256(data).hexdigest()[:16]


def state_of(position: ReadPosition | None, kind: type[State]) -> State | None:
    """The state in a position; None if there is no position, or if its state is something else."""
    try:
        return None if position is None else msgspec.json.decode(bytes(position.state), type=kind)
    except msgspec.DecodeError:
        return None


class LineState(msgspec.Struct, omit_defaults=True):
    """How far the lines of a file were read: the number of the last line, where it starts, and its digest."""

    number: int = 0
    start: int = 0
    digest: str = ""

    def position_after(self, last: FileLine) -> ReadPosition:
        """The position after a line; its number is 0 if no line was read."""
        if last.number:
            self.number, self.start, self.digest = last.number, last.start, digest_of(last.data)
        return ReadPosition(last.stop, raw_of(self))


Lines = TypeVar("Lines", bound=LineState)


def resumed(path: Path, position: ReadPosition | None, start: Lines) -> tuple[Lines, int]:
    """The state and the offset to continue from; `start` and 0 if there is no position, or if the file has changed before it."""
    state = state_of(position, type(start))
    if position is None or state is None or not still_there(path, state.start, position.offset, state.digest):
        return start, 0
    return state, position.offset


def document_in(path: Path) -> object:
    """The JSON value in a file; None if it is not valid JSON, or not complete yet."""
    return decoded(read_regular(path)) if path.is_file() else None


def starts_like_json(path: Path, *signs: bytes) -> bool:
    """Whether a file starts like JSON and has all `signs` in its first or last 256 KiB: a cheap check that rules out most other files."""
    head = head_of(path)
    if not head.lstrip().startswith((b"{", b"[")):
        return False
    size = path.stat().st_size
    with open_regular(path) as file:
        file.seek(max(0, size - len(head)))
        tail = file.read(len(head))
    return all(sign in head or sign in tail for sign in signs)


class GrowingDocument:
    """The messages of a document of which an earlier import may have read the first ones."""

    def __init__(self, position: ReadPosition | None) -> None:
        self._old = state_of(position, ReadExtent) or ReadExtent()

    def read_before(self, messages: list[object]) -> int:
        """How many messages at the start were read before and are unchanged; 0 if one of them has changed, so that all are read again."""
        old = self._old
        if not old.count or old.count > len(messages):
            return 0
        return old.count if _digest(messages[: old.count]) == old.digest else 0

    def new_events(
        self, messages: list[object], opened: ReadEvent, events_of: Callable[[int, object], Iterable[ReadEvent]]
    ) -> Iterator[ReadEvent]:
        """The events of the messages that were not read before; `opened` first if that is all of them."""
        start = self.read_before(messages)
        if not start:
            yield opened
        # The program changed a message that was read before: what differs now is a branch beside it.
        has_changed = bool(self._old.count) and not start
        previous = opened.key
        for index, message in enumerate(messages):
            # Messages that were read before still determine what later ones mean.
            events = list(events_of(index, message))
            if has_changed and events:
                events[0] = structs.replace(events[0], after=events[0].after or previous)
                previous = events[-1].key
            if index >= start:
                yield from events

    def position(self, messages: list[object]) -> ReadPosition:
        """The position after all messages."""
        return ReadPosition(len(messages), raw_of(ReadExtent(len(messages), _digest(messages))))


def _digest(messages: Iterable[object]) -> str:
    digest = sha256()
    for message in messages:
        digest.update(msgspec.json.encode(message))
        digest.update(b"\n")
    return digest.hexdigest()


def not_a_document(path: Path) -> ReadProblem:
    """The problem to report for a file that is no longer a document of the format."""
    return ReadProblem(str(path), "this is not a whole JSON document, or not one of this format")
