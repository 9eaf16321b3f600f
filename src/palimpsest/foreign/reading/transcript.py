"""The protocol of a transcript format, what reading a session yields and where it is placed, and the marks of exported lines."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from msgspec import Raw, structs

from palimpsest.core.edits import Fold, Insert, Into, Keep, Mask, Put, into_of
from palimpsest.core.errors import BadEdit, BadInput
from palimpsest.core.events import NULL, Body, Event, ForeignNoted, ToolReturned, ViewEdited
from palimpsest.core.events.event_items import items_of
from palimpsest.core.items import Text, ToolCall, Value
from palimpsest.core.log.log import Log
from palimpsest.core.ports import Blobs
from palimpsest.core.view import View
from palimpsest.wire.json_reading import Json, text

# The field of a line. Other programs ignore fields that they do not know.
FIELD = "palimpsest"
# How the stamp of a file ends that is being written: a reply at its end may still be completed.
LIVE = "-live"
# Why a body does not fit a session; the event is then left out, and reading goes on.
UNFIT = (BadEdit, BadInput, UnicodeEncodeError)
_NO_VIEW = View()
_LINK_DIGITS = 16
_MARK = re.compile(r"([A-Za-z0-9._-]{1,128})@(\d{1,15})/(\d{1,15}):([0-9a-f]{16})")
_MARK_FIELD = re.compile(rb'"palimpsest":"([^"\\]{1,200})"')


class ExportOrigin(Value, frozen=True):
    """The session that a file was exported from, its newest event at that time, and the first digits of the link of that event."""

    session: str
    tip: int
    link: str

    def mark(self, seq: int) -> str:
        """The mark of a line that was written from event `seq`."""
        return f"{self.session}@{min(seq, self.tip)}/{self.tip}:{self.link}"


class LineMark(Value, frozen=True):
    """The parsed mark of a line: the event that it was written from, and the origin of its file."""

    origin: ExportOrigin
    seq: int


class TranscriptSource(Value, frozen=True):
    """A session of another program on disk. `session` is its id there. `changed` is a stamp that differs once the file has changed.

    `origin` is set if the file was exported from a session of this program.
    """

    format: str
    path: str
    session: str
    changed: str = ""
    parent: str = ""
    origin: ExportOrigin | None = None


class ImportContext(Protocol):
    """State of an import at the moment when a body is built."""

    @property
    def view(self) -> View:
        """The view before the event."""
        ...

    def item_ids(self, key: str) -> tuple[str, ...]:
        """Ids of the items that the event of that key added; empty if the key is unknown or the event added none."""
        ...


# A body that names items of the log, and so can be built only when the import records it; None if nothing is to be recorded.
DeferredBody: TypeAlias = Callable[[ImportContext], Body | None]


class ReadEvent(Value, frozen=True):
    """One event read from a transcript, in the order of the conversation.

    `key` is the other program's id of it. `after` is the key of the event it follows; empty if that is the event read before it. `line`
    is the rest of the source line as JSON: together with the body it is enough to write the line back exactly. `mark` is set if this
    program exported the line.
    """

    body: Body | DeferredBody
    at: int
    key: str = ""
    after: str = ""
    line: Raw = NULL
    mark: LineMark | None = None


class ReadProblem(Value, frozen=True):
    """A place in a transcript that could not be read, and the reason. Reading continues after it."""

    where: str
    why: str


class ReadPosition(Value, frozen=True):
    """Where reading stopped; yielded last, and passed to the next `read`.

    `state` is private to the format.
    """

    offset: int = 0
    state: Raw = NULL


# What reading a session yields: events and problems in order, and last the position.
ReadOutput: TypeAlias = ReadEvent | ReadProblem | ReadPosition


class SourceFinder(Protocol):
    """Finds the sessions of one program."""

    @property
    def name(self) -> str:
        """The name in commands: `claude`, `codex`, `opencode`."""
        ...

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """The sessions in a file, or in all files below a folder; nothing if the path is not of this program."""
        ...


class Format(SourceFinder, Protocol):
    """The transcript format of one program."""

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The paths where the program keeps its sessions by default."""
        ...

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The events of a session in order, `SessionOpened` first; after a `position` only those that are new since."""
        ...


@dataclass(frozen=True, slots=True)
class DeferredResult:
    """A tool result in a file that does not name the call: it answers part `number` of the reply of that key."""

    key: str
    number: int
    body: ToolReturned

    def __call__(self, context: ImportContext) -> Body:
        """The result with the recorded id of its call; with an empty id if the call is not in the view."""
        ids = context.item_ids(self.key)
        wanted = ids[self.number] if self.number < len(ids) else ""
        calls = (item.content for item in reversed(context.view.items) if item.id == wanted)
        call_id = next((call.call_id for call in calls if isinstance(call, ToolCall)), "")
        return structs.replace(self.body, result=structs.replace(self.body.result, call_id=call_id))


@dataclass(frozen=True, slots=True)
class DeferredMask:
    """An edit that covers the items of the event `key` with a text, or hides them if the text is empty."""

    by: str
    why: str
    key: str
    text: str

    def __call__(self, context: ImportContext) -> Body:
        """The edit, or `ForeignNoted` if the event added no items."""
        ids = context.item_ids(self.key)
        return ViewEdited((Mask(ids, self.text),), self.by, self.why) if ids else ForeignNoted(self.by)


@dataclass(frozen=True, slots=True)
class DeferredFold:
    """An edit that removes the items of some events and puts `instead` where the first of them was; items in between stay."""

    by: str
    why: str
    keys: tuple[str, ...]
    instead: tuple[Put, ...] = ()

    def __call__(self, context: ImportContext) -> Body:
        """The edit, or `ForeignNoted` if there is nothing to remove and nothing to insert."""
        removed = {item_id for key in self.keys for item_id in context.item_ids(key)}
        ids = context.view.ids
        indexes = [index for index, item_id in enumerate(ids) if item_id in removed]
        if not indexes:
            # An edit without a target is noted, so that the next import does not try it on a later view.
            return ViewEdited((Insert(self.instead),), self.by, self.why) if self.instead else ForeignNoted(self.by)
        run = ids[indexes[0] : indexes[-1] + 1]
        into: Into = (*self.instead, *(Keep(item_id) for item_id in run if item_id not in removed))
        return ViewEdited((Fold(run[0], run[-1], into),), self.by, self.why)


@dataclass(frozen=True, slots=True)
class DeferredCompaction:
    """A compaction: the summary replaces what is before the event `first_kept`, or up to the event `last`, or else everything."""

    by: str
    summary: str
    tokens_before: int = 0
    tokens_after: int = 0
    first_kept: str = ""
    last: str = ""

    def __call__(self, context: ImportContext) -> Body:
        """The edit, or `ForeignNoted` if there is nothing to replace."""
        ids = context.view.ids
        kept, folded = ([ids.index(name) for name in context.item_ids(key) if name in ids] for key in (self.first_kept, self.last))
        stop = kept[0] if kept else folded[-1] + 1 if folded else len(ids)
        if not stop:
            # An edit without a target is noted, so that the next import does not try it on a later view.
            return ForeignNoted(self.by)
        fold = Fold(ids[0], ids[stop - 1], (Put("summary", Text(self.summary)),))
        return ViewEdited((fold,), self.by, "compaction", tokens_before=self.tokens_before, tokens_after=self.tokens_after)


class EventIndex:
    """The events of a session by the other program's keys, and the items that each of them added."""

    def __init__(self) -> None:
        self._seqs: dict[str, int] = {}
        # By event: how many items it added. For an edit the edit itself, replaced on first use by the ids of the items that it inserted.
        self._added: dict[int, int | ViewEdited | tuple[str, ...]] = {}
        self._last_key = ""

    def __contains__(self, key: str) -> bool:
        return key in self._seqs

    def add(self, seq: int, body: Body, key: str) -> None:
        """Add an event; one without a key cannot be found again."""
        if key:
            added = body if isinstance(body, ViewEdited) else len(items_of(seq, body))
            self.add_items(seq, key, added)

    def add_items(self, seq: int, key: str, added: int | ViewEdited) -> None:
        """Add an event of which only the number of its items is known, or the edit that it is."""
        self._seqs[key] = seq
        self._last_key = key
        if added:
            self._added[seq] = added

    def branch_target(self, event: ReadEvent) -> int | None:
        """The event that a read event follows; `None` if that is the one before it, or not known."""
        return self._seqs.get(event.after) if event.after and event.after != self._last_key else None

    def item_ids(self, key: str) -> tuple[str, ...]:
        """Ids of the items that the event of that key added."""
        seq = self._seqs.get(key, -1)
        added = self._added.get(seq, 0)
        if isinstance(added, ViewEdited):
            added = self._added[seq] = inserted_ids(seq, added)
        return tuple(f"{seq}.{number}" for number in range(added)) if isinstance(added, int) else added


