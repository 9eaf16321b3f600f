"""The protocol of a transcript format, and the values that reading a session yields: events, problems and a position."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from msgspec import Raw, structs

from palimpsest.core.edits import Fold, Insert, Into, Keep, Mask, Put
from palimpsest.core.events import NULL, Body, ForeignNoted, ToolReturned, ViewEdited
from palimpsest.core.items import Text, ToolCall, Value
from palimpsest.core.ports import Blobs
from palimpsest.core.view import View
from palimpsest.foreign.reading.origin import ExportOrigin, LineMark


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
