"""Stores that can be tried out: everything of another store can be read, and what is written stays in memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from palimpsest.core.errors import BadInput, BadLog, Locked, ReadOnly, StoreError
from palimpsest.core.ports import BlobStore, LogFile, LogStat, SessionArchive
from palimpsest.stores.ephemeral import MemoryBlobs, MemorySessions
from palimpsest.stores.result_files import MemoryResultFiles


@dataclass(slots=True)
class _Trial:
    """What was tried with a log: `data` follows the first `start` bytes of the log below; without a start nothing was tried yet."""

    session: str
    start: int | None = None
    data: bytearray = field(default_factory=bytearray)
    checkpoint: bytes | None = None
    changes: int = 0
    writer: "OverlayFile | None" = None


class OverlayFile:
    """A log that goes on in memory from where the one below was when its first writer came; that one stays as it is."""

    def __init__(self, store: "OverlaySessions", trial: _Trial, under: LogFile, *, write: bool) -> None:
        self._store = store
        self._trial = trial
        self._under = under
        self._writes = write
        self._closed = False
        if trial.start is not None and under.size < trial.start:
            raise BadLog("the log became shorter since it was tried to go on with it", where=f"{under.name}, byte {under.size}")
        if write:
            if trial.writer is not None:
                raise Locked("another writer holds this session", where=under.name)
            trial.writer = self
            trial.start = under.size if trial.start is None else trial.start
        self._size = self._whole()

    def _whole(self) -> int:
        """Bytes of whole lines, those in memory included."""
        return self._under.size if self._trial.start is None else self._trial.start + len(self._trial.data)

    @property
    def name(self) -> str:
        """What errors call the log below."""
        return self._under.name

    @property
    def size(self) -> int:
        """Bytes of whole lines, those in memory included."""
        return self._size

    @property
    def torn(self) -> int:
        """What a crash left below; it is not seen once something was tried."""
        return self._under.torn if self._trial.start is None else 0

    def append(self, line: bytes) -> int:
        """Keep lines in memory, and return the byte where they begin."""
        self._demand_writer()
        start = self._size
        self._trial.data += line
        self._trial.changes += 1
        self._size = start + len(line)
        return start

    def sync(self) -> None:
        """Nothing here is to survive anything."""

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Runs of whole lines, first those below."""
        end = self._size if stop is None else min(stop, self._size)
        below = min(end, self._split())
        if start < below:
            yield from self._under.chunks(start, below)
        begin = max(start, below)
        if begin < end:
            yield begin, self.read(begin, end - begin)

    def read(self, start: int, length: int) -> bytes:
        """Some bytes; fewer at the end."""
        if self._closed:
            raise StoreError("the session was closed", where=self.name)
        stop, split = min(start + length, self._size), self._split()
        below = self._under.read(start, min(stop, split) - start) if start < split else b""
        return below + bytes(self._trial.data[max(0, start - split) : max(0, stop - split)])

    def _split(self) -> int:
        """The byte where the lines in memory begin."""
        return self._size if self._trial.start is None else self._trial.start

    def refresh(self) -> None:
        """Take notice of what the trial's writer has appended, or without one the writer of the log below."""
        if self._closed:
            raise StoreError("the session was closed", where=self.name)
        if self._writes:
            return
        if self._store.trial_of(self._trial.session) is not self._trial:
            if self._trial.session not in self._store.sessions():
                raise StoreError("the session was deleted while it was read", where=self.name)
            raise BadLog("the log was replaced while it was read; open the session again", where=self.name)
        if self._trial.start is None or self._under.size < self._trial.start:
            self._under.refresh()
        self._size = self._whole()

    def rewrite(self, data: bytes) -> str:
        """Put other lines in the place of all of them, in memory; the log below stays as it is."""
        self._demand_writer()
        old = self._trial
        fresh = _Trial(old.session, 0, bytearray(data), changes=old.changes + 1, writer=self)
        self._trial = self._store.put_trial(fresh)
        old.writer = None
        self._size = len(data)
        return self.name

    def _demand_writer(self) -> None:
        if not self._writes:
            raise ReadOnly("the session was opened for reading", where=self.name)
        if self._closed:
            raise ReadOnly("the session was closed", where=self.name)

    def load_checkpoint(self) -> bytes | None:
        """The newest checkpoint of the session, ours or that below."""
        return self._store.checkpoint_of(self._trial.session, self._under)

    def save_checkpoint(self, data: bytes) -> None:
        """Keep it in memory; a reader does not."""
        if self._trial.writer is self:
            self._trial.checkpoint = data

    def close(self) -> None:
        """Let go of the log below and of the right to write."""
        self._closed = True
        if self._trial.writer is self:
            self._trial.writer = None
        self._under.close()


