"""Session stores on top of others: overlays that keep all writes in memory, and a buffer of lines for large imports."""

from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from palimpsest.core.errors import BadInput, BadLog, Locked, PalimpsestError, ReadOnly, StoreError
from palimpsest.core.ports import BlobStore, LogFile, LogStat, SessionArchive, SessionStore
from palimpsest.stores.in_memory import MemoryBlobs, MemorySessions
from palimpsest.stores.sessions import MemoryResultFiles


class _UpperLog(Struct):
    """The upper layer of a log: `data` follows the first `start` bytes of the lower log; `start` is `None` before the first writer."""

    session: str
    start: int | None = None
    data: bytearray = field(default_factory=bytearray)
    checkpoint: bytes | None = None
    changes: int = 0
    writer: "OverlayFile | None" = None


class OverlayFile:
    """A log whose new lines are in memory, after the lines that the lower log had when the first writer opened it."""

    def __init__(self, store: "OverlaySessions", upper_log: _UpperLog, lower: LogFile, *, write: bool) -> None:
        self._store = store
        self._upper_log = upper_log
        self._lower = lower
        self._writes = write
        self._closed = False
        if upper_log.start is not None and lower.size < upper_log.start:
            raise BadLog("the log became shorter since it was opened for writing", where=f"{lower.name}, byte {lower.size}")
        if write:
            if upper_log.writer is not None:
                raise Locked("another writer holds this session", where=lower.name)
            upper_log.writer = self
            upper_log.start = lower.size if upper_log.start is None else upper_log.start
        self._size = self._lines_end()

    def _lines_end(self) -> int:
        """Bytes of whole lines, those in memory included."""
        return self._lower.size if self._upper_log.start is None else self._upper_log.start + len(self._upper_log.data)

    @property
    def name(self) -> str:
        """The name of the lower log in error messages."""
        return self._lower.name

    @property
    def size(self) -> int:
        """Bytes of whole lines, those in memory included."""
        return self._size

    @property
    def torn(self) -> int:
        """Bytes of a torn last line of the lower log; 0 once it was opened for writing here."""
        return self._lower.torn if self._upper_log.start is None else 0

    def append(self, line: bytes) -> int:
        """Append lines in memory and return the offset where they begin."""
        self._require_writer()
        start = self._size
        self._upper_log.data += line
        self._upper_log.changes += 1
        self._size = start + len(line)
        return start

    def sync(self) -> None:
        """Do nothing: the upper layer is not durable."""

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield pieces of whole lines with their offsets, first those of the lower log."""
        end = self._size if stop is None else min(stop, self._size)
        lower_end = min(end, self._split())
        if start < lower_end:
            yield from self._lower.chunks(start, lower_end)
        begin = max(start, lower_end)
        if begin < end:
            yield begin, self.read(begin, end - begin)

    def read(self, start: int, length: int) -> bytes:
        """Read bytes; fewer at the end of the log."""
        if self._closed:
            raise StoreError("the session was closed", where=self.name)
        stop, split = min(start + length, self._size), self._split()
        lower_bytes = self._lower.read(start, min(stop, split) - start) if start < split else b""
        return lower_bytes + bytes(self._upper_log.data[max(0, start - split) : max(0, stop - split)])

    def _split(self) -> int:
        """Return the offset where the lines in memory begin."""
        return self._size if self._upper_log.start is None else self._upper_log.start

    def refresh(self) -> None:
        """Make lines visible that were appended since: in memory, or in the lower log if it was never opened for writing here."""
        if self._closed:
            raise StoreError("the session was closed", where=self.name)
        if self._writes:
            return
        if self._store.upper_log_of(self._upper_log.session) is not self._upper_log:
            if self._upper_log.session not in self._store.sessions():
                raise StoreError("the session was deleted while it was read", where=self.name)
            raise BadLog("the log was replaced while it was read; open the session again", where=self.name)
        if self._upper_log.start is None or self._lower.size < self._upper_log.start:
            self._lower.refresh()
        self._size = self._lines_end()

    def rewrite(self, data: bytes) -> str:
        """Replace all lines in memory; the lower log stays unchanged."""
        self._require_writer()
        old = self._upper_log
        fresh = _UpperLog(old.session, 0, bytearray(data), changes=old.changes + 1, writer=self)
        self._upper_log = self._store.put_upper_log(fresh)
        old.writer = None
        self._size = len(data)
        return self.name

    def _require_writer(self) -> None:
        if not self._writes:
            raise ReadOnly("the session was opened for reading", where=self.name)
        if self._closed:
            raise ReadOnly("the session was closed", where=self.name)

    def load_checkpoint(self) -> bytes | None:
        """Return the newest checkpoint of the session, from the upper or the lower layer."""
        return self._store.checkpoint_of(self._upper_log.session, self._lower)

    def save_checkpoint(self, data: bytes) -> None:
        """Keep the checkpoint in memory; does nothing for a reader."""
        if self._upper_log.writer is self:
            self._upper_log.checkpoint = data

    def close(self) -> None:
        """Close the lower log and release the lock of the upper layer."""
        self._closed = True
        if self._upper_log.writer is self:
            self._upper_log.writer = None
        self._lower.close()


class OverlaySessions:
    """The sessions of a lower store, and new ones in memory; sessions can be continued and deleted without changing the lower store.

    Changes end with this object. Writers of the lower store and of this one do not lock each other out.
    """

    def __init__(self, lower: SessionArchive) -> None:
        self._lower = lower
        self._upper = MemorySessions()
        self._upper_logs: dict[str, _UpperLog] = {}
        self._deleted: set[str] = set()
        self._results: dict[str, MemoryResultFiles] = {}

    @property
    def name(self) -> str:
        """The name of the lower store in error messages."""
        return self._lower.name

    def create(self, session: str, first: bytes = b"") -> LogFile:
        """Create a log in memory."""
        if session in self._lower_sessions():
            raise BadInput(f"session {session} exists already", where=self._lower.stat(session).name)
        return self._upper.create(session, first)

    def open(self, session: str, *, write: bool = False) -> LogFile:
        """Open a log in memory, or one of the lower store, whose new lines are kept in memory."""
        if self._is_new(session):
            return self._upper.open(session, write=write)
        lower = self._lower.open(session)
        upper_log = self._upper_logs.setdefault(session, _UpperLog(session))
        try:
            return OverlayFile(self, upper_log, lower, write=write)
        except BaseException:
            lower.close()
            raise

    def _lower_sessions(self) -> frozenset[str]:
        """Return the sessions of the lower store that were not deleted here."""
        return frozenset(self._lower.sessions()) - self._deleted

    def _is_new(self, session: str) -> bool:
        return session in self._deleted or self._upper.file_of(session) is not None

    def sessions(self) -> Sequence[str]:
        """Return the ids of all sessions, sorted."""
        return sorted({*self._lower_sessions(), *self._upper.sessions()})

    def stat(self, session: str) -> LogStat:
        """Return size and time of the last change of one log."""
        return self._upper.stat(session) if self._is_new(session) else self._with_upper(self._lower.stat(session))

    def stats(self) -> Iterator[LogStat]:
        """Yield size and time of the last change of every log."""
        yield from (self._with_upper(stat) for stat in self._lower.stats() if stat.session not in self._deleted)
        yield from self._upper.stats()

    def _with_upper(self, stat: LogStat) -> LogStat:
        upper_log = self._upper_logs.get(stat.session)
        if upper_log is None or upper_log.start is None:
            return stat
        return stat._replace(size=upper_log.start + len(upper_log.data), changed=stat.changed + upper_log.changes)

    def has_writer(self, session: str) -> bool:
        """Return whether a log is open for writing, here or in the lower store."""
        if self._is_new(session):
            return self._upper.has_writer(session)
        upper_log = self._upper_logs.get(session)
        return (upper_log is not None and upper_log.writer is not None) or self._lower.has_writer(session)

    def remove(self, session: str) -> None:
        """Delete a session here; the lower store keeps it. Raises `Locked` while a writer holds it here."""
        if self._is_new(session):
            self._upper.remove(session)
        else:
            stat = self._lower.stat(session)
            upper_log = self._upper_logs.get(session)
            if upper_log is not None and upper_log.writer is not None:
                raise Locked("another writer holds this session", where=stat.name)
            self._upper_logs.pop(session, None)
            self._deleted.add(session)
        self._results.pop(session, None)

    def result_files(self, session: str) -> MemoryResultFiles:
        """Return the store of the tool results of a session, in memory."""
        return self._results.setdefault(session, MemoryResultFiles(f"memory:{session}.results"))

    def checkpoint_of(self, session: str, lower: LogFile) -> bytes | None:
        """Return the newest checkpoint of a session; that of the lower log does not count once all its lines were replaced."""
        if self._is_new(session):
            file = self._upper.file_of(session)
            return None if file is None else file.checkpoint
        upper_log = self._upper_logs.get(session, _UpperLog(session))
        return lower.load_checkpoint() if upper_log.checkpoint is None and upper_log.start != 0 else upper_log.checkpoint

    def upper_log_of(self, session: str) -> _UpperLog | None:
        """Return the upper layer of a session of the lower store."""
        return self._upper_logs.get(session)

    def put_upper_log(self, upper_log: _UpperLog) -> _UpperLog:
        """Replace the upper layer of a session and return the new one."""
        self._upper_logs[upper_log.session] = upper_log
        return upper_log


class OverlayBlobs:
    """The blobs of a lower store, and new ones in memory."""

    def __init__(self, lower: BlobStore) -> None:
        self._lower = lower
        self._upper = MemoryBlobs()

    def put(self, data: bytes) -> str:
        """Store bytes in memory and return their address."""
        return self._upper.put(data)

    def get(self, address: str) -> bytes:
        """Return the bytes at an address; raise `MissingBlob` if there are none."""
        return self._holder(address).get(address)

    def size(self, address: str) -> int:
        """Return the size in bytes of the blob at an address."""
        return self._holder(address).size(address)

    def addresses(self) -> Iterator[str]:
        """Yield the addresses of all blobs, sorted."""
        yield from sorted({*self._lower.addresses(), *self._upper.addresses()})

    def _holder(self, address: str) -> BlobStore:
        return self._upper if address in self._upper else self._lower

    def __contains__(self, address: str) -> bool:
        return address in self._upper or address in self._lower


_BUFFER_BYTES = 256 * 1024


class BufferedStore:
    """Wraps another store. A crash loses the buffered lines; the next import reads them again."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    def create(self, session: str, first: bytes = b"") -> LogFile:
        """A log under a new id; its first line is written at once."""
        return _BufferedLogFile(self._store.create(session, first))

    def open(self, session: str, *, write: bool = False) -> LogFile:
        """The log of a session."""
        return _BufferedLogFile(self._store.open(session, write=write))

    def sessions(self) -> Sequence[str]:
        """The ids of all sessions."""
        return self._store.sessions()


