"""A home: the one place that holds sessions, blobs, the index and the cards of the user, on disk or in memory."""

import os
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol, Self

from palimpsest.core.errors import BadInput, StoreError
from palimpsest.core.events import SessionOpened, Titled
from palimpsest.core.log.log import Log
from palimpsest.core.ports import BlobStore, Clock, Index, SessionArchive, SessionStore, StateSlot
from palimpsest.stores.blobs import BlobFolder, new_session_id
from palimpsest.stores.ephemeral import MemoryBlobs, MemorySessions
from palimpsest.stores.jsonl import JsonlSessions
from palimpsest.stores.slots import FileSlot, MemorySlot
from palimpsest.wire.models.cards import CARDS, ModelCard

_OPENING_BYTES = 64 * 1024


def forks_of(store: SessionStore, session: str) -> tuple[str, ...]:
    """The sessions that were forked from this one and read through it, also those whose first line is damaged."""
    named = b'"base":{"session":"%s"' % session.encode()
    return tuple(other for other in store.sessions() if other != session and named in _opening(store, other))


def _opening(store: SessionStore, session: str) -> bytes:
    lines = store.open(session)
    try:
        return lines.read(0, _OPENING_BYTES)
    finally:
        lines.close()


def remove(store: SessionArchive, session: str) -> None:
    """Delete a session and what is kept beside it; refused while a writer holds it or a fork needs it."""
    forks = forks_of(store, session)
    if forks:
        raise BadInput(f"session {session} is read by its forks {', '.join(forks)}; delete those first")
    store.remove(session)


class SystemClock:
    """The clock of this machine."""

    def now(self) -> int:
        """Milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000


class AnyHome(Protocol):
    """What every home offers, wherever it keeps things."""

    @property
    def name(self) -> str:
        """What an error calls this home: a path, as a rule."""
        ...

    @property
    def folder(self) -> Path | None:
        """The folder of a home on disk, by which another process finds it; none for a home that has no folder."""
        ...

    @property
    def clock(self) -> Clock:
        """The time, as its sessions take it."""
        ...

    @property
    def store(self) -> SessionArchive:
        """All sessions."""
        ...

    @property
    def blobs(self) -> BlobStore:
        """Contents too large for a line."""
        ...

    @property
    def imports(self) -> StateSlot:
        """How far imports have read the sessions of other programs."""
        ...

    @property
    def has_index(self) -> bool:
        """Whether an index is kept already."""
        ...

    def new(self, cwd: str = "", model: str = "", title: str = "") -> Log:
        """A new session, held for writing."""
        ...

    def open(self, session: str, *, write: bool = True) -> Log:
        """A session as it was left, held for writing unless told not to."""
        ...

    def fork(self, log: Log, seq: int | None = None) -> Log:
        """A new session that goes on from an event of another, or from its tip."""
        ...

    def index(self) -> Index:
        """The search over all sessions; close it after use."""
        ...

    def cards(self) -> tuple[ModelCard, ...]:
        """All known model cards; the user's own win over the built-in ones of the same name."""
        ...

    def own_cards(self) -> tuple[ModelCard, ...]:
        """The cards that the user wrote; `BadInput` or `StoreError` if they cannot be read."""
        ...


