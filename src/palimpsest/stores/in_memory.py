"""All stores in memory, with simulated crashes and disk failures for tests, and a clock that a test controls."""

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256

from msgspec import Struct, field, structs

from palimpsest.core.errors import BadInput, BadLog, Locked, MissingBlob, ReadOnly, StoreError
from palimpsest.core.ports import BlobStore, LogFile, LogStat, SessionArchive
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
    """The content of one session on a simulated disk; bytes after `synced` are lost in a crash.

    below: the session is one of the lower store, and `name` is its name there.
    start: bytes of the lower log that `data` follows; `None` before the first writer.
    """

    session: str
    name: str
    data: bytearray = field(default_factory=bytearray)
    changed: int = 0
    below: bool = False
    start: int | None = 0
    synced: int = 0
    checkpoint: bytes | None = None
    cut: bytes = b""
    earlier: list[bytes] = field(default_factory=list)
    writer: "MemoryFile | None" = None

    @property
    def lines_end(self) -> int:
        """The offset after the last whole line of `data`; a line without a newline or with zeros is torn."""
        end = self.data.rfind(b"\n") + 1
        while end:
            start = self.data.rfind(b"\n", 0, end - 1) + 1
            if self.data.find(b"\0", start, end) < 0:
                break
            end = start
        return end


