"""Logs as JSONL files: one write per event, one writer per file, nothing ever rewritten."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from palimpsest.core.codec import MAX_LINE
from palimpsest.core.errors import BadInput, BadLog, ReadOnly, StoreError
from palimpsest.core.ports import LogFile
from palimpsest.stores.disk import open_in_folder, refusal, sync_file, sync_folder, write_private
from palimpsest.stores.locks import Lock

CHUNK = 1024 * 1024
TAIL = 16 * 1024
# Bytes before the known end that a refresh compares: a file that was written over in place rarely keeps them.
_COMPARED = 64
WRITING = os.O_RDWR | os.O_APPEND
SUFFIX = ".jsonl"
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


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
        self._size = 0 if self._new else os.fstat(self._file).st_size
        whole = self._whole(self._size)
        self.torn = self._size - whole
        if self.torn and lock is not None:
            self._set_aside(whole)
            self.torn = 0
        self._size = whole
        self._end = b"" if lock is not None else self._bytes_before(whole)

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
        if self._lock is None:
            raise ReadOnly("this session was opened for reading", where=self.name)
        if self._broken:
            raise ReadOnly(f"this session takes no more events since the disk failed ({self._broken}); reopen it", where=self.name)
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
        data = os.pread(self._file, length, start)
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

    def load_checkpoint(self) -> bytes | None:
        """The sidecar, if there is one."""
        try:
            return self._sidecar.read_bytes()
        except OSError:
            return None

    def save_checkpoint(self, data: bytes) -> None:
        """Replace the sidecar; a disk that refuses is no reason to stop, for the log is enough."""
        if self._lock is None:
            return
        fresh = self._sidecar.with_suffix(".checkpoint-new")
        try:
            write_private(fresh, data)
            fresh.replace(self._sidecar)
        except OSError:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the file and of the lock."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self._lock is not None:
            self._lock.release()

    @property
    def _sidecar(self) -> Path:
        return self._path.with_suffix(".checkpoint")

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

    def _set_aside(self, whole: int) -> None:
        """Keep what a crash left of the last line in a file of its own, then cut it off."""
        torn = os.pread(self._file, self._size - whole, whole)
        number = 1
        while (copy := self._path.with_suffix(f".torn-{number}")).exists():
            number += 1
        try:
            write_private(copy, torn)
            os.ftruncate(self._file, whole)
            sync_file(self._file)
        except OSError as error:
            raise refusal(error, self._path, "repair the last line of") from error


class JsonlSessions:
    """A folder of sessions, one file each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._locks = folder / ".locks"

    def path_of(self, session: str) -> Path:
        """Where a session is kept; an id is a plain name and never leaves the folder."""
        if not session or session.startswith(".") or not _NAME.issuperset(session) or len(session) > 128:
            raise BadInput(f"{session!r} cannot be the id of a session: letters, digits, dots, dashes and underscores only")
        return self.folder / f"{session}{SUFFIX}"

    def create(self, session: str, first: bytes = b"") -> LogFile:
        """A log under a new id with its first line, held for writing; if the line cannot be written nothing is left behind."""
        path = self.path_of(session)
        try:
            file = open_in_folder(path, os.O_CREAT | os.O_EXCL | WRITING)
        except FileExistsError as error:
            raise BadInput(f"session {session} exists already", where=str(path)) from error
        except OSError as error:
            raise refusal(error, path, "create") from error
        try:
            lines = self._hold(path, session, file)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        try:
            if first:
                lines.append(first)
        except BaseException:
            path.unlink(missing_ok=True)
            lines.close()
            raise
        return lines

    def open(self, session: str, *, write: bool = False) -> LogFile:
        """The log of a session, for reading or held for writing."""
        path = self.path_of(session)
        if not path.is_file():
            raise BadInput(f"there is no session {session}; `pal sessions` lists them", where=str(path))
        return self._hold(path, session) if write else JsonlFile(path)

    def sessions(self) -> Sequence[str]:
        """The ids of all sessions, sorted."""
        return sorted(session for session, *_ in self.stats())

    def stats(self) -> Iterator[tuple[str, str, int, int]]:
        """Of each session its id, path, size in bytes and time of the last change in nanoseconds, without opening a file."""
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    if entry.name.endswith(SUFFIX) and entry.is_file():
                        stat = entry.stat()
                        yield entry.name[: -len(SUFFIX)], entry.path, stat.st_size, stat.st_mtime_ns
        except FileNotFoundError:
            return
        except OSError as error:
            raise refusal(error, self.folder, "list") from error

    def _hold(self, path: Path, session: str, new: int | None = None) -> JsonlFile:
        lock = Lock(self._locks / session)
        try:
            lock.take()
        except BaseException:
            if new is not None:
                os.close(new)
            raise
        try:
            return JsonlFile(path, lock=lock, new=new)
        except BaseException:
            lock.release()
            raise
