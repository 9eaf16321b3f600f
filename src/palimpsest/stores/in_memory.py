"""All stores in memory, with simulated crashes and disk failures for tests, and a clock that a test controls."""

from collections.abc import Iterator, Sequence
from hashlib import sha256

from msgspec import Struct, field

from palimpsest.core.errors import BadInput, BadLog, Locked, MissingBlob, ReadOnly, StoreError
from palimpsest.core.ports import LogStat
from palimpsest.stores.sessions import MemoryResultFiles, check_address, check_session_id

CHUNK_BYTES = 1024 * 1024
_COMPARED_BYTES = 64


class FixedClock:
    """A clock that starts at `start` and advances by `step` milliseconds with each reading."""

    def __init__(self, start: int = 0, step: int = 0) -> None:
        self.time = start
        self.step = step

    def now(self) -> int:
        """Return milliseconds since 1970."""
        time = self.time
        self.time += self.step
        return time


class _StoredLog(Struct):
    """The content of one session on a simulated disk; bytes after `synced` are lost in a crash."""

    session: str
    data: bytearray
    changed: int
    synced: int = 0
    checkpoint: bytes | None = None
    cut: bytes = b""
    earlier: list[bytes] = field(default_factory=list)
    writer: "MemoryFile | None" = None

    @property
    def name(self) -> str:
        """The name of the log in error messages."""
        return f"memory:{self.session}"

    @property
    def lines_end(self) -> int:
        """The offset after the last whole line; a line without a newline or with zeros is torn."""
        end = self.data.rfind(b"\n") + 1
        while end:
            start = self.data.rfind(b"\n", 0, end - 1) + 1
            if self.data.find(b"\0", start, end) < 0:
                break
            end = start
        return end


