"""The one mutable object: it stamps events, has them written, and lets the views of them follow."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Self

from msgspec import Raw, structs

from palimpsest.core.checkpoint import encode_checkpoint
from palimpsest.core.codec import END, GENESIS, digest_of, encode_body, encode_checked, encode_line, envelope, link_of
from palimpsest.core.edits import Edit
from palimpsest.core.errors import BadInput, BadLog, PalimpsestError, ReadOnly
from palimpsest.core.events import Body, EditUndone, Event, Place, Rewound, SessionOpened, ViewEdited
from palimpsest.core.fitting import check_fit
from palimpsest.core.following import Following, follow
from palimpsest.core.health import Health
from palimpsest.core.items import Item
from palimpsest.core.ledger import Ledger
from palimpsest.core.pairs import lonely
from palimpsest.core.path import Path
from palimpsest.core.ports import Clock, LogFile, SessionStore
from palimpsest.core.project import numbers_of, project
from palimpsest.core.reading import Reader, open_reader
from palimpsest.core.resuming import NOTHING_YET, Position, State, checkpoint_of, state_at
from palimpsest.core.view import View

# How many events may follow a checkpoint before the next one: resuming reads at most these.
CHECKPOINT_EVERY = 192


class Log:
    """A session's events and what follows from them.

    Every append is written before it is applied, so what the view shows is always in the file; `sync` makes it survive a power cut.
    """

    def __init__(self, reader: Reader, clock: Clock, following: Following, *, write: bool, unsynced_base: LogFile | None = None) -> None:
        self.reader = reader
        self.session = reader.session
        self._lines: LogFile = reader.lines
        self._clock = clock
        self._following = following
        self._write = write
        self._writing = False
        self._since_checkpoint = 0
        self._unsynced_base = unsynced_base
        self.memo: Callable[[], Raw] | None = None

    @classmethod
    def create(cls, store: SessionStore, opened: SessionOpened, clock: Clock) -> Self:
        """A new session, held for writing."""
        event = _first_event(opened, clock)
        lines = store.create(opened.session, _first_line(event))
        reader = Reader(opened.session, lines, event)
        return cls(reader, clock, _opened(reader, NOTHING_YET), write=True)

    def fork(self, store: SessionStore, session: str, seq: int | None = None) -> Self:
        """A new session that begins after an event of this one; it reads through this one, and nothing is copied."""
        at = self.tip if seq is None else self._known(seq)
        state = State(self.view, self.health) if at == self.tip else self.state_at(at)
        base = self.place_of(at)
        opened = structs.replace(self.opened, session=session, origin="palimpsest", model=state.view.model, base=base, opener=None)
        event = _first_event(opened, self._clock)
        below = self.reader.owner(at).upto(at, store)
        try:
            lines = store.create(session, _first_line(event))
        except BaseException:
            below.close()
            raise
        reader = Reader(session, lines, event, below)
        return type(self)(reader, self._clock, _opened(reader, state), write=True, unsynced_base=self._lines)

    @classmethod
    def open(cls, store: SessionStore, session: str, clock: Clock, *, write: bool = False) -> Self:
        """A session as it was left; only the tail after its checkpoint is read."""
        lines = store.open(session, write=write)
        try:
            reader = open_reader(store, session, lines)
        except BaseException:
            lines.close()
            raise
        try:
            following, tail = follow(reader)
        except BaseException:
            reader.close()
            raise
        log = cls(reader, clock, following, write=write)
        log._since_checkpoint = tail
        return log

    @property
    def view(self) -> View:
        """What the model sees now."""
        return self._following.view

    @property
    def health(self) -> Health:
        """How the session is doing, along its path."""
        return self._following.health

    @property
    def ledger(self) -> Ledger:
        """What was spent, on every branch."""
        return self._following.ledger

    @property
    def inbox(self) -> tuple[int, ...]:
        """What the user typed and nobody has said yet, by event; going back in the conversation does not lose it."""
        return self._following.inbox

    @property
    def remembered(self) -> tuple[int, Raw] | None:
        """The event of the checkpoint that this log was resumed from, and what `memo` gave there."""
        return self._following.memo

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
        return self._following.seq

    @property
    def path(self) -> Path:
        """The way from the root to the tip."""
        return self.reader.path(self.tip)

    def place_of(self, seq: int) -> Place:
        """An earlier event, as a fork or a child names it."""
        owner = self.reader.owner(self._known(seq))
        return Place(owner.session, seq, self._following.link if seq == self.tip else owner.link(seq))

    def append(self, body: Body, *, at: int | None = None, foreign: bool = False) -> Event:
        """Record what happened: written first, applied then. An edit that does not fit, or a rewind to nowhere, is refused.

        What a `foreign` program did to its own context is recorded as it was, fitting or not; the wire mends what it parted.
        Such events come by the thousand, so the checkpoint is left to the end.
        """
        parent = self.tip
        if isinstance(body, ViewEdited):
            if not foreign:
                check_fit(self.view, body.edits, self.find, self._alone)
        elif isinstance(body, EditUndone):
            if not isinstance(self.event(self._known(body.event)).body, ViewEdited):
                raise BadInput(f"event {body.event} is no edit and cannot be undone", where=self._lines.name)
        elif isinstance(body, Rewound):
            parent = self._known(body.to)
        return self._record((body,), parent, at, checkpoint=not foreign)[0]

    def trial(self, edits: tuple[Edit, ...]) -> View:
        """The view that edits would leave; an edit that does not fit is refused as `append` would."""
        trial = check_fit(self.view, edits, self.find, self._alone)
        return structs.replace(self.view, items=tuple(trial.items), facts=dict(trial.facts), reported=None)

    def extend(self, bodies: Iterable[Body]) -> tuple[Event, ...]:
        """Record several facts and make them durable with one sync; those that need no look at the view go in one write."""
        events: list[Event] = []
        plain: list[Body] = []
        for body in bodies:
            if isinstance(body, ViewEdited | EditUndone | Rewound):
                events += self._record(plain, self.tip)
                plain.clear()
                events.append(self.append(body))
            else:
                plain.append(body)
        events += self._record(plain, self.tip)
        self.sync()
        return tuple(events)

    def _record(self, bodies: Sequence[Body], parent: int, at: int | None = None, *, checkpoint: bool = True) -> list[Event]:
        """Write events and apply them; an interrupt in between leaves file and view apart, so that nothing more is taken."""
        if self._writing:
            raise ReadOnly("the last event was interrupted while it was written; reopen the session", where=self._lines.name)
        following = self._following
        seq, link = following.seq, following.link
        events: list[Event] = []
        pieces: list[bytes] = []
        for body in bodies:
            data = encode_checked(body)
            stamp = self._clock.now() if at is None else at
            seq += 1
            events.append(Event(seq, parent, stamp, link, body))
            pieces += (envelope(seq, parent, stamp, link), data, END)
            link = link_of(link, seq, parent, stamp, digest_of(data))
            parent = seq
        self._writing = True
        try:
            start = self._lines.append(b"".join(pieces)) if pieces else 0
        except PalimpsestError:
            self._writing = False
            raise
        for index, event in enumerate(events):
            stop = start + len(pieces[3 * index]) + len(pieces[3 * index + 1]) + len(END)
            self.reader.saw(event.seq, start, stop)
            following.last_line, start = start, stop
            following.take(event)
        following.link = link
        self._writing = False
        self._since_checkpoint += len(events)
        if checkpoint and self._since_checkpoint >= CHECKPOINT_EVERY:
            self._checkpoint_if_possible()
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
        position = Position(self.tip, self._lines.size, self._following.last_line, self._following.link, self.inbox)
        checkpoint = checkpoint_of(self.reader, self.view, self.health, self.ledger, position)
        if self.memo is not None:
            checkpoint = structs.replace(checkpoint, memo=self.memo())
        self._lines.save_checkpoint(encode_checkpoint(checkpoint))
        self._since_checkpoint = 0

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

    def _alone(self) -> frozenset[str]:
        """The items that never had another half, whatever edits did."""
        plain = (event for event in self.events() if not isinstance(event.body, ViewEdited))
        return lonely(project(plain).items)


def _opened(reader: Reader, state: State) -> Following:
    """What follows from a log of which only the first line exists."""
    following = Following(reader, state)
    opened = reader.opened
    following.take(opened)
    following.link = link_of(opened.prev, opened.seq, opened.parent, opened.at, digest_of(encode_body(opened.body)))
    return following


def _first_event(opened: SessionOpened, clock: Clock) -> Event:
    base = opened.base
    seq, prev = (0, GENESIS) if base is None else (base.seq + 1, base.link)
    return Event(seq, seq - 1, clock.now(), prev, opened)


def _first_line(event: Event) -> bytes:
    return encode_line(event.seq, event.parent, event.at, event.prev, encode_checked(event.body))
