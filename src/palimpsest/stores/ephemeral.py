"""Every store in memory, with the power cuts and failing disks that a test needs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from palimpsest.core.errors import BadInput, BadLog, Locked, MissingBlob, ReadOnly, StoreError
from palimpsest.core.ports import LogStat
from palimpsest.stores.blobs import demand_address, demand_id
from palimpsest.stores.result_files import MemoryResultFiles

RUN = 1024 * 1024
_COMPARED = 64


class FixedClock:
    """A clock that starts where it is told and goes on by `step` milliseconds each time somebody looks."""

    def __init__(self, start: int = 0, step: int = 0) -> None:
        self.time = start
        self.step = step

    def now(self) -> int:
        """Milliseconds since 1970."""
        time = self.time
        self.time += self.step
        return time


@dataclass(slots=True)
class _File:
    """What a disk holds of one session; bytes after `synced` are only in the machine's cache."""

    session: str
    data: bytearray
    changed: int
    synced: int = 0
    checkpoint: bytes | None = None
    cut: bytes = b""
    kept: list[bytes] = field(default_factory=list)
    writer: "MemoryFile | None" = None

    @property
    def name(self) -> str:
        """What errors call the log."""
        return f"memory:{self.session}"

    @property
    def whole(self) -> int:
        """Bytes of whole lines: up to a line without its newline, and up to what a crash left as zeros."""
        whole = self.data.rfind(b"\n") + 1
        while whole:
            start = self.data.rfind(b"\n", 0, whole - 1) + 1
            if self.data.find(b"\0", start, whole) < 0:
                break
            whole = start
        return whole


