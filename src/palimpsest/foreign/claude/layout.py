"""Maps a view to lines of a Claude Code file: which items are on existing lines, and which need new ones."""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from palimpsest.core.items import Item, Kind, Opaque, Text, ToolCall, ToolResult
from palimpsest.foreign.claude.blocks import PROVIDER

_REPLY_KINDS: frozenset[Kind] = frozenset({"assistant", "thinking", "call"})
_USER_KINDS: frozenset[Kind] = frozenset({"user", "steering"})


@dataclass(slots=True)
class LineIndex:
    """The lines of a file: the line of each item, the items of each line, and the parent of each line."""

    sources: dict[str, str] = field(default_factory=dict)
    parents: dict[str, str] = field(default_factory=dict)
    items: dict[str, list[str]] = field(default_factory=dict)
    # The program moves attachments up to the reply or result before them.
    attachments: set[str] = field(default_factory=set)
    # Lines of answers written before the actual result, by the line of the call.
    early_answers: dict[str, str] = field(default_factory=dict)

    def add(self, ids: Iterable[str], uuid: str) -> None:
        """Record that items are on a line."""
        for item_id in ids:
            self.sources[item_id] = uuid
            self.items.setdefault(uuid, []).append(item_id)


@dataclass(frozen=True, slots=True)
class ItemRun:
    """Adjacent items of a view on one line, or one item without a line; if empty, a line that only answers a call.

    `is_whole` says that the line has exactly these items, as they are shown.
    """

    items: tuple[Item, ...]
    uuid: str = ""
    is_whole: bool = False

    @property
    def is_user_side(self) -> bool:
        """Whether all items are on the user's side and belong to no call."""
        return bool(self.items) and all(_is_user_item(item) for item in self.items)

    @property
    def has_calls(self) -> bool:
        """Whether it has calls or results, which must not be written twice because their ids must be unique."""
        return not self.items or any(isinstance(item.content, ToolCall | ToolResult) for item in self.items)


class Layout(NamedTuple):
    """A view as the program rebuilds it after a compaction: new lines, the last of which is the summary, then preserved lines.

    Preserved lines are existing ones, and new ones that are written before the boundary to be preserved too. Without a summary there are
    no leading lines.
    """

    leading: tuple[ItemRun, ...]
    preserved: tuple[tuple[ItemRun, bool], ...]
    """Each with whether its existing line is preserved."""


def layout_of(items: Sequence[Item], index: LineIndex, edit_prefix: str, pending: AbstractSet[str]) -> Layout:
    """The layout after an edit whose items have ids that start with `edit_prefix`. Calls on the lines `pending` have no answer yet.

    The summary is the last summary item of the edit before the first reply, call or result, or else its last other text there. What comes
    before it, such as kept user messages, is written again.
    """
    runs = list(_item_runs([item for item in items if not item.hidden], index, pending))
    summary = other_text = -1
    for number, run in enumerate(runs):
        if not run.is_user_side:
            break
        first = run.items[0]
        if first.id.startswith(edit_prefix) and first.kind not in _USER_KINDS:
            summary, other_text = (number, other_text) if first.kind == "summary" else (summary, number)
    start = 1 + (summary if summary >= 0 else other_text)
    return Layout(tuple(runs[:start]), tuple(_preserved(runs[start:], index, at_top=not start)))


def _preserved(runs: Iterable[ItemRun], index: LineIndex, *, at_top: bool) -> Iterator[tuple[ItemRun, bool]]:
    """Whether each line can be preserved: it is shown completely, and no user text is above an attachment, which would move up."""
    for run in runs:
        is_attachment = run.uuid in index.attachments
        is_preserved = bool(run.uuid) and (run.has_calls or (run.is_whole and (at_top or not is_attachment)))
        yield run, is_preserved
        if not is_attachment or not is_preserved:
            at_top = not run.is_user_side


def _item_runs(shown: Sequence[Item], index: LineIndex, pending: AbstractSet[str]) -> Iterator[ItemRun]:
    used_lines: set[str] = set()
    pending_answers: list[str] = []
    start = 0
    while start < len(shown):
        item = shown[start]
        if item.kind not in _REPLY_KINDS:
            yield from _early_answers(pending_answers, used_lines)
        uuid = index.sources.get(item.id, "")
        line_items = _same_line(shown, start, index) if uuid else (item,)
        start += len(line_items)
        if uuid in used_lines:
            continue
        run = ItemRun(line_items, uuid, is_whole=bool(uuid) and _is_whole(line_items, index.items[uuid]))
        yield run
        if uuid and (run.is_whole or run.has_calls):
            used_lines.add(uuid)
            answer = index.early_answers.get(uuid, "")
            pending_answers += [answer] if answer and uuid not in pending else []
    yield from _early_answers(pending_answers, used_lines)


def _early_answers(pending_answers: list[str], used_lines: set[str]) -> Iterator[ItemRun]:
    """The early answers follow the calls of a reply."""
    yield from (ItemRun((), uuid, is_whole=True) for uuid in pending_answers if uuid not in used_lines)
    used_lines.update(pending_answers)
    pending_answers.clear()


def _same_line(items: Sequence[Item], start: int, index: LineIndex) -> tuple[Item, ...]:
    uuid = index.sources[items[start].id]
    stop = start + 1
    while stop < len(items) and index.sources.get(items[stop].id) == uuid:
        stop += 1
    return tuple(items[start:stop])


def _is_whole(items: Sequence[Item], line_items: Sequence[str]) -> bool:
    return [item.id for item in items] == line_items and all(item.mask is None or item.mask.form == "cached" for item in items)


def _is_user_item(item: Item) -> bool:
    content = item.content
    if item.kind in _REPLY_KINDS or isinstance(content, ToolCall | ToolResult):
        return False
    if isinstance(content, Text):
        return content.role != "assistant"
    return not (isinstance(content, Opaque) and content.provider == PROVIDER)
