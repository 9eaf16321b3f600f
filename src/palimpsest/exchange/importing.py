"""Imports a session of another program into a log, each event once, with cursors of earlier imports and token estimates."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct, structs

from palimpsest.core.errors import BadInput, StoreError
from palimpsest.core.events import (
    NULL,
    Body,
    CallStarted,
    ContextStated,
    EditUndone,
    Event,
    EventRef,
    ModelReplied,
    Recalled,
    Rewound,
    SessionOpened,
    ToolReturned,
    UserSaid,
    ViewEdited,
    items_of,
)
from palimpsest.core.items import Fold, Mask, ToolCall, Value
from palimpsest.core.log import Log
from palimpsest.core.ports import Blobs, Clock, SessionStore, StateSlot
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.tokens import FAMILY_FACTORS, family_of, palimpsest_size
from palimpsest.core.view import View
from palimpsest.exchange.transcript import (
    UNFIT,
    EventIndex,
    ExportOrigin,
    Format,
    ReadEvent,
    ReadOutput,
    ReadPosition,
    ReadProblem,
    TranscriptSource,
    built_body,
    is_original,
)
from palimpsest.stores.buffered import BufferedStore

_EDITS = frozenset({ViewEdited, EditUndone})
_ADDS_ITEMS = frozenset({UserSaid, ModelReplied, ToolReturned, ContextStated, Recalled})


class CallEstimator:
    """Estimates the prompt tokens of each call, uncalibrated: item by item as they arrive, and the whole view after an edit.

    A transcript seldom has the tools and the system prompt of a request. The first call with reported usage shows how many tokens are
    missing. It gets no estimate itself; all later calls add that number. So the same log always gets the same estimates.
    """

    def __init__(self) -> None:
        self._counter = TokenCounter(palimpsest_size)
        # Uncalibrated tokens of the view, which is empty at first; None when the view must be counted again.
        self._tokens: int | None = 0
        # The same after each event, so that going back to one needs no view.
        self._tokens_after: dict[int, int] = {}
        self._missing_tokens: int | None = None
        self._first_tokens = self._pending_call = -1
        self._model = ""

    def with_estimate(self, call: CallStarted, log: Log) -> CallStarted:
        """The call with its estimate; unchanged if it has one already or is not part of the conversation."""
        if call.estimate or call.purpose != "turn":
            return call
        if self._tokens is None:
            self._tokens = self._tokens_after[log.tip] = self._counter.raw(log.view)
        raw = self._tokens
        if self._missing_tokens is not None:
            return structs.replace(call, estimate=raw + self._missing_tokens)
        self._first_tokens, self._model = raw, call.model
        return call

    def calibrate(self, reply: ModelReplied) -> None:
        """Derive from the first reply with usage how many tokens of the prompt the transcript does not show."""
        prompt = reply.usage.prompt
        if self._missing_tokens is None and self._first_tokens >= 0 and prompt:
            factor = FAMILY_FACTORS[family_of(reply.model or self._model)]
            self._missing_tokens = max(0, round(prompt / factor) - self._first_tokens)

    def count(self, event: Event) -> None:
        """Count the items of a recorded event, or discard the count if the event changed the view in another way."""
        body = event.body
        kind = type(body)
        if isinstance(body, Rewound):
            self._tokens = self._tokens_after.get(body.to)
        elif kind in _EDITS or (isinstance(body, ContextStated) and body.head is not None):
            self._tokens = None
        elif self._tokens is not None and kind in _ADDS_ITEMS:
            self._tokens += sum(self._counter.item(item) for item in items_of(event.seq, body))
        if self._tokens is not None:
            self._tokens_after[event.seq] = self._tokens

    def replay(self, event: Event, log: Log) -> None:
        """Replay an event of an earlier import."""
        self._tokens = None
        if self._missing_tokens is not None:
            return
        body = event.body
        if isinstance(body, CallStarted) and body.purpose == "turn" and not body.estimate:
            self._pending_call, self._model = event.seq, body.model
        elif isinstance(body, ModelReplied) and body.usage.prompt:
            self.count_pending_call(log)
            self.calibrate(body)

    def count_pending_call(self, log: Log) -> None:
        """Count the view of the newest call without an estimate again, because its reply may follow."""
        if self._missing_tokens is None and self._pending_call >= 0:
            self._first_tokens = self._counter.raw(log.state_at(self._pending_call).view)


AnyBody = TypeVar("AnyBody", bound=Body)


class Provenance(Struct, frozen=True, omit_defaults=True):
    """Content of the field `foreign` of an imported body: the key of its event, and the rest of the source line.

    `form` is the format of the line if the session itself comes from elsewhere: another program continued an export of it.
    """

    key: str = ""
    line: Raw = NULL
    form: str = ""


# Unreadable places of one file after which it is taken for something else, so that its rest is not read.
_MOST_PROBLEMS = 10_000
# Provenance of events without a key, and of rewinds that the import adds.
_NO_KEY = Raw(b"{}")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Provenance).decode


class Counts(Value, frozen=True):
    """How many events of each kind an import added."""

    events: int = 0
    user_messages: int = 0
    calls: int = 0
    results: int = 0
    folds: int = 0
    masks: int = 0
    bad_lines: int = 0


class ImportTally:
    """Counts the events that an import adds, by kind."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(Counts.__struct_fields__, 0)

    def add(self, body: Body) -> None:
        """Count one event."""
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

    def counts(self, bad_lines: int) -> Counts:
        """What was counted so far."""
        return Counts(**{**self._counts, "bad_lines": bad_lines})


