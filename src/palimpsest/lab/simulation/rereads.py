"""What a recorded call needed and a replayed view no longer shows: each such thing is read again, and billed."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from palimpsest.audit.entities import argument_texts, names_of, names_used
from palimpsest.audit.tools.calls import Action, action_of
from palimpsest.audit.visibility.result_index import names_in_result
from palimpsest.audit.visibility.survival import numbers_in
from palimpsest.audit.visibility.visible import last_two_parts
from palimpsest.core.items import Content, Item, Opaque, Text, ToolCall, ToolResult, Value, seq_of, shared_prefix_length, text_of
from palimpsest.core.view import View, shown
from palimpsest.lab.simulation.recording import Step


class Need(Value, frozen=True):
    """The names in the calls of one reply, and the paths that they edit, each as it is compared."""

    names: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()


class Names:
    """The names of contents, each content looked at once; only those that some recorded call uses are kept."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.needs = tuple(_need(step) for step in steps)
        self.wanted = frozenset(name for need in self.needs for name in need.names)
        # The content is held as well, so that its identity is not used again while it is remembered.
        self._known: dict[int, tuple[Content, tuple[str, ...]]] = {}
        self._shown: dict[int, tuple[ToolResult, tuple[str, ...]]] = {}
        self._told: dict[int, tuple[Content, tuple[str, ...]]] = {}
        self._numbers: dict[int, tuple[Content, frozenset[str]]] = {}

    def of(self, content: Content) -> tuple[str, ...]:
        """The wanted names that a content shows; thoughts do not count, for most of them are not sent again."""
        known = self._known.get(id(content))
        if known is None:
            known = self._known[id(content)] = (content, self.of_text(_text(content)))
        return known[1]

    def shown(self, result: ToolResult, action: Action | None) -> tuple[str, ...]:
        """All names that a result shows, wanted or not: those by which its life is followed."""
        known = self._shown.get(id(result))
        if known is None:
            known = self._shown[id(result)] = (result, names_in_result(result, action))
        return known[1]

    def told(self, part: Content) -> tuple[str, ...]:
        """All names that a part of a reply uses, wanted or not."""
        known = self._told.get(id(part))
        if known is None:
            known = self._told[id(part)] = (part, tuple(names_used(part)))
        return known[1]

    def numbers(self, content: Content) -> frozenset[str]:
        """The numbers of a content."""
        known = self._numbers.get(id(content))
        if known is None:
            known = self._numbers[id(content)] = (content, frozenset(numbers_in(content)))
        return known[1]

    def of_text(self, text: str) -> tuple[str, ...]:
        """The wanted names of a text."""
        if not text:
            return ()
        wanted = self.wanted
        return tuple({name: None for each in names_of(text) if (name := plain_name(each)) in wanted})


def plain_name(name: str) -> str:
    """A name as it is compared: of a path the last two parts, for programs write the same path in many ways."""
    return last_two_parts(name.rstrip("/")) if "/" in name else name


def _need(step: Step) -> Need:
    names: dict[str, None] = {}
    edited: dict[str, None] = {}
    for part in step.reply.parts:
        if isinstance(part, ToolCall):
            names.update(dict.fromkeys(map(plain_name, names_of("\n".join(argument_texts(part))))))
            edited.update(dict.fromkeys(paths_of(part, ("edit",))))
    return Need(tuple(names), tuple(edited))


def paths_of(call: ToolCall, hows: Iterable[str]) -> list[str]:
    """The paths that a call touches in one of these ways, as they are compared."""
    return [plain_name(touched.path.removeprefix("./")) for touched in action_of(call).paths if touched.how in hows]


def _text(content: Content) -> str:
    match content:
        case ToolCall():
            return "\n".join(argument_texts(content))
        case Text() | ToolResult() | Opaque():
            return text_of(content)
        case _:
            return ""


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
            known = shared_prefix_length(self._items, items)
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
