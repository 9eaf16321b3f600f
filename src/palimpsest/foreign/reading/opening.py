"""Opens the files of other programs: regular files only, bounded in unpacked size and in the length of a line."""

import errno
import importlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final, Protocol, cast

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Value

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
