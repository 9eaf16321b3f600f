"""A session of another program becomes a log of ours: fact by fact, once, with its branches and its edits."""

from collections.abc import Iterator
from hashlib import sha256
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct, structs

from palimpsest.core.edits import Fold, Mask, Put, into_of
from palimpsest.core.errors import BadEdit, BadInput, StoreError
from palimpsest.core.events import (
    NULL,
    Body,
    CallStarted,
    Event,
    EventRef,
    ModelReplied,
    Rewound,
    SessionOpened,
    ToolReturned,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.events.event_items import items_of
from palimpsest.core.items import ToolCall, Value
from palimpsest.core.log.log import Log
from palimpsest.core.ports import Blobs, Clock, SessionStore
from palimpsest.core.view import View
from palimpsest.foreign.reading.gathering import Gathering
from palimpsest.foreign.reading.transcript import BadLine, Format, Mark, Source, Told
from palimpsest.foreign.reading.weighing import Weighing

AnyBody = TypeVar("AnyBody", bound=Body)


class Foreign(Struct, frozen=True, omit_defaults=True):
    """What an imported body carries in `foreign`: the key of its fact, and the line it came from less what the body says."""

    key: str = ""
    line: Raw = NULL


# What an imported fact carries that has no key, and a rewind that was made to branch.
_UNNAMED = Raw(b"{}")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Foreign).decode


class Counts(Value, frozen=True):
    """What an import brought."""

    events: int = 0
    user_messages: int = 0
    calls: int = 0
    results: int = 0
    folds: int = 0
    masks: int = 0
    bad_lines: int = 0


class Imported(Value, frozen=True):
    """One session, imported: under which id, how much was new, what could not be read, and where to go on next time.

    `tip` is the newest event of the log, or -1 when there is none; a log that ends before it is not the one the mark was made for.
    """

    session: str
    counts: Counts
    bad: tuple[BadLine, ...] = ()
    mark: Mark | None = None
    tip: int = -1


def session_id(format_name: str, session: str) -> str:
    """The id of an imported session; always the same, so that a second import finds the first."""
    plain = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in session)
    if plain == session and len(format_name) + len(plain) < 128:
        return f"{format_name}-{plain}"
    # Two names that differ only in what an id cannot hold stay apart.
    return f"{format_name}-{plain[:90]}-{sha256(session.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def opener_in(format_name: str, parent: str) -> EventRef | None:
    """Who opened a session: the imported parent, if the other program names one, and no event of it.

    The first line of a child is written once, and is the same in whatever order files are read and however far the parent's has
    grown by then. Which call it was stands in the parent: its `ChildOpened` names the child.
    """
    return EventRef(session_id(format_name, parent), 0) if parent else None


def import_session(
    form: Format, source: Source, store: SessionStore, blobs: Blobs, clock: Clock, *, mark: Mark | None = None, since: int = -1
) -> Imported:
    """Read what is new in a session into its log, making the log if there is none; facts that are there already are passed over.

    The mark is that of an earlier import which left the log at the event `since`; without that event everything is read again.
    """
    recording = _Recording(Gathering(store), session_id(form.name, source.session), clock)
    try:
        for told in _told(form, source, blobs, mark if recording.exists and recording.tip >= since else None):
            match told:
                case Told():
                    recording.take(told)
                case BadLine():
                    recording.bad.append(told)
                case Mark():
                    recording.mark = told
        return recording.result()
    finally:
        recording.close()


def _told(form: Format, source: Source, blobs: Blobs, mark: Mark | None) -> Iterator[Told | BadLine | Mark]:
    """What a reader tells; where it cannot go on, that is told too, and what came before it stays."""
    try:
        yield from form.read(source, blobs, mark)
    except StoreError:
        raise
    except OSError as error:
        yield BadLine(source.path, f"reading stopped: {error.strerror or error}")
    except Exception as error:  # noqa: BLE001 - a file of a shape that nobody foresaw must not keep the others out
        yield BadLine(source.path, f"reading stopped: {type(error).__name__}: {error}")


