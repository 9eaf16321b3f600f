"""Ports: the protocols of the clocks, stores, indexes and model providers that the library depends on."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Literal, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from msgspec import Struct

from palimpsest.core.deltas import Delta
from palimpsest.core.events import EventRef, ModelReplied
from palimpsest.core.items import Kind
from palimpsest.core.spending import ChildRecord, Ledger

UnitKind: TypeAlias = Kind | Literal["note", "title"]
# Called with the number of bytes read so far and the number of bytes in total.
Progress: TypeAlias = Callable[[int, int], None]


class CountedContext(Struct, frozen=True):
    """Tokens of the next request of a session, and the window of its model; `rules` identifies what both depend on beside the log."""

    tokens: int
    window: int
    rules: str


class SessionRow(Struct, frozen=True):
    """One session in a list. `turns` counts the turns that the user started; `tokens` is the sum of its `ledger`.

    `context` is the size of the next request in tokens, as the provider or an edit reported it with the last event that changed the
    view. It is `None` where the view must be counted: in a fork, and after an item, a rewind or an undo, until the next report;
    `counted` is what a reader then counted, if the log has not changed since. `children` are its sub-agents, without their reports.
    `path` is the name of the log in its store. `title` is the recorded title, else the first line of the first user message. A fork
    counts only its own events. Times are milliseconds since 1970.
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
    context: int | None = 0
    ledger: Ledger = Ledger()
    base: EventRef | None = None
    opener: EventRef | None = None
    counted: CountedContext | None = None
    children: tuple[ChildRecord, ...] = ()


class Hit(Struct, frozen=True):
    """A search hit: its session, event, item and kind, its time in milliseconds since 1970, and the text around the match.

    `item` is empty if the match is in a note or a title.
    """

    session: str
    seq: int
    item: str
    kind: UnitKind
    at: int
    snippet: str


class RefreshReport(Struct, frozen=True):
    """Result of a refresh: logs and bytes read, logs that were skipped with the reason, unreadable lines, and logs that vanished."""

    read: int = 0
    bytes: int = 0
    skipped: tuple[tuple[str, str], ...] = ()
    bad_lines: int = 0
    gone: int = 0


StreamItem = TypeVar("StreamItem")


class Clock(Protocol):
    """A source of the current time."""

    def now(self) -> int:
        """Return milliseconds since 1970, UTC."""
        ...


