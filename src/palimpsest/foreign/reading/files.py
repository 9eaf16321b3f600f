"""Finds and reads files of other programs, and tolerates any content."""

import json
import os
import stat
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Raw

from palimpsest.core.items import Value
from palimpsest.foreign.reading.transcript import ReadProblem
from palimpsest.wire.json_reading import Json, is_json, shorten

# Bytes of a file that are read to detect its format: the line that identifies it is first and short.
HEAD = 256 * 1024


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


def files_below(path: Path, fits: Callable[[str], bool]) -> Iterator[Path | ReadProblem]:
    """The file itself, or every file below a folder whose name `fits`, in sorted order; symbolic links to folders are not followed.

    Pipes and devices are skipped, because opening one may block forever.
    """
    if not path.is_dir():
        if os.path.lexists(path) and not _is_special(path):
            yield path
        return
    refused: list[OSError] = []
    for folder, folders, names in os.walk(path, onerror=refused.append):
        folders.sort()
        yield from (path for name in sorted(names) if fits(name) and not _is_special(path := Path(folder, name)))
    yield from (ReadProblem(str(error.filename), reason(error)) for error in refused)


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
    with path.open("rb") as file:
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
    with path.open("rb") as file:
        file.seek(max(0, offset - 1))
        # The line at the offset was read before its newline was written.
        if offset and file.read(1) != b"\n":
            offset += len(file.readline())
        for data in file:
            number += 1
            start, offset = offset, offset + len(data)
            if data.strip() and (data.endswith(b"\n") or decoded(data) is not None):
                yield FileLine(number, start, offset, data)


def still_there(path: Path, start: int, stop: int, digest: str) -> bool:
    """Whether the bytes from `start` to `stop` still have that digest; with an empty digest, whether the file is at least that long."""
    with path.open("rb") as file:
        file.seek(start)
        data = file.read(stop - start)
    return len(data) == stop - start and (not digest or digest_of(data) == digest)


def decoded(data: bytes) -> object:
    """A JSON value, or None if the bytes are none. Accepts what other writers get wrong: control characters, NaN and lone surrogates."""
    try:
        data.decode()
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        value: object = json.loads(data, strict=False, parse_constant=lambda _: None)
        return msgspec.json.decode(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def object_on(line: FileLine, path: Path) -> Json | ReadProblem:
    """The JSON object on a line, or a problem that quotes the line."""
    value = decoded(line.data)
    if is_json(value):
        return value
    return ReadProblem(f"{path}:{line.number}", f"this is not a JSON object: {shorten(line.data[:400], 60)!r}")


def rest_of(table: Json, *used: str) -> Raw:
    """The fields of an object without those in `used`, as JSON."""
    return Raw(msgspec.json.encode({name: value for name, value in table.items() if name not in used}))


def digest_of(data: bytes) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of some bytes."""
    return sha256(data).hexdigest()[:16]


def state_of(state: Raw) -> ReadExtent:
    """The extent that is encoded in the state of a position; an empty one if the state is something else."""
    try:
        return msgspec.json.decode(bytes(state), type=ReadExtent)
    except msgspec.DecodeError:
        return ReadExtent()