@dataclass(frozen=True)
class Home:
    """The folder that holds everything: `sessions/`, `blobs/`, `index.sqlite`, `cards.toml`, `imports.json`."""

    folder: Path
    clock: Clock = field(default_factory=SystemClock)

    @classmethod
    def at(cls, folder: str | os.PathLike[str]) -> Self:
        """The home in a folder, which is made when the first session is."""
        return cls(Path(folder).expanduser())

    @staticmethod
    def in_memory(clock: Clock | None = None) -> "MemoryHome":
        """A home that is gone with the process."""
        return MemoryHome() if clock is None else MemoryHome(clock)

    @property
    def name(self) -> str:
        """The path of the folder."""
        return str(self.folder)

    @cached_property
    def store(self) -> JsonlSessions:
        """All sessions."""
        return JsonlSessions(self.folder / "sessions")

    @cached_property
    def blobs(self) -> BlobFolder:
        """Contents too large for a line."""
        return BlobFolder(self.folder / "blobs")

    @property
    def imports(self) -> FileSlot:
        """How far imports have read the sessions of other programs; it can be deleted without loss."""
        return FileSlot(self.folder / "imports.json")

    @property
    def index_path(self) -> Path:
        """The search index; it can be deleted without loss."""
        return self.folder / "index.sqlite"

    @property
    def has_index(self) -> bool:
        """Whether the file of the index is there."""
        return self.index_path.exists()

    @property
    def cards_path(self) -> Path:
        """Model cards that the user wrote."""
        return self.folder / "cards.toml"

    def new(self, cwd: str = "", model: str = "", title: str = "") -> Log:
        """A new session, held for writing."""
        return _new(self.store, self.clock, cwd, model, title)

    def open(self, session: str, *, write: bool = True) -> Log:
        """A session as it was left, held for writing unless told not to."""
        return Log.open(self.store, session, self.clock, write=write)

    def fork(self, log: Log, seq: int | None = None) -> Log:
        """A new session that goes on from an event of another, or from its tip."""
        return log.fork(self.store, new_session_id(self.clock.now()), seq)

    def index(self) -> Index:
        """The search over all sessions; close it after use."""
        from palimpsest.stores.index.sqlite import SqliteIndex  # noqa: PLC0415 - sqlite3 is slow to load, and few need it

        return SqliteIndex(self.index_path, self.store)

    def cards(self) -> tuple[ModelCard, ...]:
        """All known model cards; the user's own win over the built-in ones of the same name."""
        return _with_built_in(self.own_cards())

    def own_cards(self) -> tuple[ModelCard, ...]:
        """The cards of the user's file, if there is one."""
        try:
            text = self.cards_path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise StoreError(f"cannot read it: {error.strerror}", where=str(self.cards_path)) from error
        except UnicodeDecodeError as error:
            raise BadInput("this is not UTF-8 text", where=str(self.cards_path)) from error
        from palimpsest.wire.models.card_file import parse_cards  # noqa: PLC0415 - most homes have no such file

        return parse_cards(text, where=str(self.cards_path))


@dataclass(frozen=True)
class MemoryHome:
    """A home without a folder, for tests, examples and work that need not be kept."""

    clock: Clock = field(default_factory=SystemClock)
    store: MemorySessions = field(default_factory=MemorySessions)
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)
    imports: MemorySlot = field(default_factory=MemorySlot)
    own: tuple[ModelCard, ...] = ()
    name: str = "memory"
    folder: None = None
    # The index is made again each time, so that nothing of a deleted session can stay in one.
    has_index: bool = False

    def new(self, cwd: str = "", model: str = "", title: str = "") -> Log:
        """A new session, held for writing."""
        return _new(self.store, self.clock, cwd, model, title)

    def open(self, session: str, *, write: bool = True) -> Log:
        """A session as it was left, held for writing unless told not to."""
        return Log.open(self.store, session, self.clock, write=write)

    def fork(self, log: Log, seq: int | None = None) -> Log:
        """A new session that goes on from an event of another, or from its tip."""
        return log.fork(self.store, new_session_id(self.clock.now()), seq)

    def index(self) -> Index:
        """The search over all sessions, made again each time."""
        from palimpsest.stores.index.database import MEMORY  # noqa: PLC0415 - sqlite3 is slow to load, and few need it
        from palimpsest.stores.index.sqlite import SqliteIndex  # noqa: PLC0415 - the same

        return SqliteIndex(MEMORY, self.store)

    def cards(self) -> tuple[ModelCard, ...]:
        """All known model cards; the user's own win over the built-in ones of the same name."""
        return _with_built_in(self.own)

    def own_cards(self) -> tuple[ModelCard, ...]:
        """The cards that it was given."""
        return self.own


def _new(store: SessionStore, clock: Clock, cwd: str, model: str, title: str) -> Log:
    log = Log.create(store, SessionOpened(new_session_id(clock.now()), cwd=cwd, model=model), clock)
    if title:
        log.append(Titled(title))
    return log


def _with_built_in(own: tuple[ModelCard, ...]) -> tuple[ModelCard, ...]:
    names = {each.name for each in own}
    return (*own, *(each for each in CARDS if each.name not in names))
