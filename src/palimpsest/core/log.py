"""The one mutable object: it stamps events, has them written, and lets the views of them follow."""

from collections.abc import Iterable, Iterator
from typing import Self

from msgspec import structs

from palimpsest.core.checkpoint import Checkpoint, encode_checkpoint, load_checkpoint
from palimpsest.core.codec import GENESIS, decode_chunk, digest_of, encode_body, encode_checked, encode_line, link_of, link_of_line
from palimpsest.core.errors import BadInput, BadLog, PalimpsestError, ReadOnly
from palimpsest.core.events import Body, EditUndone, Event, Place, Rewound, SessionOpened, UserSaid, UserTyped, ViewEdited
from palimpsest.core.fitting import check_fit
from palimpsest.core.health import Health, HealthTally
from palimpsest.core.items import Item
from palimpsest.core.ledger import Ledger, LedgerTally
from palimpsest.core.pairs import lonely
from palimpsest.core.path import Path
from palimpsest.core.ports import Clock, Lines, Shelf
from palimpsest.core.project import Projection, numbers_of, project
from palimpsest.core.reading import Reader, open_reader
from palimpsest.core.resuming import NOTHING_YET, Position, State, checkpoint_of, project_state, restore_view, state_at
from palimpsest.core.view import View

# How many events may follow a checkpoint before the next one: resuming reads at most these.
CHECKPOINT_EVERY = 256


