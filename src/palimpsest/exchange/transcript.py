"""The protocol of a transcript format, the events that its reader yields, shared conversions, and call ids for exports."""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Protocol, TypeAlias

from msgspec import Raw, structs

from palimpsest.core.errors import BadEdit, BadInput
from palimpsest.core.events import NULL, Body, CallStarted, Event, ForeignNoted, ModelReplied, ToolReturned, Usage, ViewEdited, items_of
from palimpsest.core.items import (
    Content,
    Fold,
    Insert,
    Into,
    Item,
    Keep,
    Mask,
    Part,
    Put,
    Role,
    Signature,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Value,
    into_of,
    pairs_of,
    seq_of,
)
from palimpsest.core.lines import Path as FileIdsPath
from palimpsest.core.log import Log
from palimpsest.core.ports import Blobs
from palimpsest.core.text import is_date
from palimpsest.core.view import View
from palimpsest.wire.json_reading import Json, dump, is_json, number, table_at, tables_at, text
from palimpsest.wire.media import blob_part, linked_part

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


class Format(Protocol):
    """The transcript format of one program."""

    @property
    def name(self) -> str:
        """The name in commands: `claude`, `codex`, `opencode`."""
        ...

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """The sessions in a file, or in all files below a folder; nothing if the path is not of this program."""
        ...

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


# A number below this is in seconds (until the year 5138), one above in milliseconds (since 1973).
_SECONDS_END = 100_000_000_000
_TOKEN_FIELDS = (("prompt", "input"), ("completion", "output"))


def milliseconds(value: object) -> int:
    """A timestamp (ISO 8601, or a number of seconds or milliseconds) in milliseconds since 1970.

    It is 0 if it is none, or outside of the years 1970 to 9999: then only the recorded line has it, as it stood there.
    """
    at = _milliseconds(value)
    return at if is_date(at) else 0


