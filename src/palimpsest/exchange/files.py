"""Finds and reads files of other programs: folders, lines, JSON, packed files and SQLite databases, all within limits."""

import errno
import importlib
import json
import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from functools import partial
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final, NamedTuple, Protocol, TypeVar, cast
from urllib.parse import quote

import msgspec
from msgspec import Raw, structs

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Value
from palimpsest.core.text import counted
from palimpsest.exchange.transcript import ReadEvent, ReadPosition, ReadProblem, TranscriptSource
from palimpsest.wire.json_reading import Json, is_json, shorten

# Bytes of an unpacked file that no ratio is held against, because short texts repeat themselves.
_FREE_BYTES: Final = 16 * 1024 * 1024
# Lines of an unpacked file that are not held against its size.
_FREE_LINES: Final = 100_000
# Bytes that are kept of a line that is too long, so that the report of it can quote its start.
_KEPT_BYTES: Final = 400
_BLOCK_BYTES: Final = 1024 * 1024
_ZSTD_MODULES = ("compression.zstd", "zstandard", "pyzstd", "backports.zstd")


# Bytes. A document is read whole, so a limit protects memory from files that are none.
LARGEST: Final = 1024 * 1024 * 1024


class ReadLimits(Value, frozen=True):
    """Limits on a file of another program, all in bytes but `ratio`.

    file: the longest file that is read whole, such as a JSON document.
    line: the longest line; a longer one is reported and left out.
    unpacked: the most that a compressed file may unpack to.
    ratio: how many times its own size a compressed file may unpack to.
    """

    file: int = LARGEST
    line: int = 256 * 1024 * 1024
    unpacked: int = 4 * 1024 * 1024 * 1024
    ratio: int = 200


_limits: ContextVar[ReadLimits] = ContextVar("_limits", default=ReadLimits())  # noqa: B039 - the value is frozen


@contextmanager
def reading_limits(limits: ReadLimits) -> Iterator[None]:
    """Read with other limits within the block."""
    token = _limits.set(limits)
    try:
        yield
    finally:
        _limits.reset(token)


class ByteReader(Protocol):
    """The part of a binary file that readers need."""

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes, at most `size`; empty at the end."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


def open_regular(path: Path, *, follow: bool = True) -> BinaryIO:
    """Open a regular file. Raises `OSError` for a pipe, socket or device, which is never waited for, and without `follow` for a link."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    file = open(os.open(path, flags), "rb")  # noqa: PTH123, SIM115 - the caller closes it; a path cannot be opened with these flags
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return file


def read_regular(path: Path, *, follow: bool = True) -> bytes:
    """Return all bytes of a regular file. Raises `OSError`, also if it exceeds the limit of a file."""
    with open_regular(path, follow=follow) as file:
        most = _limits.get().file
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
    return data


def bounded_lines(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield the lines of a file with their lengths in bytes; of one that is longer than the limit, only its first 400 bytes."""
    most = _limits.get().line
    while data := file.readline(most + 1):
        length = len(data)
        if length > most and not data.endswith(b"\n"):
            data = data[:_KEPT_BYTES]
            while rest := file.readline(_BLOCK_BYTES):
                length += len(rest)
                if rest.endswith(b"\n"):
                    break
            data += b"\n"
        yield data, length


class BoundedPieces:
    """The pieces of a line that is read in blocks; beyond the limit of a line only its first 400 bytes are kept."""

    def __init__(self) -> None:
        self._most = _limits.get().line
        self._pieces: list[bytes] = []
        self.length = 0

    def add(self, piece: bytes) -> None:
        """Add the next piece."""
        self.length += len(piece)
        if self.length <= self._most:
            self._pieces.append(piece)
        else:
            self._pieces = [b"".join(self._pieces)[:_KEPT_BYTES]]

    def joined(self) -> bytes:
        """Return the line."""
        return b"".join(self._pieces)


class UnpackingReader:
    """The unpacked bytes of a compressed file; raises `BadInput` once they exceed the limits."""

    def __init__(self, unpacked: ByteReader, packed: BinaryIO, path: Path) -> None:
        self._unpacked = unpacked
        self._packed = packed
        self._path = path
        self._limits = _limits.get()
        self._packed_bytes = os.fstat(packed.fileno()).st_size
        self._read_bytes = 0

    def read(self, size: int = -1, /) -> bytes:
        """Return the next unpacked bytes, at most `size`."""
        data = self._unpacked.read(size)
        self._read_bytes += len(data)
        limits, packed = self._limits, self._packed_bytes
        if self._read_bytes > limits.unpacked:
            raise BadInput(f"it unpacks to more than {limits.unpacked:,} bytes; --most-unpacked raises this limit", where=str(self._path))
        if self._read_bytes > max(_FREE_BYTES, packed * limits.ratio):
            message = f"its {packed:,} bytes unpack to more than {limits.ratio:,} times as many; --most-ratio raises this limit"
            raise BadInput(message, where=str(self._path))
        return data

    def check_lines(self, lines: int) -> None:
        """Raise `BadInput` if so many lines came out of a file of this size: each of them costs work, however short it is."""
        if lines > max(_FREE_LINES, self._packed_bytes):
            raise BadInput(f"its {self._packed_bytes:,} bytes unpack to more than {lines:,} lines", where=str(self._path))

    def close(self) -> None:
        """Close the file."""
        self._unpacked.close()
        self._packed.close()


