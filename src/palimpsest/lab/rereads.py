"""What a recorded call needed and a replayed view no longer shows: each such thing is fetched again, and billed."""

from collections.abc import Iterable
from typing import Final

import msgspec

from palimpsest.core.items import Content, Item, Text, ToolCall, ToolResult, Value, same_start, seq_of, text_of
from palimpsest.core.masking import shown
from palimpsest.core.view import View
from palimpsest.lab.needs import Names, Need, paths_of

# What is fetched of a result that was too large to be shown whole: a program looks for the place and reads round it.
EXCERPT: Final = 8_000
_BEYOND: Final = "!"
_COVER: Final = "~"


class Missing(Value, frozen=True):
    """One thing to fetch: the names that need it, the item that showed them last, the call that brought it, and its text."""

    names: tuple[str, ...]
    item: str
    call: ToolCall
    content: ToolResult


class Sight:
    """Which items show which of the wanted names and the content of which files, and which of them can be seen now."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._shows: dict[str, list[str]] = {}
        self._files: dict[str, list[str]] = {}
        self._contents: dict[str, Content] = {}
        self._calls: dict[str, ToolCall] = {}
        self._seen: set[str] = set()
        self._items: tuple[Item, ...] = ()
        self._head: tuple[Item, ...] = ()
        self._drawn: dict[str, frozenset[str]] = {}

    def draw(self, marker: str, names: frozenset[str]) -> None:
        """A text with this marker in it stands for these names, whichever of them there was room for."""
        self._drawn[marker] = names

    def beyond(self, item_id: str, whole: ToolResult) -> None:
        """An item shows only a part of this result; the rest of it can be fetched."""
        self._index(item_id + _BEYOND, whole)

    def look(self, view: View) -> None:
        """Take in the view as it is now."""
        items, known = view.items, len(self._items)
        if view.head is not self._head:
            self._seen = set()
            known = 0
            for item in view.head:
                self._see(item)
        elif items[:known] != self._items:
            known = same_start(self._items, items)
            for item in self._items[known:]:
                self._seen.discard(item.id)
                self._seen.discard(item.id + _COVER)
        for item in items[known:]:
            self._see(item)
        self._items, self._head = items, view.head

    def visible(self) -> set[str]:
        """All wanted names that can be seen now."""
        return {name for name, items in self._shows.items() if self._sees(items)}

    def missing(self, need: Need) -> list[Missing]:
        """What must be fetched before these names can be used and these paths be edited, each thing once."""
        found: list[Missing] = []
        there: set[str] = set()
        for path in need.edited:
            items = self._files.get(path)
            if items and not self._sees(items) and not any(each.item in items for each in found):
                found.append(self._fetch(self._best(items), need, (path,)))
                there.update(found[-1].names)
        for name in need.names:
            items = self._shows.get(name)
            if items and name not in there and not self._sees(items):
                found.append(self._fetch(self._best(items), need, (name,)))
                there.update(found[-1].names)
        return found

    def _see(self, item: Item) -> None:
        content = shown(item)
        if content is item.content:
            self._seen.add(item.id)
            self._index(item.id, content)
        elif content is not None:
            # A stub is words: it shows neither a file nor what a call did.
            self._seen.add(item.id + _COVER)
            self._index(item.id + _COVER, Text(text_of(content)))

    def _index(self, item_id: str, content: Content) -> None:
        if item_id in self._contents:
            return
        self._contents[item_id] = content
        names: Iterable[str] = self._names.of(content)
        if self._drawn and not isinstance(content, ToolCall | ToolResult):
            text = text_of(content)
            names = {*names, *(name for marker, drawn in self._drawn.items() if marker in text for name in drawn)}
        for name in names:
            self._shows.setdefault(name, []).append(item_id)
        if isinstance(content, ToolCall):
            self._calls[content.call_id] = content
            for path in paths_of(content, ("edit", "write")):
                self._files.setdefault(path, []).append(item_id)
        elif isinstance(content, ToolResult) and content.call_id in self._calls:
            for path in paths_of(self._calls[content.call_id], ("read",)):
                self._files.setdefault(path, []).append(item_id)

    def _sees(self, items: list[str]) -> bool:
        seen = self._seen
        return any(item in seen for item in reversed(items))

    def _best(self, items: list[str]) -> str:
        """The newest result, or else the newest of all; stubs name things and hold nothing."""
        real = [item for item in items if not item.endswith(_COVER)] or items
        return next((item for item in reversed(real) if isinstance(self._contents[item], ToolResult)), real[-1])

    def _fetch(self, item_id: str, need: Need, names: tuple[str, ...]) -> Missing:
        content = self._contents[item_id]
        call = self._calls.get(content.call_id) if isinstance(content, ToolResult) else None
        if call is None:
            call = ToolCall("", "Grep", msgspec.json.encode({"pattern": names[0]}).decode())
        result = content if isinstance(content, ToolResult) else ToolResult("", (Text(text_of(content)),))
        if item_id.endswith(_BEYOND):
            result = ToolResult(result.call_id, (Text(_excerpt(text_of(result), names[0])),))
        fetched = {*self._names.of(result), *self._names.of(call)}
        wanted = tuple(name for name in need.names if name in fetched and not self._sees(self._shows.get(name, [])))
        return Missing(tuple(dict.fromkeys((*names, *wanted))), item_id.rstrip(_BEYOND + _COVER), call, result)


def source_of(missing: Missing) -> int:
    """The event of the replayed log that showed it."""
    return seq_of(missing.item)


def _excerpt(text: str, name: str) -> str:
    place = max(0, text.find(name.rpartition("/")[2]))
    start = max(0, place - EXCERPT)
    return text[start : place + EXCERPT]
