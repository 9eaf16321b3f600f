"""The projections of one log: applies events to them, restores them from the checkpoint, and rebuilds them when the path changes."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Self

import msgspec
from msgspec import Raw

from palimpsest.core.calls import HealthProjection, InboxProjection, OpenCalls, PendingCalls, UsedCallIds
from palimpsest.core.errors import BadLog
from palimpsest.core.events import Event
from palimpsest.core.ledger import ChildrenProjection, JobCursors, LedgerProjection
from palimpsest.core.lines import (
    VERSION,
    Checkpoint,
    Path,
    Snapshot,
    check_chain,
    decode_chunk,
    digest_of,
    encode_body,
    encode_checkpoint,
    link_of,
    load_checkpoint,
)
from palimpsest.core.reading import LogReader
from palimpsest.core.view import Projection
from palimpsest.core.view_projection import Derived, ViewProjection

# The most events that wait until a projection is read; an import may append a whole session before that.
_MAX_QUEUE = 256


class Routes(dict[type, tuple[Callable[[Event], None], ...]]):
    """The `take` methods of the projections that watch each type of body, in order."""

    def __init__(self, projections: Iterable[Projection]) -> None:
        super().__init__()
        self._projections = tuple(projections)

    def __missing__(self, body: type) -> tuple[Callable[[Event], None], ...]:
        takers = tuple(projection.take for projection in self._projections if projection.watches is None or body in projection.watches)
        self[body] = takers
        return takers


class Projections:
    """The projections of one log up to its newest event `seq`, with the link and the byte offset of its last line.

    `view`, `health`, `ledger`, `inbox`, `jobs` and `children` are up to date only after `catch_up`.
    """

    def __init__(self, reader: LogReader, derived: Derived | None = None) -> None:
        self._reader = reader
        # Held while an event is applied and while projections are read; `Log.share` replaces it by a real lock.
        self.lock: AbstractContextManager[object] = nullcontext()
        self._broken = False
        self._reset_position()
        self.view = ViewProjection(reader=reader)
        self.health = HealthProjection()
        self.ledger = LedgerProjection()
        self.inbox = InboxProjection()
        self.jobs = JobCursors()
        self.children = ChildrenProjection()
        self.used_ids = UsedCallIds()
        self.pending = PendingCalls()
        self.open_calls = OpenCalls()
        # Recording the next event depends on these, so they are never queued.
        self._eager: tuple[Projection, ...] = (self.used_ids, self.pending, self.open_calls)
        self._queue: list[Event] = []
        # Whether the path changed since the queued projections of scope `path` were last built; they wait until they are read.
        self._path_left = False
        self._arrange(derived)

    def _reset_position(self) -> None:
        """Go back to the position before the first event."""
        self.seq = self._reader.first - 1
        self.link = self._reader.opening_link
        self.last_line = 0

    @property
    def by_name(self) -> dict[str, Projection]:
        """All projections by name."""
        return {projection.name: projection for projection in self._all}

    def _arrange(self, derived: Derived | None) -> None:
        above = () if derived is None else derived.attach(self.view)
        self._queued: tuple[Projection, ...] = (self.view, self.health, self.ledger, self.inbox, self.jobs, self.children, *above)
        self._all: tuple[Projection, ...] = (*self._eager, *self._queued)
        self._of_path = tuple(projection for projection in self._all if projection.scope == "path")
        self._of_file = tuple(projection for projection in self._all if projection.scope == "file")
        self._eager_routes, self._queued_routes = Routes(self._eager), Routes(self._queued)
        self._queued_of_file = Routes(projection for projection in self._queued if projection.scope == "file")

    def register(self, derived: Derived) -> None:
        """Replace the projections of higher layers, and rebuild all projections of scope `path`."""
        self.catch_up()
        self._arrange(derived)
        follow_path(self._of_path, self._reader, self._reader.path(self.seq))

    def caught_up(self) -> Self:
        """Apply the queued events and return these projections."""
        self.catch_up()
        return self

    def take(self, event: Event) -> None:
        """Apply one event that was written; most projections apply it only when they are read."""
        self.seq = event.seq
        for take in self._eager_routes[type(event.body)]:
            take(event)
        self._queue.append(event)
        self._reader.note_branching(event)
        if event.parent != event.seq - 1:
            self._leave_path(event)
        elif len(self._queue) >= _MAX_QUEUE:
            self._guarded(self._apply_queue)

    def take_first(self, opened: Event) -> None:
        """Apply the first event of a new log."""
        self.take(opened)
        self.link = link_of(opened.prev, opened.seq, opened.parent, opened.at, digest_of(encode_body(opened.body)))

    def rebuild_if_interrupted(self) -> None:
        """Rebuild all projections if an interrupt or error left them incomplete: then `seq` and `link` may be those of an earlier event."""
        if self._broken:
            self.catch_up()

    def catch_up(self) -> None:
        """Apply the queued events. After an interrupt or an error in a projection, all projections are rebuilt from the log."""
        if self._queue or self._broken or self._path_left:
            self._guarded(self._apply_all)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do some work under the lock; if it is interrupted or fails, all projections are rebuilt before the next."""
        with self.lock:
            if self._broken:
                self._rebuild()
            self._broken = True
            work()
            self._broken = False

    def _apply_queue(self) -> None:
        queue, self._queue = self._queue, []
        routes = self._queued_of_file if self._path_left else self._queued_routes
        for event in queue:
            for take in routes[type(event.body)]:
                take(event)

    def _apply_all(self) -> None:
        self._apply_queue()
        if self._path_left:
            follow_path(tuple(each for each in self._of_path if each is not self.pending), self._reader, self._reader.path(self.seq))
            self._path_left = False

    def _rebuild(self) -> None:
        self._queue, self._path_left = [], False
        self._reader.jumps, self._reader.undone = [], []
        self._reset_position()
        for projection in self._all:
            projection.reset()
        self._follow_base()
        self.read(0)
        self._broken = False

    def _leave_path(self, event: Event) -> None:
        """Apply an event that does not follow the one before it: projections of scope `path` are rebuilt when they are read.

        An import may go back thousands of times before that. Pending calls, which the next event needs, go back at once.
        """
        self._path_left = True
        if not self.pending.go_back(event.parent, event.seq):
            rebuilt = PendingCalls()
            follow_path((rebuilt,), self._reader, self._reader.path(event.seq))
            self.pending.replace_by(rebuilt, event.seq)

    def open(self, *, whole: bool = False) -> int:
        """Read the log from its checkpoint, or from the start if there is none, and return the number of events that were read.

        With `whole` the chain of the lines before the checkpoint is verified too. Raises `BadLog` where it is broken.
        """
        checkpoint = load_checkpoint(self._reader.lines)
        if whole:
            self._reader.check(-1 if checkpoint is None else checkpoint.seq)
        if checkpoint is not None and _try_restore(self._all, checkpoint):
            self._reader.jumps = list(checkpoint.jumps)
            self._reader.undone = list(checkpoint.undone)
            self.seq, self.link, self.last_line = checkpoint.seq, checkpoint.link, checkpoint.last_line
            return self.read(checkpoint.offset)
        self._rebuild()
        return self.seq - self._reader.first + 1

    def _follow_base(self) -> None:
        base, last = self._reader.base, self._reader.first - 1
        if base is None:
            return
        follow_path(self._of_path, base, base.path(last))
        checkpoint = load_checkpoint(base.lines)
        restored = checkpoint is not None and checkpoint.seq <= last and _try_restore((self.used_ids,), checkpoint)
        # The ids of all branches are added, as in a fork of an open log.
        for event in base.run(checkpoint.seq + 1 if checkpoint is not None and restored else 0, last):
            self.used_ids.take(event)

    def start_from(self, other: "Projections", seq: int) -> None:
        """Start a fork: take over the state of another log after its event `seq`."""
        if seq != other.seq:
            self._follow_base()
            return
        self.view.start_from(other.caught_up().view.view)
        self.health.start_from(other.health.value())
        others = other.by_name
        self.used_ids.start_from(other.used_ids.bits)
        rest = [projection for projection in self._of_path if projection not in (self.view, self.health)]
        if all(projection.name in others and others[projection.name].version == projection.version for projection in rest):
            for projection in rest:
                projection.restore(others[projection.name].snapshot())
        else:
            self._follow_base()

    def read(self, start: int) -> int:
        """Apply the lines from byte `start` on, verify their chain, and return their number of events. Raises `BadLog`."""
        before, has_branched = self.seq, False
        reader, expected, link = self._reader, self.seq, self.link
        routes = Routes(self._all)
        offset, chunk = start, b""
        for offset, chunk in reader.lines.chunks(start):
            events = decode_chunk(chunk, reader.lines.name, offset)
            self._check_order(events, expected, offset)
            link = check_chain(chunk, reader.lines.name, offset, link) or link
            for event in events:
                expected += 1
                reader.note_branching(event)
                if event.parent != expected - 1:
                    self._check_parent(event, offset)
                    if not has_branched:
                        routes, has_branched = Routes(self._of_file), True
                for take in routes[type(event.body)]:
                    take(event)
        if expected != before:
            self.seq, self.link = expected, link
            self.last_line = offset + chunk.rfind(b"\n", 0, len(chunk.rstrip(b"\n"))) + 1
        if has_branched:
            follow_path(self._of_path, reader, reader.path(self.seq))
        return self.seq - before

    def checkpoint(self) -> bytes:
        """Return the encoded checkpoint at the newest event."""
        self.catch_up()
        reader = self._reader
        snapshots = {projection.name: Snapshot(projection.version, Raw(projection.snapshot())) for projection in self._all}
        position = (self.seq, reader.lines.size, self.last_line, self.link)
        return encode_checkpoint(Checkpoint(*position, snapshots, tuple(reader.jumps), tuple(reader.undone), VERSION))

    def _check_order(self, events: Sequence[Event], last: int, offset: int) -> None:
        for expected, event in enumerate(events, last + 1):
            if event.seq != expected or event.parent >= expected:
                word = f"follows event {event.parent}, which comes later"
                if event.seq != expected:
                    word = "occurs twice" if event.seq < expected else f"stands where event {expected} should be"
                raise BadLog(f"event {event.seq} {word}; see `pal verify`", where=f"{self._reader.lines.name}, after byte {offset}")

    def _check_parent(self, event: Event, offset: int) -> None:
        first = self._reader.first
        lowest = 0 if self._reader.opening_link else first
        if event.parent < lowest and not (event.seq == first and event.parent == first - 1):
            where = f"{self._reader.lines.name}, after byte {offset}"
            raise BadLog(f"event {event.seq} follows event {event.parent}, which does not exist; see `pal verify`", where=where)


def follow_path(projections: Sequence[Projection], reader: LogReader, path: Path) -> None:
    """Rebuild projections along a path, from the checkpoint of its file if that is on the path, else from the first event."""
    checkpoint = load_checkpoint(reader.owner(path.tip).lines)
    after = -1
    if checkpoint is not None and checkpoint.seq in path and _try_restore(projections, checkpoint):
        after = checkpoint.seq
    else:
        for projection in projections:
            projection.reset()
    routes = Routes(projections)
    for event in reader.along(path, after):
        for take in routes[type(event.body)]:
            take(event)


def _try_restore(projections: Sequence[Projection], checkpoint: Checkpoint) -> bool:
    """Restore all projections from a checkpoint. Returns false if the snapshot of one of them is missing or unusable."""
    snapshots = [checkpoint.snapshots.get(projection.name) for projection in projections]
    pairs = list(zip(projections, snapshots, strict=True))
    if not all(snapshot is not None and snapshot.version == projection.version for projection, snapshot in pairs):
        return False
    try:
        for projection, snapshot in pairs:
            if snapshot is not None:
                projection.restore(bytes(snapshot.data))
    except (msgspec.DecodeError, UnicodeDecodeError, BadLog):
        return False
    return True