class _ZstdModule(Protocol):
    def open(self, file: BinaryIO, mode: str) -> object: ...


def open_zstd(file: BinaryIO) -> ByteReader:
    """A reader of the decompressed bytes of an open file. Raises `BadInput` with the package to install if there is no module."""
    for name in _ZSTD_MODULES:
        try:
            module = cast("_ZstdModule", importlib.import_module(name))
        except ImportError:
            continue
        return cast("ByteReader", module.open(file, "rb"))
    raise BadInput("what is compressed with zstd needs Python 3.14 or the package `zstandard`; install it and import again")


def unpacked(data: bytes, most: int) -> bytes:
    """The decompressed bytes. Raises `BadInput` if there are more than `most`, or if the data is damaged."""
    try:
        reader = open_zstd(BytesIO(data))
        try:
            found = reader.read(most + 1)
        finally:
            reader.close()
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"it cannot be unpacked: {error}") from error
    if len(found) > most:
        raise BadInput(f"it unpacks to more than {most:,} bytes")
    return found


PSEUDO: Final = "a file system that stores no files, such as /proc; a session is not there"


class WalkLimits(Value, frozen=True):
    """Limits of one search: entries that are read, folders below each other, and seconds."""

    entries: int = 1_000_000
    levels: int = 64
    seconds: float = 300


class Listing(NamedTuple):
    """The names in a folder, each list sorted: folders, links to folders, regular files, and links to files or special files."""

    folders: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


class FolderWalk:
    """The folders that one search has read so far; `on_entries` gets the number of their entries after each folder."""

    def __init__(self, limits: WalkLimits | None = None, on_entries: Callable[[int], None] = lambda _: None) -> None:
        self._limits = limits or WalkLimits()
        self._on_entries = on_entries
        self._listings: dict[str, Listing] = {}
        self._entries = 0
        self._until = time.monotonic() + self._limits.seconds

    def folders(self, root: str) -> Iterator[tuple[str, list[str], Listing] | ReadProblem]:
        """A folder and those below it, parents first, each with the names of its folders and with its listing.

        A caller may remove names from the list, as with `os.walk`, so that those folders are left out. Links are not followed.
        A folder that is not read is a problem; once a limit of the whole search is reached, no further one is read.
        """
        waiting = [(root, 0, -1)]
        while waiting:
            folder, level, device_above = waiting.pop()
            listing, device = self._listing(root, folder, level, device_above)
            if isinstance(listing, ReadProblem):
                yield listing
                if listing.where != folder:
                    return
                continue
            descended = list(listing.folders)
            yield folder, descended, listing
            waiting += [(os.path.join(folder, name), level + 1, device) for name in reversed(descended)]  # noqa: PTH118 - a million times

    def _listing(self, root: str, folder: str, level: int, device_above: int) -> tuple[Listing | ReadProblem, int]:
        """The listing of a folder, or why it is not read, and its device; a problem with the place `root` ends the walk."""
        try:
            device = os.stat(folder).st_dev  # noqa: PTH116 - as above
            if device != device_above and is_pseudo(folder):
                return ReadProblem(folder, PSEUDO), device
            if level > self._limits.levels:
                deep = counted(self._limits.levels, "folder")
                return ReadProblem(folder, f"not searched: it is deeper than {deep}; name it to search it"), device
            if folder not in self._listings:
                if folder != root and (limit := self._limit_reached()):
                    return ReadProblem(root, f"the search ended at {folder}, {limit}; name a folder further down"), device
                self._listings[folder] = self._list_folder(folder)
        except OSError as error:
            return ReadProblem(folder, (error.strerror or str(error)).lower()), device_above
        return self._listings[folder], device

    def _limit_reached(self) -> str:
        """The limit after which no further folder is read; empty before it."""
        if self._entries >= self._limits.entries:
            return f"after {self._limits.entries:,} files and folders"
        return f"after {self._limits.seconds:g} seconds" if time.monotonic() >= self._until else ""

    def _list_folder(self, folder: str) -> Listing:
        folders: list[str] = []
        links: list[str] = []
        files: list[str] = []
        others: list[str] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                self._entries += 1
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    files.append(entry.name)
                else:
                    (links if _is_folder(entry) else others).append(entry.name)
        self._on_entries(self._entries)
        return Listing(*(tuple(sorted(names)) for names in (folders, links, files, others)))