def built_body(event: ReadEvent, context: ImportContext) -> Body | None:
    """The body of a read event, built now if it was deferred; `None` if nothing is to be recorded. Raises one of `UNFIT`."""
    return event.body if isinstance(event.body, Value) else event.body(context)


def inserted_ids(seq: int, body: ViewEdited) -> tuple[str, ...]:
    """Ids of the items that the edits of an event inserted, in order."""
    pieces = ((index, number, piece) for index, edit in enumerate(body.edits) for number, piece in enumerate(into_of(edit)))
    return tuple(f"{seq}.{index}.{number}" for index, number, piece in pieces if isinstance(piece, Put))


class PlacedEvents:
    """Places the events of a transcript without a log, behind event `first`: each gets its number and its parent.

    There is no view, so edits are not those of an import, and only their places count. `after_reply` is the key of the last reply before
    `first` and the number of its items: a reply may go on behind the place where an earlier reading stopped.
    """

    def __init__(self, first: int = 0, after_reply: tuple[str, int] = ("", 0)) -> None:
        self._index = EventIndex()
        self._seq = self._tip = first
        key, items = after_reply
        if key:
            self._index.add_items(first, key, items)

    @property
    def view(self) -> View:
        """An empty view."""
        return _NO_VIEW

    def item_ids(self, key: str) -> tuple[str, ...]:
        """Ids of the items that the event of that key added."""
        return self._index.item_ids(key)

    def place(self, read: ReadEvent) -> Event | None:
        """The event that a read event becomes; `None` if it is known already, or nothing is to be recorded."""
        if read.key and read.key in self._index:
            return None
        target = self._index.branch_target(read)
        try:
            body = built_body(read, self)
        except (*UNFIT, LookupError):
            # An edit that names items of the view; it keeps its place, because a branch may begin behind it.
            body = ForeignNoted(read.key)
        if body is None:
            return None
        self._seq += 1
        parent, self._tip = self._tip if target is None else target, self._seq
        self._index.add(self._seq, body, read.key)
        return Event(self._seq, parent, read.at, "", body)


def origin_of(log: Log, seq: int | None = None) -> ExportOrigin:
    """The origin of an export of a log as it was after event `seq`, or as it is now."""
    tip = log.tip if seq is None else seq
    return ExportOrigin(log.session, tip, log.reader.link(tip)[:_LINK_DIGITS])


def mark_on(line: Json) -> LineMark | None:
    """The mark of a line; None if it has none or not a valid one."""
    return _parsed(text(line, FIELD)) if FIELD in line else None


def first_origin(head: bytes) -> ExportOrigin | None:
    """The origin in the first bytes of a file; None if no line there is marked."""
    found = _MARK_FIELD.search(head)
    mark = None if found is None else _parsed(found[1].decode("utf-8", "replace"))
    return None if mark is None else mark.origin


def is_original(log: Log, origin: ExportOrigin) -> bool:
    """Whether a log has the event that an export ended with. Who does not know the log cannot name the link of its event."""
    return log.session == origin.session and origin.tip <= log.tip and log.reader.link(origin.tip)[:_LINK_DIGITS] == origin.link


def _parsed(mark: str) -> LineMark | None:
    found = _MARK.fullmatch(mark)
    return None if found is None else LineMark(ExportOrigin(found[1], int(found[3]), found[4]), int(found[2]))