class MemoryFile:
    """The lines of one log in memory; `crash` simulates a power cut, `fail` a disk failure."""

    def __init__(self, store: "MemorySessions", file: _StoredLog, *, write: bool) -> None:
        self._store = store
        self._file = file
        self._writes = write
        self._closed = False
        self._sync_failure = ""
        self._disk_error = ""
        self._appends_left: int | None = None
        self._measure(file.lines_end)

    def _measure(self, size: int) -> None:
        self._size = size
        self._known_end = self._bytes_before(size)
        self._torn = 0 if self._writes else len(self._file.data) - size

    @property
    def name(self) -> str:
        """The name of the log in error messages."""
        return self._file.name

    @property
    def size(self) -> int:
        """Bytes of whole lines; for a reader, as of opening or the last refresh."""
        return self._size

    @property
    def torn(self) -> int:
        """Bytes of a torn last line, which a crash left."""
        return self._torn

    @property
    def cut(self) -> bytes:
        """The torn line that was cut off when the log was opened for writing."""
        return self._file.cut

    def append(self, line: bytes) -> int:
        """Append one or more lines and return the offset where they begin; raise `ReadOnly` or `StoreError` if that is not possible."""
        self._require_writer()
        if self._appends_left is not None:
            if not self._appends_left:
                self.fail()
                self._require_writer()
            self._appends_left -= 1
        start = len(self._file.data)
        self._file.data += line
        self._file.changed = self._store.tick()
        self._size = len(self._file.data)
        return start

    def _require_writer(self) -> None:
        if not self._writes:
            raise ReadOnly("the session was opened for reading", where=self.name)
        if self._closed:
            raise ReadOnly("the session was closed", where=self.name)
        if self._sync_failure:
            raise ReadOnly(f"an earlier sync failed ({self._sync_failure})", where=self.name)
        if self._disk_error:
            raise StoreError(self._disk_error, where=self.name)

    def _require_open(self) -> None:
        if self._closed:
            raise StoreError("the session was closed", where=self.name)

    def sync(self) -> None:
        """Make all lines survive a crash; after a failure the log is read-only."""
        if self._file.writer is not self:
            return
        if self._disk_error:
            self._sync_failure = self._disk_error
            raise StoreError(self._disk_error, where=self.name)
        self._file.synced = len(self._file.data)

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield pieces of whole lines with their offsets."""
        end = self.size if stop is None else min(stop, self.size)
        while start < end:
            stop_at = self._file.data.find(b"\n", min(start + self._store.chunk_bytes, end) - 1, end) + 1
            data = self.read(start, (stop_at or end) - start)
            yield start, data
            start += len(data)

    def read(self, start: int, length: int) -> bytes:
        """Read bytes; fewer at the end of the log. Raises `BadLog` if the log became shorter."""
        self._require_open()
        stop = min(start + length, self._size)
        if len(self._file.data) < stop:
            raise self._shortened()
        return bytes(self._file.data[start:stop])

    def refresh(self) -> None:
        """Make lines visible that a writer appended since; raise `BadLog` if the log was replaced, overwritten or became shorter."""
        self._require_open()
        if self._writes:
            return
        current = self._store.file_of(self._file.session)
        if current is None:
            raise StoreError("the session was deleted while it was read", where=self.name)
        if current is not self._file:
            raise BadLog("the log was replaced while it was read; open the session again", where=self.name)
        if len(self._file.data) < self._size:
            raise self._shortened()
        if self._bytes_before(self._size) != self._known_end:
            raise BadLog("the log was overwritten while it was read; open the session again", where=self.name)
        self._measure(max(self._size, self._file.lines_end))

    def rewrite(self, data: bytes) -> str:
        """Replace all lines and return the name of the earlier ones, which are kept."""
        self._require_writer()
        old = self._file
        earlier = [*old.earlier, bytes(old.data)]
        self._file = self._store.put_file(
            _StoredLog(old.session, bytearray(data), self._store.tick(), synced=len(data), earlier=earlier, writer=self)
        )
        old.writer = None
        self._measure(len(data))
        return f"{self.name}.damaged-{len(earlier)}"

    def _bytes_before(self, end: int) -> bytes:
        return bytes(self._file.data[max(0, end - _COMPARED_BYTES) : end])

    def _shortened(self) -> BadLog:
        place = f"{self.name}, byte {len(self._file.data)}"
        return BadLog("the log became shorter while it was read; open the session again", where=place)

    def load_checkpoint(self) -> bytes | None:
        """Return the newest checkpoint of the session, if there is one; also when the log was replaced since it was opened."""
        current = self._store.file_of(self._file.session)
        return None if current is None else current.checkpoint

    def save_checkpoint(self, data: bytes) -> None:
        """Replace the checkpoint; does nothing for a reader or a failing disk."""
        if self._file.writer is self and not self._disk_error:
            self._file.checkpoint = data

    def close(self) -> None:
        """Close the log and release the lock."""
        self._closed = True
        if self._file.writer is self:
            self._file.writer = None

    def crash(self, keep: int = 0, *, checkpoint: bool = True) -> None:
        """Simulate a power cut: of unsynced bytes only the first `keep` stay, and the checkpoint only if `checkpoint` is true."""
        file = self._file
        del file.data[file.synced + keep :]
        file.synced = len(file.data)
        file.changed = self._store.tick()
        if not checkpoint:
            file.checkpoint = None
        self.close()

    def fail(self, reason: str = "No space left on device") -> None:
        """Simulate a disk failure with that reason; an empty reason ends it."""
        self._disk_error = reason
        self._appends_left = None

    def fail_after(self, appends: int) -> None:
        """Simulate a disk that is full after that many more appends."""
        self._appends_left = appends


class MemorySessions:
    """A session store in memory; `chunk_bytes` is the approximate size of a chunk."""

    name = "memory"

    def __init__(self, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.chunk_bytes = chunk_bytes
        self._files: dict[str, _StoredLog] = {}
        self._results: dict[str, MemoryResultFiles] = {}
        self._change_time = 0

    def create(self, session: str, first: bytes = b"") -> MemoryFile:
        """Create a log with its first line and open it for writing; raise `BadInput` if the session exists."""
        check_session_id(session)
        if session in self._files:
            raise BadInput(f"session {session} exists already", where=f"memory:{session}")
        self.put_file(_StoredLog(session, bytearray(), self.tick()))
        lines = self.open(session, write=True)
        if first:
            lines.append(first)
        return lines

    def open(self, session: str, *, write: bool = False) -> MemoryFile:
        """Open the log of a session; raise `BadInput` if there is none, `Locked` if another writer holds it."""
        file = self._existing(session)
        if write and file.writer is not None:
            raise Locked("another writer holds this session", where=file.name)
        if write and file.lines_end < len(file.data):
            file.cut = bytes(file.data[file.lines_end :])
            del file.data[file.lines_end :]
            file.synced = min(file.synced, len(file.data))
            file.changed = self.tick()
        lines = MemoryFile(self, file, write=write)
        if write:
            file.writer = lines
        return lines

    def _existing(self, session: str) -> _StoredLog:
        check_session_id(session)
        file = self._files.get(session)
        if file is None:
            raise BadInput(f"there is no session {session}; `pal sessions` lists them", where=f"memory:{session}")
        return file

    def sessions(self) -> Sequence[str]:
        """Return the ids of all sessions, sorted."""
        return sorted(self._files)

    def stat(self, session: str) -> LogStat:
        """Return size and time of the last change of one log."""
        file = self._existing(session)
        return LogStat(session, file.name, len(file.data), file.changed)

    def stats(self) -> Iterator[LogStat]:
        """Return size and time of the last change of every log."""
        return map(self.stat, tuple(self._files))

    def has_writer(self, session: str) -> bool:
        """Return whether a log is open for writing."""
        return self._existing(session).writer is not None

    def remove(self, session: str) -> None:
        """Delete a session with its results; raise `Locked` while a writer holds it."""
        file = self._existing(session)
        if file.writer is not None:
            raise Locked("another writer holds this session", where=file.name)
        del self._files[session]
        self._results.pop(session, None)

    def result_files(self, session: str) -> MemoryResultFiles:
        """Return the store of the tool results of a session."""
        return self._results.setdefault(session, MemoryResultFiles(f"memory:{session}.results"))

    def replace(self, session: str, data: bytes) -> None:
        """Replace the bytes of a session, as a user with an editor would."""
        self.put_file(_StoredLog(session, bytearray(data), self.tick(), synced=len(data)))

    def file_of(self, session: str) -> _StoredLog | None:
        """Return the stored log of a session now; an open log may belong to one that was replaced or deleted since."""
        return self._files.get(session)

    def put_file(self, file: _StoredLog) -> _StoredLog:
        """Store a log under its session and return it."""
        self._files[file.session] = file
        return file

    def tick(self) -> int:
        """Advance the time of changes by one and return it."""
        self._change_time += 1
        return self._change_time


class MemoryBlobs:
    """A blob store in memory."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}

    def put(self, data: bytes) -> str:
        """Store bytes and return their address."""
        address = sha256(data).hexdigest()
        self._contents[address] = data
        return address

    def get(self, address: str) -> bytes:
        """Return the bytes at an address; raise `MissingBlob` if there are none."""
        check_address(address)
        if address not in self._contents:
            raise MissingBlob(f"no blob {address}; the session that names it was copied without it", where="memory")
        return self._contents[address]

    def size(self, address: str) -> int:
        """Return the size in bytes of the blob at an address."""
        return len(self.get(address))

    def addresses(self) -> Iterator[str]:
        """Yield the addresses of all blobs, sorted."""
        yield from sorted(self._contents)

    def __contains__(self, address: str) -> bool:
        return address in self._contents


class MemoryStateSlot:
    """A state slot in memory."""

    def __init__(self) -> None:
        self._data: bytes | None = None

    def load(self) -> bytes | None:
        """Return the value that was saved last, if any."""
        return self._data

    def save(self, data: bytes) -> bool:
        """Replace the value and return true."""
        self._data = data
        return True
