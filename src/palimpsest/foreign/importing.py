"""A session of another program becomes a log of ours: fact by fact, once, with its branches and its edits."""

from collections.abc import Iterator
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct, structs

from palimpsest.core.edits import Fold, Mask
from palimpsest.core.errors import BadEdit, BadInput
from palimpsest.core.events import Body, Event, ModelReplied, Rewound, SessionOpened, ToolReturned, UserSaid, ViewEdited
from palimpsest.core.items import ToolCall, Value
from palimpsest.core.log import Log
from palimpsest.core.ports import Blobs, Clock, Shelf
from palimpsest.core.project import pieces_of
from palimpsest.core.view import View
from palimpsest.foreign.transcript import BadLine, Format, Mark, Source, Told


AnyBody = TypeVar("AnyBody", bound=Body)


class Foreign(Struct, frozen=True, omit_defaults=True):
    """What an imported body carries in `foreign`: the key of its fact, and the line it came from less what the body says."""

    key: str = ""
    line: Raw = Raw(b"null")


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
    """One session, imported: under which id, how much was new, what could not be read, and where to go on next time."""

    session: str
    counts: Counts
    bad: tuple[BadLine, ...] = ()
    mark: Mark | None = None


def session_id(format_name: str, session: str) -> str:
    """The id of an imported session; always the same, so that a second import finds the first."""
    plain = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in session)
    return f"{format_name}-{plain}"[:128]


def import_session(form: Format, source: Source, shelf: Shelf, blobs: Blobs, clock: Clock, *, mark: Mark | None = None) -> Imported:
    """Read what is new in a session into its log, making the log if there is none; facts that are there already are passed over."""
    recording = _Recording(shelf, session_id(form.name, source.session), clock)
    try:
        for told in form.read(source, blobs, mark if recording.exists else None):
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


class _Recording:
    """A log that is being filled; it is the desk that facts look at."""

    def __init__(self, shelf: Shelf, session: str, clock: Clock) -> None:
        self._shelf = shelf
        self._session = session
        self._clock = clock
        self._seqs: dict[str, int] = {}
        self._tip = ""
        self._counts = dict.fromkeys(Counts.__struct_fields__, 0)
        self.bad: list[BadLine] = []
        self.mark: Mark | None = None
        self._log: Log | None = None
        try:
            self._log = Log.open(shelf, session, clock, write=True)
        except BadInput:
            self.exists = False
            return
        self.exists = True
        for event in self._log.reader.run(self._log.reader.first, self._log.tip):
            self._remember(event, key_of(event.body))

    @property
    def view(self) -> View:
        return self._written().view

    def ids(self, key: str) -> tuple[str, ...]:
        seq = self._seqs.get(key)
        if seq is None:
            return ()
        return tuple(f"{seq}.{number}" for number in range(len(pieces_of(self._written().event(seq).body))))

    def take(self, told: Told) -> None:
        if told.key and told.key in self._seqs:
            return
        if self._log is None:
            self._open(told)
            return
        self._go_back(told)
        body = told.body if isinstance(told.body, Value) else told.body(self)
        if body is None:
            return
        try:
            event = self._log.append(_marked(body, told), at=told.at, foreign=True)
        except BadEdit as error:
            self.bad.append(BadLine(told.key, f"an edit could not be taken over: {error}"))
            return
        self._remember(event, told.key)
        self._count(event.body)

    def _open(self, told: Told) -> None:
        if not isinstance(told.body, SessionOpened):
            raise BadInput("the reader did not begin with the opening of the session", where=self._session)
        body = _marked(structs.replace(told.body, session=self._session), told)
        self._log = Log.create(self._shelf, body, _At(told.at, self._clock))
        self._remember(self._log.event(self._log.tip), told.key)
        self._counts["events"] += 1

    def _go_back(self, told: Told) -> None:
        """Facts that follow an earlier one begin a branch there."""
        to = self._seqs.get(told.after) if told.after and told.after != self._tip else None
        if to is not None and to != self._written().tip:
            self._remember(self._written().append(Rewound(to), at=told.at), "")

    def _remember(self, event: Event, key: str) -> None:
        if key:
            self._seqs[key] = event.seq
            self._tip = key

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
            self._log.sync()
        return Imported(self._session, Counts(**{**self._counts, "bad_lines": len(self.bad)}), tuple(self.bad), self.mark)

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
    return structs.replace(body, foreign=Raw(msgspec.json.encode(Foreign(told.key, told.line)))) if told.key else body


def foreign_of(body: Body) -> Foreign | None:
    """What an imported body carries beside itself, if it was imported."""
    raw = bytes(body.foreign)
    return None if raw == b"null" else msgspec.json.decode(raw, type=Foreign)


def key_of(body: Body) -> str:
    """The other program's id of a fact."""
    found = foreign_of(body)
    return "" if found is None else found.key
