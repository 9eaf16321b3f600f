"""Ports: the protocols of clocks, stores, indexes and models that the inside needs."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Literal, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from msgspec import Struct

from palimpsest.core.events import EventRef, ModelReplied, Usage
from palimpsest.core.events.deltas import Delta
from palimpsest.core.items import Kind

UnitKind: TypeAlias = Kind | Literal["note", "title"]
# Called with the bytes that were read so far and the bytes there are to read.
Progress: TypeAlias = Callable[[int, int], None]


class SessionRow(Struct, frozen=True):
    """One session in a list. `turns` counts what the user began; `tokens` is all that models read and wrote, by model in `usage`.

    `path` is what its store calls the log. The title is the one it was given, else the first line that the user said. A fork counts its
    own events only. Times are milliseconds since 1970.
    """

    id: str
    path: str = ""
    title: str = ""
    origin: str = ""
    cwd: str = ""
    model: str = ""
    profile: str = ""
    created: int = 0
    updated: int = 0
    events: int = 0
    turns: int = 0
    tokens: int = 0
    usage: dict[str, Usage] = {}
    base: EventRef | None = None
    opener: EventRef | None = None


class Hit(Struct, frozen=True):
    """A readable piece that matches: where it stands, its kind, when it came, and the text around the match.

    `item` is empty where the piece is no item of a view.
    """

    session: str
    seq: int
    item: str
    kind: UnitKind
    at: int
    snippet: str


class RefreshReport(Struct, frozen=True):
    """What a refresh did: logs and bytes read, logs with something unreadable and why, and how many vanished."""

    read: int = 0
    bytes: int = 0
    skipped: tuple[tuple[str, str], ...] = ()
    bad_lines: int = 0
    gone: int = 0


Piece = TypeVar("Piece")


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> int:
        """Milliseconds since 1970, UTC."""
        ...


class LogFile(Protocol):
    """The lines of one log, and the checkpoint beside them.

    One writer holds a log; any number of readers see the whole lines that were there when they opened or last refreshed it. After `close`
    the sizes stay known, `sync`, `save_checkpoint` and `close` do nothing, and reading or writing lines raises `StoreError`.
    """

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
        """Bytes after the last whole line, as a crash leaves them: a line without its newline, or zeros. The writer has cut them off."""
        ...

    def append(self, line: bytes) -> int:
        """Write one or more whole lines in one go, and return the byte where they begin.

        Raises `ReadOnly` for a reader and after a failed sync, `StoreError` if the disk refuses; then the log is as it was before.
        """
        ...

    def sync(self) -> None:
        """Return when everything appended would survive a power cut; nothing to do for a reader, or after closing.

        Raises `StoreError` if that cannot be said; then nothing more is taken.
        """
        ...

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """The bytes from `start` to `stop` or the end in runs, each with the byte where it begins; each but the last ends with a line.

        Raises `BadLog` if the log became shorter meanwhile; a store may also refuse a line that is longer than `codec.MAX_LINE` bytes.
        """
        ...

    def read(self, start: int, length: int) -> bytes:
        """Some bytes; fewer at the end. Raises `BadLog` if the log became shorter meanwhile."""
        ...

    def refresh(self) -> None:
        """Take notice of what a writer has appended since this file was opened: `size`, `chunks` and `read` then reach its new whole lines.

        For readers only; nothing to do for the writer. Raises `BadLog` if the log was replaced or became shorter, `StoreError` if it was
        deleted; then everything stays as it was before.
        """
        ...

    def rewrite(self, data: bytes) -> str:
        """Put other whole lines in the place of all of them, in one step, and drop the checkpoint; for the writer, to repair a log.

        The earlier bytes are kept, and the answer says where. Readers that are open do not see the new lines.
        """
        ...

    def load_checkpoint(self) -> bytes | None:
        """The checkpoint that was saved last, if there is one."""
        ...

    def save_checkpoint(self, data: bytes) -> None:
        """Replace the checkpoint; nothing is saved by a reader, after closing, or where the disk refuses: losing it costs time only."""
        ...

    def close(self) -> None:
        """Let go of the file and the right to write; what was appended is not synced by this."""
        ...


class SessionStore(Protocol):
    """Logs by the ids of their sessions: all that a log and the engine need of a store."""

    def create(self, session: str, first: bytes = b"") -> LogFile:
        """A log under a new id with its first line, held for writing; if the line cannot be written nothing is left behind.

        Raises `BadInput` if the id is taken or cannot be one.
        """
        ...

    def open(self, session: str, *, write: bool = False) -> LogFile:
        """The log of a session; at most one writer holds it at a time. Raises `BadInput` if there is none, `Locked` if it is held.

        The writer cuts off a torn end, which the store keeps aside; a reader does not see it.
        """
        ...

    def sessions(self) -> Sequence[str]:
        """The ids of all sessions, sorted."""
        ...


class LogStat(NamedTuple):
    """A log as its store sees it without opening it.

    `name` is what errors call it. `size` is in bytes, a torn end included. `changed` says when the bytes last changed, in a unit of the
    store: later is larger, and changes within the resolution of its clock share a value.
    """

    session: str
    name: str
    size: int
    changed: int


class SessionArchive(SessionStore, Protocol):
    """A session store that can also be surveyed and cleaned up: all that commands and the index need of one."""

    @property
    def name(self) -> str:
        """What an error calls this store: a path, as a rule."""
        ...

    def stat(self, session: str) -> LogStat:
        """Size and last change of one log; `BadInput` if there is none."""
        ...

    def stats(self) -> Iterable[LogStat]:
        """Size and last change of every log, in any order; no log is opened."""
        ...

    def remove(self, session: str) -> None:
        """Delete a log for good with all that is kept beside it: checkpoint, result files, torn and damaged copies.

        Raises `BadInput` if there is none, `Locked` while it is held. Whether a fork reads through it is for the caller to ask.
        """
        ...

    def result_files(self, session: str) -> "ResultStore":
        """Where the tool results of a session are kept for other programs; they are deleted with it."""
        ...


class ResultStore(Protocol):
    """Tool results of one session under names of their own, for programs that cannot read blobs."""

    def __call__(self, name: str, data: bytes) -> str:
        """Keep the bytes, durably, and return where they are; other content that has the name already keeps it."""
        ...


class Blobs(Protocol):
    """Contents by their SHA-256: too large for a line, or not text."""

    def put(self, data: bytes) -> str:
        """Keep the bytes, durably, and return their address."""
        ...

    def get(self, address: str) -> bytes:
        """The bytes at an address, unchecked; `MissingBlob` if this store does not hold them, `BadInput` if this is no address."""
        ...

    def __contains__(self, address: str) -> bool: ...


class BlobStore(Blobs, Protocol):
    """All the blobs of one home."""

    def check(self, address: str) -> bool:
        """Whether the bytes at an address still have its SHA-256; raises as `get` does."""
        ...

    def size(self, address: str) -> int:
        """How many bytes lie at an address; raises as `get` does."""
        ...

    def addresses(self) -> Iterator[str]:
        """The addresses of all blobs, sorted."""
        ...


class Index(Protocol):
    """What can be listed and searched without reading the logs; it can always be made again from them.

    Raises `Locked` while another process writes the index, and `StoreError` where it cannot be used at all.
    """

    @property
    def note(self) -> str:
        """Why the index does not last, where one that should cannot be written; empty otherwise."""
        ...

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        ...

    def stats_changed(self) -> bool:
        """Whether some log is not as the index last saw it; no log is opened."""
        ...

    def refresh(self, progress: Progress | None = None) -> RefreshReport:
        """Read what is new in the logs; a log that cannot be read is reported and stops nothing."""
        ...

    def rebuild(self, progress: Progress | None = None) -> RefreshReport:
        """Make the index again from the logs."""
        ...

    def forget(self, session: str) -> None:
        """Take a session that was deleted out of the index, with its words."""
        ...

    def purge(self, progress: Progress | None = None) -> bool:
        """Take the words of deleted, redacted and replaced logs out of the index; whether there were any."""
        ...

    def faults(self) -> Sequence[tuple[str, str]]:
        """Name and reason of each log of which not all could be read at the last refresh."""
        ...

    def list(self, *, refresh: bool = True) -> Sequence[SessionRow]:
        """All sessions in which something happened, the one with the newest event first; with `refresh` what is new is read before."""
        ...

    def search(
        self,
        query: str,
        *,
        ranked: bool = False,
        limit: int = 20,
        session: str | None = None,
        kind: UnitKind | None = None,
        before: int | None = None,
        after: int | None = None,
        marks: tuple[str, str] = ("[", "]"),
        width: int = 160,
    ) -> Sequence[Hit]:
        """Pieces with all words of the query, newest or best first; `before` and `after` are milliseconds since 1970."""
        ...

    def close(self) -> None:
        """Let go of the database and of the logs."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


class StateSlot(Protocol):
    """A small value that can be made again from the logs, kept as a whole."""

    def load(self) -> bytes | None:
        """The value that was saved last, if there is one that can be read."""
        ...

    def save(self, data: bytes) -> bool:
        """Replace the value; false if the store refused, which costs time only."""
        ...


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
