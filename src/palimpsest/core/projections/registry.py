"""All projections of one log: fed with every event, kept in its checkpoint, and rebuilt when the path changes."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

import msgspec
from msgspec import Raw

from palimpsest.core.errors import BadLog
from palimpsest.core.events import Event
from palimpsest.core.format.chain import check_chain
from palimpsest.core.format.checkpoint import VERSION, Checkpoint, Snapshot, encode_checkpoint, load_checkpoint
from palimpsest.core.format.codec import GENESIS, decode_chunk
from palimpsest.core.format.path import Path
from palimpsest.core.format.reading import LogReader
from palimpsest.core.projections.call_ids import PendingCalls, UsedCallIds
from palimpsest.core.projections.health import HealthProjection
from palimpsest.core.projections.inbox import InboxProjection
from palimpsest.core.projections.ledger import LedgerProjection
from palimpsest.core.projections.open_calls import OpenCalls
from palimpsest.core.projections.projection import Derived, Projection
from palimpsest.core.projections.view import ViewProjection

# Events that wait until a projection is read; bounded, because an import may append a whole session before that.
_QUEUE = 256


class Routes(dict[type, tuple[Callable[[Event], None], ...]]):
    """Which projections take which bodies, in their order."""

    def __init__(self, projections: Iterable[Projection]) -> None:
        super().__init__()
        self._projections = tuple(projections)

    def __missing__(self, body: type) -> tuple[Callable[[Event], None], ...]:
        found = tuple(each.take for each in self._projections if each.watches is None or body in each.watches)
        self[body] = found
        return found


class Projections:
    """The projections of one log up to its newest event `seq`, with the link and the place of its last line."""

    def __init__(self, reader: LogReader, derived: Derived | None = None) -> None:
        self._reader = reader
        # Held while an event is taken and while projections are read; `Log.share` gives a real one.
        self.lock: AbstractContextManager[object] = nullcontext()
        self._broken = False
        self._begin()
        self._view = ViewProjection(reader=reader)
        self._health = HealthProjection()
        self._ledger = LedgerProjection()
        self._inbox = InboxProjection()
        self.used_ids = UsedCallIds()
        self.pending = PendingCalls()
        self.open_calls = OpenCalls()
        # These decide how the next event is recorded, so that they never wait.
        self._now: tuple[Projection, ...] = (self.used_ids, self.pending, self.open_calls)
        self._queue: list[Event] = []
        self._list(derived)

    def _begin(self) -> None:
        """Stand before the first event."""
        self.seq = self._reader.first - 1
        self.link = GENESIS if self._reader.base is None else self._reader.opened.prev
        self.last_line = 0

    @property
    def by_name(self) -> dict[str, Projection]:
        """All projections by their names."""
        return {each.name: each for each in self._all}

    def _list(self, derived: Derived | None) -> None:
        above = () if derived is None else derived.attach(self._view)
        self._later: tuple[Projection, ...] = (self._view, self._health, self._ledger, self._inbox, *above)
        self._all: tuple[Projection, ...] = (*self._now, *self._later)
        self._of_path = tuple(each for each in self._all if each.scope == "path")
        self._of_file = tuple(each for each in self._all if each.scope == "file")
        self._routes_now, self._routes_later = Routes(self._now), Routes(self._later)

    def register(self, derived: Derived) -> None:
        """Take other projections of a layer above, and bring all that go by the path to the newest event again."""
        self.catch_up()
        self._list(derived)
        follow_path(self._of_path, self._reader, self._reader.path(self.seq))

    @property
    def view(self) -> ViewProjection:
        """The view, up to date."""
        self.catch_up()
        return self._view

    @property
    def health(self) -> HealthProjection:
        """The health, up to date."""
        self.catch_up()
        return self._health

    @property
    def ledger(self) -> LedgerProjection:
        """The ledger, up to date."""
        self.catch_up()
        return self._ledger

    @property
    def inbox(self) -> InboxProjection:
        """The queued input, up to date."""
        self.catch_up()
        return self._inbox

    def take(self, event: Event) -> None:
        """Take in one more event that stands in the file; most of what follows from it is worked out when it is asked for."""
        self.seq = event.seq
        for take in self._routes_now[type(event.body)]:
            take(event)
        self._queue.append(event)
        self._reader.note(event)
        if event.parent != event.seq - 1:
            self._leave_path(event)
        elif len(self._queue) >= _QUEUE:
            self.catch_up()

    def catch_up(self) -> None:
        """Work out what waits. After an interrupt or an error in a projection all of them are read from the log again."""
        if not self._queue and not self._broken:
            return
        with self.lock:
            if self._broken:
                self._read_again()
            self._broken = True
            queue, self._queue = self._queue, []
            routes = self._routes_later
            for event in queue:
                for take in routes[type(event.body)]:
                    take(event)
            self._broken = False

    def _read_again(self) -> None:
        self._queue = []
        self._reader.jumps, self._reader.undone = [], []
        self._begin()
        for projection in self._all:
            projection.reset()
        self._follow_base()
        self.read(0)
        self._broken = False

    def _leave_path(self, event: Event) -> None:
        """The newest event does not follow the one before it: what goes by the path is rebuilt along the new one."""
        self._queue.pop()
        self.catch_up()
        for take in Routes(each for each in self._of_file if each not in self._now)[type(event.body)]:
            take(event)
        follow_path(self._of_path, self._reader, self._reader.path(event.seq))

    def open(self, *, whole: bool = False) -> int:
        """Read the log, from its checkpoint on where that can be used, and say how many events came after that.

        With `whole` the chain of all lines before is checked too. Raises `BadLog` where it breaks.
        """
        checkpoint = load_checkpoint(self._reader.lines)
        if whole:
            self._reader.check(-1 if checkpoint is None else checkpoint.seq)
        if checkpoint is not None and _restored(self._all, checkpoint):
            self._reader.jumps = list(checkpoint.jumps)
            self._reader.undone = list(checkpoint.undone)
            self.seq, self.link, self.last_line = checkpoint.seq, checkpoint.link, checkpoint.last_line
            return self.read(checkpoint.offset)
        self._read_again()
        return self.seq - self._reader.first + 1

    def _follow_base(self) -> None:
        base, last = self._reader.base, self._reader.first - 1
        if base is None:
            return
        follow_path(self._of_path, base, base.path(last))
        checkpoint = load_checkpoint(base.lines)
        known = checkpoint is not None and checkpoint.seq <= last and _restored((self.used_ids,), checkpoint)
        # Ids are remembered of every branch, as they are by a fork of a log that is open.
        for event in base.run(checkpoint.seq + 1 if checkpoint is not None and known else 0, last):
            self.used_ids.take(event)

    def start_from(self, other: "Projections", seq: int) -> None:
        """Stand where a fork of another log begins: after its event `seq`."""
        if seq != other.seq:
            self._follow_base()
            return
        self._view.start_from(other.view.view)
        self._health.start_from(other.health.value())
        known = other.by_name
        self.used_ids.start_from(other.used_ids.bits)
        rest = [each for each in self._of_path if each not in (self._view, self._health)]
        if all(each.name in known and known[each.name].version == each.version for each in rest):
            for each in rest:
                each.restore(known[each.name].snapshot())
        else:
            self._follow_base()

    def read(self, start: int) -> int:
        """Take in the lines from a byte on and check their chain; returns how many events they hold. Raises `BadLog`."""
        before, left = self.seq, False
        reader, expected, link = self._reader, self.seq, self.link
        routes = Routes(self._all)
        offset, chunk = start, b""
        for offset, chunk in reader.lines.chunks(start):
            events = decode_chunk(chunk, reader.lines.name, offset)
            self._check_order(events, expected, offset)
            link = check_chain(chunk, reader.lines.name, offset, link) or link
            for event in events:
                expected += 1
                reader.note(event)
                if event.parent != expected - 1:
                    self._check_parent(event, offset)
                    if not left:
                        routes, left = Routes(self._of_file), True
                for take in routes[type(event.body)]:
                    take(event)
        if expected != before:
            self._end(expected, link, chunk, offset)
        if left:
            follow_path(self._of_path, reader, reader.path(self.seq))
        return self.seq - before

    def _end(self, seq: int, link: str, chunk: bytes, offset: int) -> None:
        """Remember where the last line that has something on it begins, and the chain up to it."""
        stop = len(chunk.rstrip(b"\n"))
        self.seq, self.link = seq, link
        self.last_line = offset + chunk.rfind(b"\n", 0, stop) + 1

    def checkpoint(self) -> bytes:
        """The checkpoint at the newest event, encoded."""
        self.catch_up()
        reader = self._reader
        snapshots = {each.name: Snapshot(each.version, Raw(each.snapshot())) for each in self._all}
        position = (self.seq, reader.lines.size, self.last_line, self.link)
        return encode_checkpoint(Checkpoint(*position, snapshots, tuple(reader.jumps), tuple(reader.undone), VERSION))

    def _check_order(self, events: Sequence[Event], last: int, offset: int) -> None:
        for expected, event in enumerate(events, last + 1):
            if event.seq != expected or event.parent >= expected:
                raise self._disorder(event, expected, offset)

    def _disorder(self, event: Event, expected: int, offset: int) -> BadLog:
        where = f"{self._reader.lines.name}, after byte {offset}"
        if event.seq != expected:
            word = "a second time" if event.seq < expected else f"where event {expected} should be"
            return BadLog(f"event {event.seq} stands {word}; see `pal verify`", where=where)
        return BadLog(f"event {event.seq} follows event {event.parent}, which comes later; see `pal verify`", where=where)

    def _check_parent(self, event: Event, offset: int) -> None:
        first = self._reader.first
        lowest = 0 if self._reader.base is not None else first
        if event.parent < lowest and not (event.seq == first and event.parent == first - 1):
            where = f"{self._reader.lines.name}, after byte {offset}"
            raise BadLog(f"event {event.seq} follows event {event.parent}, which is not there; see `pal verify`", where=where)


def follow_path(projections: Sequence[Projection], reader: LogReader, path: Path) -> None:
    """Bring projections to the end of a path: from the checkpoint of its file where that lies on it, else from the first event."""
    checkpoint = load_checkpoint(reader.owner(path.tip).lines)
    after = -1
    if checkpoint is not None and checkpoint.seq in path and _restored(projections, checkpoint):
        after = checkpoint.seq
    else:
        for projection in projections:
            projection.reset()
    routes = Routes(projections)
    for event in _events_after(reader, path, after):
        for take in routes[type(event.body)]:
            take(event)


def _events_after(reader: LogReader, path: Path, after: int) -> Iterable[Event]:
    for run in path.runs:
        if run.last > after:
            yield from reader.run(max(run.first, after + 1), run.last)


def _restored(projections: Sequence[Projection], checkpoint: Checkpoint) -> bool:
    """Restore all of the projections from a checkpoint; false if it lacks one of them, or has one that cannot be used."""
    found = [checkpoint.snapshots.get(each.name) for each in projections]
    if not all(kept is not None and kept.version == each.version for each, kept in zip(projections, found, strict=True)):
        return False
    try:
        for each, kept in zip(projections, found, strict=True):
            if kept is not None:
                each.restore(bytes(kept.data))
    except (msgspec.DecodeError, UnicodeDecodeError, BadLog):
        return False
    return True
