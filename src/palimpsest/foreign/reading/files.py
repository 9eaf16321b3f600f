"""Files of other programs, found and read without failing on anything that may be in them."""

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

# A line that says what a file is comes first and is short; nobody needs more of a file to know it.
HEAD = 256 * 1024


class Line(NamedTuple):
    """A whole line of a file: its number from 1, the bytes where it begins and ends, and what it says."""

    number: int
    start: int
    stop: int
    data: bytes


class ReadExtent(Value, frozen=True):
    """How far a file was told: lines or messages, and a digest that tells whether they are still the same."""

    told: int = 0
    digest: str = ""


def files_below(path: Path, fits: Callable[[str], bool]) -> Iterator[Path | ReadProblem]:
    """A file itself, or every file below a folder whose name fits, in order; links to folders are not followed.

    Pipes and devices are passed over: opening one may wait forever.
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
    """Neither a file nor something that says itself, when it is opened, why it is none."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def reason(error: OSError) -> str:
    """Why a file could not be read, in one line."""
    return f"it cannot be read: {error.strerror or error}"


def head_of(path: Path, size: int = HEAD) -> bytes:
    """The beginning of a file; nothing of what is no plain file."""
    if not path.is_file():
        path.stat()
        return b""
    with path.open("rb") as file:
        return file.read(size)


def first_object(head: bytes) -> Json:
    """The JSON object on the first line that is not empty; an empty one if that is something else."""
    line = head.lstrip().partition(b"\n")[0]
    found = decoded(line) if line.startswith(b"{") else None
    return found if is_json(found) else {}


def changed(path: Path) -> str:
    """What is different when a file has changed."""
    facts = path.stat()
    return f"{facts.st_size}-{facts.st_mtime_ns}"


def whole_lines(path: Path, offset: int = 0, number: int = 0) -> Iterator[Line]:
    """The lines from a byte on, without empty ones; a last line that is still being written is left out."""
    with path.open("rb") as file:
        file.seek(max(0, offset - 1))
        # A line that was whole before its newline came is not counted again.
        if offset and file.read(1) != b"\n":
            offset += len(file.readline())
        for data in file:
            number += 1
            start, offset = offset, offset + len(data)
            if data.strip() and (data.endswith(b"\n") or decoded(data) is not None):
                yield Line(number, start, offset, data)


def still_there(path: Path, start: int, stop: int, digest: str) -> bool:
    """Whether a file still has the line at which reading stopped; with no digest, whether it reaches that far."""
    with path.open("rb") as file:
        file.seek(start)
        data = file.read(stop - start)
    return len(data) == stop - start and (not digest or digest_of(data) == digest)


def decoded(data: bytes) -> object:
    """A JSON value; nothing if it is none. What other writers put into JSON against its rules is put right."""
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


def object_on(line: Line, path: Path) -> Json | ReadProblem:
    """The JSON object on a line, or what is wrong with it."""
    value = decoded(line.data)
    if is_json(value):
        return value
    return ReadProblem(f"{path}:{line.number}", f"this is not a JSON object: {shorten(line.data[:400], 60)!r}")


def rest_of(table: Json, *said: str) -> Raw:
    """What an object says beside the named fields."""
    return Raw(msgspec.json.encode({name: value for name, value in table.items() if name not in said}))


def digest_of(data: bytes) -> str:
    """A short digest that tells two texts apart."""
    return sha256(data).hexdigest()[:16]


def state_of(mark_state: Raw) -> ReadExtent:
    """How far a mark reaches; nowhere if it is not one of these."""
    try:
        return msgspec.json.decode(bytes(mark_state), type=ReadExtent)
    except msgspec.DecodeError:
        return ReadExtent()