class Imported(Value, frozen=True):
    """The result of importing one session: its id here, what was added, what could not be read, and where the next import continues.

    `tip` is the newest event of the log, or -1 if there is no log. A log that ends before it is not the one that the position belongs to.
    """

    session: str
    counts: Counts
    problems: tuple[ReadProblem, ...] = ()
    position: ReadPosition | None = None
    tip: int = -1


def session_id(format_name: str, session: str) -> str:
    """The id of an imported session. It is always the same, so that a second import finds the log of the first."""
    plain = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in session)
    if plain == session and len(format_name) + len(plain) < 128:
        return f"{format_name}-{plain}"
    # A digest keeps apart two names that differ only in characters an id cannot have.
    return f"{format_name}-{plain[:90]}-{sha256(session.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def parent_place(format_name: str, parent: str) -> EventRef | None:
    """The imported parent of a session, if the other program names one; its event is always 0.

    The first line of a child is written once and does not depend on the order in which files are read, or on how far the parent's file
    has grown. `ChildOpened` in the parent's log says which call opened the child.
    """
    return EventRef(session_id(format_name, parent), 0) if parent else None


def import_session(
    form: Format,
    source: TranscriptSource,
    store: SessionStore,
    blobs: Blobs,
    clock: Clock,
    *,
    position: ReadPosition | None = None,
    since: int = -1,
    into: str = "",
    through: Callable[[Iterator[ReadOutput]], Iterator[ReadOutput]] = iter,
) -> Imported:
    """Read what is new in a session into its log, creating the log if there is none. Events that are there already are skipped.

    `position` belongs to an earlier import that left the log at the event `since`; without that event everything is read again. `into`
    is the session that the file was exported from, which then gets what the other program added. What is read goes `through` a function
    first. Raises `StoreError` if the log cannot be written.
    """
    own_id = session_id(form.name, source.session)
    log_import = _LogImport(BufferedStore(store), into or own_id, clock, form.name if into not in {"", own_id} else "")
    try:
        for output in read_guarded(form, source, blobs, position if log_import.continues(since) else None, through):
            match output:
                case ReadEvent():
                    log_import.add(output)
                case ReadProblem():
                    log_import.problems.append(output)
                    if len(log_import.problems) >= _MOST_PROBLEMS:
                        log_import.problems.append(ReadProblem(source.path, f"reading stopped after {_MOST_PROBLEMS:,} unreadable places"))
                        break
                case ReadPosition():
                    log_import.position = output
        return log_import.result()
    finally:
        log_import.close()


def read_guarded(
    form: Format,
    source: TranscriptSource,
    blobs: Blobs,
    position: ReadPosition | None,
    through: Callable[[Iterator[ReadOutput]], Iterator[ReadOutput]] = iter,
) -> Iterator[ReadOutput]:
    """What a format yields, gone `through` a function; an exception becomes the last problem, and what was yielded before it stays.

    What is refused is not read at all: `BadInput` and `StoreError` are raised.
    """
    try:
        yield from through(form.read(source, blobs, position))
    except (StoreError, BadInput):
        raise
    except OSError as error:
        yield ReadProblem(source.path, f"reading stopped: {error.strerror or error}")
    except Exception as error:  # noqa: BLE001 - one unreadable file must not stop the import of the others
        yield ReadProblem(source.path, f"reading stopped: {type(error).__name__}: {error}")


