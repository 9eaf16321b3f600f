"""Re-reads: contents that a recorded call needs and the replayed view no longer shows, by three definitions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from palimpsest.audit.entities import all_tokens, argument_texts, distinct_tokens, names_of, trimmed
from palimpsest.audit.fold_texts import NAMES, SEEN
from palimpsest.audit.tool_calls import action_of, changes_of
from palimpsest.audit.visible import last_two_parts
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Content, Item, Opaque, Text, ToolCall, ToolResult, Value, shared_prefix_length, text_of
from palimpsest.core.view import View, shown

DATA: Final = "general_strings.txt"


@cache
def general_strings() -> frozenset[str]:
    """Return the strings of 12 characters and more that occur in public sessions of three or more projects."""
    return frozenset(files(__package__).joinpath(DATA).read_text(encoding="utf-8").split("\n"))


DefinitionName: TypeAlias = Literal["text", "strings", "names"]
DEFINITION_NAMES: Final[tuple[DefinitionName, ...]] = get_args(DefinitionName)
SHORTEST_LINE: Final = 8
SHORTEST_STRING: Final = 12
Finder: TypeAlias = Callable[[str], AbstractSet[str]]


class Required(Value, frozen=True):
    """What the tool calls of one reply need to be visible: keys, and paths whose content they edit."""

    keys: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition of re-reads.

    required: returns what a reply needs.
    finder: returns a function that finds the given keys in a text.
    """

    name: DefinitionName
    required: Callable[[ModelReplied], Required]
    finder: Callable[[AbstractSet[str]], Finder]


def plain_name(name: str) -> str:
    """Normalise a name: a path is reduced to its last two parts, because programs write the same path in many ways."""
    return last_two_parts(name.rstrip("/")) if "/" in name else name


def paths_of(call: ToolCall, access: Iterable[str]) -> list[str]:
    """Return the normalised paths that a call touches with one of these kinds of access (read, edit, write)."""
    return [plain_name(touched.path.removeprefix("./")) for touched in action_of(call).paths if touched.how in access]


def _calls(reply: ModelReplied) -> list[ToolCall]:
    return [part for part in reply.parts if isinstance(part, ToolCall)]


def line_finder(lines: AbstractSet[str]) -> Finder:
    """Return a function that finds these lines in a text, also within longer lines, because an edit may replace a part of a line."""
    by_token: dict[str, list[str]] = {}
    without_token: list[str] = []
    for line in sorted(lines):
        tokens = all_tokens(line)
        # A token at an edge of the line may be a part of a longer token in the file.
        inner = tokens[bool(tokens) and line.startswith(tokens[0]) : len(tokens) - bool(tokens and line.endswith(tokens[-1]))]
        if inner:
            by_token.setdefault(max(inner, key=len), []).append(line)
        else:
            without_token.append(line)

    def find(text: str) -> set[str]:
        candidates = [line for token in by_token.keys() & distinct_tokens(text).keys() for line in by_token[token]]
        return {line for line in (*candidates, *without_token) if line in text}

    return find


def _text_required(reply: ModelReplied) -> Required:
    lines = (line.strip() for call in _calls(reply) for change in changes_of(call) for line in change.old.splitlines())
    return Required(tuple(dict.fromkeys(line for line in lines if len(line) >= SHORTEST_LINE)))


def strings_in(text: str) -> set[str]:
    """Return the strings of a text of 12 characters and more: runs of letters, digits and the signs of names and paths."""
    found = {plain_name(each) for token in distinct_tokens(text) if len(token) >= SHORTEST_STRING and (each := trimmed(token))}
    return {each for each in found if len(each) >= SHORTEST_STRING}


def _strings_required(reply: ModelReplied) -> Required:
    strings = (each for call in _calls(reply) for text in argument_texts(call) for each in sorted(strings_in(text)))
    general = general_strings()
    return Required(tuple(dict.fromkeys(each for each in strings if each not in general)))


def names_in(text: str) -> set[str]:
    """Return the normalised names of a text."""
    return {plain_name(name) for name in names_of(text)}


def _names_required(reply: ModelReplied) -> Required:
    calls = _calls(reply)
    names = (plain_name(name) for call in calls for name in names_of("\n".join(argument_texts(call))))
    return Required(tuple(dict.fromkeys(names)), tuple(dict.fromkeys(path for call in calls for path in paths_of(call, ("edit",)))))


DEFINITIONS: Final[Mapping[DefinitionName, Definition]] = {
    "text": Definition("text", _text_required, line_finder),
    "strings": Definition("strings", _strings_required, lambda wanted: lambda text: wanted & strings_in(text)),
    "names": Definition("names", _names_required, lambda wanted: lambda text: wanted & names_in(text)),
}
# The definition that fits recorded compactions best (docs/benchmark.md); its re-reads are billed.
OFFICIAL: Final[DefinitionName] = "text"


class KeyIndex:
    """Extracts and caches the keys of contents by one definition; `wanted` are the keys that some recorded call needs."""

    def __init__(self, replies: Sequence[ModelReplied], definition: Definition) -> None:
        self.definition = definition
        self.required = tuple(definition.required(reply) for reply in replies)
        self.wanted = frozenset(key for required in self.required for key in required.keys)
        self.needs_files = any(required.edited for required in self.required)
        self._find = definition.finder(self.wanted)
        # Keyed by identity; holding the content keeps its id from being reused.
        self._cache: dict[int, tuple[Content, tuple[str, ...]]] = {}

    def of(self, content: Content) -> tuple[str, ...]:
        """Return the wanted keys in a content; thinking is ignored, because most of it is not sent again."""
        cached = self._cache.get(id(content))
        if cached is None:
            cached = self._cache[id(content)] = (content, self.of_text(searched_text(content)))
        return cached[1]

    def of_text(self, text: str) -> tuple[str, ...]:
        """Return the wanted keys in a text."""
        return tuple(sorted(self._find(text))) if text else ()