def is_pseudo(folder: str) -> bool:
    """Whether a folder is in a file system without blocks, such as /proc or /sys. Raises `OSError` if it cannot be examined."""
    return os.statvfs(folder).f_blocks == 0


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder or leads to one; a link that leads in circles does not."""
    try:
        return entry.is_dir()
    except OSError:
        return False


_walk: ContextVar[FolderWalk | None] = ContextVar("_walk", default=None)


@contextmanager
def shared_walk(walk: FolderWalk) -> Iterator[None]:
    """Walk with this one within the block, so that all formats share what it has read."""
    token = _walk.set(walk)
    try:
        yield
    finally:
        _walk.reset(token)


def current_walk() -> FolderWalk:
    """Return the walk of the search that runs, or a new one."""
    return _walk.get() or FolderWalk()


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
    value = _lenient_json(data)
    # A value is only walked where its brackets would suffice, because walking costs as much as decoding.
    return None if data.count(b"}") + data.count(b"]") > _MOST_LEVELS and _is_deep(value) else value


def _lenient_json(data: bytes) -> object:
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
        return old.count if _file_digest(messages[: old.count]) == old.digest else 0

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
        return ReadPosition(len(messages), raw_of(ReadExtent(len(messages), _file_digest(messages))))


def _file_digest(messages: Iterable[object]) -> str:
    digest = sha256()
    for message in messages:
        digest.update(msgspec.json.encode(message))
        digest.update(b"\n")
    return digest.hexdigest()


def not_a_document(path: Path) -> ReadProblem:
    """The problem to report for a file that is no longer a document of the format."""
    return ReadProblem(str(path), "this is not a whole JSON document, or not one of this format")


QueryResult = TypeVar("QueryResult")

HEADER = b"SQLite format 3\x00"
# Seconds to wait for a lock of the program that is writing.
_TIMEOUT_SECONDS = 5.0
_ALLOWED_ACTIONS = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_FUNCTION})
_SCHEMA_TABLES = frozenset({"sqlite_master", "sqlite_schema"})


def is_database(path: Path) -> bool:
    """Whether a file is an SQLite database."""
    with open_regular(path) as file:
        return file.read(len(HEADER)) == HEADER


def query(path: Path, tables: frozenset[str], run: Callable[[sqlite3.Connection], QueryResult]) -> QueryResult:
    """The result of `run` on a read-only connection that reads `tables` alone. Texts are bytes. Raises `sqlite3.Error`."""
    if not _uses_wal(path):
        return _query_once(path, tables, "mode=ro", run)
    if not _beside(path, "wal").exists():
        found = _query_once(path, tables, "mode=ro&immutable=1", run)
        if not _beside(path, "wal").exists():
            return found
        # A writer appeared meanwhile, so read again with locking.
    if _beside(path, "shm").exists():
        return _query_once(path, tables, "mode=ro", run)
    # A writer crashed and left its log. Reading that would create a file beside it, so a copy is read.
    with TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        for each in (path, _beside(path, "wal")):
            shutil.copyfile(each, copy.with_name(each.name))
        return _query_once(copy, tables, "mode=ro", run)


def _query_once(path: Path, tables: frozenset[str], options: str, run: Callable[[sqlite3.Connection], QueryResult]) -> QueryResult:
    connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?{options}", uri=True, timeout=_TIMEOUT_SECONDS, isolation_level=None)
    with closing(connection):
        connection.text_factory = bytes
        connection.set_authorizer(partial(_authorize, tables))
        connection.execute("BEGIN")
        return run(connection)


def _uses_wal(path: Path) -> bool:
    with open_regular(path) as file:
        return file.read(20)[18:] == b"\x02\x02"


def _beside(path: Path, kind: str) -> Path:
    return path.with_name(f"{path.name}-{kind}")


def _authorize(
    tables: frozenset[str], action: int, first: str | None, _second: str | None, _database: str | None, _trigger: str | None
) -> int:
    """Allow only reading the known tables, whatever a statement says."""
    if action in _ALLOWED_ACTIONS or (action == sqlite3.SQLITE_READ and (first in tables or first in _SCHEMA_TABLES)):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def tables_of(connection: sqlite3.Connection) -> frozenset[str]:
    """The names of the tables in a database."""
    return frozenset(
        name.decode("utf-8", "replace") for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    )


def text_value(value: object) -> str:
    """A value of a row as text; empty for NULL."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else "" if value is None else str(value)


def rows_of(connection: sqlite3.Connection, statement: str, *values: object) -> list[dict[str, object]]:
    """The rows of a query by column name."""
    cursor = connection.execute(statement, values)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]
