"""One log as a JSONL file: one write per append, one writer, and readers that see whole lines."""

import os
from collections.abc import Iterator
from pathlib import Path

from palimpsest.core.errors import BadLog, ReadOnly, StoreError
from palimpsest.core.format.codec import MAX_LINE
from palimpsest.stores.files import Lock, refusal, sync_file, sync_folder, write_private
from palimpsest.stores.slots import FileSlot

CHUNK = 1024 * 1024
TAIL = 16 * 1024
# Bytes before the known end that a refresh compares: a file that was written over in place rarely keeps them.
_COMPARED = 64
WRITING = os.O_RDWR | os.O_APPEND
CHECKPOINT = ".checkpoint"


class JsonlFile:
    """The lines of one file. Opened for writing, a torn last line is copied aside and cut; readers just do not see it."""

    def __init__(self, path: Path, *, lock: Lock | None = None, new: int | None = None) -> None:
        self._path = path
        self._lock = lock
        self._new = new is not None
        self._broken = ""
        self._file = self._open() if new is None else new
        if lock is not None:
            lock.guard(self._file)
        try:
            self._measure()
        except BaseException:
            # The descriptor holds a lock of its own, which nobody could release later.
            os.close(self._file)
            raise

    def _measure(self) -> None:
        """Find the last whole line; the writer cuts off what stands behind it."""
        size = 0 if self._new else os.fstat(self._file).st_size
        self._size = self._whole(size)
        self.torn = size - self._size
        if self.torn and self._lock is not None:
            self._set_aside(size)
            self.torn = 0
        self._end = b"" if self._lock is not None else self._bytes_before(self._size)

    def _open(self) -> int:
        flags = os.O_RDONLY if self._lock is None else WRITING
        try:
            return os.open(self._path, flags | os.O_CLOEXEC)
        except OSError as error:
            raise refusal(error, self._path, "open") from error

    @property
    def name(self) -> str:
        """The path, as errors give it."""
        return str(self._path)

    @property
    def size(self) -> int:
        """Bytes of whole lines."""
        return self._size

    def append(self, line: bytes) -> int:
        """Write one or more lines in one call; on a full disk the file is as it was before."""
        self._demand_writer()
        start = self._size
        try:
            written = os.write(self._file, line)
            while written < len(line):
                written += os.write(self._file, line[written:])
        except OSError as error:
            self._take_back(start)
            raise refusal(error, self._path, "write to") from error
        except BaseException:
            self._take_back(start)
            raise
        self._size = start + len(line)
        return start

    def _demand_writer(self) -> Lock:
        if self._lock is None:
            raise ReadOnly("this session was opened for reading", where=self.name)
        if self._file < 0:
            raise ReadOnly("this session was closed", where=self.name)
        if self._broken:
            raise ReadOnly(f"this session takes no more events since the disk failed ({self._broken}); reopen it", where=self.name)
        return self._lock

    def _take_back(self, size: int) -> None:
        try:
            os.ftruncate(self._file, size)
        except OSError as error:
            self._broken = error.strerror or str(error)

    def sync(self) -> None:
        """Return when all lines are on the disk; after a failure nothing more is taken, for nobody knows what arrived."""
        if self._lock is None or self._file < 0:
            return
        try:
            sync_file(self._file)
            if self._new:
                sync_folder(self._path.parent)
                self._new = False
        except OSError as error:
            self._broken = error.strerror or str(error)
            message = f"the disk did not confirm the last events ({self._broken}); the session is read-only now"
            raise StoreError(message, where=self.name) from error

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Runs of whole lines, about a megabyte each."""
        end = self._size if stop is None else min(stop, self._size)
        while start < end:
            data = self._whole_lines(start, end)
            yield start, data
            start += len(data)

    def _whole_lines(self, start: int, end: int) -> bytes:
        length = min(CHUNK, end - start)
        while True:
            data = self.read(start, length)
            if start + len(data) >= end:
                return data
            newline = data.rfind(b"\n")
            if newline >= 0:
                return data[: newline + 1]
            if length > MAX_LINE:
                raise BadLog(f"a line is longer than {MAX_LINE:,} bytes", where=f"{self.name}, byte {start}")
            length = min(length * 4, MAX_LINE + 1, end - start)

    def read(self, start: int, length: int) -> bytes:
        """Some bytes; fewer at the end, but never fewer than were there when the file was opened."""
        if self._file < 0:
            raise StoreError("this session was closed", where=self.name)
        length = max(0, min(length, self._size - start))
        try:
            data = os.pread(self._file, length, start)
            # The system gives out at most two gigabytes at once.
            while len(data) < length and (more := os.pread(self._file, length - len(data), start + len(data))):
                data += more
        except OSError as error:
            raise refusal(error, self._path, "read") from error
        if len(data) < length:
            raise self._shorter(start + len(data))
        return data

    def refresh(self) -> None:
        """Take notice of the lines that a writer has appended since; `BadLog` if the file was replaced or became shorter."""
        if self._file < 0:
            raise StoreError("this session was closed", where=self.name)
        if self._lock is not None:
            return
        try:
            held, named = os.fstat(self._file), self._path.stat()
        except FileNotFoundError as error:
            raise StoreError("the session was deleted while it was read", where=self.name) from error
        except OSError as error:
            raise refusal(error, self._path, "read") from error
        if (held.st_dev, held.st_ino) != (named.st_dev, named.st_ino):
            raise BadLog("the file was replaced while it was read; open the session again", where=self.name)
        if held.st_size < self._size:
            raise self._shorter(held.st_size)
        if self._bytes_before(self._size) != self._end:
            raise BadLog("the file was written over while it was read; open the session again", where=self.name)
        # A line that was whole stays whole: only the bytes after it are searched.
        self._size = self._whole(held.st_size, self._size)
        self._end = self._bytes_before(self._size)
        self.torn = held.st_size - self._size

    def _bytes_before(self, end: int) -> bytes:
        start = max(0, end - _COMPARED)
        return os.pread(self._file, end - start, start)

    def _shorter(self, size: int) -> BadLog:
        return BadLog("the file became shorter while it was read; open the session again", where=f"{self.name}, byte {size}")

    def rewrite(self, data: bytes) -> str:
        """Put other lines in the place of all of them; the earlier file is kept beside it, and its path is returned."""
        lock = self._demand_writer()
        try:
            copy = self._link_copy()
            try:
                write_private(self._path, data)
            except BaseException:
                copy.unlink()
                raise
            self._path.with_suffix(CHECKPOINT).unlink(missing_ok=True)
            file = os.open(self._path, WRITING | os.O_CLOEXEC)
        except OSError as error:
            raise refusal(error, self._path, "rewrite") from error
        lock.guard(file)
        os.close(self._file)
        self._file, self._size = file, len(data)
        return str(copy)

    def _link_copy(self) -> Path:
        """A second name for the file as it is now."""
        number = 1
        while True:
            copy = self._path.with_suffix(f".damaged-{number}")
            try:
                copy.hardlink_to(self._path)
            except FileExistsError:
                number += 1
            else:
                return copy

    def load_checkpoint(self) -> bytes | None:
        """The sidecar, if there is one."""
        return self._checkpoint.load()

    def save_checkpoint(self, data: bytes) -> None:
        """Replace the sidecar; a disk that refuses is no reason to stop, for the log is enough."""
        if self._lock is not None and self._file >= 0:
            self._checkpoint.save(data)

    def close(self) -> None:
        """Let go of the file and of the lock."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self._lock is not None:
            self._lock.release()

    @property
    def _checkpoint(self) -> FileSlot:
        return FileSlot(self._path.with_suffix(CHECKPOINT))

    def _whole(self, size: int, known: int = 0) -> int:
        """Where the last whole line ends, `known` or later: before a line without its newline, and before what a crash left as zeros."""
        whole = self._newline_before(size, known)
        while whole > known:
            start = self._newline_before(whole - 1, known)
            if b"\0" not in os.pread(self._file, whole - start, start):
                break
            whole = start
        return whole

    def _newline_before(self, end: int, known: int) -> int:
        while end > known:
            start = max(known, end - TAIL)
            newline = os.pread(self._file, end - start, start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
        return known

    def _set_aside(self, size: int) -> None:
        """Keep what a crash left of the last line in a file of its own, then cut it off."""
        torn = os.pread(self._file, size - self._size, self._size)
        number = 1
        while not write_private(self._path.with_suffix(f".torn-{number}"), torn, replace=False):
            number += 1
        try:
            os.ftruncate(self._file, self._size)
            sync_file(self._file)
        except OSError as error:
            raise refusal(error, self._path, "repair the last line of") from error