class LogFile(Protocol):
    """One log file and its checkpoint.

    At most one writer has it open; any number of readers see the complete lines that existed when they opened or refreshed it. After
    `close`, the sizes are still available; `sync`, `save_checkpoint` and `close` do nothing; reading or writing lines raises `StoreError`.
    """

    @property
    def name(self) -> str:
        """Name of the log in error messages, usually a path."""
        ...

    @property
    def size(self) -> int:
        """Size of all complete lines, in bytes."""
        ...

    @property
    def torn(self) -> int:
        """Bytes after the last complete line, as left by a crash: a line without a newline, or zeros. A writer cuts them off on open."""
        ...

    def append(self, line: bytes) -> int:
        """Write one or more complete lines with one write and return their byte offset.

        Raises `ReadOnly` for a reader and after a failed sync, `StoreError` if the write fails; the log is then unchanged.
        """
        ...

    def sync(self) -> None:
        """Make everything that was appended durable; a no-op for a reader and after `close`.

        Raises `StoreError` if the sync fails; the log is read-only from then on.
        """
        ...

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield the bytes from `start` to `stop` (default: the end) in chunks with their offsets; chunks end at line ends.

        Raises `BadLog` if the log became shorter meanwhile, and may raise it for a line of more than `codec.MAX_LINE` bytes.
        """
        ...

    def read(self, start: int, length: int) -> bytes:
        """Return `length` bytes from `start`, fewer at the end. Raises `BadLog` if the log became shorter meanwhile."""
        ...

    def refresh(self) -> None:
        """Extend `size`, `chunks` and `read` to the complete lines that a writer has appended since the file was opened.

        A no-op for the writer. Raises `BadLog` if the log was replaced or became shorter, `StoreError` if it was deleted; the state of
        this object is then unchanged.
        """
        ...

    def rewrite(self, data: bytes) -> str:
        """Replace all lines atomically and delete the checkpoint; for the writer, to repair a log.

        Returns the place where the previous bytes are kept. Readers that are already open do not see the new lines.
        """
        ...

    def load_checkpoint(self) -> bytes | None:
        """Return the newest checkpoint, or `None`."""
        ...

    def save_checkpoint(self, data: bytes) -> None:
        """Replace the checkpoint. Saves nothing for a reader, after `close`, or if the write fails: a lost checkpoint costs only time."""
        ...

    def close(self) -> None:
        """Close the file and release the write lock, without a sync."""
        ...


class SessionStore(Protocol):
    """A store of logs by session id: the part that `Log` and the engine need."""

    def create(self, session: str, first: bytes = b"") -> LogFile:
        """Create a log with its first line and open it for writing; if the line cannot be written, no file remains.

        Raises `BadInput` if the id is taken or invalid.
        """
        ...

    def open(self, session: str, *, write: bool = False) -> LogFile:
        """Open the log of a session. Raises `BadInput` if there is none, `Locked` if it has a writer and `write` is set.

        A writer cuts off a torn end, of which the store keeps a copy; a reader ignores it.
        """
        ...

    def sessions(self) -> Sequence[str]:
        """Return the ids of all sessions, sorted."""
        ...


class LogStat(NamedTuple):
    """Metadata of a log, available without opening it.

    `name` is its name in error messages. `size` is in bytes and includes a torn end. `changed` is the time of the last change in a unit
    of the store: it never decreases, and changes within the resolution of the clock share a value.
    """

    session: str
    name: str
    size: int
    changed: int


class SessionArchive(SessionStore, Protocol):
    """A session store with metadata and deletion: the part that commands and the index need."""

    @property
    def name(self) -> str:
        """Name of the store in error messages, usually a path."""
        ...

    def stat(self, session: str) -> LogStat:
        """Return the metadata of one log. Raises `BadInput` if there is none."""
        ...

    def stats(self) -> Iterable[LogStat]:
        """Return the metadata of all logs, in any order, without opening them."""
        ...

    def has_writer(self, session: str) -> bool:
        """Return whether a log is open for writing, here or in another process. Raises `BadInput` if there is none."""
        ...

    def remove(self, session: str) -> None:
        """Delete a log with its checkpoint, result files, and copies of torn or damaged bytes.

        Raises `BadInput` if there is none, `Locked` if it has a writer. The caller checks whether a fork still reads it.
        """
        ...

    def disk_bytes(self, session: str) -> int:
        """Return the bytes that are deleted with a session: its log and, where it has some, its other files."""
        ...

    def result_files(self, session: str) -> "ResultStore":
        """Return the store for result files of a session; they are deleted with the session."""
        ...


class ResultStore(Protocol):
    """Stores tool results of one session as named files, for programs that cannot read blobs."""

    def __call__(self, name: str, data: bytes) -> str:
        """Store the bytes durably and return their path; an existing file with other content is never overwritten."""
        ...


class Blobs(Protocol):
    """Binary or large contents, addressed by their SHA-256."""

    def put(self, data: bytes) -> str:
        """Store the bytes durably and return their address."""
        ...

    def get(self, address: str) -> bytes:
        """Return the bytes at an address, verified by their digest.

        Raises `MissingBlob`, `DamagedBlob` if they are others, or `BadInput` for an invalid address.
        """
        ...

    def __contains__(self, address: str) -> bool: ...


class BlobStore(Blobs, Protocol):
    """A blob store that can also list its blobs."""

    def size(self, address: str) -> int:
        """Return the size of a blob in bytes. Raises `MissingBlob` or `BadInput` as `get` does."""
        ...

    def addresses(self) -> Iterator[str]:
        """Yield the addresses of all blobs, sorted."""
        ...


class Index(Protocol):
    """List and full-text index of all sessions; it can always be rebuilt from the logs.

    Methods raise `Locked` while another process writes the index, and `StoreError` if the index is unusable.
    """

    @property
    def note(self) -> str:
        """Why the index is only in memory although it should be on disk; else empty."""
        ...

    @property
    def size(self) -> int:
        """Size of the index in bytes."""
        ...

    def stats_changed(self) -> bool:
        """Whether the metadata of some log differs from the indexed one; no log is opened."""
        ...

    def refresh(self, progress: Progress | None = None) -> RefreshReport:
        """Index what is new in the logs; unreadable logs are skipped and reported."""
        ...

    def rebuild(self, progress: Progress | None = None) -> RefreshReport:
        """Build the index from scratch."""
        ...

    def forget(self, *sessions: str) -> None:
        """Remove deleted sessions and their words from the index."""
        ...

    def purge(self, progress: Progress | None = None) -> bool:
        """Remove the words of deleted, redacted and replaced logs from the index. Returns whether there were any."""
        ...

    def faults(self) -> Sequence[tuple[str, str]]:
        """Return name and reason of each log that the last refresh could not read completely."""
        ...

    def list(self, *, refresh: bool = True) -> Sequence[SessionRow]:
        """Return all sessions with at least one event, newest event first; with `refresh`, after indexing what is new."""
        ...

    def keep_counts(self, rows: Sequence[SessionRow]) -> None:
        """Keep the field `counted` of rows of the list, until their logs change."""
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
        """Return texts that contain all words of the query, newest or, if `ranked`, best first.

        `before` and `after` are milliseconds since 1970; `marks` enclose each match in a snippet of about `width` characters; 0: none.
        """
        ...

    def close(self) -> None:
        """Close the database and the logs."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


class StateSlot(Protocol):
    """Storage for one small value that can be recomputed from the logs."""

    def load(self) -> bytes | None:
        """Return the saved value, or `None` if there is none or it cannot be read."""
        ...

    def save(self, data: bytes) -> bool:
        """Replace the value. Returns false if the write failed, which costs only time."""
        ...


class StoredDocument(StateSlot, Protocol):
    """A small value of a home that is read and replaced whole; `load` and `save` of a slot are its forms that never raise."""

    @property
    def name(self) -> str:
        """Name of the document in error messages, usually a path."""
        ...

    def read(self) -> bytes | None:
        """Return the value, or `None` if there is none. Raises `StoreError` if it cannot be read."""
        ...

    def change(self, change: Callable[[bytes | None], bytes | None]) -> None:
        """Replace the value durably by what `change` makes of it, `None` to delete it; no other process changes it meanwhile.

        Raises `StoreError` if it cannot be read or written.
        """
        ...


class Sendable(Protocol):
    """An encoded request."""

    @property
    def wire(self) -> str:
        """Name of its wire format."""
        ...

    @property
    def body(self) -> bytes:
        """The exact bytes of the request body."""
        ...


class Provider(Protocol):
    """Sends requests to a model."""

    def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        """Yield deltas as they arrive, then the complete reply once. Closing the iterator cancels the call."""
        ...


@asynccontextmanager
async def closing(stream: AsyncIterator[StreamItem]) -> AsyncGenerator[AsyncIterator[StreamItem], None]:
    """Close a stream at the end of the context, even if it was not exhausted: an abandoned call keeps costing money."""
    try:
        yield stream
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()