def _milliseconds(value: object) -> int:
    try:
        match value:
            case str():
                time = datetime.fromisoformat(value.strip())
                return int((time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp() * 1000)
            case int() | float() if not isinstance(value, bool):
                return int(value if value >= _SECONDS_END else value * 1000)
            case _:
                return 0
    except (OverflowError, ValueError):
        return 0


def call_of(model: str) -> CallStarted:
    """A call of a model by another program, with the wire that the model's provider uses."""
    return CallStarted(model, wire_of(model))


def wire_of(model: str) -> str:
    """The wire that the provider of a model uses, guessed from the model's name."""
    name = model.rpartition("/")[2]
    if name.startswith("claude"):
        return "anthropic"
    return "responses" if name.startswith(("gpt-5", "gpt-6", "codex")) else "chat"


def provider_of(model: str) -> str:
    """The provider of a model as signatures name it, guessed from the model's name."""
    return {"anthropic": "anthropic", "responses": "openai"}.get(wire_of(model), "other")


def parts_of(content: object, blobs: Blobs, role: Role = "user") -> tuple[Part, ...]:
    """The parts of a message: a text, or a list of texts and images in one of the usual shapes. Empty texts are left out."""
    if isinstance(content, str):
        return (Text(content, role),) if content else ()
    if not isinstance(content, Sequence):
        return ()
    found = (part for each in content for part in (linked_parts(each, blobs) or (_transcript_part(each, blobs, role),)))
    return tuple(part for part in found if part is not None)


def linked_parts(holder: object, blobs: Blobs) -> list[Part]:
    """The images at the URLs that an object lists as `image_urls`."""
    links = holder.get("image_urls") if is_json(holder) else None
    listed = links if isinstance(links, list) else []
    return [part for link in listed if isinstance(link, str) and (part := linked_part(link, blobs)) is not None]


def _transcript_part(each: object, blobs: Blobs, role: Role) -> Part | None:
    if isinstance(each, str):
        return Text(each, role) if each else None
    if not is_json(each):
        return None
    match text(each, "type"):
        case "image_url":
            link = each.get("image_url")
            return linked_part(text(link, "url") if is_json(link) else text(each, "image_url"), blobs)
        case "image":
            source = table_at(each, "source") or each
            media = text(source, "media_type") or text(source, "mimeType") or text(source, "mime_type")
            return blob_part(media, text(source, "data"), blobs)
        case _:
            return Text(text(each, "text"), role) if text(each, "text") else None


def texts_of(content: object) -> str:
    """The text of a message in one of the usual shapes, its texts joined by newlines."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    return "\n".join(found for each in content if (found := each if isinstance(each, str) else text(each, "text") if is_json(each) else ""))


def arguments_of(value: object) -> str:
    """The arguments of a call as JSON text; they may be text already."""
    return value if isinstance(value, str) else dump(value or {})


def calls_of(message: Json) -> Iterator[ToolCall]:
    """The calls of a message in the shape of Chat Completions."""
    for request in tables_at(message, "tool_calls"):
        function = table_at(request, "function")
        yield ToolCall(text(request, "id"), text(function, "name"), arguments_of(function.get("arguments")))


def thinking_of(holder: Json, model: str) -> Iterator[Thinking]:
    """The reasoning of a message: blocks with the provider's signature, or else a text."""
    blocks = tables_at(holder, "thinking_blocks")
    for block in blocks:
        thinking, signature = text(block, "thinking"), text(block, "signature")
        seal = Signature(provider_of(model), model.rpartition("/")[2], signature) if signature else None
        if thinking or seal is not None:
            yield Thinking(thinking, seal, "whole" if thinking else "sealed")
    if not blocks and text(holder, "reasoning_content"):
        yield Thinking(text(holder, "reasoning_content"))


def chat_usage(usage: Json) -> Usage:
    """Token counts from the usage of Chat Completions or Responses, where cached tokens are part of the prompt."""
    details = table_at(usage, "prompt_tokens_details") or table_at(usage, "input_tokens_details")
    written = number(usage, "cache_creation_input_tokens") or number(details, "cache_creation_tokens")
    cached = number(details, "cached_tokens") or number(usage, "cache_read_input_tokens") or number(usage, "prompt_cache_hit_tokens")
    prompt, output = (number(usage, f"{old}_tokens") or number(usage, f"{new}_tokens") for old, new in _TOKEN_FIELDS)
    thoughts = table_at(usage, "completion_tokens_details") or table_at(usage, "output_tokens_details")
    return Usage(max(0, prompt - cached - written), cached, written, output=output, reasoning=number(thoughts, "reasoning_tokens"))


# Maps an id to one that the target program accepts.
IdFilter: TypeAlias = Callable[[str], str]


def paired_items(events: Iterable[Event]) -> Iterator[Item]:
    """The items of tool calls and tool results in the conversation that have a call id."""
    for event in events:
        if isinstance(event.body, ModelReplied | ToolReturned):
            for item in items_of(event.seq, event.body):
                if isinstance(item.content, ToolCall | ToolResult) and item.content.call_id:
                    yield item


def own_id(call: ToolCall) -> str:
    """The id that a call had in its provider's reply."""
    return call.given or call.call_id


class FileIds:
    """The ids of a session's calls in one file. Calls in the items `kept`, whose lines are in the file already, keep their own id.

    Logs of 0.1.0 may have several calls with one id, so ids in the file are assigned by item. A result has the id of the call that it
    answers. Pairs along `path` take precedence, so that a result of another branch does not answer first.
    """

    def __init__(self, items: Iterable[Item], accepted: IdFilter, kept: Container[str] = (), path: FileIdsPath | None = None) -> None:
        self._accepted = accepted
        items = tuple(items)
        self._id_by_item: dict[str, str] = {}
        self._id_by_call: dict[str, str] = {}
        self._taken: set[str] = set()
        calls = [(item.id, item.content) for item in items if isinstance(item.content, ToolCall)]
        for item_id, call in calls:
            if item_id in kept:
                self._assign(item_id, call, own_id(call))
        # As in a request, a recorded id belongs to the call recorded under it, even if a provider gave it to an earlier call.
        for item_id, call in sorted(calls, key=lambda each: bool(each[1].given)):
            if item_id not in self._id_by_item:
                self._assign(item_id, call, self._unused_id(call))
        call_of_result = {result.id: call.id for call, result in pairs_of(items)}
        if path is not None:
            call_of_result |= {result.id: call.id for call, result in pairs_of(item for item in items if seq_of(item.id) in path)}
        self._id_by_item |= {result: self._id_by_item[call] for result, call in call_of_result.items()}

    def _assign(self, item_id: str, call: ToolCall, file_id: str) -> None:
        self._id_by_item[item_id] = self._id_by_call[call.call_id] = file_id
        self._taken.add(file_id)

    def _unused_id(self, call: ToolCall) -> str:
        accepted_id = self._accepted(call.call_id)
        # Two ids may differ only in characters that the program does not accept.
        numbered = (f"{accepted_id}_{number}" for number in count(2))
        return next(file_id for file_id in chain((self._accepted(own_id(call)), accepted_id), numbered) if file_id not in self._taken)

    def of(self, item_id: str, call_id: str) -> str:
        """The id in the file of a call or result, by its item; of one that an edit inserted, by `call_id`."""
        return self._id_by_item.get(item_id) or self._id_by_call.get(call_id) or self._accepted(call_id)

    def renamed(self, item_id: str, content: Content) -> Content:
        """The content of an item with its id in the file, if it is a call or a result."""
        match content:
            case ToolCall() if content.call_id:
                return structs.replace(content, call_id=self.of(item_id, content.call_id), given="")
            case ToolResult() if content.call_id:
                return structs.replace(content, call_id=self.of(item_id, content.call_id))
            case _:
                return content

    def renamed_event(self, event: Event) -> Event:
        """A copy of an event whose calls and results have their ids in the file."""
        body, seq = event.body, event.seq
        if isinstance(body, ToolReturned):
            return structs.replace(event, body=structs.replace(body, result=self.renamed(f"{seq}.0", body.result)))
        if isinstance(body, ModelReplied) and any(isinstance(part, ToolCall) for part in body.parts):
            parts = tuple([self.renamed(f"{seq}.{number}", part) for number, part in enumerate(body.parts)])
            return structs.replace(event, body=structs.replace(body, parts=parts))
        return event