class MemoryFile:
    """The lines of one log in memory, after those of a lower log; `crash` simulates a power cut, `fail` a disk failure."""

    def __init__(self, store: "MemorySessions", file: _StoredLog, lower: LogFile | None = None, *, write: bool) -> None:
        self._store = store
        self._file = file
        self._lower = lower
        self._writes = write
        self._closed = False
        self._sync_failure = ""
        self._disk_error = ""
        self._appends_left: int | None = None
        self._measure(self._first_here + file.lines_end)

    @property
    def _first_here(self) -> int:
        """The offset where the lines in memory begin."""
        if self._file.start is not None:
            return self._file.start
        return 0 if self._lower is None else self._lower.size

    @property
    def _end_here(self) -> int:
        return self._first_here + len(self._file.data)

    def _measure(self, size: int) -> None:
        self._size = size
        self._known_end = self._bytes_before(size)
        self._torn = 0 if self._writes else self._end_here - size

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
        return self._torn if self._lower is None or self._file.start is not None else self._lower.torn

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
        start = self._end_here
        self._file.data += line
        self._file.changed = self._store.tick()
        self._size = self._end_here
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
        first = self._first_here
        if self._lower is not None and start < (lower_end := min(end, first)):
            yield from self._lower.chunks(start, lower_end)
            start = lower_end
        while start < end:
            line_end = self._file.data.find(b"\n", min(start + self._store.chunk_bytes, end) - 1 - first, end - first) + 1
            data = self.read(start, (first + line_end if line_end else end) - start)
            yield start, data
            start += len(data)

    def read(self, start: int, length: int) -> bytes:
        """Read bytes; fewer at the end of the log. Raises `BadLog` if the log became shorter."""
        self._require_open()
        first, stop = self._first_here, min(start + length, self._size)
        if self._end_here < stop:
            raise self._shortened()
        lower_bytes = b"" if self._lower is None or start >= first else self._lower.read(start, min(stop, first) - start)
        return lower_bytes + bytes(self._file.data[max(0, start - first) : max(0, stop - first)])

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
        if self._lower is not None and (current.start is None or self._lower.size < current.start):
            self._lower.refresh()
        if self._end_here < self._size:
            raise self._shortened()
        if self._bytes_before(self._size) != self._known_end:
            raise BadLog("the log was overwritten while it was read; open the session again", where=self.name)
        self._measure(max(self._size, self._first_here + self._file.lines_end))

    def rewrite(self, data: bytes) -> str:
        """Replace all lines and return the name of the earlier ones, which are kept; a lower log stays as it is."""
        self._require_writer()
        old = self._file
        earlier = [*old.earlier, bytes(old.data)]
        self._file = self._store.put_file(
            structs.replace(
                old, data=bytearray(data), changed=self._store.tick(), start=0, synced=len(data), checkpoint=None, cut=b"", earlier=earlier
            )
        )
        old.writer = None
        self._measure(len(data))
        return self.name if old.below else f"{self.name}.damaged-{len(earlier)}"

    def _bytes_before(self, end: int) -> bytes:
        stop = max(0, end - self._first_here)
        return bytes(self._file.data[max(0, stop - _COMPARED_BYTES) : stop])

    def _shortened(self) -> BadLog:
        place = f"{self.name}, byte {self._end_here}"
        return BadLog("the log became shorter while it was read; open the session again", where=place)

    def load_checkpoint(self) -> bytes | None:
        """Return the newest checkpoint of the session, if there is one; also when the log was replaced since it was opened."""
        current = self._store.file_of(self._file.session)
        if current is not None and current.checkpoint is None and current.start != 0 and self._lower is not None:
            return self._lower.load_checkpoint()
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
        if self._lower is not None:
            self._lower.close()

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
    """A session store in memory; over a lower one, whose sessions can be continued and deleted here without changing it.

    Changes end with this object. Writers of the lower store and of this one do not lock each other out. `chunk_bytes` is the
    approximate size of a chunk.
    """

    def __init__(self, lower: SessionArchive | None = None, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.name = "memory" if lower is None else lower.name
        self.chunk_bytes = chunk_bytes
        self._lower = lower
        self._deleted: set[str] = set()
        self._files: dict[str, _StoredLog] = {}
        self._results: dict[str, MemoryResultFiles] = {}
        self._change_time = 0

    def create(self, session: str, first: bytes = b"") -> MemoryFile:
        """Create a log with its first line and open it for writing; raise `BadInput` if the session exists."""
        check_session_id(session)
        file = self._files.get(session)
        if (file is not None and not file.below) or session in self._lower_sessions():
            raise BadInput(f"session {session} exists already", where=self.stat(session).name)
        self.put_file(_StoredLog(session, f"memory:{session}", changed=self.tick()))
        lines = self.open(session, write=True)
        if first:
            lines.append(first)
        return lines

    def open(self, session: str, *, write: bool = False) -> MemoryFile:
        """Open the log of a session; raise `BadInput` if there is none, `Locked` if another writer holds it here."""
        store = self._store_below(session)
        if store is None:
            return self._file_over(self._existing(session), write=write)
        lower = store.open(session)
        try:
            file = self._files.setdefault(session, _StoredLog(session, lower.name, below=True, start=None))
            return self._file_over(file, lower, write=write)
        except BaseException:
            lower.close()
            raise

    def _file_over(self, file: _StoredLog, lower: LogFile | None = None, *, write: bool) -> MemoryFile:
        if lower is not None and file.start is not None and lower.size < file.start:
            raise BadLog("the log became shorter since it was opened for writing", where=f"{lower.name}, byte {lower.size}")
        if write and file.writer is not None:
            raise Locked("another writer holds this session", where=file.name)
        if write and lower is not None and file.start is None:
            file.start = lower.size
        if write and file.lines_end < len(file.data):
            file.cut = bytes(file.data[file.lines_end :])
            del file.data[file.lines_end :]
            file.synced = min(file.synced, len(file.data))
            file.changed = self.tick()
        lines = MemoryFile(self, file, lower, write=write)
        if write:
            file.writer = lines
        return lines

    def _store_below(self, session: str) -> SessionArchive | None:
        """Return the lower store for a session that is to be looked for there, and `None` for one that is only here."""
        file = self._files.get(session)
        is_here = session in self._deleted if file is None else not file.below
        return None if is_here else self._lower

    def _existing(self, session: str) -> _StoredLog:
        check_session_id(session)
        file = self._files.get(session)
        if file is None:
            raise BadInput(f"there is no session {session}; `pal sessions` lists them", where=f"memory:{session}")
        return file

    def _lower_sessions(self) -> frozenset[str]:
        """Return the sessions of the lower store that were not deleted here."""
        return frozenset() if self._lower is None else frozenset(self._lower.sessions()) - self._deleted

    def sessions(self) -> Sequence[str]:
        """Return the ids of all sessions, sorted."""
        return sorted({*self._lower_sessions(), *(session for session, file in self._files.items() if not file.below)})

    def stat(self, session: str) -> LogStat:
        """Return size and time of the last change of one log."""
        store = self._store_below(session)
        if store is not None:
            return self._with_lines_here(store.stat(session))
        file = self._existing(session)
        return LogStat(session, file.name, len(file.data), file.changed)

    def _with_lines_here(self, stat: LogStat) -> LogStat:
        file = self._files.get(stat.session)
        if file is None or file.start is None:
            return stat
        return stat._replace(size=file.start + len(file.data), changed=stat.changed + file.changed)

    def stats(self) -> Iterator[LogStat]:
        """Yield size and time of the last change of every log."""
        if self._lower is not None:
            yield from (self._with_lines_here(stat) for stat in self._lower.stats() if stat.session not in self._deleted)
        yield from [self.stat(session) for session, file in self._files.items() if not file.below]

    def has_writer(self, session: str) -> bool:
        """Return whether a log is open for writing, here or in the lower store."""
        store, file = self._store_below(session), self._files.get(session)
        if file is not None and file.writer is not None:
            return True
        return store.has_writer(session) if store is not None else self._existing(session).writer is not None

    def remove(self, session: str) -> None:
        """Delete a session with its results here; raise `Locked` while a writer holds it here."""
        store, name = self._store_below(session), self.stat(session).name
        if (file := self._files.get(session)) is not None and file.writer is not None:
            raise Locked("another writer holds this session", where=name)
        self._files.pop(session, None)
        self._results.pop(session, None)
        if store is not None:
            self._deleted.add(session)

    def disk_bytes(self, session: str) -> int:
        """Return the bytes of the log of a session."""
        return self.stat(session).size

    def result_files(self, session: str) -> MemoryResultFiles:
        """Return the store of the tool results of a session."""
        return self._results.setdefault(session, MemoryResultFiles(f"memory:{session}.results"))

    def replace(self, session: str, data: bytes) -> None:
        """Replace the bytes of a session, as a user with an editor would."""
        self.put_file(_StoredLog(session, f"memory:{session}", bytearray(data), self.tick(), synced=len(data)))

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
    """A blob store in memory; over a lower one, whose blobs are found too."""

    def __init__(self, lower: BlobStore | None = None) -> None:
        self._lower = lower
        self._contents: dict[str, bytes] = {}

    def put(self, data: bytes) -> str:
        """Store bytes and return their address."""
        address = sha256(data).hexdigest()
        self._contents[address] = data
        return address

    def get(self, address: str) -> bytes:
        """Return the bytes at an address; raise `MissingBlob` if there are none."""
        if self._lower is not None and address not in self._contents:
            return self._lower.get(address)
        check_address(address)
        if address not in self._contents:
            raise MissingBlob(f"no blob {address}; the session that names it was copied without it", where="memory")
        return self._contents[address]

    def size(self, address: str) -> int:
        """Return the size in bytes of the blob at an address."""
        return self._lower.size(address) if self._lower is not None and address not in self._contents else len(self.get(address))

    def addresses(self) -> Iterator[str]:
        """Yield the addresses of all blobs, sorted."""
        yield from sorted({*self._contents, *(() if self._lower is None else self._lower.addresses())})

    def __contains__(self, address: str) -> bool:
        return address in self._contents or (self._lower is not None and address in self._lower)


class MemoryDocument:
    """A document in memory."""

    def __init__(self, name: str = "memory") -> None:
        self.name = name
        self._data: bytes | None = None

    def read(self) -> bytes | None:
        """Return the value, if there is one."""
        return self._data

    def change(self, change: Callable[[bytes | None], bytes | None]) -> None:
        """Replace the value by what `change` makes of it."""
        self._data = change(self._data)

    def load(self) -> bytes | None:
        """Return the value that was saved last, if any."""
        return self._data

    def save(self, data: bytes) -> bool:
        """Replace the value and return true."""
        self._data = data
        return True
