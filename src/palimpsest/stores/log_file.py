"""A log as a JSONL file with one writer and many readers."""

import os
from collections.abc import Iterator
from pathlib import Path

from palimpsest.core.errors import BadLog, ReadOnly, StoreError
from palimpsest.core.lines import MAX_LINE
from palimpsest.stores.files import FileDocument, Lock, store_error, store_errors, sync_file, sync_folder, write_private

# The events of a piece take four times its size in memory, which a process keeps for good once it had it.
CHUNK_BYTES = 128 * 1024
TAIL_BYTES = 16 * 1024
# Bytes before the known end that a refresh compares; a file that was overwritten in place rarely has the same ones.
_COMPARED_BYTES = 64
WRITING = os.O_RDWR | os.O_APPEND
CHECKPOINT = ".checkpoint"


class JsonlFile:
    """The lines of one log file.

    A torn last line is copied to another file and cut off when the log is opened for writing; readers ignore it.
    """

    def __init__(self, path: Path, *, lock: Lock | None = None, new: int | None = None) -> None:
        self._path = path
        self._lock = lock
        self._new = new is not None
        self._disk_failure = ""
        self._file = self._open() if new is None else new
        if lock is not None:
            lock.lock_log(self._file)
        try:
            self._measure()
        except BaseException:
            # The descriptor holds a lock that could not be released later.
            os.close(self._file)
            raise

    def _measure(self) -> None:
        """Find the end of the last whole line; a writer cuts off the bytes after it."""
        size = 0 if self._new else os.fstat(self._file).st_size
        self._size = self._lines_end(size)
        self.torn = size - self._size
        if self.torn and self._lock is not None:
            self._set_aside(size)
            self.torn = 0
        self._known_end = b"" if self._lock is not None else self._bytes_before(self._size)

    def _open(self) -> int:
        with store_errors(self._path, "open"):
            return os.open(self._path, (os.O_RDONLY if self._lock is None else WRITING) | os.O_CLOEXEC)

    @property
    def name(self) -> str:
        """The path, for error messages."""
        return str(self._path)

    @property
    def size(self) -> int:
        """Bytes of all whole lines."""
        return self._size

    def append(self, line: bytes) -> int:
        """Append one or more lines and return the offset where they begin.

        Raises `ReadOnly` for a reader, after closing and after a disk failure. Raises `StoreError` if writing fails; the lines are then
        removed again. Raises `BadLog` if another program changed the file meanwhile, `StoreError` if it deleted or replaced it.
        """
        self._require_writer()
        self._check_unchanged()
        start = self._size
        try:
            written = os.write(self._file, line)
            while written < len(line):
                written += os.write(self._file, line[written:])
        except OSError as error:
            self._truncate(start)
            raise store_error(error, self._path, "write to") from error
        except BaseException:
            self._truncate(start)
            raise
        self._size = start + len(line)
        return start

    def _check_unchanged(self) -> None:
        """Raise if another program, which our lock does not stop, took the file away or wrote to it. It costs one system call."""
        facts = os.fstat(self._file)
        if not facts.st_nlink:
            raise StoreError(
                "another program, such as a hook or a command, deleted or replaced the file of this session while it was written; "
                "what comes now cannot be recorded, so start a new session",
                where=self.name,
            )
        if facts.st_size != self._size:
            raise BadLog(
                f"another program, such as a hook or a command, wrote to the file of this session: it has {facts.st_size:,} bytes, and "
                f"{self._size:,} were recorded; see `pal verify {self._path.stem}`, and repair it with --repair",
                where=self.name,
            )

    def _require_writer(self) -> Lock:
        if self._lock is None:
            raise ReadOnly("this session was opened for reading", where=self.name)
        if self._file < 0:
            raise ReadOnly("this session was closed", where=self.name)
        if self._disk_failure:
            raise ReadOnly(
                f"this session takes no more events since the disk failed ({self._disk_failure}); open it again", where=self.name
            )
        return self._lock

    def _truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._file, size)
        except OSError as error:
            self._disk_failure = error.strerror or str(error)

    def sync(self) -> None:
        """Sync all lines to the disk; after a failure the log is read-only, because it is unknown which lines were written."""
        if self._lock is None or self._file < 0:
            return
        try:
            sync_file(self._file)
            if self._new:
                sync_folder(self._path.parent)
                self._new = False
        except OSError as error:
            self._disk_failure = error.strerror or str(error)
            message = f"the disk did not confirm the last events ({self._disk_failure}); the session is read-only now"
            raise StoreError(message, where=self.name) from error

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield pieces of whole lines, about 128 KiB each, with their offsets."""
        end = self._size if stop is None else min(stop, self._size)
        while start < end:
            data = self._whole_lines(start, end)
            yield start, data
            start += len(data)

    def _whole_lines(self, start: int, end: int) -> bytes:
        length = min(CHUNK_BYTES, end - start)
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
        """Read bytes; fewer at the end of the log. Raises `BadLog` if the file became shorter, `StoreError` if it cannot be read."""
        if self._file < 0:
            raise StoreError("this session was closed", where=self.name)
        length = max(0, min(length, self._size - start))
        try:
            data = os.pread(self._file, length, start)
            # One system call reads at most 2 GB.
            while len(data) < length and (more := os.pread(self._file, length - len(data), start + len(data))):
                data += more
        except OSError as error:
            raise store_error(error, self._path, "read") from error
        if len(data) < length:
            raise self._shortened(start + len(data))
        return data

    def refresh(self) -> None:
        """Make lines visible that a writer appended since.

        Raises `BadLog` if the file was replaced, overwritten or became shorter, `StoreError` if it was deleted or closed.
        """
        if self._file < 0:
            raise StoreError("this session was closed", where=self.name)
        if self._lock is not None:
            return
        try:
            held, named = os.fstat(self._file), self._path.stat()
        except FileNotFoundError as error:
            raise StoreError("the session was deleted while it was read", where=self.name) from error
        except OSError as error:
            raise store_error(error, self._path, "read") from error
        if (held.st_dev, held.st_ino) != (named.st_dev, named.st_ino):
            raise BadLog("the file was replaced while it was read; open the session again", where=self.name)
        if held.st_size < self._size:
            raise self._shortened(held.st_size)
        if self._bytes_before(self._size) != self._known_end:
            raise BadLog("the file was overwritten while it was read; open the session again", where=self.name)
        # Whole lines stay whole, so that only the bytes after them are searched.
        self._size = self._lines_end(held.st_size, self._size)
        self._known_end = self._bytes_before(self._size)
        self.torn = held.st_size - self._size

    def _bytes_before(self, end: int) -> bytes:
        start = max(0, end - _COMPARED_BYTES)
        return os.pread(self._file, end - start, start)

    def _shortened(self, size: int) -> BadLog:
        return BadLog("the file became shorter while it was read; open the session again", where=f"{self.name}, byte {size}")

    def rewrite(self, data: bytes) -> str:
        """Replace all lines; the earlier file stays under another name, and its path is returned."""
        lock = self._require_writer()
        with store_errors(self._path, "rewrite"):
            copy = self._link_copy()
            try:
                write_private(self._path, data)
            except BaseException:
                copy.unlink()
                raise
            self._path.with_suffix(CHECKPOINT).unlink(missing_ok=True)
            file = os.open(self._path, WRITING | os.O_CLOEXEC)
        lock.lock_log(file)
        os.close(self._file)
        self._file, self._size = file, len(data)
        return str(copy)

    def _link_copy(self) -> Path:
        """Return the path of a new hard link to the current file."""
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
        """Return the checkpoint, if there is one."""
        return self._checkpoint.load()

    def save_checkpoint(self, data: bytes) -> None:
        """Replace the checkpoint; a failure is ignored, because the log is enough to open the session."""
        if self._lock is not None and self._file >= 0:
            self._checkpoint.save(data)

    def close(self) -> None:
        """Close the file and release the lock."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self._lock is not None:
            self._lock.release()

    @property
    def _checkpoint(self) -> FileDocument:
        return FileDocument(self._path.with_suffix(CHECKPOINT))

    def _lines_end(self, size: int, least: int = 0) -> int:
        """Return the offset after the last whole line, at least `least`; a line without a newline or with zeros is torn."""
        end = self._newline_before(size, least)
        while end > least:
            start = self._newline_before(end - 1, least)
            if b"\0" not in os.pread(self._file, end - start, start):
                break
            end = start
        return end

    def _newline_before(self, end: int, least: int) -> int:
        while end > least:
            start = max(least, end - TAIL_BYTES)
            newline = os.pread(self._file, end - start, start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
        return least

    def _set_aside(self, size: int) -> None:
        """Copy a torn last line to a file of its own, then cut it off."""
        torn = os.pread(self._file, size - self._size, self._size)
        number = 1
        while not write_private(self._path.with_suffix(f".torn-{number}"), torn, replace=False):
            number += 1
        with store_errors(self._path, "repair the last line of"):
            os.ftruncate(self._file, self._size)
            sync_file(self._file)
