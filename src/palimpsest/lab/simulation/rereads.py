"""Re-reads: finds the names and files that a recorded call needs and the replayed view no longer shows."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from palimpsest.audit.entities import argument_texts, names_of, names_used
from palimpsest.audit.tools.calls import Action, action_of
from palimpsest.audit.visibility.result_index import names_in_result
from palimpsest.audit.visibility.survival import numbers_in
from palimpsest.audit.visibility.visible import last_two_parts
from palimpsest.core.items import Content, Item, Opaque, Text, ToolCall, ToolResult, Value, shared_prefix_length, text_of
from palimpsest.core.view import View, shown
from palimpsest.lab.simulation.recording import Step


class RequiredNames(Value, frozen=True):
    """Normalised names in the tool calls of one reply, and the paths that these calls edit."""

    names: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()


class NameIndex:
    """Extracts and caches names of contents; `wanted` are the names that some recorded call uses."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.required = tuple(_required_names(step) for step in steps)
        self.wanted = frozenset(name for required_names in self.required for name in required_names.names)
        # Caches are keyed by identity; holding the content keeps its id from being reused.
        self._names_cache: dict[int, tuple[Content, tuple[str, ...]]] = {}
        self._shown_cache: dict[int, tuple[ToolResult, tuple[str, ...]]] = {}
        self._used_cache: dict[int, tuple[Content, tuple[str, ...]]] = {}
        self._numbers_cache: dict[int, tuple[Content, frozenset[str]]] = {}

    def of(self, content: Content) -> tuple[str, ...]:
        """Return the wanted names in a content; thinking is ignored, because most of it is not sent again."""
        cached = self._names_cache.get(id(content))
        if cached is None:
            cached = self._names_cache[id(content)] = (content, self.of_text(_text(content)))
        return cached[1]

    def shown(self, result: ToolResult, action: Action | None) -> tuple[str, ...]:
        """Return all names in a result, wanted or not."""
        cached = self._shown_cache.get(id(result))
        if cached is None:
            cached = self._shown_cache[id(result)] = (result, names_in_result(result, action))
        return cached[1]

    def used_in(self, part: Content) -> tuple[str, ...]:
        """Return all names in a part of a reply, wanted or not."""
        cached = self._used_cache.get(id(part))
        if cached is None:
            cached = self._used_cache[id(part)] = (part, tuple(names_used(part)))
        return cached[1]

    def numbers(self, content: Content) -> frozenset[str]:
        """Return the numbers in a content."""
        cached = self._numbers_cache.get(id(content))
        if cached is None:
            cached = self._numbers_cache[id(content)] = (content, frozenset(numbers_in(content)))
        return cached[1]

    def of_text(self, text: str) -> tuple[str, ...]:
        """Return the wanted names in a text."""
        if not text:
            return ()
        wanted = self.wanted
        return tuple({name: None for each in names_of(text) if (name := plain_name(each)) in wanted})


def plain_name(name: str) -> str:
    """Normalise a name: a path is reduced to its last two parts, because programs write the same path in many ways."""
    return last_two_parts(name.rstrip("/")) if "/" in name else name


def _required_names(step: Step) -> RequiredNames:
    names: dict[str, None] = {}
    edited: dict[str, None] = {}
    for part in step.reply.parts:
        if isinstance(part, ToolCall):
            names.update(dict.fromkeys(map(plain_name, names_of("\n".join(argument_texts(part))))))
            edited.update(dict.fromkeys(paths_of(part, ("edit",))))
    return RequiredNames(tuple(names), tuple(edited))


def paths_of(call: ToolCall, access: Iterable[str]) -> list[str]:
    """Return the normalised paths that a call touches with one of these kinds of access (read, edit, write)."""
    return [plain_name(touched.path.removeprefix("./")) for touched in action_of(call).paths if touched.how in access]


def _text(content: Content) -> str:
    match content:
        case ToolCall():
            return "\n".join(argument_texts(content))
        case Text() | ToolResult() | Opaque():
            return text_of(content)
        case _:
            return ""


# Characters fetched on each side of a name in a truncated result, as a program would read around a match.
EXCERPT_CHARACTERS: Final = 8_000
_TRUNCATED: Final = "!"
_MASKED: Final = "~"


class MissingContent(Value, frozen=True):
    """Content to fetch: the names that it provides, the item that last showed them, the call to repeat, and its result."""

    names: tuple[str, ...]
    item: str
    call: ToolCall
    content: ToolResult


