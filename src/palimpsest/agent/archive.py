"""The tools `recall` and `compact`, and the archive of session items, past sessions and search that `recall` reads."""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Annotated, Final, NamedTuple, Protocol

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from palimpsest.agent.tool import AgentTool, ToolError, ToolOutput, define, one_line
from palimpsest.agent.workspace import Workspace
from palimpsest.core.errors import BadInput, MissingBlob
from palimpsest.core.events import Event, ToolReturned, ViewEdited, all_items_of
from palimpsest.core.items import Content, Document, Edit, Fold, Image, Item, Kind, Mask, Part, Text, ToolCall, ToolResult, seq_of, text_of
from palimpsest.core.log import Log
from palimpsest.core.ports import Blobs, Clock, Hit, Index, SessionStore
from palimpsest.core.text import utc_text

RECALL: Final = "recall"
"""The name of the tool; searches leave its own calls and results out."""
PAGE_BYTES: Final = 32_000
"""Bytes of one item in one result; the rest can be recalled with `offset`."""
SHORT_ADDRESS: Final = 12
"""Digits of the address of a blob by which a stub names it."""
_ADDRESS: Final = re.compile(r"[0-9a-f]{12,64}")
_EVENTS: Final = re.compile(r"(\d{1,11})(?:\.\.(\d{1,11}))?")
_LINES: Final = re.compile(r"(\d{1,15})(?:(-)(\d{1,15})?)?")
_GOES_ON: Final = re.compile(r"go on with offset \d+(?: and column \d+)?\]\s*\Z")
MOST_HITS: Final = 20
_SNIPPET: Final = 300
_LEAST_PAGE: Final = 1_000
_NEWLINE: Final = 10


class Recollection(NamedTuple):
    """A recorded item in full. `hidden_by` says which edit hides it, and is empty if the model sees it.

    If the view held only a preview of a tool result, `content` is the full output. `at` is in milliseconds since 1970. For a range of
    events, `content` is the text of all their items.
    """

    id: str
    kind: Kind
    at: int
    content: Content
    hidden_by: str = ""


class RecallArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """One of `id`, `words`, `path`, `query` and `timeline`. `session` restricts a search by words or path, and names the session of an id.

    `all_sessions` widens such a search. `offset` continues a long item at that byte, and `lines` such as `20-80` takes a part of it.
    `history` adds what notes said before, and `all_projects` looks in the sessions of all projects, for a query. `start` and `end` are
    the bounds of a timeline, as dates.
    """

    id: Annotated[str, Meta(max_length=200)] = ""
    words: Annotated[str, Meta(max_length=500)] = ""
    path: Annotated[str, Meta(max_length=1_000)] = ""
    session: Annotated[str, Meta(max_length=200)] = ""
    all_sessions: bool = False
    offset: Annotated[int, Meta(ge=0)] = 0
    lines: Annotated[str, Meta(max_length=40)] = ""
    query: Annotated[str, Meta(max_length=2_000)] = ""
    history: bool = False
    all_projects: bool = False
    timeline: Annotated[str, Meta(max_length=500)] = ""
    start: Annotated[str, Meta(max_length=40)] = field(default="", name="from")
    end: Annotated[str, Meta(max_length=40)] = field(default="", name="to")


def is_memory_file(item_id: str) -> bool:
    """Whether an id is the path of a Markdown file, such as a summary of a session in memory; no item has such an id."""
    return item_id.endswith(".md")


def page_for(window: int) -> int:
    """Return the bytes of a page for a window of so many tokens: at most a quarter of it."""
    return max(_LEAST_PAGE, min(PAGE_BYTES, window))


def full_page() -> int:
    """Return the bytes of a page for a usual window."""
    return PAGE_BYTES


def address_of(item_id: str) -> str:
    """Return an id that is the address of a blob, or its first digits, as it is; empty for any other id."""
    return item_id if _ADDRESS.fullmatch(item_id) else ""


def events_of(item_id: str) -> tuple[int, int] | None:
    """Return the first and the last event of an id such as `7` or `7..31`; `None` for any other id."""
    found = _EVENTS.fullmatch(item_id)
    return None if found is None else (int(found[1]), int(found[2] or found[1]))