class Log:
    """A session's events and what follows from them.

    Every append is written before it is applied, so what the view shows is always in the file; `sync` makes it survive a power cut.
    """

    def __init__(self, reader: Reader, clock: Clock) -> None:
        self.reader = reader
        self.session = reader.session
        self._lines: Lines = reader.lines
        self._clock = clock
        self._tip = self._seq = reader.first - 1
        self._link = GENESIS
        self._last_line = 0
        self._since_checkpoint = 0
        self._writing = False
        self._unsynced_base: Lines | None = None
        self._projection = Projection(find=reader.item)
        self._health = HealthTally.of(Health())
        self._ledger = LedgerTally.of(Ledger())
        self._inbox: dict[int, None] = {}

    @classmethod
    def create(cls, shelf: Shelf, opened: SessionOpened, clock: Clock) -> Self:
        """A new session, held for writing."""
        event = _first_event(opened, clock)
        lines = shelf.create(opened.session, _first_line(event))
        return cls._begin(Reader(opened.session, lines, event), clock, NOTHING_YET)

    def fork(self, shelf: Shelf, session: str, seq: int | None = None) -> Self:
        """A new session that begins after an event of this one; it reads through this one, and nothing is copied."""
        at = self._tip if seq is None else self._known(seq)
        owner = self.reader.owner(at)
        state = State(self.view, self.health) if at == self._tip else self.state_at(at)
        base = self.place_of(at)
        opened = structs.replace(self.opened, session=session, origin="palimpsest", model=state.view.model, base=base, opener=None)
        event = _first_event(opened, self._clock)
        below = owner.upto(at, shelf)
        try:
            lines = shelf.create(session, _first_line(event))
        except BaseException:
            below.close()
            raise
        return self._begin(Reader(session, lines, event, below), self._clock, state, self._lines)

    @classmethod
    def open(cls, shelf: Shelf, session: str, clock: Clock, *, write: bool = False) -> Self:
        """A session as it was left; only the tail after its checkpoint is read."""
        lines = shelf.open(session, write=write)
        try:
            reader = open_reader(shelf, session, lines)
        except BaseException:
            lines.close()
            raise
        try:
            return cls._load(reader, clock)
        except BaseException:
            reader.close()
            raise

    @property
    def view(self) -> View:
        """What the model sees now."""
        return self._projection.view

    @property
    def health(self) -> Health:
        """How the session is doing, along its path."""
        return self._health.value()

    @property
    def ledger(self) -> Ledger:
        """What was spent, on every branch."""
        return self._ledger.value()

    @property
    def inbox(self) -> tuple[int, ...]:
        """What the user typed and nobody has said yet, by event; going back in the conversation does not lose it."""
        return tuple(self._inbox)

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
        return self._tip

    @property
    def path(self) -> Path:
        """The way from the root to the tip."""
        return self.reader.path(self._tip)

    def place_of(self, seq: int) -> Place:
        """An earlier event, as a fork or a child names it."""
        owner = self.reader.owner(self._known(seq))
        return Place(owner.session, seq, self._link if seq == self._tip else owner.link(seq))

    def append(self, body: Body, *, at: int | None = None, foreign: bool = False) -> Event:
        """Record what happened: written first, applied then. An edit that does not fit, or a rewind to nowhere, is refused.

        What a `foreign` program did to its own context is recorded as it was, fitting or not; the wire mends what it parted.
        """
        if self._writing:
            raise ReadOnly("the last event was interrupted while it was written; reopen the session", where=self._lines.name)
        seq, parent = self._seq + 1, self._tip
        if isinstance(body, ViewEdited) and not foreign:
            check_fit(self.view, body.edits, self.find, self._alone)
        elif isinstance(body, EditUndone) and not isinstance(self.event(self._known(body.event)).body, ViewEdited):
            raise BadInput(f"event {body.event} is no edit and cannot be undone", where=self._lines.name)
        elif isinstance(body, Rewound):
            parent = self._known(body.to)
        stamp = self._clock.now() if at is None else at
        data = encode_checked(body)
        event = Event(seq, parent, stamp, self._link, body)
        self._write(encode_line(seq, parent, stamp, self._link, data))
        self._link = link_of(event.prev, seq, parent, stamp, digest_of(data))
        self._take(event)
        self._writing = False
        self._since_checkpoint += 1
        if self._since_checkpoint >= CHECKPOINT_EVERY:
            self._checkpoint_if_possible()
        return event

    def _write(self, line: bytes) -> None:
        """From here until the event is applied an interrupt leaves file and view apart, and the log takes nothing more."""
        self._writing = True
        try:
            self._last_line = start = self._lines.append(line)
            self.reader.saw(self._seq + 1, start, start + len(line))
        except PalimpsestError:
            self._writing = False
            raise

    def extend(self, bodies: Iterable[Body]) -> tuple[Event, ...]:
        """Record several facts and make them durable with one sync."""
        events = tuple([self.append(body) for body in bodies])
        self.sync()
        return events

    def sync(self) -> None:
        """Return when everything recorded so far would survive a power cut, and what a fork reads through with it."""
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

    def state_at(self, seq: int) -> State:
        """View and health right after an earlier event."""
        return state_at(self.reader, self._known(seq))

    def checkpoint(self) -> None:
        """Leave a checkpoint beside the log, so that the next resume starts here."""
        position = Position(self._tip, self._lines.size, self._last_line, self._link, self.inbox)
        checkpoint = checkpoint_of(self.reader, self.view, self.health, self.ledger, position)
        self._lines.save_checkpoint(encode_checkpoint(checkpoint))
        self._since_checkpoint = 0

    def close(self) -> None:
        """Make everything durable, leave a checkpoint if something was recorded, and let the session go."""
        try:
            self.sync()
            if self._since_checkpoint:
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
        if not 0 <= seq <= self._seq:
            raise BadInput(f"there is no event {seq}; the newest is {self._seq}", where=self._lines.name)
        return seq

    def _take(self, event: Event) -> None:
        self._seq = self._tip = event.seq
        self._ledger.take(event)
        self._sort(event)
        if self.reader.note(event):
            self._reproject()
        else:
            self._projection.take(event)
            self._health.take(event)

    def _sort(self, event: Event) -> None:
        """Keep the inbox: what was typed waits in it until it is said."""
        if isinstance(event.body, UserTyped):
            self._inbox[event.seq] = None
        elif isinstance(event.body, UserSaid) and event.body.typed is not None:
            self._inbox.pop(event.body.typed, None)

    def _alone(self) -> frozenset[str]:
        """The items that never had another half, whatever edits did."""
        plain = (event for event in self.events() if not isinstance(event.body, ViewEdited))
        return lonely(project(plain).items)

    def _reproject(self) -> None:
        state = project_state(self.reader, self.path)
        self._projection = Projection(state.view, find=self.reader.item)
        self._health = HealthTally.of(state.health)

    @classmethod
    def _begin(cls, reader: Reader, clock: Clock, state: State, unsynced_base: Lines | None = None) -> Self:
        """A log of which only the first line exists."""
        log = cls(reader, clock)
        log._unsynced_base = unsynced_base
        log._projection = Projection(state.view, find=reader.item)
        log._health = HealthTally.of(state.health)
        opened = reader.opened
        log._link = link_of(opened.prev, opened.seq, opened.parent, opened.at, digest_of(encode_body(opened.body)))
        log._take(opened)
        log._since_checkpoint = 1
        return log

    @classmethod
    def _load(cls, reader: Reader, clock: Clock) -> Self:
        log = cls(reader, clock)
        checkpoint = load_checkpoint(reader.lines)
        view = restore_view(checkpoint, reader) if checkpoint is not None else None
        if checkpoint is not None and view is not None:
            log._restore(checkpoint, view)
            log._read(checkpoint.offset)
            return log
        if reader.base is not None:
            state = state_at(reader.base, reader.first - 1)
            log._projection = Projection(state.view, find=reader.item)
            log._health = HealthTally.of(state.health)
        log._read(0)
        return log

    def _restore(self, checkpoint: Checkpoint, view: View) -> None:
        self.reader.jumps = list(checkpoint.jumps)
        self.reader.undone = list(checkpoint.undone)
        self._projection = Projection(view, find=self.reader.item)
        self._health = HealthTally.of(checkpoint.health)
        self._ledger = LedgerTally.of(checkpoint.ledger)
        self._tip = self._seq = checkpoint.seq
        self._link = checkpoint.link
        self._last_line = checkpoint.last_line
        self._inbox = dict.fromkeys(checkpoint.inbox)

    def _read(self, start: int) -> None:
        """Take in the lines from a byte on; when branches or undone edits turn up, the path is projected once more at the end."""
        shaped = False
        offset, chunk = start, b""
        event: Event | None = None
        health, ledger, inbox = HealthTally.WATCHES, LedgerTally.WATCHES, {UserTyped, UserSaid}
        take, expected, first = self._projection.take, self._seq, self.reader.first
        for offset, chunk in self._lines.chunks(start):
            for event in decode_chunk(chunk, self._lines.name, offset):
                expected += 1
                if event.seq != expected or event.parent >= expected:
                    raise self._disorder(event, expected, offset)
                kind = type(event.body)
                if kind in ledger:
                    self._ledger.take(event)
                elif kind in inbox:
                    self._sort(event)
                if event.parent != expected - 1 or kind is EditUndone:
                    self._check_parent(event, first, offset)
                    shaped = self.reader.note(event)
                elif not shaped:
                    take(event)
                    if kind in health:
                        self._health.take(event)
        if event is None:
            return
        self._since_checkpoint += expected - self._seq
        self._seq = self._tip = expected
        last = chunk.rfind(b"\n", 0, len(chunk) - 1) + 1
        self._last_line = offset + last
        self._link = link_of_line(chunk[last:], event)
        if shaped:
            self._reproject()

    def _disorder(self, event: Event, expected: int, offset: int) -> BadLog:
        where = f"{self._lines.name}, after byte {offset}"
        if event.seq != expected:
            word = "a second time" if event.seq < expected else f"where event {expected} should be"
            return BadLog(f"event {event.seq} stands {word}; see `pal verify`", where=where)
        return BadLog(f"event {event.seq} follows event {event.parent}, which comes later; see `pal verify`", where=where)

    def _check_parent(self, event: Event, first: int, offset: int) -> None:
        lowest = 0 if self.reader.base is not None else first
        if event.parent < lowest and not (event.seq == first and event.parent == first - 1):
            where = f"{self._lines.name}, after byte {offset}"
            raise BadLog(f"event {event.seq} follows event {event.parent}, which is not there; see `pal verify`", where=where)


def _first_event(opened: SessionOpened, clock: Clock) -> Event:
    base = opened.base
    seq, prev = (0, GENESIS) if base is None else (base.seq + 1, base.link)
    return Event(seq, seq - 1, clock.now(), prev, opened)


def _first_line(event: Event) -> bytes:
    return encode_line(event.seq, event.parent, event.at, event.prev, encode_checked(event.body))
