"""A home: the place of sessions, blobs, the index and the user's cards, on disk or in memory."""

import os
import time
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Self, TypeAlias

from palimpsest.core.errors import BadInput, StoreError
from palimpsest.core.events import SessionOpened, Titled
from palimpsest.core.log import Log
from palimpsest.core.ports import Clock, Index, SessionArchive, SessionStore
from palimpsest.core.text import lazy_pattern
from palimpsest.stores.files import FileStateSlot, read_regular
from palimpsest.stores.in_memory import MemoryBlobs, MemorySessions, MemoryStateSlot
from palimpsest.stores.sessions import BlobFolder, JsonlSessions, new_session_id
from palimpsest.wire.models import CARDS, ModelCard, at_prices_of, price_day

_OPENING_BYTES = 64 * 1024
_BASE = lazy_pattern(rb'"base":\{"session":"([^"\\]+)"')


def forks_of(store: SessionStore) -> dict[str, set[str]]:
    """Return the forks of each session that has some, which need its log; it finds forks with a damaged first line too."""
    forks: dict[str, set[str]] = {}
    for session in store.sessions():
        with closing(store.open(session)) as lines:
            for base in _BASE.findall(lines.read(0, _OPENING_BYTES)):
                forks.setdefault(base.decode(), set()).add(session)
    return {base: others - {base} for base, others in forks.items()}


def disk_bytes(store: SessionArchive, session: str) -> int:
    """Return the bytes of a session: of its log and, on disk, of the files that are deleted with it."""
    return store.disk_bytes(session) if isinstance(store, JsonlSessions) else store.stat(session).size


def deletion_order(store: SessionStore, sessions: Collection[str]) -> list[str]:
    """Return sessions with forks before what they were forked from. Raises `BadInput` if another fork needs one of them."""
    forks = forks_of(store)
    for session in sessions:
        staying = sorted(forks.get(session, set()) - set(sessions))
        if staying:
            raise BadInput(f"session {session} is read by its forks {', '.join(staying)}; delete those first")
    ordered: list[str] = []
    waiting = [*sessions]
    while waiting:
        ready = [session for session in waiting if not forks.get(session, set()).intersection(waiting)] or waiting
        ordered += ready
        waiting = [session for session in waiting if session not in ready]
    return ordered


def remove(store: SessionArchive, session: str) -> None:
    """Delete a session with its side files; raise `BadInput` if it has forks, `Locked` while a writer holds it."""
    deletion_order(store, (session,))
    store.remove(session)


class SystemClock:
    """The clock of this machine."""

    def now(self) -> int:
        """Milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Home:
    """A home in a folder with `sessions/`, `blobs/`, `index.sqlite`, `cards.toml`, `imports.json`, `pauses.json` and `tool_counts.json`."""

    folder: Path
    clock: Clock = field(default_factory=SystemClock)

    @classmethod
    def at(cls, folder: str | os.PathLike[str]) -> Self:
        """Return the home in a folder, which is made with the first session."""
        return cls(Path(folder).expanduser())

    @staticmethod
    def in_memory(clock: Clock | None = None) -> "MemoryHome":
        """Return a home in memory, which ends with the process."""
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
    def imports(self) -> FileStateSlot:
        """The cursors of imports: how far the sessions of other programs were read; the file can be deleted without loss."""
        return FileStateSlot(self.folder / "imports.json")

    @property
    def pauses(self) -> FileStateSlot:
        """What the prompt caches of earlier sessions cost, and the pauses in them; the file can be deleted."""
        return FileStateSlot(self.folder / "pauses.json")

    @property
    def tool_counts(self) -> FileStateSlot:
        """How many tokens providers counted for sets of tools; the file can be deleted."""
        return FileStateSlot(self.folder / "tool_counts.json")

    @property
    def index_path(self) -> Path:
        """The path of the search index; it can be deleted without loss."""
        return self.folder / "index.sqlite"

    @property
    def has_index(self) -> bool:
        """Whether the file of the index exists."""
        return self.index_path.exists()

    @property
    def cards_path(self) -> Path:
        """The path of the user's model cards."""
        return self.folder / "cards.toml"

    def new(self, cwd: str = "", model: str = "", title: str = "") -> Log:
        """Create a session and open it for writing."""
        return _new(self.store, self.clock, cwd, model, title)

    def open(self, session: str, *, write: bool = True) -> Log:
        """Open a session, for writing unless `write` is false."""
        return Log.open(self.store, session, self.clock, write=write)

    def fork(self, log: Log, seq: int | None = None) -> Log:
        """Create a session that continues another one from an event, or from its tip."""
        return log.fork(self.store, new_session_id(self.clock.now()), seq)

    def index(self) -> Index:
        """Open the search index over all sessions; the caller closes it."""
        from palimpsest.stores.index import SqliteIndex  # noqa: PLC0415 - sqlite3 is slow to load, and few need it

        return SqliteIndex(self.index_path, self.store)

    def cards(self) -> tuple[ModelCard, ...]:
        """Return all model cards; the user's cards replace built-in ones of the same name."""
        return _with_built_in(self.own_cards(), self.clock)

    def own_cards(self) -> tuple[ModelCard, ...]:
        """Return the cards in the user's file, if there is one; raise `BadInput` or `StoreError` if it cannot be read."""
        try:
            text = read_regular(self.cards_path).decode()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise StoreError(f"cannot read it: {error.strerror}", where=str(self.cards_path)) from error
        except UnicodeDecodeError as error:
            raise BadInput("this is not UTF-8 text", where=str(self.cards_path)) from error
        from palimpsest.wire.card_files import parse_cards  # noqa: PLC0415 - most homes have no such file

        return parse_cards(text, where=str(self.cards_path))