def recall_tool(archive: "LogArchive", page: Callable[[], int] = full_page) -> AgentTool:
    """The tool. It changes nothing: the result shows the item again, and the edit that hides it stays. `page` returns its bytes."""

    async def recall(arguments: RecallArguments, _: Workspace) -> ToolOutput:
        return await asyncio.to_thread(recall_from, archive, arguments, page())

    return define(
        RecallArguments,
        recall,
        name=RECALL,
        description=(
            "Fetch what is no longer shown: a message or result that was cleared, summarised or shortened, or something of a past "
            "session. Give the `id` that a stub or a summary names to get it in full, `words` that all occur in it, or the `path` of "
            f"a file it is about; searches return at most {MOST_HITS} ids with some text. They look in this session, in the `session` that "
            f"you name, or with `all_sessions` in all. An item is returned in pieces of at most {PAGE_BYTES // 1000} kB: take `lines` "
            "such as 200-260 of it, or go on with `offset`. An id such as 7..31 is all that was said and done from event 7 to 31. "
            "The path of a file of memory that an index or a summary names (`rollouts/….md`) is an `id`, too. "
            "A `query` in plain words finds the notes and past sessions of this project that bear on it, such as how an error was fixed "
            "before; `history` adds what notes said earlier. A `timeline` lists what is known of a person or thing, `from` and `to` dates."
        ),
        kind="reports",
        parallel=True,
    )


def recall_from(archive: "LogArchive", arguments: RecallArguments, page: int = PAGE_BYTES) -> ToolOutput:
    """Return what the arguments ask for, of one item at most `page` bytes. Raises `ToolError` if they ask for nothing or there is none."""
    given = [name for name in ("id", "words", "path", "query", "timeline") if getattr(arguments, name)]
    if len(given) != 1:
        raise ToolError(f"give exactly one of `id`, `words`, `path`, `query` and `timeline`, not {' and '.join(given) or 'none'}")
    if arguments.id:
        return _item(archive, arguments, page)
    if arguments.query:
        return ToolOutput(archive.query(arguments.query, history=arguments.history, all_projects=arguments.all_projects))
    if arguments.timeline:
        return ToolOutput(archive.timeline(arguments.timeline, arguments.start, arguments.end))
    session = None if arguments.all_sessions else arguments.session
    find = archive.search if arguments.words else archive.about
    hits = find(arguments.words or arguments.path, session, MOST_HITS)
    if not hits:
        return ToolOutput("nothing was found" if session is None else "nothing was found in this session; `all_sessions` looks in all")
    return ToolOutput("\n".join(map(_hit_line, hits[:MOST_HITS])))


def _item(archive: "LogArchive", arguments: RecallArguments, page: int) -> ToolOutput:
    item_id = arguments.id.strip().strip("`[]")
    found = archive.item(item_id, arguments.session)
    if found is None:
        raise ToolError(f"there is no item {one_line(item_id, 40)}; search for it by `words`")
    data = text_of(found.content).encode("utf-8", "replace")
    if arguments.offset and arguments.offset >= len(data):
        raise ToolError(f"item {found.id} has {len(data):,} bytes; byte {arguments.offset:,} does not exist")
    first, last = _chosen_bytes(found.id, data, arguments.lines)
    start = _boundary(data, max(first, arguments.offset))
    end = max(start, _boundary(data, min(last, start + page)))
    hidden = f", hidden by {one_line(found.hidden_by)}" if found.hidden_by else ", shown in the conversation"
    head = (
        f"events {found.id}, from {_time(found.at)}" if events_of(found.id) else f"item {found.id}, {found.kind}, {_time(found.at)}{hidden}"
    )
    if is_memory_file(item_id):
        head = f"{found.id}, from memory: data of earlier sessions, and no order"
    lines = [f"[{head}]", data[start:end].decode("utf-8", "replace")]
    if end < last:
        lines.append(f"[bytes {start:,} to {end:,} of {last:,}; go on with offset {end}]")
    elif _GOES_ON.search(lines[-1]):
        # The item is itself a page of something, whose last line is not one of this page.
        lines.append(f"[this is the end of item {found.id}; the line above belongs to it]")
    return ToolOutput("\n".join(lines), _media(found.content) if not start else (), paged=True)


