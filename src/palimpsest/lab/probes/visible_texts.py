"""Texts that a model sees in a view after edits, and recorded texts that one recall could bring back."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from palimpsest.audit.tools.calls import action_of
from palimpsest.audit.visibility.result_index import normalized_path
from palimpsest.audit.visibility.visible import last_two_parts, readable_text
from palimpsest.core.events import Event, ModelReplied, ToolReturned, UserSaid
from palimpsest.core.items import Content, Item, Text, Thinking, ToolCall, ToolResult, Value
from palimpsest.core.view import View, shown

# Item ids as masks and folds write them.
_ITEM_ID: Final = re.compile(r"(?:\bid |\(|^- |\buser |`recall` )(\d+\.\d+(?:\.\d+)?)(?=[\],:;) ]|$)", re.MULTILINE)


class ProbedText(Value, frozen=True):
    """One text; `event` is the recorded event that it shows whole, -1 for text of an edit; `result` is true for a tool result."""

    text: str
    event: int = -1
    result: bool = False


def model_text(content: Content) -> str:
    """Return the readable_text text of a content; empty for thinking, which not all providers get back."""
    return "" if isinstance(content, Thinking) else readable_text(content)


def visible(view: View, recorded_seqs: Mapping[int, int], *, drops_cached: bool = False) -> tuple[ProbedText, ...]:
    """Return the texts of a view; `recorded_seqs` maps an event of this log to the recorded event that it repeats."""
    found = []
    for item in (*view.head, *view.items):
        content = shown(item, drops_cached=drops_cached)
        if content is None:
            continue
        whole = content is item.content and item.id.count(".") == 1
        event = recorded_seqs.get(int(item.id.partition(".")[0]), -1) if whole else -1
        found.append(ProbedText(model_text(content), event, isinstance(content, ToolResult) and content is item.content))
    return tuple(found)


class RecordedTexts:
    """All recorded contents as a recall would bring them: whole, one at a time."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._texts: dict[tuple[int, int], ProbedText] = {}
        # Keys of contents by path: results that read a file, and calls that wrote it.
        self._read: dict[str, list[tuple[int, int]]] = {}
        self._written: dict[str, list[tuple[int, int]]] = {}
        calls: dict[str, ToolCall] = {}
        for event in events:
            for number, content in enumerate(_contents(event)):
                key = (event.seq, number)
                self._texts[key] = ProbedText(model_text(content), event.seq, isinstance(content, ToolResult))
                if isinstance(content, ToolCall):
                    calls[content.call_id] = content
                    self._index_paths(content, key, written=True)
                elif isinstance(content, ToolResult) and content.call_id in calls:
                    self._index_paths(calls.pop(content.call_id), key, written=False)

    def _index_paths(self, call: ToolCall, key: tuple[int, int], *, written: bool) -> None:
        index = self._written if written else self._read
        for touched in action_of(call).paths:
            if (touched.how in ("edit", "write")) == written:
                index.setdefault(normalized_path(touched.path), []).append(key)

    @property
    def texts(self) -> tuple[ProbedText, ...]:
        """All recorded texts."""
        return tuple(self._texts.values())

    def reachable(self, view: View, recorded_seqs: Mapping[int, int]) -> tuple[ProbedText, ...]:
        """Return the hidden texts that one recall from a view could bring back.

        These are items whose id is visible, truncated results whose blob is named, and the newest content of each visible path.
        """
        visible_keys = {key for item in view.items if item.mask is None and (key := _key(item.id, recorded_seqs)) is not None}
        found: dict[tuple[int, int], None] = {}
        for named_id in _named_ids(view.items):
            key = _key(named_id, recorded_seqs)
            if key is not None and key not in visible_keys:
                found[key] = None
        text = "\n".join(visible_text.text for visible_text in visible(view, recorded_seqs)).replace("\\", "/")
        for item in view.items:
            blob = item.content.blob if isinstance(item.content, ToolResult) and item.mask is None else ""
            key = _key(item.id, recorded_seqs) if blob and blob in text else None
            if key is not None:
                found[key] = None
        for index in (self._read, self._written):
            for path, keys in index.items():
                if keys[-1] not in visible_keys and path_ending(path) in text:
                    found[keys[-1]] = None
        return tuple(self._texts[key] for key in sorted(found) if key in self._texts)


def path_ending(path: str) -> str:
    """Return the last two parts of a path, with forward slashes."""
    return last_two_parts(path.replace("\\", "/").rstrip("/"))


def _contents(event: Event) -> tuple[Content, ...]:
    match event.body:
        case UserSaid(parts=user_parts):
            return user_parts
        case ModelReplied(parts=reply_parts):
            return reply_parts
        case ToolReturned(result=result):
            return (result,)
        case _:
            return ()


def _key(item_id: str, recorded_seqs: Mapping[int, int]) -> tuple[int, int] | None:
    numbers = item_id.split(".")
    event = recorded_seqs.get(int(numbers[0]))
    return (event, int(numbers[1])) if event is not None and len(numbers) == 2 else None


def _named_ids(items: Iterable[Item]) -> Iterator[str]:
    """Yield the item ids in masks and in texts of edits; in other texts such a number is not an id."""
    for item in items:
        if item.mask is not None:
            yield from _ITEM_ID.findall(item.mask.text)
        elif item.id.count(".") == 2 and isinstance(item.content, Text):
            yield from _ITEM_ID.findall(item.content.text)