def searched_text(content: Content) -> str:
    """Return the text of a content in which keys are looked for; thinking has none, because most of it is not sent again."""
    match content:
        case ToolCall():
            return "\n".join(argument_texts(content))
        case Text() | ToolResult() | Opaque():
            return text_of(content)
        case _:
            return ""


def is_name_list(item: Item) -> bool:
    """Whether an item only lists names: a name in a list does not say what it stands for, so a list makes nothing known."""
    return item.kind == "summary" and item.source in (NAMES, SEEN)


# Characters fetched on each side of a name in a truncated result, as a program would read around a match.
EXCERPT_CHARACTERS: Final = 8_000
_TRUNCATED: Final = "!"
_MASKED: Final = "~"


class MissingContent(Value, frozen=True):
    """Content to fetch: the keys that it provides, the item that last showed them, the call to repeat, and its result."""

    keys: tuple[str, ...]
    item: str
    call: ToolCall
    content: ToolResult


class VisibleKeys:
    """Tracks which items show which wanted keys and files, and which of these items are visible now."""

    def __init__(self, keys: KeyIndex) -> None:
        self._keys = keys
        self._items_by_key: dict[str, list[str]] = {}
        self._items_by_path: dict[str, list[str]] = {}
        self._contents: dict[str, Content] = {}
        self._calls: dict[str, ToolCall] = {}
        self._call_items: dict[str, str] = {}
        self._visible_ids: set[str] = set()
        self._items: tuple[Item, ...] = ()
        self._head: tuple[Item, ...] = ()
        self._sampled: dict[str, frozenset[str]] = {}
        # Items whose content was fetched, each with the item beside which it would stand in the view.
        self._fetched: dict[str, str] = {}

    def add_sampled(self, marker: str, names: frozenset[str]) -> None:
        """Treat every text that contains this marker as if it showed these names."""
        self._sampled[marker] = names

    def add_truncated(self, item_id: str, whole: ToolResult) -> None:
        """Register the whole result of an item that shows only a part of it; the rest can be fetched."""
        self._index_content(item_id + _TRUNCATED, whole)

    def add_fetched(self, missing: Iterable[MissingContent]) -> None:
        """Count contents as visible that were fetched without being added to the view, while its newest item of now stays in it."""
        newest = self._items[-1].id if self._items else ""
        for each in missing:
            call = self._call_items.get(each.call.call_id, each.item)
            self._fetched |= dict.fromkeys((each.item, each.item + _TRUNCATED, call), newest)

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
        if self._fetched and unchanged < len(self._items):
            present = {item.id for item in items}
            self._fetched = {item_id: beside for item_id, beside in self._fetched.items() if beside in present}
        for item in items[unchanged:]:
            self._add_item(item)
        self._items, self._head = items, view.head

    def visible(self) -> set[str]:
        """Return all wanted keys that are visible now."""
        return {name for name, items in self._items_by_key.items() if self._is_visible(items)}

    def missing(self, required: Required) -> list[MissingContent]:
        """Return the contents to fetch before these keys can be used and these paths edited, without duplicates."""
        found: list[MissingContent] = []
        for path in required.edited:
            items = self._items_by_path.get(path)
            if items and not self._is_visible(items) and not any(each.item in items for each in found):
                found.append(self._content_to_fetch(items, required, path))
        for key in required.keys:
            items = self._items_by_key.get(key)
            if items and not any(key in each.keys for each in found) and not self._is_visible(items):
                found.append(self._content_to_fetch(items, required, key))
        return found

    def _add_item(self, item: Item) -> None:
        content = shown(item)
        if is_name_list(item):
            return
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
        names: Iterable[str] = self._keys.of(content)
        if self._sampled and not isinstance(content, ToolCall | ToolResult):
            text = text_of(content)
            names = {*names, *(name for marker, sampled in self._sampled.items() if marker in text for name in sampled)}
        for name in names:
            self._items_by_key.setdefault(name, []).append(item_id)
        paths: list[str] = []
        if isinstance(content, ToolCall):
            self._calls[content.call_id] = content
            self._call_items[content.call_id] = item_id
            paths = paths_of(content, ("edit", "write")) if self._keys.needs_files else []
        elif isinstance(content, ToolResult) and content.call_id in self._calls and self._keys.needs_files:
            paths = paths_of(self._calls[content.call_id], ("read",))
        for path in paths:
            self._items_by_path.setdefault(path, []).append(item_id)

    def _is_visible(self, items: list[str]) -> bool:
        seen, fetched = self._visible_ids, self._fetched
        return any(item in seen or item in fetched for item in reversed(items))

    def _content_to_fetch(self, items: list[str], required: Required, name: str) -> MissingContent:
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
        fetched = {*self._keys.of(result), *self._keys.of(call)}
        wanted = [each for each in required.keys if each in fetched and not self._is_visible(self._items_by_key.get(each, []))]
        return MissingContent(tuple(dict.fromkeys((name, *wanted))), item_id.rstrip(_TRUNCATED + _MASKED), call, result)


def _excerpt(text: str, name: str) -> str:
    place = max(0, text.find(name.rpartition("/")[2]))
    start = max(0, place - EXCERPT_CHARACTERS)
    return text[start : place + EXCERPT_CHARACTERS]