@dataclass(frozen=True)
class MemoryHome:
    """A home without a folder, for tests, examples and sessions that need not be kept."""

    clock: Clock = field(default_factory=SystemClock)
    store: MemorySessions = field(default_factory=MemorySessions)
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)
    imports: MemoryStateSlot = field(default_factory=MemoryStateSlot)
    pauses: MemoryStateSlot = field(default_factory=MemoryStateSlot)
    tool_counts: MemoryStateSlot = field(default_factory=MemoryStateSlot)
    own: tuple[ModelCard, ...] = ()
    name: str = "memory"
    folder: None = None
    # The index is built each time, so that it never has words of a deleted session.
    has_index: bool = False

    def new(self, cwd: str = "", model: str = "", title: str = "") -> Log:
        """Create a session and open it for writing."""
        return _new(self.store, self.clock, cwd, model, title)

    def open(self, session: str, *, write: bool = True) -> Log:
        """Open a session, for writing unless `write` is false."""
        return Log.open(self.store, session, self.clock, write=write)

    def fork(self, log: Log, seq: int | None = None) -> Log:
        """Create a session that continues another one from an event, or from its tip."""
        return log.fork(self.store, new_session_id(self.clock.now()), seq)

    def index(self) -> Index:
        """Build a search index over all sessions in memory; the caller closes it."""
        from palimpsest.stores.database import MEMORY  # noqa: PLC0415 - sqlite3 is slow to load, and few need it
        from palimpsest.stores.index import SqliteIndex  # noqa: PLC0415 - the same

        return SqliteIndex(MEMORY, self.store)

    def cards(self) -> tuple[ModelCard, ...]:
        """Return all model cards; the user's cards replace built-in ones of the same name."""
        return _with_built_in(self.own, self.clock)

    def own_cards(self) -> tuple[ModelCard, ...]:
        """Return the cards that the home was created with."""
        return self.own


AnyHome: TypeAlias = Home | MemoryHome


def new_id(home: AnyHome) -> str:
    """Return an id for a new session of a home, which sorts by time."""
    return new_session_id(home.clock.now())


def _new(store: SessionStore, clock: Clock, cwd: str, model: str, title: str) -> Log:
    log = Log.create(store, SessionOpened(new_session_id(clock.now()), cwd=cwd, model=model), clock)
    if title:
        log.append(Titled(title))
    return log


def _with_built_in(own: tuple[ModelCard, ...], clock: Clock) -> tuple[ModelCard, ...]:
    """The user's cards and the built-in ones with the prices of today; a call of another day is priced by those of its own."""
    names, day = {card.name for card in own}, price_day(clock.now())
    return tuple(at_prices_of(card, day) for card in (*own, *(card for card in CARDS if card.name not in names)))