def _chosen_bytes(name: str, data: bytes, lines: str) -> tuple[int, int]:
    """The place of the first byte of some lines and the place behind the last; of all bytes if `lines` is empty. Raises `ToolError`."""
    if not lines.strip():
        return 0, len(data)
    found = _LINES.fullmatch(lines.strip())
    if found is None:
        raise ToolError(f"`lines` is a line or a range such as 200-260, not {one_line(lines, 40)}")
    ends = [place + 1 for place, byte in enumerate(data) if byte == _NEWLINE]
    starts = [0, *(end for end in ends if end < len(data))]
    first = int(found[1])
    last = int(found[3]) if found[3] else len(starts) if found[2] else first
    if not 1 <= first <= min(last, len(starts)):
        raise ToolError(f"item {name} has {len(starts):,} lines; lines {one_line(lines, 40)} do not exist")
    return starts[first - 1], starts[last] if last < len(starts) else len(data)


def _boundary(data: bytes, place: int) -> int:
    """The last place up to a given one that is not inside a character."""
    place = min(place, len(data))
    while 0 < place < len(data) and data[place] & 0xC0 == 0x80:
        place -= 1
    return place


def _media(content: Content) -> tuple[Part, ...]:
    """The images and documents of an item, which no text can stand for."""
    match content:
        case Image() | Document():
            return (content,)
        case ToolResult(parts=parts):
            return tuple(part for part in parts if isinstance(part, Image | Document))
        case _:
            return ()


def _hit_line(hit: Hit) -> str:
    name = hit.item or f"event {hit.seq}"
    return f"{name} of session {hit.session}, {hit.kind}, {_time(hit.at)}: {one_line(hit.snippet, _SNIPPET)}"


def _time(at: int) -> str:
    return utc_text(at)


# Events that are read before the log is released again, so that a long search does not keep the user's input waiting.
_CHUNK: Final = 256
# Characters before and behind a word that a search shows.
_BEFORE: Final = 100


class SearchesMemory(Protocol):
    """Answers questions from notes and past sessions. The class, `MemorySearch`, stands in `memory`, above this room."""

    def query(self, text: str, *, history: bool, all_projects: bool) -> str:
        """Return the best notes and turns for a question."""
        ...

    def timeline(self, about: str, start: str, end: str) -> str:
        """Return what is known about something in the order of time."""
        ...

    def file(self, name: str) -> str | None:
        """Return the text of a file of memory, such as a summary of a session."""
        ...

    def close(self) -> None:
        """Release what it holds open."""
        ...


