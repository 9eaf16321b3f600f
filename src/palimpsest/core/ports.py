"""What the inside needs from the outside: a clock, a place for lines and blobs, and models."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from palimpsest.core.deltas import Delta
from palimpsest.core.events import ModelReplied

Piece = TypeVar("Piece")


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> int:
        """Milliseconds since 1970, UTC."""
        ...


class LogFile(Protocol):
    """The lines of one log, and the checkpoint beside them."""

    @property
    def name(self) -> str:
        """What an error calls this log: a path, as a rule."""
        ...

    @property
    def size(self) -> int:
        """Bytes of whole lines."""
        ...

    @property
    def torn(self) -> int:
        """Bytes after the last whole line, which a crash left."""
        ...

    def append(self, line: bytes) -> int:
        """Write one or more whole lines in one go, and say at which byte they begin."""
        ...

    def sync(self) -> None:
        """Return when everything appended would survive a power cut; nothing to do for a reader, or after closing, which syncs."""
        ...

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Runs of whole lines with the byte where each run begins."""
        ...

    def read(self, start: int, length: int) -> bytes:
        """Some bytes; fewer at the end."""
        ...

    def load_checkpoint(self) -> bytes | None:
        """The newest checkpoint, if there is one."""
        ...

    def save_checkpoint(self, data: bytes) -> None:
        """Replace the checkpoint; losing it costs time only."""
        ...

    def close(self) -> None:
        """Let go of the file and the right to write."""
        ...


class SessionStore(Protocol):
    """All the sessions of one home."""

    def create(self, session: str, first: bytes = b"") -> LogFile:
        """A log under a new id with its first line, held for writing; if the line cannot be written nothing is left behind."""
        ...

    def open(self, session: str, *, write: bool = False) -> LogFile:
        """The log of a session; at most one writer holds it at a time."""
        ...

    def sessions(self) -> Sequence[str]:
        """The ids of all sessions."""
        ...


class Blobs(Protocol):
    """Contents by their SHA-256: too large for a line, or not text."""

    def put(self, data: bytes) -> str:
        """Keep the bytes, durably, and return their address."""
        ...

    def get(self, address: str) -> bytes:
        """The bytes at an address; `MissingBlob` if nobody holds them."""
        ...

    def __contains__(self, address: str) -> bool: ...


class Sendable(Protocol):
    """An encoded request, ready to leave."""

    @property
    def wire(self) -> str:
        """The shape it has."""
        ...

    @property
    def body(self) -> bytes:
        """Its exact bytes."""
        ...


class Provider(Protocol):
    """A model that answers requests."""

    def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        """Deltas as they come, and last the whole reply, once; closing the iterator ends the call."""
        ...


@asynccontextmanager
async def closing(stream: AsyncIterator[Piece]) -> AsyncGenerator[AsyncIterator[Piece], None]:
    """A stream that is closed at the end of the context, also when it was not read to its end: a call that is left open costs."""
    try:
        yield stream
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()
