"""What the tool `recall` reads: items of the session's log and of past sessions, and the search index over all of them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Final, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from palimpsest.core.edits import Edit, Fold, Mask
from palimpsest.core.errors import BadInput, MissingBlob
from palimpsest.core.events import Event, ToolReturned, ViewEdited
from palimpsest.core.events.event_items import all_items_of
from palimpsest.core.format.texts import utc_text
from palimpsest.core.items import Content, Document, Image, Item, Text, ToolCall, ToolResult, seq_of, text_of
from palimpsest.core.log.log import Log
from palimpsest.core.ports import Blobs, Clock, Hit, Index, SessionStore
from palimpsest.tools.session.recall import RECALL, Recollection, address_of, events_of, is_memory_file

# Events that are read before the log is released again, so that a long search does not keep the user's input waiting.
_CHUNK: Final = 256
# Characters before and behind a word that a search shows.
_BEFORE: Final = 100


class SearchesMemory(Protocol):
    """Answers questions from notes and past sessions."""

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