class OverlaySessions:
    """The sessions of another store, which can be read, tried to go on with and deleted, and new ones.

    What is written is gone with this object, and the store below stays as it is; whoever writes there is not in the way.
    """

    def __init__(self, under: SessionArchive) -> None:
        self._under = under
        self._over = MemorySessions()
        self._trials: dict[str, _Trial] = {}
        self._gone: set[str] = set()
        self._results: dict[str, MemoryResultFiles] = {}

    @property
    def name(self) -> str:
        """What errors call the store below."""
        return self._under.name

    def create(self, session: str, first: bytes = b"") -> LogFile:
        """A log in memory."""
        if session in self._shown():
            raise BadInput(f"session {session} exists already", where=self._under.stat(session).name)
        return self._over.create(session, first)

    def open(self, session: str, *, write: bool = False) -> LogFile:
        """A log in memory, or one of the other store, which for writing goes on in memory."""
        if self._is_new(session):
            return self._over.open(session, write=write)
        under = self._under.open(session)
        trial = self._trials.setdefault(session, _Trial(session))
        try:
            return OverlayFile(self, trial, under, write=write)
        except BaseException:
            under.close()
            raise

    def _shown(self) -> frozenset[str]:
        """The sessions of the other store that were not deleted here."""
        return frozenset(self._under.sessions()) - self._gone

    def _is_new(self, session: str) -> bool:
        return session in self._gone or self._over.file_of(session) is not None

    def sessions(self) -> Sequence[str]:
        """The ids of all sessions, sorted."""
        return sorted({*self._shown(), *self._over.sessions()})

    def stat(self, session: str) -> LogStat:
        """Size and last change of one log."""
        return self._over.stat(session) if self._is_new(session) else self._tried(self._under.stat(session))

    def stats(self) -> Iterator[LogStat]:
        """Size and last change of every log."""
        yield from (self._tried(stat) for stat in self._under.stats() if stat.session not in self._gone)
        yield from self._over.stats()

    def _tried(self, below: LogStat) -> LogStat:
        trial = self._trials.get(below.session)
        if trial is None or trial.start is None:
            return below
        return below._replace(size=trial.start + len(trial.data), changed=below.changed + trial.changes)

    def remove(self, session: str) -> None:
        """Show a session no more; the store below keeps it."""
        if self._is_new(session):
            self._over.remove(session)
        else:
            stat = self._under.stat(session)
            trial = self._trials.get(session)
            if trial is not None and trial.writer is not None:
                raise Locked("another writer holds this session", where=stat.name)
            self._trials.pop(session, None)
            self._gone.add(session)
        self._results.pop(session, None)

    def result_files(self, session: str) -> MemoryResultFiles:
        """Where the tool results of a session are kept: in memory."""
        return self._results.setdefault(session, MemoryResultFiles(f"memory:{session}.results"))

    def checkpoint_of(self, session: str, under: LogFile) -> bytes | None:
        """The newest checkpoint of a session; a log below of which nothing shows any more has none."""
        if self._is_new(session):
            file = self._over.file_of(session)
            return None if file is None else file.checkpoint
        trial = self._trials.get(session, _Trial(session))
        return under.load_checkpoint() if trial.checkpoint is None and trial.start != 0 else trial.checkpoint

    def trial_of(self, session: str) -> _Trial | None:
        """What is tried with a session of the other store now."""
        return self._trials.get(session)

    def put_trial(self, trial: _Trial) -> _Trial:
        """Give a trial the place of another one of its session."""
        self._trials[trial.session] = trial
        return trial


class OverlayBlobs:
    """The blobs of another store, and new ones that are gone with the process."""

    def __init__(self, under: BlobStore) -> None:
        self._under = under
        self._over = MemoryBlobs()

    def put(self, data: bytes) -> str:
        """Keep the bytes in memory and return their address."""
        return self._over.put(data)

    def get(self, address: str) -> bytes:
        """The bytes at an address."""
        return self._holder(address).get(address)

    def check(self, address: str) -> bool:
        """Whether the bytes at an address still are what it says."""
        return self._holder(address).check(address)

    def size(self, address: str) -> int:
        """How many bytes lie at an address."""
        return self._holder(address).size(address)

    def addresses(self) -> Iterator[str]:
        """The addresses of all blobs, in order."""
        yield from sorted({*self._under.addresses(), *self._over.addresses()})

    def _holder(self, address: str) -> BlobStore:
        return self._over if address in self._over else self._under

    def __contains__(self, address: str) -> bool:
        return address in self._over or address in self._under