class _LogImport:
    """A log that is being filled; the context of deferred bodies."""

    def __init__(self, store: SessionStore, session: str, clock: Clock, form: str = "") -> None:
        self._store = store
        self._session = session
        self._clock = clock
        self._form = form
        self._origins: dict[ExportOrigin, bool] = {}
        self._index = EventIndex()
        # The newest imported event, and the tip if events were recorded here after it, else -1.
        self._last_imported = self._local_tip = -1
        # The event at which the next event begins a branch; the rewind is written only if that event records something.
        self._branch_from: int | None = None
        self._estimator = CallEstimator()
        self._tally = ImportTally()
        self.problems: list[ReadProblem] = []
        self.position: ReadPosition | None = None
        self._log: Log | None = None
        self.exists = False
        try:
            self._log = Log.open(store, session, clock, write=True)
        except BadInput:
            return
        self.exists = True
        try:
            self._index_earlier_imports(self._log)
        except BaseException:
            self._log.close()
            raise

    def _index_earlier_imports(self, log: Log) -> None:
        """Index the events of earlier imports."""
        for event in log.reader.run(0, log.tip):
            provenance = provenance_of(event.body)
            if provenance is not None and provenance.form == self._form:
                self._last_imported = event.seq
                self._index.add(event.seq, event.body, provenance.key)
            self._estimator.replay(event, log)
        self._estimator.count_pending_call(log)
        log.expect_jumps()
        self._local_tip = log.tip if log.tip != self._last_imported else -1

    def continues(self, since: int) -> bool:
        """Whether reading can continue where an import that left the log at event `since` stopped.

        After events that were recorded here it cannot: their lines may have been exported, and are recognised only if they are read.
        """
        return self.exists and self.tip >= since and self._local_tip < 0

    @property
    def tip(self) -> int:
        """The newest event of the log; -1 if there is no log."""
        return -1 if self._log is None else self._log.tip

    @property
    def view(self) -> View:
        """The view at the point where the next event follows."""
        log = self._require_log()
        return log.view if self._branch_from is None else log.state_at(self._branch_from).view

    def item_ids(self, key: str) -> tuple[str, ...]:
        """Ids of the items that the event of that key added."""
        return self._index.item_ids(key)

    def add(self, read_event: ReadEvent) -> None:
        """Record one event, unless its key is recorded already. What does not fit the log becomes a problem."""
        if read_event.key and read_event.key in self._index:
            return
        if self._log is None:
            self._create_log(read_event)
            return
        if self._is_exported(self._log, read_event):
            return
        try:
            self._branch_from = self._branch_point(self._log, read_event)
            body = built_body(read_event, self)
            if body is not None:
                self._rewind(self._log, read_event)
                self._append_imported(self._log, body, read_event)
        except UNFIT as error:
            self.problems.append(ReadProblem(read_event.key, f"it could not be taken over: {error}"))

    def _is_exported(self, log: Log, read_event: ReadEvent) -> bool:
        """Whether the log has an event already because its line was exported from this log; then its key names that event from now on."""
        mark = read_event.mark
        if mark is None:
            # The opening of a file that continues a session of another origin.
            return bool(self._form) and isinstance(read_event.body, SessionOpened)
        if mark.origin not in self._origins:
            self._origins[mark.origin] = is_original(log, mark.origin)
        if not self._origins[mark.origin] or mark.seq > mark.origin.tip:
            return False
        self._last_imported = max(self._last_imported, mark.origin.tip)
        if self._local_tip <= mark.origin.tip:
            # Nothing was recorded here since the export, so what follows in the file continues the log.
            self._local_tip = -1
        self._index.add(mark.seq, log.event(mark.seq).body, read_event.key)
        return True

    def _create_log(self, read_event: ReadEvent) -> None:
        if not isinstance(read_event.body, SessionOpened):
            raise BadInput("the reader did not begin with the opening of the session", where=self._session)
        body = self._with_provenance(structs.replace(read_event.body, session=self._session), read_event)
        self._log = Log.create(self._store, body, _OpeningClock(read_event.at, self._clock))
        self._log.expect_jumps()
        self._index.add(self._log.tip, body, read_event.key)
        self._last_imported = self._log.tip
        self._tally.add(body)

    def _branch_point(self, log: Log, read_event: ReadEvent) -> int | None:
        """The event to rewind to before this one: the one it follows, or the newest imported one if events were recorded here since."""
        to = self._index.branch_target(read_event)
        if to is None and self._local_tip >= 0:
            to = self._last_imported
        return to if to != log.tip else None

    def _rewind(self, log: Log, read_event: ReadEvent) -> None:
        if self._branch_from is not None:
            self._estimator.count(log.append(Rewound(self._branch_from, foreign=_NO_KEY), at=read_event.at, foreign=True))
            self._branch_from = None

    def _append_imported(self, log: Log, body: Body, read_event: ReadEvent) -> None:
        match body:
            case CallStarted():
                body = self._estimator.with_estimate(body, log)
            case ModelReplied():
                self._estimator.calibrate(body)
            case _:
                pass
        event = log.append(self._with_provenance(body, read_event), at=read_event.at, foreign=True)
        self._estimator.count(event)
        self._last_imported = event.seq
        self._index.add(event.seq, event.body, read_event.key)
        self._tally.add(event.body)

    def _with_provenance(self, body: AnyBody, read_event: ReadEvent) -> AnyBody:
        return structs.replace(body, foreign=Raw(_encode(Provenance(read_event.key, read_event.line, self._form))))

    def _require_log(self) -> Log:
        if self._log is None:
            raise BadInput("nothing was read yet", where=self._session)
        return self._log

    def result(self) -> Imported:
        """Sync the log and sum up the import."""
        if self._log is not None:
            if self._local_tip >= 0 and self._log.tip != self._local_tip:
                # Work that was continued here stays current; what the other program added since is a branch beside it.
                self._log.append(Rewound(self._local_tip))
            self._log.sync()
        return Imported(self._session, self._tally.counts(len(self.problems)), tuple(self.problems), self.position, self.tip)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()


