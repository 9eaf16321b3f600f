"""The home port: sessions, blobs, documents, the index and the user's cards; in a folder or in memory."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Final

from palimpsest.core.errors import BadInput
from palimpsest.core.events import SessionOpened, Titled
from palimpsest.core.log import Log
from palimpsest.core.ports import BlobStore, Clock, Index, SessionArchive, SessionStore, StoredDocument
from palimpsest.core.text import lazy_pattern
from palimpsest.stores.files import FileDocument
from palimpsest.stores.in_memory import MemoryBlobs, MemoryDocument, MemorySessions
from palimpsest.stores.sessions import BlobFolder, JsonlSessions, new_session_id
from palimpsest.wire.models import CARDS, ModelCard, at_prices_of, price_day

_CARDS: Final = "cards.toml"
_OPENING_BYTES = 64 * 1024
_BASE = lazy_pattern(rb'"base":\{"session":"([^"\\]+)"')


class Home(ABC):
    """Where everything of a user is kept: each kind of home has its own sessions, blobs, documents and index.

    Only a home in a folder of this machine has a `local_folder`. Snapshots, sandboxes, weights, notes and scratch files need it; all
    else goes through `store`, `blobs`, `document` and `index`.
    """

    def __init__(self, name: str, store: SessionArchive, blobs: BlobStore, clock: Clock | None = None) -> None:
        self.name = name
        self.store = store
        self.blobs = blobs
        self.clock: Clock = SystemClock() if clock is None else clock

    @staticmethod
    def at(folder: str | os.PathLike[str]) -> "FolderHome":
        """Return the home in a folder, which is made with the first session."""
        return FolderHome(Path(folder).expanduser())

    @staticmethod
    def in_memory(clock: Clock | None = None) -> "MemoryHome":
        """Return a home in memory, which ends with the process."""
        return MemoryHome(clock)

    @abstractmethod
    def document(self, name: str) -> StoredDocument:
        """Return the document of a name, which may have folders: `undos/SESSION.jsonl`. It need not exist yet."""

    @abstractmethod
    def index(self) -> Index:
        """Open the search index over all sessions; the caller closes it."""

    @property
    def has_index(self) -> bool:
        """Whether an index is kept, which may have words of deleted sessions."""
        return False

    @property
    def local_folder(self) -> Path | None:
        """The folder of this machine that the home is; `None` for one that is elsewhere."""
        return None

    @property
    def imports(self) -> StoredDocument:
        """The cursors of imports: how far the sessions of other programs were read; it can be deleted without loss."""
        return self.document("imports.json")

    @property
    def pauses(self) -> StoredDocument:
        """What the prompt caches of earlier sessions cost, and the pauses in them; it can be deleted without loss."""
        return self.document("pauses.json")

    @property
    def tool_counts(self) -> StoredDocument:
        """How many tokens providers counted for sets of tools; it can be deleted without loss."""
        return self.document("tool_counts.json")

    def new(self, cwd: str = "", model: str = "", title: str = "") -> Log:
        """Create a session and open it for writing."""
        log = Log.create(self.store, SessionOpened(new_id(self), cwd=cwd, model=model), self.clock)
        if title:
            log.append(Titled(title))
        return log

    def open(self, session: str, *, write: bool = True) -> Log:
        """Open a session, for writing unless `write` is false."""
        return Log.open(self.store, session, self.clock, write=write)

    def fork(self, log: Log, seq: int | None = None) -> Log:
        """Create a session that continues another one from an event, or from its tip."""
        return log.fork(self.store, new_id(self), seq)

    def cards(self) -> tuple[ModelCard, ...]:
        """Return all model cards with the prices of today and before; the user's cards replace built-in ones of the same name."""
        own, day = self.own_cards(), price_day(self.clock.now())
        names = {card.name for card in own}
        return tuple(at_prices_of(card, day) for card in (*own, *(card for card in CARDS if card.name not in names)))

    def own_cards(self) -> tuple[ModelCard, ...]:
        """Return the user's own cards, if there are any. Raises `BadInput` or `StoreError` if they cannot be read."""
        document = self.document(_CARDS)
        data = document.read()
        if data is None:
            return ()
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise BadInput("this is not UTF-8 text", where=document.name) from error
        from palimpsest.wire.card_files import parse_cards  # noqa: PLC0415 - most homes have no such document

        return parse_cards(text, where=document.name)


class FolderHome(Home):
    """A home in a folder: `sessions/`, `blobs/`, `index.sqlite`, `cards.toml` and other documents, each a file."""

    store: JsonlSessions
    blobs: BlobFolder

    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        super().__init__(str(folder), JsonlSessions(folder / "sessions"), BlobFolder(folder / "blobs"), clock)
        self.folder = folder

    @property
    def local_folder(self) -> Path:
        """The folder."""
        return self.folder

    def document(self, name: str) -> FileDocument:
        """Return the document in the file of that name."""
        return FileDocument(self.folder / name)

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
        return self.folder / _CARDS

    def index(self) -> Index:
        """Open the search index over all sessions; the caller closes it."""
        from palimpsest.stores.index import SqliteIndex  # noqa: PLC0415 - sqlite3 is slow to load, and few need it

        return SqliteIndex(self.index_path, self.store)


class MemoryHome(Home):
    """A home without a folder, for tests, examples and sessions that need not be kept. `own` are the user's model cards."""

    store: MemorySessions
    blobs: MemoryBlobs

    def __init__(self, clock: Clock | None = None, own: tuple[ModelCard, ...] | None = None) -> None:
        super().__init__("memory", MemorySessions(), MemoryBlobs(), clock)
        self._own = own
        self._documents: dict[str, MemoryDocument] = {}

    def document(self, name: str) -> MemoryDocument:
        """Return the document of a name; it is the same object each time."""
        return self._documents.setdefault(name, MemoryDocument(f"memory:{name}"))

    def index(self) -> Index:
        """Build a search index over all sessions, so that it never has words of a deleted one; the caller closes it."""
        from palimpsest.stores.database import MEMORY  # noqa: PLC0415 - sqlite3 is slow to load, and few need it
        from palimpsest.stores.index import SqliteIndex  # noqa: PLC0415 - the same

        return SqliteIndex(MEMORY, self.store)

    def own_cards(self) -> tuple[ModelCard, ...]:
        """Return the cards that the home was created with, else those of its document."""
        return super().own_cards() if self._own is None else self._own


class SystemClock:
    """The clock of this machine."""

    def now(self) -> int:
        """Milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000


def new_id(home: Home) -> str:
    """Return an id for a new session of a home, which sorts by time."""
    return new_session_id(home.clock.now())


def forks_of(store: SessionStore) -> dict[str, set[str]]:
    """Return the forks of each session that has some, which need its log; it finds forks with a damaged first line too."""
    forks: dict[str, set[str]] = {}
    for session in store.sessions():
        with closing(store.open(session)) as lines:
            for base in _BASE.findall(lines.read(0, _OPENING_BYTES)):
                forks.setdefault(base.decode(), set()).add(session)
    return {base: others - {base} for base, others in forks.items()}


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