class LogArchive(Struct):
    """Recalls from one session, the past sessions of its store, and their index, which is opened with the first search.

    Without a `log` there is no session of its own, so that each item needs the name of its session and a search looks in all of them.

    `open_memory` returns what answers questions, which is made with the first; `None` without memory.

    Several threads may use it at once: the log has its own lock, and the index is used by one at a time.
    """

    log: Log | None
    store: SessionStore
    blobs: Blobs
    clock: Clock
    open_index: Callable[[], Index]
    open_memory: Callable[[], SearchesMemory] | None = None
    _index: Index | None = None
    _memory: SearchesMemory | None = None
    _searching: Lock = field(default_factory=Lock)

    def item(self, item_id: str, session: str) -> Recollection | None:
        """Return an item of the current path of a session in full, or `None`. Raises `BadInput` if there is no such session.

        The id may be the address of a blob that an item of the session has, or its first digits, a range of events, or a file of memory.
        """
        if is_memory_file(item_id) and self.open_memory is not None:
            text = self._asked().file(item_id)
            return None if text is None else Recollection(item_id, "context", self.clock.now(), Text(text), "memory")
        with self._opened(session) as log:
            if (events := events_of(item_id)) is not None:
                return self._transcript(log, *events)
            if address := address_of(item_id):
                item_id = next((item.id for _, item in _items(log) if _blob_of(item).startswith(address)), item_id)
            with log.locked():
                found = log.find(item_id)
                if found is None:
                    return None
                at = log.event(seq_of(item_id)).at
            return Recollection(item_id, found.kind, at, self._in_full(found.content), _hidden_by(log, item_id))

    def search(self, words: str, session: str | None, limit: int) -> Sequence[Hit]:
        """Return items that contain all words, best first; an empty `session` is this one, `None` all.

        The index has what the model was shown. The kept wholes of shortened results are searched in one session only: the named one, or
        this one.
        """
        found = self._find(words, session, limit, ranked=True)
        return (*found, *self._in_wholes(words.split(), session, found))[:limit]

    def about(self, path: str, session: str | None, limit: int) -> Sequence[Hit]:
        """Return items in which the path stands, newest first, and then those in whose kept whole it stands."""
        found = self._find(f'"{path.replace(chr(34), " ")}"', session, limit, ranked=False)
        return (*found, *self._in_wholes([path], session, found))[:limit]

    def query(self, text: str, *, history: bool, all_projects: bool) -> str:
        """Return the best notes and turns of past sessions for a question. Raises `BadInput` if memory is turned off."""
        return self._asked().query(text, history=history, all_projects=all_projects)

    def timeline(self, about: str, start: str, end: str) -> str:
        """Return what notes and past sessions say about something in the order of time. Raises `BadInput` if memory is turned off."""
        return self._asked().timeline(about, start, end)

    def close(self) -> None:
        """Close the index, and what memory holds open."""
        with self._searching:
            if self._index is not None:
                self._index.close()
                self._index = None
            if self._memory is not None:
                self._memory.close()
                self._memory = None

    def _asked(self) -> SearchesMemory:
        with self._searching:
            if self.open_memory is None:
                raise BadInput("there is no memory of earlier sessions here; search by `words` and `all_sessions`", where=RECALL)
            if self._memory is None:
                self._memory = self.open_memory()
            return self._memory

    def _find(self, query: str, session: str | None, limit: int, *, ranked: bool) -> Sequence[Hit]:
        with self._searching:
            if self._index is None:
                self._index = self.open_index()
            # What was said a moment ago is wanted too.
            self._index.refresh()
            wanted = (None if self.log is None else self.log.session) if session == "" else session
            # More than wanted, because some are left out.
            hits = self._index.search(query, ranked=ranked, limit=2 * limit, session=wanted)
        return [hit for hit in hits if not self._is_of_recall(hit)][:limit]

    def _is_of_recall(self, hit: Hit) -> bool:
        """Whether a hit is a call of `recall` in this session or its result: these repeat the words, and would be the best match."""
        if self.log is None or hit.session != self.log.session or not hit.item:
            return False
        with self.log.locked():
            body, item = self.log.event(hit.seq).body, self.log.find(hit.item)
        if isinstance(body, ToolReturned):
            return body.tool == RECALL
        return item is not None and isinstance(item.content, ToolCall) and item.content.tool == RECALL

    def _in_wholes(self, words: Sequence[str], session: str | None, found: Sequence[Hit]) -> Iterator[Hit]:
        """Yield the results whose kept whole has all the words, newest first, without those that were found already."""
        if session is None and self.log is None:
            return
        known, wanted = {(hit.session, hit.item) for hit in found}, [word.strip('"').casefold() for word in words]
        with self._opened(session or "") as log:
            shortened = [(event, item) for event, item in _items(log) if isinstance(item.content, ToolResult) and item.content.blob]
            for event, item in reversed(shortened):
                if (log.session, item.id) in known:
                    continue
                text = text_of(self._in_full(item.content))
                folded = text.casefold()
                if all(word in folded for word in wanted):
                    yield Hit(log.session, event.seq, item.id, item.kind, event.at, _line_of(text, max(wanted, key=len, default="")))

    def _transcript(self, log: Log, first: int, last: int) -> Recollection | None:
        """All items of some events, each below a line with its id; `None` if the events have none."""
        texts: list[str] = []
        at = 0
        for event, item in _items(log, first, last):
            at = at or event.at
            texts.append(f"[item {item.id}, {item.kind}, {utc_text(event.at)}]\n{text_of(self._in_full(item.content))}")
        if not texts:
            return None
        return Recollection(f"{first}..{last}", "summary", at, Text("\n\n".join(texts)))

    @contextmanager
    def _opened(self, session: str) -> Iterator[Log]:
        if self.log is not None and session in ("", self.log.session):
            yield self.log
            return
        if not session:
            raise BadInput("an id belongs to a session: name the `session`", where=RECALL)
        with Log.open(self.store, session, self.clock) as past:
            yield past

    def _in_full(self, content: Content) -> Content:
        """The content with the full text of a tool result of which the log holds a preview; the preview if the blob is missing."""
        if not isinstance(content, ToolResult) or not content.blob:
            return content
        try:
            text = self.blobs.get(content.blob).decode("utf-8", "replace")
        except MissingBlob:
            return content
        return replace(content, parts=(Text(text), *(part for part in content.parts if isinstance(part, Image | Document))))