class VisibleNames:
    """Tracks which items show which wanted names and files, and which of these items are visible now."""

    def __init__(self, names: NameIndex) -> None:
        self._names = names
        self._items_by_name: dict[str, list[str]] = {}
        self._items_by_path: dict[str, list[str]] = {}
        self._contents: dict[str, Content] = {}
        self._calls: dict[str, ToolCall] = {}
        self._visible_ids: set[str] = set()
        self._items: tuple[Item, ...] = ()
        self._head: tuple[Item, ...] = ()
        self._sampled: dict[str, frozenset[str]] = {}

    def add_sampled(self, marker: str, names: frozenset[str]) -> None:
        """Treat every text that contains this marker as if it showed these names."""
        self._sampled[marker] = names

    def add_truncated(self, item_id: str, whole: ToolResult) -> None:
        """Register the whole result of an item that shows only a part of it; the rest can be fetched."""
        self._index_content(item_id + _TRUNCATED, whole)

    def update(self, view: View) -> None:
        """Update the visible items to a view."""
        items, unchanged = view.items, len(self._items)
        if view.head is not self._head:
            self._visible_ids = set()
            unchanged = 0
            for item in view.head:
                self._add_item(item)
        elif items[:unchanged] != self._items:
            unchanged = shared_prefix_length(self._items, items)
            for item in self._items[unchanged:]:
                self._visible_ids.discard(item.id)
                self._visible_ids.discard(item.id + _MASKED)
        for item in items[unchanged:]:
            self._add_item(item)
        self._items, self._head = items, view.head

    def visible(self) -> set[str]:
        """Return all wanted names that are visible now."""
        return {name for name, items in self._items_by_name.items() if self._is_visible(items)}

    def missing(self, required_names: RequiredNames) -> list[MissingContent]:
        """Return the contents to fetch before these names can be used and these paths edited, without duplicates."""
        found: list[MissingContent] = []
        for path in required_names.edited:
            items = self._items_by_path.get(path)
            if items and not self._is_visible(items) and not any(each.item in items for each in found):
                found.append(self._content_to_fetch(items, required_names, path))
        for name in required_names.names:
            items = self._items_by_name.get(name)
            if items and not any(name in each.names for each in found) and not self._is_visible(items):
                found.append(self._content_to_fetch(items, required_names, name))
        return found

    def _add_item(self, item: Item) -> None:
        content = shown(item)
        if content is item.content:
            self._visible_ids.add(item.id)
            self._index_content(item.id, content)
        elif content is not None:
            # A stub is indexed as text: it shows neither the content of a file nor a tool call.
            self._visible_ids.add(item.id + _MASKED)
            self._index_content(item.id + _MASKED, Text(text_of(content)))

    def _index_content(self, item_id: str, content: Content) -> None:
        if item_id in self._contents:
            return
        self._contents[item_id] = content
        names: Iterable[str] = self._names.of(content)
        if self._sampled and not isinstance(content, ToolCall | ToolResult):
            text = text_of(content)
            names = {*names, *(name for marker, sampled in self._sampled.items() if marker in text for name in sampled)}
        for name in names:
            self._items_by_name.setdefault(name, []).append(item_id)
        paths: list[str] = []
        if isinstance(content, ToolCall):
            self._calls[content.call_id] = content
            paths = paths_of(content, ("edit", "write"))
        elif isinstance(content, ToolResult) and content.call_id in self._calls:
            paths = paths_of(self._calls[content.call_id], ("read",))
        for path in paths:
            self._items_by_path.setdefault(path, []).append(item_id)

    def _is_visible(self, items: list[str]) -> bool:
        seen = self._visible_ids
        return any(item in seen for item in reversed(items))

    def _content_to_fetch(self, items: list[str], required_names: RequiredNames, name: str) -> MissingContent:
        """Return the newest tool result among the items, else the newest item; stubs only if there is nothing else."""
        real = [item for item in items if not item.endswith(_MASKED)] or items
        item_id = next((item for item in reversed(real) if isinstance(self._contents[item], ToolResult)), real[-1])
        content = self._contents[item_id]
        call = self._calls.get(content.call_id) if isinstance(content, ToolResult) else None
        if call is None:
            call = ToolCall("", "Grep", msgspec.json.encode({"pattern": name}).decode())
        result = content if isinstance(content, ToolResult) else ToolResult("", (Text(text_of(content)),))
        if item_id.endswith(_TRUNCATED):
            result = ToolResult(result.call_id, (Text(_excerpt(text_of(result), name)),))
        fetched = {*self._names.of(result), *self._names.of(call)}
        wanted = [each for each in required_names.names if each in fetched and not self._is_visible(self._items_by_name.get(each, []))]
        return MissingContent(tuple(dict.fromkeys((name, *wanted))), item_id.rstrip(_TRUNCATED + _MASKED), call, result)


def _excerpt(text: str, name: str) -> str:
    place = max(0, text.find(name.rpartition("/")[2]))
    start = max(0, place - EXCERPT_CHARACTERS)
    return text[start : place + EXCERPT_CHARACTERS]
