"""The one mutable object: it stamps events, writes them, and feeds every projection of them."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import NamedTuple, Self

from msgspec import structs

from palimpsest.core.edits import Edit
from palimpsest.core.errors import BadInput, BadLog, CallOpen, PalimpsestError, ReadOnly
from palimpsest.core.events import Body, EditUndone, Event, EventRef, Rewound, SessionOpened, ViewEdited
from palimpsest.core.events.event_items import numbers_of
from palimpsest.core.format.codec import END, GENESIS, digest_of, encode_body, encode_checked, encode_line, envelope, link_of
from palimpsest.core.format.path import Path
from palimpsest.core.format.reading import LogReader, open_reader
from palimpsest.core.items import Item
from palimpsest.core.log.fitting import check_fit
from palimpsest.core.pairs import unpaired
from palimpsest.core.ports import Clock, LogFile, SessionStore
from palimpsest.core.projections.call_ids import with_unique_ids
from palimpsest.core.projections.health import Health, HealthProjection
from palimpsest.core.projections.ledger import Ledger
from palimpsest.core.projections.projection import Derived
from palimpsest.core.projections.registry import Projections, follow_path
from palimpsest.core.projections.view import ViewProjection, project
from palimpsest.core.view import View

# Events between two checkpoints: resuming reads at most so many.
CHECKPOINT_EVERY = 64


class LogState(NamedTuple):
    """View and health after an event."""

    view: View
    health: Health


class Log:
    """A session's events and what follows from them.

    `append` is the only way in: it writes the event, then feeds every projection, so what the view shows is always in the file; `sync`
    makes it survive a power cut. One thread uses it, unless it is shared.
    """

    def __init__(
        self, reader: LogReader, clock: Clock, projections: Projections, *, write: bool, unsynced_base: LogFile | None = None
    ) -> None:
        self.reader = reader
        self.session = reader.session
        self._lines: LogFile = reader.lines
        self._clock = clock
        self._projections = projections
        self._write = write
        self._writing = False
        self._since_checkpoint = 0
        self._read_to = self._lines.size
        self._unsynced_base = unsynced_base
        self._shared = False

    @classmethod
    def create(cls, store: SessionStore, opened: SessionOpened, clock: Clock, derived: Derived | None = None) -> Self:
        """A new session, held for writing; `derived` are the projections of the layers above."""
        event = _first_event(opened, clock)
        lines = store.create(opened.session, _first_line(event))
        reader = LogReader(opened.session, lines, event)
        projections = Projections(reader, derived)
        _take_first(projections, event)
        return cls(reader, clock, projections, write=True)

    def fork(self, store: SessionStore, session: str, seq: int | None = None, derived: Derived | None = None) -> Self:
        """A new session that begins after an event of this one; it reads through this one, and nothing is copied."""
        at = self.tip if seq is None else self._known(seq)
        view = self.view if at == self.tip else self.state_at(at).view
        origin = {"origin": "palimpsest", "model": view.model, "profile": view.profile}
        opened = structs.replace(self.opened, session=session, base=self.place_of(at), opener=None, **origin)
        event = _first_event(opened, self._clock)
        below = self.reader.owner(at).upto(at, store)
        try:
            lines = store.create(session, _first_line(event))
        except BaseException:
            below.close()
            raise
        reader = LogReader(session, lines, event, below)
        projections = Projections(reader, derived)
        projections.start_from(self._projections, at)
        _take_first(projections, event)
        return type(self)(reader, self._clock, projections, write=True, unsynced_base=self._lines)

    @classmethod
    def open(
        cls,
        store: SessionStore,
        session: str,
        clock: Clock,
        *,
        write: bool = False,
        derived: Derived | None = None,
        whole: bool = False,
    ) -> Self:
        """A session as it was left; only the tail after its checkpoint is read and checked.

        With `whole` every line is read and the chain checked, for commands that show what the log says. Raises `BadLog` where it breaks.
        """
        lines = store.open(session, write=write)
        try:
            reader = open_reader(store, session, lines)
        except BaseException:
            lines.close()
            raise
        try:
            projections = Projections(reader, derived)
            tail = projections.open(whole=whole)
        except BaseException:
            reader.close()
            raise
        log = cls(reader, clock, projections, write=write)
        log._since_checkpoint = tail
        return log

    @property
    def view(self) -> View:
        """What the model sees now."""
        with self._projections.lock:
            return self._projections.view.view

    @property
    def health(self) -> Health:
        """How the session is doing, along its path."""
        with self._projections.lock:
            return self._projections.health.value()

    @property
    def ledger(self) -> Ledger:
        """What was spent, on every branch."""
        with self._projections.lock:
            return self._projections.ledger.value()

    @property
    def inbox(self) -> tuple[int, ...]:
        """Sequence numbers of queued user input, oldest first. A rewind keeps them."""
        with self._projections.lock:
            return self._projections.inbox.value()

    @property
    def open_call(self) -> int | None:
        """The event that started the turn call which is under way, if there is one."""
        return self._projections.open_calls.turn

    def register(self, derived: Derived) -> None:
        """Add the projections of a layer above, in place of those that were there, and bring them up to the newest event."""
        self._projections.register(derived)

    def catch_up(self) -> None:
        """Bring every projection up to the newest event; those of core do so by themselves when they are read."""
        self._projections.catch_up()

    def share(self, lock: AbstractContextManager[object]) -> None:
        """Let several threads use the log: `lock`, which one thread may enter twice, keeps each event whole.

        A checkpoint that is due is then left by the next `sync`, which an event loop runs in a thread, and not by `append`.
        """
        self._projections.lock = lock
        self._shared = True

    def held(self) -> AbstractContextManager[object]:
        """While it is entered, no other thread appends or brings projections up to date: for reading several that belong together."""
        return self._projections.lock

    @property
    def opened(self) -> SessionOpened:
        """How this session began."""
        body = self.reader.opened.body
        if not isinstance(body, SessionOpened):
            raise BadLog("the first line does not open a session", where=self._lines.name)
        return body

    @property
    def tip(self) -> int:
        """The number of the newest event."""
        return self._projections.seq

    @property
    def path(self) -> Path:
        """The way from the root to the tip."""
        return self.reader.path(self.tip)

    def place_of(self, seq: int) -> EventRef:
        """An earlier event, as a fork or a child names it."""
        owner = self.reader.owner(self._known(seq))
        return EventRef(owner.session, seq, self._projections.link if seq == self.tip else owner.link(seq))

    def append(self, body: Body, *, at: int | None = None, foreign: bool = False) -> Event:
        """Append one event: write it, feed every projection, and leave a checkpoint if one is due. Returns the stamped event.

        Raises `BadEdit` if an edit does not fit the view, `BadInput` if the target of an undo or rewind does not exist or a call has its
        outcome already, `CallOpen` if the event would change the view during a turn call. The ids of tool calls are made unique. What a
        `foreign` program did to its own context is recorded as it was, fitting or not; such events come by the thousand, and leave no
        checkpoint.
        """
        with self._projections.lock:
            event = self._append(body, at, foreign=foreign)
            self._since_checkpoint += 1
            due = not foreign and not self._shared and self._since_checkpoint >= CHECKPOINT_EVERY
        if due:
            self._checkpoint_if_possible()
        return event

    def _append(self, body: Body, at: int | None, *, foreign: bool) -> Event:
        projections = self._projections
        if not foreign:
            self._check_calls(body)
        parent = self.tip
        if isinstance(body, ViewEdited):
            if not foreign:
                check_fit(self.view, body.edits, self.find, self._never_paired)
        elif isinstance(body, EditUndone):
            if not isinstance(self.event(self._known(body.event)).body, ViewEdited):
                raise BadInput(f"event {body.event} is no edit and cannot be undone", where=self._lines.name)
        elif isinstance(body, Rewound):
            parent = self._known(body.to)
        return self._write_event(with_unique_ids(self.tip + 1, body, projections.used_ids, projections.pending), parent, at)

    def _check_calls(self, body: Body) -> None:
        """Refuse what would change the view during a turn call, and a second outcome of any call."""
        calls = self._projections.open_calls
        if calls.forbids(body):
            raise CallOpen(f"{type(body).__name__} would change the view while call {calls.turn} is under way", where=self._lines.name)
        ended = calls.ended(body)
        if ended is not None:
            raise BadInput(f"{type(body).__name__} is no outcome of call {ended}, which is not under way", where=self._lines.name)

    def _write_event(self, body: Body, parent: int, at: int | None) -> Event:
        """Write an event and let the projections take it; an interrupt in between leaves file and view apart, so nothing more is taken."""
        self._demand_whole()
        projections = self._projections
        data = encode_checked(body)
        stamp = self._clock.now() if at is None else at
        event = Event(projections.seq + 1, parent, stamp, projections.link, body)
        line = b"".join((envelope(event.seq, parent, stamp, event.prev), data, END))
        self._writing = True
        try:
            start = self._lines.append(line)
        except PalimpsestError:
            self._writing = False
            raise
        self.reader.saw(event.seq, start, start + len(line))
        projections.last_line = start
        projections.link = link_of(event.prev, event.seq, parent, stamp, digest_of(data))
        projections.take(event)
        self._writing = False
        return event

    def _demand_whole(self) -> None:
        """An interrupted append may have written a line that no projection has taken. Raises `ReadOnly`."""
        if self._writing:
            raise ReadOnly("the last event was interrupted while it was written; reopen the session", where=self._lines.name)

    def extend(self, bodies: Iterable[Body]) -> tuple[Event, ...]:
        """Append several events and make them durable with one sync."""
        events = tuple([self.append(body) for body in bodies])
        self.sync()
        return events

    def trial(self, edits: tuple[Edit, ...]) -> View:
        """The view that edits would leave; an edit that does not fit is refused as `append` would."""
        trial = check_fit(self.view, edits, self.find, self._never_paired)
        return structs.replace(trial.view, reported=None)

    def follow(self) -> tuple[Event, ...]:
        """The events that another process has appended since the last look, taken in; empty if there are none. For readers."""
        with self._projections.lock:
            self._lines.refresh()
            before = self.tip
            if self._lines.size > self._read_to:
                self._projections.read(self._read_to)
                self._read_to = self._lines.size
        return tuple(self.reader.run(before + 1, self.tip)) if self.tip > before else ()

    def sync(self) -> None:
        """Return when everything recorded so far would survive a power cut, and what a fork reads through with it.

        A checkpoint that is due is left on the way.
        """
        due = self._write and self._since_checkpoint >= CHECKPOINT_EVERY
        data = self._snapshot() if due else b""
        self._sync()
        if data:
            with suppress(PalimpsestError):
                self._lines.save_checkpoint(data)

    def _sync(self) -> None:
        if self._unsynced_base is not None:
            self._unsynced_base.sync()
            self._unsynced_base = None
        self._lines.sync()

    def event(self, seq: int) -> Event:
        """One event of this session or of those it was forked from."""
        return self.reader.event(seq)

    def events(self, path: Path | None = None) -> Iterator[Event]:
        """The events from the root to the tip, or of another path."""
        return self.reader.along(self.path if path is None else path)

    def item(self, item_id: str) -> Item:
        """An item as it was first brought, whether it shows now or not."""
        item = self.reader.item(item_id)
        if item is None:
            raise BadInput(f"there is no item {item_id}", where=self._lines.name)
        return item

    def find(self, item_id: str) -> Item | None:
        """The same, but only for items of this branch."""
        numbers = numbers_of(item_id)
        return self.reader.item(item_id) if numbers is not None and numbers[0] in self.path else None

    def state_at(self, seq: int) -> LogState:
        """View and health right after an earlier event, as they were then."""
        view, health = ViewProjection(reader=self.reader), HealthProjection()
        follow_path((view, health), self.reader, self.reader.path(self._known(seq)))
        return LogState(view.view, health.value())

    def checkpoint(self) -> None:
        """Leave a checkpoint beside the log, so that the next resume starts here.

        The log is made durable first: a line that the checkpoint names and the log has not was then changed, and not lost.
        """
        data = self._snapshot()
        self._sync()
        self._lines.save_checkpoint(data)

    def _snapshot(self) -> bytes:
        with self._projections.lock:
            self._demand_whole()
            self._since_checkpoint = 0
            return self._projections.checkpoint()

    def close(self) -> None:
        """Make everything durable, leave a checkpoint if something was recorded, and let the session go."""
        try:
            self.sync()
            if self._since_checkpoint and self._write:
                self._checkpoint_if_possible()
        finally:
            self.reader.close()

    def _checkpoint_if_possible(self) -> None:
        """A checkpoint saves time and nothing else, so that one which cannot be made is no reason to stop."""
        try:
            self.checkpoint()
        except PalimpsestError:
            self._since_checkpoint = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _known(self, seq: int) -> int:
        if not 0 <= seq <= self.tip:
            raise BadInput(f"there is no event {seq}; the newest is {self.tip}", where=self._lines.name)
        return seq

    def _never_paired(self) -> frozenset[str]:
        """The calls and results that never had another half, whatever edits did."""
        plain = (event for event in self.events() if not isinstance(event.body, ViewEdited))
        return unpaired(project(plain).items)


def _take_first(projections: Projections, opened: Event) -> None:
    """What follows from a log of which only the first line exists."""
    projections.take(opened)
    projections.link = link_of(opened.prev, opened.seq, opened.parent, opened.at, digest_of(encode_body(opened.body)))


def _first_event(opened: SessionOpened, clock: Clock) -> Event:
    base = opened.base
    seq, prev = (0, GENESIS) if base is None else (base.seq + 1, base.link)
    return Event(seq, seq - 1, clock.now(), prev, opened)


def _first_line(event: Event) -> bytes:
    return encode_line(event.seq, event.parent, event.at, event.prev, encode_checked(event.body))