class _BufferedLogFile:
    """One log file and its buffered lines. Reading and syncing write the buffer first."""

    def __init__(self, file: LogFile) -> None:
        self._file = file
        self._buffer: list[bytes] = []
        self._size = file.size
        self._synced = -1
        self._error: PalimpsestError | None = None

    @property
    def name(self) -> str:
        return self._file.name

    @property
    def size(self) -> int:
        return self._size

    @property
    def torn(self) -> int:
        return self._file.torn

    def append(self, line: bytes) -> int:
        start = self._size
        self._buffer.append(line)
        self._size += len(line)
        if self._size - self._file.size > _BUFFER_BYTES or self._error is not None:
            self._write()
        return start

    def _write(self) -> None:
        """Write the buffer. After a failed write every further one raises the same error, because the log would have a gap."""
        if self._error is not None:
            raise self._error
        if self._buffer:
            try:
                self._file.append(b"".join(self._buffer))
            except PalimpsestError:
                self._write_each()
            self._buffer.clear()

    def _write_each(self) -> None:
        """Write line by line: a disk that has no room for all lines may have room for some."""
        for line in self._buffer:
            try:
                self._file.append(line)
            except PalimpsestError as error:
                self._error = error
                raise

    def sync(self) -> None:
        self._write()
        # Closing a log syncs it too; a second sync of the same bytes would only cost time.
        if self._synced != self._size:
            self._file.sync()
            self._synced = self._size

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        self._write()
        return self._file.chunks(start, stop)

    def read(self, start: int, length: int) -> bytes:
        self._write()
        return self._file.read(start, length)

    def refresh(self) -> None:
        buffered = self._size - self._file.size
        self._file.refresh()
        self._size = self._file.size + buffered

    def rewrite(self, data: bytes) -> str:
        self._write()
        where = self._file.rewrite(data)
        self._size = self._file.size
        return where

    def load_checkpoint(self) -> bytes | None:
        return self._file.load_checkpoint()

    def save_checkpoint(self, data: bytes) -> None:
        self._write()
        self._file.save_checkpoint(data)

    def close(self) -> None:
        self._file.close()