class _Recording:
    """A log that is being filled; it is the desk that facts look at."""

    def __init__(self, store: SessionStore, session: str, clock: Clock) -> None:
        self._shelf = store
        self._session = session
        self._clock = clock
        self._seqs: dict[str, int] = {}
        # How many items an event brought; of an edit the edit, and once somebody asked the items that it put.
        self._brought: dict[int, int | ViewEdited | tuple[str, ...]] = {}
        self._key = ""
        # The newest event that was imported, and the tip of what was recorded here since, if anything was.
        self._last = self._own = -1
        # Where the fact that is being taken begins a branch: gone back to only if there is something to record.
        self._branch: int | None = None
        self._weighing = Weighing()
        self._counts = dict.fromkeys(Counts.__struct_fields__, 0)
        self.bad: list[BadLine] = []
        self.mark: Mark | None = None
        self._log: Log | None = None
        self.exists = False
        try:
            self._log = Log.open(store, session, clock, write=True)
        except BadInput:
            return
        self.exists = True
        try:
            self._recall(self._log)
        except BaseException:
            self._log.close()
            raise

    def _recall(self, log: Log) -> None:
        """What was imported before: where each fact went, and where another program would go on."""
        for event in log.reader.run(log.reader.first, log.tip):
            found = foreign_of(event.body)
            if found is not None:
                self._last = event.seq
                self._remember(event, found.key)
            self._weighing.recall(event, log)
        self._weighing.resume(log)
        self._own = log.tip if log.tip != self._last else -1

    @property
    def tip(self) -> int:
        """The newest event there is."""
        return -1 if self._log is None else self._log.tip

    @property
    def view(self) -> View:
        log = self._written()
        return log.view if self._branch is None else log.state_at(self._branch).view

    def ids(self, key: str) -> tuple[str, ...]:
        seq = self._seqs.get(key, -1)
        brought = self._brought.get(seq, 0)
        if isinstance(brought, ViewEdited):
            brought = self._brought[seq] = put_by(seq, brought)
        return tuple(f"{seq}.{number}" for number in range(brought)) if isinstance(brought, int) else brought

    def take(self, told: Told) -> None:
        if told.key and told.key in self._seqs:
            return
        if self._log is None:
            self._open(told)
            return
        try:
            self._branch = self._branch_of(self._log, told)
            body = told.body if isinstance(told.body, Value) else told.body(self)
            if body is not None:
                self._go_back(self._log, told)
                self._record(self._log, body, told)
        except (BadEdit, BadInput, UnicodeEncodeError) as error:
            self.bad.append(BadLine(told.key, f"it could not be taken over: {error}"))

    def _open(self, told: Told) -> None:
        if not isinstance(told.body, SessionOpened):
            raise BadInput("the reader did not begin with the opening of the session", where=self._session)
        body = _marked(structs.replace(told.body, session=self._session), told)
        self._log = Log.create(self._shelf, body, _At(told.at, self._clock))
        self._remember(self._log.event(self._log.tip), told.key)
        self._last = self._log.tip
        self._counts["events"] += 1

    def _branch_of(self, log: Log, told: Told) -> int | None:
        """Facts that follow an earlier one begin a branch there; so do those that follow what was recorded here since."""
        to = self._seqs.get(told.after) if told.after and told.after != self._key else None
        if to is None and self._own >= 0:
            to = self._last
        return to if to != log.tip else None

    def _go_back(self, log: Log, told: Told) -> None:
        if self._branch is not None:
            self._weighing.took(log.append(Rewound(self._branch, foreign=_UNNAMED), at=told.at))
            self._branch = None

    def _record(self, log: Log, body: Body, told: Told) -> None:
        match body:
            case CallStarted():
                body = self._weighing.started(body, log)
            case ModelReplied():
                self._weighing.answered(body)
            case _:
                pass
        event = log.append(_marked(body, told), at=told.at, foreign=True)
        self._weighing.took(event)
        self._last = event.seq
        self._remember(event, told.key)
        self._count(event.body)

    def _remember(self, event: Event, key: str) -> None:
        if key:
            self._seqs[key] = event.seq
            self._key = key
            brought = event.body if isinstance(event.body, ViewEdited) else len(items_of(event.seq, event.body))
            if brought:
                self._brought[event.seq] = brought

    def _count(self, body: Body) -> None:
        counts = self._counts
        counts["events"] += 1
        match body:
            case UserSaid():
                counts["user_messages"] += 1
            case ModelReplied():
                counts["calls"] += sum(isinstance(part, ToolCall) for part in body.parts)
            case ToolReturned():
                counts["results"] += 1
            case ViewEdited():
                counts["folds"] += sum(isinstance(edit, Fold) for edit in body.edits)
                counts["masks"] += sum(isinstance(edit, Mask) for edit in body.edits)
            case _:
                pass

    def _written(self) -> Log:
        if self._log is None:
            raise BadInput("nothing was told yet", where=self._session)
        return self._log

    def result(self) -> Imported:
        if self._log is not None:
            if self._own >= 0 and self._log.tip != self._own:
                # Whoever went on here goes on there; what the other program did since is a branch beside it.
                self._log.append(Rewound(self._own))
            self._log.sync()
        return Imported(self._session, Counts(**{**self._counts, "bad_lines": len(self.bad)}), tuple(self.bad), self.mark, self.tip)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()


class _At:
    """A clock that tells one time once: an imported session was opened when it was, not now."""

    def __init__(self, at: int, later: Clock) -> None:
        self._times: Iterator[int] = iter((at,))
        self._later = later

    def now(self) -> int:
        return next(self._times, None) or self._later.now()


def _marked(body: AnyBody, told: Told) -> AnyBody:
    return structs.replace(body, foreign=Raw(_encode(Foreign(told.key, told.line))))


def put_by(seq: int, body: ViewEdited) -> tuple[str, ...]:
    """The items that the edits of an event put in place, in order."""
    pieces = ((index, number, piece) for index, edit in enumerate(body.edits) for number, piece in enumerate(into_of(edit)))
    return tuple(f"{seq}.{index}.{number}" for index, number, piece in pieces if isinstance(piece, Put))


def foreign_of(body: Body) -> Foreign | None:
    """What an imported body carries beside itself, if it was imported."""
    raw = body.foreign
    return None if bytes(raw) == b"null" else _decode(raw)


def key_of(body: Body) -> str:
    """The other program's id of a fact."""
    found = foreign_of(body)
    return "" if found is None else found.key
