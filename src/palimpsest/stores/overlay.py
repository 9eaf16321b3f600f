"""Stores that can be tried out: everything of another store can be read, and what is written stays in memory."""

from collections.abc import Iterator, Sequence

from palimpsest.core.ports import Blobs, LogFile, SessionStore
from palimpsest.stores.ephemeral import MemoryBlobs, MemorySessions


class OverlayFile:
    """A log that goes on in memory from where another one is now; that one stays as it is."""

    def __init__(self, under: LogFile) -> None:
        self._under = under
        self._start = under.size
        self._more = bytearray()
        self._checkpoint: bytes | None = None

    @property
    def name(self) -> str:
        """What errors call the log below."""
        return self._under.name

    @property
    def size(self) -> int:
        """Bytes of whole lines, those in memory included."""
        return self._start + len(self._more)

    @property
    def torn(self) -> int:
        """Nothing: what a crash left below is not seen here."""
        return 0

    def append(self, line: bytes) -> int:
        """Keep lines in memory, and say at which byte they begin."""
        start = self.size
        self._more += line
        return start

    def sync(self) -> None:
        """Nothing here is to survive anything."""

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Runs of whole lines, first those below."""
        end = self.size if stop is None else min(stop, self.size)
        if start < self._start:
            yield from self._under.chunks(start, min(end, self._start))
        begin = max(start, self._start)
        if begin < end:
            yield begin, self.read(begin, end - begin)

    def read(self, start: int, length: int) -> bytes:
        """Some bytes; fewer at the end."""
        stop = min(start + length, self.size)
        below = self._under.read(start, min(stop, self._start) - start) if start < self._start else b""
        return below + bytes(self._more[max(0, start - self._start) : max(0, stop - self._start)])

    def refresh(self) -> None:
        """Nothing to do: this is a writer, and what the log below gains is no part of the trial."""

    def load_checkpoint(self) -> bytes | None:
        """The newest checkpoint, ours or that below."""
        return self._checkpoint or self._under.load_checkpoint()

    def save_checkpoint(self, data: bytes) -> None:
        """Keep it in memory."""
        self._checkpoint = data

    def close(self) -> None:
        """Let go of the log below."""
        self._under.close()


class OverlaySessions:
    """The sessions of another store, which can be read and tried to go on with, and new ones; what is written is gone with the process."""

    def __init__(self, under: SessionStore) -> None:
        self._under = under
        self._over = MemorySessions()

    def create(self, session: str, first: bytes = b"") -> LogFile:
        """A log in memory."""
        return self._over.create(session, first)

    def open(self, session: str, *, write: bool = False) -> LogFile:
        """A log in memory, or one of the other store, which for writing goes on in memory and is held by nobody."""
        if session in self._over.sessions():
            return self._over.open(session, write=write)
        below = self._under.open(session)
        return OverlayFile(below) if write else below

    def sessions(self) -> Sequence[str]:
        """The ids of all sessions, sorted."""
        return sorted({*self._under.sessions(), *self._over.sessions()})


class OverlayBlobs:
    """The blobs of another store, and new ones that are gone with the process."""

    def __init__(self, under: Blobs) -> None:
        self._under = under
        self._over = MemoryBlobs()

    def put(self, data: bytes) -> str:
        """Keep the bytes in memory and return their address."""
        return self._over.put(data)

    def get(self, address: str) -> bytes:
        """The bytes at an address."""
        return self._over.get(address) if address in self._over else self._under.get(address)

    def __contains__(self, address: str) -> bool:
        return address in self._over or address in self._under
