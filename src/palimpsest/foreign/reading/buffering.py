"""A store whose logs gather what is appended into few large writes, for imports that bring thousands of lines."""

from collections.abc import Iterator, Sequence

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.ports import LogFile, SessionStore

_ENOUGH = 256 * 1024


class BufferedStore:
    """Another store behind it. A crash loses what was not written yet, which the next import reads again."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    def create(self, session: str, first: bytes = b"") -> LogFile:
        """A log under a new id with its first line, which is written at once."""
        return _GatheredLines(self._store.create(session, first))

    def open(self, session: str, *, write: bool = False) -> LogFile:
        """The log of a session."""
        return _GatheredLines(self._store.open(session, write=write))

    def sessions(self) -> Sequence[str]:
        """The ids of all sessions."""
        return self._store.sessions()


class _GatheredLines:
    """The lines of one log and those on their way there; whoever reads or syncs sees all of them."""

    def __init__(self, lines: LogFile) -> None:
        self._lines = lines
        self._held: list[bytes] = []
        self._size = lines.size
        self._synced = -1
        self._failed: PalimpsestError | None = None

    @property
    def name(self) -> str:
        return self._lines.name

    @property
    def size(self) -> int:
        return self._size

    @property
    def torn(self) -> int:
        return self._lines.torn

    def append(self, line: bytes) -> int:
        start = self._size
        self._held.append(line)
        self._size += len(line)
        if self._size - self._lines.size > _ENOUGH or self._failed is not None:
            self._write()
        return start

    def _write(self) -> None:
        """Write what is held; if that fails, nothing more is taken, for what follows would have a gap before it."""
        if self._failed is not None:
            raise self._failed
        if self._held:
            try:
                self._lines.append(b"".join(self._held))
            except PalimpsestError:
                self._write_each()
            self._held.clear()

    def _write_each(self) -> None:
        """A disk that has no room for all lines may have room for some."""
        for line in self._held:
            try:
                self._lines.append(line)
            except PalimpsestError as error:
                self._failed = error
                raise

    def sync(self) -> None:
        self._write()
        # A log is synced again when it is closed; a disk is slow to say that it has everything.
        if self._synced != self._size:
            self._lines.sync()
            self._synced = self._size

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        self._write()
        return self._lines.chunks(start, stop)

    def read(self, start: int, length: int) -> bytes:
        self._write()
        return self._lines.read(start, length)

    def refresh(self) -> None:
        held = self._size - self._lines.size
        self._lines.refresh()
        self._size = self._lines.size + held

    def rewrite(self, data: bytes) -> str:
        self._write()
        where = self._lines.rewrite(data)
        self._size = self._lines.size
        return where

    def load_checkpoint(self) -> bytes | None:
        return self._lines.load_checkpoint()

    def save_checkpoint(self, data: bytes) -> None:
        self._write()
        self._lines.save_checkpoint(data)

    def close(self) -> None:
        self._lines.close()