class _OpeningClock:
    """A clock whose first time is when the session was opened in the other program; then it is the real clock."""

    def __init__(self, at: int, later: Clock) -> None:
        self._times: Iterator[int] = iter((at,))
        self._later = later

    def now(self) -> int:
        return next(self._times, None) or self._later.now()


def provenance_of(body: Body) -> Provenance | None:
    """The provenance of an imported body; None if it was not imported."""
    raw = body.foreign
    return None if bytes(raw) == b"null" else _decode(raw)


def foreign_key(body: Body) -> str:
    """The other program's id of an event; empty if it has none or was not imported."""
    provenance = provenance_of(body)
    return "" if provenance is None else provenance.key


VERSION = 1


class SourceCursor(Value, frozen=True):
    """State of a source after its last import: its stamp, the log it was imported to, the newest event there, and where reading stopped.

    `secrets` counts the secrets found in the first `searched` bytes of the log, by class.
    """

    format: str
    path: str
    session: str
    log: str
    changed: str = ""
    tip: int = -1
    position: ReadPosition | None = msgspec.field(default=None, name="mark")
    secrets: dict[str, int] = {}
    searched: int = 0


class _CursorFile(Value, frozen=True):
    v: int = VERSION
    cursors: tuple[SourceCursor, ...] = msgspec.field(default=(), name="seen")


class Cursors:
    """The cursors of all sources, kept in one slot that is replaced as a whole."""

    def __init__(self, slot: StateSlot, cursors: tuple[SourceCursor, ...] = ()) -> None:
        self._slot = slot
        self._cursors = {(cursor.format, cursor.path, cursor.session): cursor for cursor in cursors}
        self._changed = False

    @classmethod
    def load(cls, slot: StateSlot) -> "Cursors":
        """The cursors in a slot; none if it is empty, damaged or of another version."""
        data = slot.load()
        try:
            stored = _CursorFile() if data is None else msgspec.json.decode(data, type=_CursorFile)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return cls(slot)
        return cls(slot, stored.cursors if stored.v == VERSION else ())

    def of(self, source: TranscriptSource) -> SourceCursor | None:
        """The cursor of a source; None if it was never imported."""
        return self._cursors.get((source.format, source.path, source.session))

    def put(self, cursor: SourceCursor) -> None:
        """Set the cursor of a source."""
        key = (cursor.format, cursor.path, cursor.session)
        self._changed = self._changed or self._cursors.get(key) != cursor
        self._cursors[key] = cursor

    def all(self) -> tuple[SourceCursor, ...]:
        """All cursors, sorted by format, path and session."""
        return tuple(self._cursors[key] for key in sorted(self._cursors))

    def save(self) -> None:
        """Write the cursors if any has changed. A slot that cannot be written is ignored: the next import reads more than it needs."""
        if self._changed and self._slot.save(msgspec.json.encode(_CursorFile(cursors=self.all()))):
            self._changed = False
