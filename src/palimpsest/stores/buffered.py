"""A buffer of lines on top of a session store, for large imports."""

from collections.abc import Iterator, Sequence

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.ports import LogFile, SessionStore

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
            self._write_buffer()
        return start

    def _write_buffer(self) -> None:
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
        self._write_buffer()
        # Closing a log syncs it too; a second sync of the same bytes would only cost time.
        if self._synced != self._size:
            self._file.sync()
            self._synced = self._size

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        self._write_buffer()
        return self._file.chunks(start, stop)

    def read(self, start: int, length: int) -> bytes:
        self._write_buffer()
        return self._file.read(start, length)

    def refresh(self) -> None:
        buffered = self._size - self._file.size
        self._file.refresh()
        self._size = self._file.size + buffered

    def rewrite(self, data: bytes) -> str:
        self._write_buffer()
        where = self._file.rewrite(data)
        self._size = self._file.size
        return where

    def load_checkpoint(self) -> bytes | None:
        return self._file.load_checkpoint()

    def save_checkpoint(self, data: bytes) -> None:
        self._write_buffer()
        self._file.save_checkpoint(data)

    def close(self) -> None:
        self._file.close()
