"""What a model sees of a session after edits, piece by piece, and what one recall could bring back."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from palimpsest.audit.tools.calls import action_of
from palimpsest.audit.visibility.result_index import normalized_path
from palimpsest.audit.visibility.visible import last_two_parts, readable_text
from palimpsest.core.events import Event, ModelReplied, ToolReturned, UserSaid
from palimpsest.core.items import Content, Item, Text, Thinking, ToolCall, ToolResult, Value
from palimpsest.core.view import View, shown

# How covers and folds name an item that can be brought back.
_ID: Final = re.compile(r"(?:\bid |\(|^- |\buser |`recall` )(\d+\.\d+(?:\.\d+)?)(?=[\],:;) ]|$)", re.MULTILINE)


class Piece(Value, frozen=True):
    """One text. `event` is the recorded event whose content it shows, -1 for what an edit made; `result` says that a tool gave it."""

    text: str
    event: int = -1
    result: bool = False


def said_by(content: Content) -> str:
    """What a model can read of a content; what it thought earlier is not sent back everywhere, and so is not counted."""
    return "" if isinstance(content, Thinking) else readable_text(content)


def visible(view: View, came_from: Mapping[int, int], *, drops_cached: bool = False) -> tuple[Piece, ...]:
    """The pieces of a view; `came_from` says which recorded event an event of this log repeats."""
    found = []
    for item in (*view.head, *view.items):
        content = shown(item, drops_cached=drops_cached)
        if content is None:
            continue
        whole = content is item.content and item.id.count(".") == 1
        event = came_from.get(int(item.id.partition(".")[0]), -1) if whole else -1
        found.append(Piece(said_by(content), event, isinstance(content, ToolResult) and content is item.content))
    return tuple(found)


class Recorded:
    """Everything that was recorded, as a recall would bring it: whole, one content at a time."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._pieces: dict[tuple[int, int], Piece] = {}
        # The newest content by path: what a file held when it was read, and what was last written to it.
        self._read: dict[str, list[tuple[int, int]]] = {}
        self._written: dict[str, list[tuple[int, int]]] = {}
        calls: dict[str, ToolCall] = {}
        for event in events:
            for number, content in enumerate(_contents(event)):
                key = (event.seq, number)
                self._pieces[key] = Piece(said_by(content), event.seq, isinstance(content, ToolResult))
                if isinstance(content, ToolCall):
                    calls[content.call_id] = content
                    self._touch(content, key, written=True)
                elif isinstance(content, ToolResult) and content.call_id in calls:
                    self._touch(calls.pop(content.call_id), key, written=False)

    def _touch(self, call: ToolCall, key: tuple[int, int], *, written: bool) -> None:
        kept = self._written if written else self._read
        for touched in action_of(call).paths:
            if (touched.how in ("edit", "write")) == written:
                kept.setdefault(normalized_path(touched.path), []).append(key)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """All of it."""
        return tuple(self._pieces.values())

    def reachable(self, view: View, came_from: Mapping[int, int]) -> tuple[Piece, ...]:
        """What one lookup from a view could bring that does not show.

        That is an item whose id is told, a result of which a part shows that says where the whole is kept, and the newest content of
        a path that is named.
        """
        showing = {key for item in view.items if item.mask is None and (key := _key(item.id, came_from)) is not None}
        found: dict[tuple[int, int], None] = {}
        for told in _told_ids(view.items):
            key = _key(told, came_from)
            if key is not None and key not in showing:
                found[key] = None
        text = "\n".join(piece.text for piece in visible(view, came_from)).replace("\\", "/")
        for item in view.items:
            blob = item.content.blob if isinstance(item.content, ToolResult) and item.mask is None else ""
            key = _key(item.id, came_from) if blob and blob in text else None
            if key is not None:
                found[key] = None
        for kept in (self._read, self._written):
            for path, keys in kept.items():
                if keys[-1] not in showing and ending_of(path) in text:
                    found[keys[-1]] = None
        return tuple(self._pieces[key] for key in sorted(found) if key in self._pieces)


def ending_of(path: str) -> str:
    """The last two parts of a path, by which it is known wherever and on whichever system it is written."""
    return last_two_parts(path.replace("\\", "/").rstrip("/"))


def _contents(event: Event) -> tuple[Content, ...]:
    match event.body:
        case UserSaid(parts=said):
            return said
        case ModelReplied(parts=replied):
            return replied
        case ToolReturned(result=result):
            return (result,)
        case _:
            return ()


def _key(item_id: str, came_from: Mapping[int, int]) -> tuple[int, int] | None:
    numbers = item_id.split(".")
    event = came_from.get(int(numbers[0]))
    return (event, int(numbers[1])) if event is not None and len(numbers) == 2 else None


def _told_ids(items: Iterable[Item]) -> Iterator[str]:
    """The ids in covers and in what edits made; in what somebody said such a number is just a number."""
    for item in items:
        if item.mask is not None:
            yield from _ID.findall(item.mask.text)
        elif item.id.count(".") == 2 and isinstance(item.content, Text):
            yield from _ID.findall(item.content.text)