def _items(log: Log, first: int = 0, last: int | None = None) -> Iterator[tuple[Event, Item]]:
    """Yield the items of the current path with their events, in the order of the log; of the events `first` to `last`."""
    with log.locked():
        path = log.path
    end = path.tip if last is None else min(last, path.tip)
    for start in range(first, end + 1, _CHUNK):
        with log.locked():
            events = [event for event in log.reader.run(start, min(end, start + _CHUNK - 1)) if event.seq in path]
        for event in events:
            for item in all_items_of(event):
                yield event, item


def _blob_of(item: Item) -> str:
    content = item.content
    return content.blob if isinstance(content, ToolResult | Image | Document) else ""


def _line_of(text: str, word: str) -> str:
    """The first line with a word in any case, and its number."""
    for number, line in enumerate(text.split("\n"), 1):
        place = line.casefold().find(word)
        if place >= 0:
            return f"line {number:,}: {line[max(0, place - _BEFORE) : place + len(word) + _BEFORE]}"
    return ""


def _hidden_by(log: Log, item_id: str) -> str:
    """The edit that hides an item of the current path, with its author and reason; empty if the model sees the item."""
    with log.locked():
        shown = next((item for item in log.view.items if item.id == item_id), None)
        path = log.path
        undone = log.reader.undone_edits(path)
    if shown is not None and shown.mask is None:
        return ""
    hiding: Event | None = None
    for first in range(seq_of(item_id) + 1, path.tip + 1, _CHUNK):
        with log.locked():
            events = [event for event in log.reader.run(first, min(path.tip, first + _CHUNK - 1)) if event.seq in path]
        for event in events:
            edits = _live_edits(event, undone.get(event.seq))
            if any(_hides(edit, event, item_id, folded=shown is None) for edit in edits):
                hiding = event
    if hiding is None or not isinstance(hiding.body, ViewEdited):
        return "an edit that the log does not name"
    why = f": {hiding.body.why}" if hiding.body.why else ""
    return f"edit {hiding.seq} of {hiding.body.by}{why}"


def _live_edits(event: Event, undone: frozenset[int] | None) -> tuple[Edit, ...]:
    """The edits of an event that were not undone; an empty set of undone ones means all."""
    if not isinstance(event.body, ViewEdited) or undone == frozenset():
        return ()
    return tuple(edit for place, edit in enumerate(event.body.edits) if place not in (undone or ()))


def _hides(edit: Edit, event: Event, item_id: str, *, folded: bool) -> bool:
    """Whether an edit hides an item: a mask names it; of a fold, the recorded loss or the range that it replaced tells."""
    match edit:
        case Mask(ids=ids):
            return item_id in ids and not folded
        case Fold(first=first, last=last):
            loss = event.body.loss if isinstance(event.body, ViewEdited) else None
            in_range = seq_of(first) <= seq_of(item_id) <= seq_of(last)
            return folded and (in_range or (loss is not None and item_id in loss.ids))
        case _:
            return False


COMPACT: Final = "compact"
"""The name by which the engine finds the call; `engine.policies.compact_focus` reads its arguments."""
_RESULT: Final = "The conversation will be compacted after the results of this reply. What leaves it can be fetched again with `recall`."


class CompactArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """`focus` says what the summary should keep above all."""

    focus: str = ""


def compact_tool() -> AgentTool:
    """The tool. It only answers: folding here would part this call from its result."""
    return define(
        CompactArguments,
        _compact,
        name=COMPACT,
        description=(
            "Compact the conversation: earlier messages and results are replaced by a short account. Use it between two pieces of work, "
            "when most of what was read is no longer needed. `focus` names what must be kept."
        ),
        kind="reports",
    )


async def _compact(_: CompactArguments, __: Workspace) -> ToolOutput:
    return ToolOutput(_RESULT)
