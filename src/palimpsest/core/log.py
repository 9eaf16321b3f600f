"""The log of a session: stamps, writes and applies events, with its turns, crash recovery, and the check that edits fit the view."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from typing import NamedTuple, Self

from msgspec import structs

from palimpsest.core.calls import Health, HealthProjection, with_tool_classes, with_unique_ids
from palimpsest.core.errors import BadEdit, BadInput, BadLog, CallOpen, PalimpsestError, ReadOnly
from palimpsest.core.events import (
    Body,
    CallStarted,
    ContextStated,
    EditUndone,
    Event,
    EventRef,
    HookRan,
    Interrupted,
    Recalled,
    Rewound,
    SessionOpened,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    UserSaid,
    UserTyped,
    ViewEdited,
    numbers_of,
)
from palimpsest.core.items import Edit, Fold, Insert, Item, Mask, Text, ToolCall, ToolResult, Unmask, kept_ids, pending_calls, unpaired
from palimpsest.core.ledger import JobStates
from palimpsest.core.lines import Path, digest_of, encode_checked, encode_line, first_event, first_line, link_of
from palimpsest.core.ports import Clock, LogFile, SessionStore
from palimpsest.core.projections import Projections, follow_path
from palimpsest.core.reading import LogReader, open_reader
from palimpsest.core.spending import ChildRecord, Ledger
from palimpsest.core.view import View
from palimpsest.core.view_projection import Derived, Find, ViewProjection, project

# Modules that stood below this one in 0.2 are found by `palimpsest.old_names`.
__path__: list[str] = []


def check_fit(view: View, edits: tuple[Edit, ...], find: Find, never_paired: Callable[[], AbstractSet[str]]) -> ViewProjection:
    """Return a projection of the view after the edits.

    Raises `BadEdit` if an edit refers to a missing item, hides a pending call, or separates a call from its result. `never_paired`
    returns the items that had no call or result before any edit; it is called only if needed.
    """
    trial = ViewProjection(view, find=find)
    heads = frozenset(item.id for item in view.head)
    for index, edit in enumerate(edits):
        _check_ids(trial.places, edit, find, heads)
        trial.edit(view.seq + 1, index, edit)
    if keeps_pairs(view, edits):
        return trial
    shown = {item.id for item in trial.items if not item.hidden}
    before = unpaired(view.items)
    hidden_call = next((item.id for item in pending_calls(view.items, before) if item.id not in shown), None)
    if hidden_call is not None:
        raise BadEdit(f"call {hidden_call} has no result yet and must stay visible until then")
    separated = unpaired(trial.items) - before
    if separated and (separated := separated - never_paired()):
        raise BadEdit(f"item {min(separated)} would be separated from its call or result; edit both together")
    return trial


def keeps_pairs(view: View, edits: tuple[Edit, ...]) -> bool:
    """Whether edits cannot separate a call from its result: all are masks that leave every item visible."""
    covered: set[str] = set()
    for edit in edits:
        if not isinstance(edit, Mask) or not (edit.text or edit.form == "cached"):
            return False
        covered.update(edit.ids)
    return covered.isdisjoint([item.id for item in view.items if item.mask is not None and item.hidden])


def _check_ids(places: dict[str, int], edit: Edit, find: Find, heads: AbstractSet[str]) -> None:
    match edit:
        case Mask(ids=ids) | Unmask(ids=ids):
            _require_visible(ids, places)
        case Fold(first=first, last=last):
            _require_visible((first, last), places)
            if places[last] < places[first]:
                raise BadEdit(f"the fold ends with {last} before it begins with {first}")
            _require_visible(kept_ids(edit), places)
            outside = next((name for name in kept_ids(edit) if not places[first] <= places[name] <= places[last]), None)
            if outside is not None:
                raise BadEdit(f"the fold keeps item {outside}, which is outside of its range")
            _require_unique(kept_ids(edit))
        case Insert(before=before):
            if before:
                _require_visible((before,), places)
            _require_unique(kept_ids(edit))
            for name in kept_ids(edit):
                if name in places or name in heads:
                    raise BadEdit(f"item {name} is visible already and cannot be restored")
                if find(name) is None:
                    raise BadEdit(f"there is no item {name} on this branch")


def _require_visible(ids: tuple[str, ...], places: dict[str, int]) -> None:
    missing = next((name for name in ids if name not in places), None)
    if missing is not None:
        raise BadEdit(f"there is no item {missing} in the view")


def _require_unique(ids: tuple[str, ...]) -> None:
    if len(set(ids)) < len(ids):
        raise BadEdit("an item is kept twice")


# Events between two checkpoints, and so the most that a resume has to read.
CHECKPOINT_EVERY = 64


class LogState(NamedTuple):
    """View and health right after an event."""

    view: View
    health: Health


class Log:
    """The events of one session and their projections; the only object that changes what a session has recorded.

    `append` is the only way to add events: it writes the event, then updates every projection, so the view never shows what is not in
    the file. `sync` makes the file durable. A log may be used by one thread, or by several after `share`.
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
        # The classes of the tools on offer whose names do not tell them; calls are recorded with them.
        self.tool_classes: Mapping[str, str] = {}

    @classmethod
    def create(cls, store: SessionStore, opened: SessionOpened, clock: Clock, derived: Derived | None = None) -> Self:
        """Create a session and open it for writing; `derived` are the projections of higher layers."""
        event = first_event(opened, clock.now())
        lines = store.create(opened.session, first_line(event))
        reader = LogReader(opened.session, lines, event)
        projections = Projections(reader, derived)
        projections.take_first(event)
        return cls(reader, clock, projections, write=True)

    def fork(
        self,
        store: SessionStore,
        session: str,
        seq: int | None = None,
        derived: Derived | None = None,
        *,
        opener: EventRef | None = None,
        meta: Mapping[str, str] | None = None,
    ) -> Self:
        """Create a session that continues after event `seq` of this one (default: the newest). It reads this log; nothing is copied.

        `opener` and `meta` are those of a sub-agent; without them it is a session of the user.
        """
        at = self.tip if seq is None else self._checked_seq(seq)
        view = self.view if at == self.tip else self.state_at(at).view
        origin = {"origin": "palimpsest", "model": view.model, "profile": view.profile}
        known = self.opened.meta if meta is None else dict(meta)
        opened = structs.replace(self.opened, session=session, base=self.place_of(at), opener=opener, meta=known, **origin)
        event = first_event(opened, self._clock.now())
        below = self.reader.owner(at).upto(at, store)
        try:
            lines = store.create(session, first_line(event))
        except BaseException:
            below.close()
            raise
        reader = LogReader(session, lines, event, below)
        projections = Projections(reader, derived)
        projections.start_from(self._projections, at)
        projections.take_first(event)
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
        alone: bool = False,
    ) -> Self:
        """Open an existing session, verified from its checkpoint on, or with `whole` from its first line. Raises `BadLog` if it is broken.

        Raises `MissingBase` if a fork has lost its base; with `alone` its own events are read nevertheless, which is for reading only.
        """
        with ExitStack() as opened:
            lines = opened.enter_context(closing(store.open(session, write=write)))
            reader = open_reader(store, session, lines, alone=alone)
            opened.callback(reader.close)
            projections = Projections(reader, derived)
            tail = projections.open(whole=whole)
            opened.pop_all()
        log = cls(reader, clock, projections, write=write)
        log._since_checkpoint = tail
        return log

    @property
    def view(self) -> View:
        """The current view."""
        with self._projections.lock:
            return self._projections.caught_up().view.view

    @property
    def health(self) -> Health:
        """Health of the session along the current path."""
        with self._projections.lock:
            return self._projections.caught_up().health.value()

    @property
    def ledger(self) -> Ledger:
        """Token usage of all branches."""
        with self._projections.lock:
            return self._projections.caught_up().ledger.value()

    @property
    def inbox(self) -> tuple[int, ...]:
        """Sequence numbers of queued user input, oldest first. A rewind keeps them."""
        with self._projections.lock:
            return self._projections.caught_up().inbox.value()

    @property
    def jobs(self) -> JobStates:
        """States of the background jobs along the current path."""
        with self._projections.lock:
            return self._projections.caught_up().jobs.value()

    @property
    def children(self) -> tuple[ChildRecord, ...]:
        """The sub-agents that this session started, on all branches, oldest first."""
        with self._projections.lock:
            return self._projections.caught_up().children.value()

    @property
    def open_call(self) -> int | None:
        """The event that started the open turn call, or `None`."""
        return self._projections.open_calls.turn

    @property
    def pending_calls(self) -> tuple[str, ...]:
        """The ids of the tool calls of the path without a result, in the order in which they were made."""
        return self._projections.pending.pending()

    @property
    def started_calls(self) -> tuple[str, ...]:
        """Those of the pending calls whose tool was started."""
        return self._projections.pending.started()

    def register(self, derived: Derived) -> None:
        """Replace the projections of higher layers and update them to the newest event."""
        self._projections.register(derived)

    def catch_up(self) -> None:
        """Update every projection to the newest event. The properties of this class do so themselves."""
        self._projections.catch_up()

    def expect_jumps(self) -> None:
        """Keep the pending calls after each event in memory, so that going back does not read the log again; for imports."""
        self._projections.pending.remember(self.tip)

    def share(self, lock: AbstractContextManager[object]) -> None:
        """Allow several threads to use the log, guarded by `lock`, which must be reentrant.

        From then on `sync`, which runs outside the event loop, writes the checkpoints that are due, and `append` does not.
        """
        self._projections.lock = lock
        self._shared = True

    def locked(self) -> AbstractContextManager[object]:
        """Return the lock. While it is held no other thread appends, so that several projections can be read consistently."""
        return self._projections.lock

    @property
    def opened(self) -> SessionOpened:
        """The first event body of the session. Raises `BadLog` if it is of another type."""
        body = self.reader.opened.body
        if not isinstance(body, SessionOpened):
            raise BadLog("the first line does not open a session", where=self._lines.name)
        return body

    @property
    def tip(self) -> int:
        """Sequence number of the newest event."""
        return self._projections.seq

    @property
    def path(self) -> Path:
        """The path from the first event to the newest."""
        return self.reader.path(self.tip)

    def place_of(self, seq: int) -> EventRef:
        """Return a reference to an event, for a fork or a sub-agent. Raises `BadInput` if there is no such event."""
        owner = self.reader.owner(self._checked_seq(seq))
        return EventRef(owner.session, seq, self._projections.link if seq == self.tip else owner.link(seq))

    def append(self, body: Body, *, at: int | None = None, foreign: bool = False) -> Event:
        """Append one event: write it, update every projection, and save a checkpoint if one is due. Returns the stamped event.

        Raises `BadEdit` if an edit does not fit the view, `BadInput` if the target of an undo or rewind does not exist or a call has its
        outcome already, `CallOpen` if the event would change the view during a turn call. The ids of tool calls are made unique. `at` is
        the time in milliseconds since 1970 (default: now). With `foreign`, for imports, the event is recorded without these checks and
        without a checkpoint, because imports append thousands of events.
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
        projections.rebuild_if_interrupted()
        if not foreign:
            self._check_calls(body)
        parent = self.tip
        if isinstance(body, ViewEdited):
            if not foreign:
                check_fit(self.view, body.edits, self.find, self._never_paired)
        elif isinstance(body, EditUndone):
            if not isinstance(self.event(self._checked_seq(body.event)).body, ViewEdited):
                raise BadInput(f"event {body.event} is no edit and cannot be undone", where=self._lines.name)
        elif isinstance(body, Rewound):
            parent = self._checked_seq(body.to)
        body = with_unique_ids(self.tip + 1, body, projections.used_ids, projections.pending)
        return self._write_event(with_tool_classes(body, self.tool_classes), parent, at)

    def _check_calls(self, body: Body) -> None:
        """Raise `CallOpen` for a change of the view during a turn call, and `BadInput` for a second outcome of a call."""
        calls = self._projections.open_calls
        if calls.forbids(body):
            raise CallOpen(f"{type(body).__name__} would change the view during call {calls.turn}", where=self._lines.name)
        ended = calls.ended(body)
        if ended is not None:
            raise BadInput(f"{type(body).__name__} is no outcome of call {ended}, which is not open", where=self._lines.name)

    def _write_event(self, body: Body, parent: int, at: int | None) -> Event:
        """Write an event and update the projections. After an interrupt between the two, further appends raise `ReadOnly`."""
        self._check_not_interrupted()
        projections = self._projections
        data = encode_checked(body)
        stamp = self._clock.now() if at is None else at
        event = Event(projections.seq + 1, parent, stamp, projections.link, body)
        line = encode_line(event.seq, parent, stamp, event.prev, data)
        self._writing = True
        try:
            start = self._lines.append(line)
        except PalimpsestError:
            self._writing = False
            raise
        self.reader.remember_line(event.seq, start, start + len(line))
        projections.last_line = start
        projections.link = link_of(event.prev, event.seq, parent, stamp, digest_of(data))
        projections.take(event)
        self._writing = False
        return event

    def _check_not_interrupted(self) -> None:
        """Raise `ReadOnly` after an interrupted append, which may have written a line that no projection has seen."""
        if self._writing:
            raise ReadOnly("the last event was interrupted while it was written; reopen the session", where=self._lines.name)

    def extend(self, bodies: Iterable[Body]) -> tuple[Event, ...]:
        """Append several events and make them durable with one sync."""
        events = tuple([self.append(body) for body in bodies])
        self.sync()
        return events

    def trial(self, edits: tuple[Edit, ...]) -> View:
        """Return the view after the edits, without recording them. Raises `BadEdit` as `append` does."""
        view = self.view
        return structs.replace(check_fit(view, edits, self.find, self._never_paired).view, reported=view.measured_report)

    def follow(self) -> tuple[Event, ...]:
        """Read the events that another process has appended since the last call, and return them. For readers."""
        with self._projections.lock:
            self._lines.refresh()
            before = self.tip
            if self._lines.size > self._read_to:
                self._projections.read(self._read_to)
                self._read_to = self._lines.size
        return tuple(self.reader.run(before + 1, self.tip)) if self.tip > before else ()

    def sync(self) -> None:
        """Make all recorded events durable, in a fork also those of its base, and save a checkpoint if one is due."""
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
        """Return one event of this session or of its bases. Raises `BadInput` if there is none."""
        return self.reader.event(seq)

    def events(self, path: Path | None = None) -> Iterator[Event]:
        """Yield the events of the current path, or of another one, in order."""
        return self.reader.along(self.path if path is None else path)

    def item(self, item_id: str) -> Item:
        """Return an item as its event created it, visible or not. Raises `BadInput` if there is none."""
        item = self.reader.item(item_id)
        if item is None:
            raise BadInput(f"there is no item {item_id}", where=self._lines.name)
        return item

    def find(self, item_id: str) -> Item | None:
        """Return an item of the current path as its event created it, or `None`."""
        numbers = numbers_of(item_id)
        return self.reader.item(item_id) if numbers is not None and numbers[0] in self.path else None

    def state_at(self, seq: int) -> LogState:
        """Return view and health as they were right after event `seq`. Raises `BadInput` if there is no such event."""
        view, health = ViewProjection(reader=self.reader), HealthProjection()
        follow_path((view, health), self.reader, self.reader.path(self._checked_seq(seq)))
        return LogState(view.view, health.value())

    def checkpoint(self) -> None:
        """Save a checkpoint, so that the next resume starts at the newest event.

        The log is made durable first, so a line that the checkpoint refers to and the log lacks was tampered with, not lost.
        """
        data = self._snapshot()
        self._sync()
        self._lines.save_checkpoint(data)

    def _snapshot(self) -> bytes:
        with self._projections.lock:
            self._check_not_interrupted()
            self._since_checkpoint = 0
            return self._projections.checkpoint()

    def close(self) -> None:
        """Make all events durable, save a checkpoint if there are new ones, and close the files."""
        try:
            self.sync()
            if self._since_checkpoint and self._write:
                self._checkpoint_if_possible()
        finally:
            self.reader.close()

    def _checkpoint_if_possible(self) -> None:
        """Save a checkpoint and ignore errors, because a missing checkpoint costs only time."""
        with suppress(PalimpsestError):
            self.checkpoint()
        self._since_checkpoint = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _checked_seq(self, seq: int) -> int:
        if not 0 <= seq <= self.tip:
            raise BadInput(f"there is no event {seq}; the newest is {self.tip}", where=self._lines.name)
        return seq

    def _never_paired(self) -> frozenset[str]:
        """Return the calls and results that are unpaired even without any edit."""
        unedited = (event for event in self.events() if not isinstance(event.body, ViewEdited))
        return unpaired(project(unedited).items)


def turns_of(log: Log) -> Mapping[int, int]:
    """Return the last event before each turn of the current path, by the event of the user's message that the turn answers.

    Queued input, statements and recalls belong to the turn that follows, and so does what happens from the start of a turn to its message,
    such as a fold.
    """
    turns: dict[int, int] = {}
    before = 0
    is_open = False
    for event in log.events():
        if isinstance(event.body, UserSaid) and not event.body.steering:
            turns[event.seq] = before
            is_open = False
        is_open = is_open or isinstance(event.body, TurnStarted)
        if not is_open and not isinstance(event.body, UserTyped | ContextStated | Recalled | HookRan):
            before = event.seq
    return turns


UNKNOWN_OUTCOME = (
    "Interrupted: the session ended while this tool was running, and its outcome is unknown. "
    "It may have done all, part or none of its work; look before you run it again."
)
NEVER_RAN = "Interrupted: the session ended before this tool was run."
STOPPED = "the session ended before the reply came"


def recover(log: Log, *, turn_goes_on: bool = False) -> tuple[Event, ...]:
    """Record outcomes for everything that was open when the session ended, and return these events; nothing is run again.

    If the `turn_goes_on`, it stays open, and calls whose tools had not started stay pending: the loop runs them.
    """
    turn_end = () if turn_goes_on or log.health.turn is None else (TurnEnded("interrupted"),)
    bodies = (*_call_outcomes(log), *_tool_results(log, started_only=turn_goes_on), *turn_end)
    return log.extend(bodies) if bodies else ()


def _call_outcomes(log: Log) -> tuple[Body, ...]:
    """Return `Interrupted` for each open call of the path; imported calls, which have no digest, are skipped."""
    path = log.path
    outcomes: list[Body] = []
    for call in log.ledger.open:
        if call.seq not in path:
            continue
        body = log.event(call.seq).body
        if call.seq == log.open_call or (isinstance(body, CallStarted) and body.digest):
            outcomes.append(Interrupted(call.seq, why=STOPPED, model=call.model, purpose=call.purpose))
    return tuple(outcomes)


def _tool_results(log: Log, *, started_only: bool) -> tuple[Body, ...]:
    started = set(log.started_calls)
    results: list[Body] = []
    for item in pending_calls(log.view.items):
        call = item.content
        if isinstance(call, ToolCall) and (call.call_id in started or not started_only):
            text = Text(UNKNOWN_OUTCOME if call.call_id in started else NEVER_RAN)
            results.append(ToolReturned(ToolResult(call.call_id, (text,), error=True, form=call.form), tool=call.tool))
    return tuple(results)