class MemoryFile:
    """The lines of one log in memory. `crash` loses what was not synced; `fail` is a disk that refuses from now on."""

    def __init__(self, store: "MemorySessions", file: _File, *, write: bool) -> None:
        self._store = store
        self._file = file
        self._writes = write
        self._closed = False
        self._broken = ""
        self._disk_error = ""
        self._measure(file.whole)

    def _measure(self, size: int) -> None:
        self._size = size
        self._end = self._bytes_before(size)
        self._torn = 0 if self._writes else len(self._file.data) - size

    @property
    def name(self) -> str:
        """What an error calls this log."""
        return self._file.name

    @property
    def size(self) -> int:
        """Bytes of whole lines; a reader sees what was there when it was opened or last refreshed."""
        return self._size

    @property
    def torn(self) -> int:
        """Bytes after the last whole line, which a crash left."""
        return self._torn

    @property
    def cut(self) -> bytes:
        """What was cut off when the log was opened for writing after a crash."""
        return self._file.cut

    def append(self, line: bytes) -> int:
        """Write one or more lines, and return the byte where they begin."""
        self._demand_writer()
        start = len(self._file.data)
        self._file.data += line
        self._file.changed = self._store.tick()
        self._size = len(self._file.data)
        return start

    def _demand_writer(self) -> None:
        if not self._writes:
            raise ReadOnly("the session was opened for reading", where=self.name)
        if self._closed:
            raise ReadOnly("the session was closed", where=self.name)
        if self._broken:
            raise ReadOnly(f"an earlier sync failed ({self._broken})", where=self.name)
        if self._disk_error:
            raise StoreError(self._disk_error, where=self.name)

    def _demand_open(self) -> None:
        if self._closed:
            raise StoreError("the session was closed", where=self.name)

    def sync(self) -> None:
        """Make everything appended survive a crash; after a failure nothing more is taken."""
        if self._file.writer is not self:
            return
        if self._disk_error:
            self._broken = self._disk_error
            raise StoreError(self._disk_error, where=self.name)
        self._file.synced = len(self._file.data)

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Runs of whole lines with the byte where each run begins."""
        end = self.size if stop is None else min(stop, self.size)
        while start < end:
            run = self._file.data.find(b"\n", min(start + self._store.run, end) - 1, end) + 1
            data = self.read(start, (run or end) - start)
            yield start, data
            start += len(data)

    def read(self, start: int, length: int) -> bytes:
        """Some bytes; fewer at the end, but never fewer than were there when the log was opened."""
        self._demand_open()
        stop = min(start + length, self._size)
        if len(self._file.data) < stop:
            raise self._shorter()
        return bytes(self._file.data[start:stop])

    def refresh(self) -> None:
        """Take notice of the lines that a writer has appended since; `BadLog` if the log was replaced or became shorter."""
        self._demand_open()
        if self._writes:
            return
        present = self._store.file_of(self._file.session)
        if present is None:
            raise StoreError("the session was deleted while it was read", where=self.name)
        if present is not self._file:
            raise BadLog("the log was replaced while it was read; open the session again", where=self.name)
        if len(self._file.data) < self._size:
            raise self._shorter()
        if self._bytes_before(self._size) != self._end:
            raise BadLog("the log was written over while it was read; open the session again", where=self.name)
        self._measure(max(self._size, self._file.whole))

    def rewrite(self, data: bytes) -> str:
        """Put other lines in the place of all of them; the earlier ones are kept."""
        self._demand_writer()
        old = self._file
        kept = [*old.kept, bytes(old.data)]
        self._file = self._store.put_file(_File(old.session, bytearray(data), self._store.tick(), synced=len(data), kept=kept, writer=self))
        old.writer = None
        self._measure(len(data))
        return f"{self.name}.damaged-{len(kept)}"

    def _bytes_before(self, end: int) -> bytes:
        return bytes(self._file.data[max(0, end - _COMPARED) : end])

    def _shorter(self) -> BadLog:
        place = f"{self.name}, byte {len(self._file.data)}"
        return BadLog("the log became shorter while it was read; open the session again", where=place)

    def load_checkpoint(self) -> bytes | None:
        """The newest checkpoint of the session, if there is one; also for a reader of lines that were replaced meanwhile."""
        present = self._store.file_of(self._file.session)
        return None if present is None else present.checkpoint

    def save_checkpoint(self, data: bytes) -> None:
        """Replace the checkpoint; a reader and a failing disk just do not."""
        if self._file.writer is self and not self._disk_error:
            self._file.checkpoint = data

    def close(self) -> None:
        """Let go of the right to write."""
        self._closed = True
        if self._file.writer is self:
            self._file.writer = None

    def crash(self, keep: int = 0, *, checkpoint: bool = True) -> None:
        """Cut the power: of what was not synced only the first `keep` bytes stay, and the checkpoint only if told."""
        file = self._file
        del file.data[file.synced + keep :]
        file.synced = len(file.data)
        file.changed = self._store.tick()
        if not checkpoint:
            file.checkpoint = None
        self.close()

    def fail(self, reason: str = "No space left on device") -> None:
        """The disk refuses from now on, until the reason is empty."""
        self._disk_error = reason


class MemorySessions:
    """All the sessions of one home in memory; `run` is how many bytes a chunk has, about."""

    name = "memory"

    def __init__(self, *, run: int = RUN) -> None:
        self.run = run
        self._files: dict[str, _File] = {}
        self._results: dict[str, MemoryResultFiles] = {}
        self._time = 0

    def create(self, session: str, first: bytes = b"") -> MemoryFile:
        """A log under a new id with its first line, held for writing."""
        demand_id(session)
        if session in self._files:
            raise BadInput(f"session {session} exists already", where=f"memory:{session}")
        self.put_file(_File(session, bytearray(), self.tick()))
        lines = self.open(session, write=True)
        if first:
            lines.append(first)
        return lines

    def open(self, session: str, *, write: bool = False) -> MemoryFile:
        """The log of a session; at most one writer holds it at a time."""
        file = self._known(session)
        if write and file.writer is not None:
            raise Locked("another writer holds this session", where=file.name)
        if write and file.whole < len(file.data):
            file.cut = bytes(file.data[file.whole :])
            del file.data[file.whole :]
            file.synced = min(file.synced, len(file.data))
            file.changed = self.tick()
        lines = MemoryFile(self, file, write=write)
        if write:
            file.writer = lines
        return lines

    def _known(self, session: str) -> _File:
        demand_id(session)
        file = self._files.get(session)
        if file is None:
            raise BadInput(f"there is no session {session}; `pal sessions` lists them", where=f"memory:{session}")
        return file

    def sessions(self) -> Sequence[str]:
        """The ids of all sessions, sorted."""
        return sorted(self._files)

    def stat(self, session: str) -> LogStat:
        """Size and last change of one log."""
        file = self._known(session)
        return LogStat(session, file.name, len(file.data), file.changed)

    def stats(self) -> Iterator[LogStat]:
        """Size and last change of every log."""
        return map(self.stat, tuple(self._files))

    def remove(self, session: str) -> None:
        """Delete a session with all that is kept beside it."""
        file = self._known(session)
        if file.writer is not None:
            raise Locked("another writer holds this session", where=file.name)
        del self._files[session]
        self._results.pop(session, None)

    def result_files(self, session: str) -> MemoryResultFiles:
        """Where the tool results of a session are kept."""
        return self._results.setdefault(session, MemoryResultFiles(f"memory:{session}.results"))

    def replace(self, session: str, data: bytes) -> None:
        """Put other bytes in the place of a session, as a person with an editor would."""
        self.put_file(_File(session, bytearray(data), self.tick(), synced=len(data)))

    def file_of(self, session: str) -> _File | None:
        """What the disk holds under an id now; a log that is open may be of a file that was replaced or deleted."""
        return self._files.get(session)

    def put_file(self, file: _File) -> _File:
        """Give a file the place of its session."""
        self._files[file.session] = file
        return file

    def tick(self) -> int:
        """The next moment: time goes on with each change."""
        self._time += 1
        return self._time


class MemoryBlobs:
    """Contents by their SHA-256, in memory."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}

    def put(self, data: bytes) -> str:
        """Keep the bytes and return their address."""
        address = sha256(data).hexdigest()
        self._contents[address] = data
        return address

    def get(self, address: str) -> bytes:
        """The bytes at an address; `MissingBlob` if they are not here."""
        demand_address(address)
        if address not in self._contents:
            raise MissingBlob(f"no blob {address}; the session that names it was copied without it", where="memory")
        return self._contents[address]

    def check(self, address: str) -> bool:
        """Whether the bytes at an address still are what it says."""
        return sha256(self.get(address)).hexdigest() == address

    def size(self, address: str) -> int:
        """How many bytes lie at an address."""
        return len(self.get(address))

    def addresses(self) -> Iterator[str]:
        """The addresses of all blobs, in order."""
        yield from sorted(self._contents)

    def __contains__(self, address: str) -> bool:
        return address in self._contents
