"""Writes edits as Claude Code's lines for compactions and cleared results, and maps a view to the lines of a file."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from msgspec import structs

from palimpsest.audit.sizes import claude_size
from palimpsest.core.budget import measured_tokens
from palimpsest.core.events import Event, ToolReturned, ViewEdited, edit_items
from palimpsest.core.items import Content, Fold, Insert, Item, Kind, Mask, Opaque, Put, Text, ToolCall, ToolResult, text_of
from palimpsest.core.log import Log
from palimpsest.core.ports import Blobs
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.view import View, shown
from palimpsest.core.view_projection import ViewReplay
from palimpsest.exchange.claude.lines import PROVIDER, assistant_blocks, result_block, user_content
from palimpsest.exchange.transcript import FileIds
from palimpsest.wire.json_reading import Json, table_at, tables_at, text

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


@dataclass(frozen=True, slots=True)
class EditLine:
    """One line of an edit, without the fields that all lines have; `items` are the items on it.

    A line of a reply has only its block; the writer adds the message around it.
    """

    kind: Literal["boundary", "summary", "user", "assistant", "cleared"]
    fields: Json
    items: tuple[str, ...] = ()


class CompactionWriter:
    """Writes the lines of edits. Items that a fold keeps are referenced by their lines instead of being copied."""

    def __init__(self, log: Log, blobs: Blobs, session: str, index: LineIndex, ids: FileIds) -> None:
        self.index = index
        self.compacted = False
        self.preserved: frozenset[str] = frozenset()
        # Id of the newest line, set by the writer after each line it receives.
        self.newest = ""
        self._log = log
        self._blobs = blobs
        self._session = session
        self._ids = ids
        self._path = log.path
        self._walk = ViewReplay(log.reader, self._path)
        self._undone = log.reader.undone_edits(self._path)
        # Whether an edit changed the view in a way that only a boundary can express.
        self._dirty = False
        self._metadata: Json = {}

    def set_anchor(self, uuid: str) -> None:
        """Set the line after which preserved lines follow: that of the summary."""
        for key in ("preservedSegment", "preservedMessages"):
            found = self._metadata.get(key)
            if isinstance(found, dict):
                found["anchorUuid"] = uuid

    def lines(self, event: Event, body: ViewEdited, pending: AbstractSet[str] = frozenset()) -> Iterator[EditLine]:
        """The lines of an edit; none if it was undone. Calls on the lines `pending` have no answer yet."""
        self.compacted = False
        undone_edits = self._undone.get(event.seq)
        edits = [
            (index, edit) for index, edit in enumerate(body.edits) if undone_edits is None or (undone_edits and index not in undone_edits)
        ]
        masks = {item_id: edit for _, edit in edits if isinstance(edit, Mask) for item_id in edit.ids}
        on_path = event.seq in self._path
        if any(isinstance(edit, Fold) for _, edit in edits):
            view = self._walk.view_at(event.seq) if on_path else self._log.state_at(event.seq).view
            self._dirty = self._dirty and not on_path
            trigger = "manual" if body.moment == "asked" or body.why == "manual" else "auto"
            details: Json = {"trigger": trigger, "preTokens": body.tokens_before, "postTokens": body.tokens_after}
            yield from self._fold_lines(view, f"{event.seq}.", details, pending)
            # A kept result stays on its line, which is preserved whole: its id may not occur twice, so that its stub needs a line too.
            stubs = [item for item in view.items if item.id in masks and self._is_clearable(item.id, masks)]
            if stubs:
                yield self._cleared_line(stubs, trigger, body.tokens_after, body.tokens_after)
            return
        cleared = [self._log.item(item_id) for item_id in masks if self._is_clearable(item_id, masks)]
        # The program lists dropped notes too. Notes that are no attachments are hidden by the next boundary.
        notes = [item for item_id in masks if self._is_hidden_note(item := self._log.item(item_id), masks) and item not in cleared]
        if cleared or notes:
            trigger = "manual" if body.moment == "asked" else "auto"
            yield self._cleared_line([*cleared, *notes], trigger, body.tokens_before, body.tokens_after)
        for index, edit in edits:
            if isinstance(edit, Insert) and not _is_not_append(edit):
                yield from self._inserted_lines(event, index, edit)
        cleared_ids = {item.id for item in cleared}
        # A cached mask does not change what is shown.
        hidden = any(mask.form != "cached" and item_id not in cleared_ids for item_id, mask in masks.items())
        is_changed = hidden or any(isinstance(edit, Insert) and _is_not_append(edit) for _, edit in edits)
        self._dirty = self._dirty or (is_changed and on_path)

    def note_undone(self) -> None:
        """Note that an edit was undone whose lines are in the file already."""
        self._dirty = True

    def _is_clearable(self, item_id: str, masks: Mapping[str, Mask]) -> bool:
        """Whether the file can express the mask of an item: a result replaced by a text, or an attachment removed as a whole."""
        if masks[item_id].text or masks[item_id].form == "cached":
            return isinstance(self._log.item(item_id).content, ToolResult)
        uuid = self.index.sources.get(item_id, "")
        return uuid in self.index.attachments and all(each in masks and not masks[each].text for each in self.index.items[uuid])

    def _is_hidden_note(self, item: Item, masks: Mapping[str, Mask]) -> bool:
        uuid = self.index.sources.get(item.id, "")
        if item.kind != "recalled" or not uuid or uuid in self.index.attachments:
            return False
        return all(each in masks and not masks[each].text for each in self.index.items[uuid])

    def catch_up(self, view: View, pending: AbstractSet[str]) -> Iterator[EditLine]:
        """A boundary that makes the file show the view, if edits since the last one did more than clear results and append texts."""
        self.compacted = False
        if self._dirty:
            self._dirty = False
            tokens = 0 if view.reported is None else measured_tokens(view.reported, view, TokenCounter(claude_size))
            yield from self._fold_lines(view, "-", {"trigger": "auto", "preTokens": tokens, "postTokens": tokens}, pending)

    def _fold_lines(self, view: View, edit_prefix: str, details: Json, pending: AbstractSet[str]) -> Iterator[EditLine]:
        self.compacted = True
        # Thinking of another provider is on no line and gets none.
        items = [item for item in view.items if item.id in self.index.sources or any(self._new_lines(ItemRun((item,))))]
        layout = layout_of(items, self.index, edit_prefix, pending)
        preserved: list[str] = []
        for run, is_named in layout.preserved:
            if is_named:
                preserved.append(run.uuid)
                continue
            for line in self._new_lines(run):
                yield line
                preserved.append(self.newest)
        self.preserved = frozenset(preserved)
        yield self._boundary(layout, details, preserved)
        if not layout.leading:
            self.set_anchor(self.newest)
        for number, run in enumerate(layout.leading, 1):
            is_summary = number == len(layout.leading)
            for line in self._new_lines(run):
                yield EditLine("summary", {**line.fields, **_SUMMARY}, line.items) if is_summary else line

    def _boundary(self, layout: Layout, details: Json, preserved: list[str]) -> EditLine:
        metadata = dict(details)
        if preserved or not layout.leading:
            ends = {"headUuid": self._head(preserved), "anchorUuid": "", "tailUuid": preserved[-1]} if preserved else {"anchorUuid": ""}
            metadata["preservedSegment"] = ends
            metadata["preservedMessages"] = {"anchorUuid": "", "uuids": preserved, "allUuids": preserved}
        self._metadata = metadata
        fields: Json = {"subtype": "compact_boundary", "content": "Conversation compacted", "level": "info", "isMeta": False}
        return EditLine("boundary", {**fields, "compactMetadata": metadata})

    def _new_lines(self, run: ItemRun) -> Iterator[EditLine]:
        """New lines for a run of items. A line that is written again names the line that it copies."""
        contents = [(item, self._ids.renamed(item.id, content)) for item in run.items if (content := shown(item)) is not None]
        if run.is_user_side:
            yield from self._user_lines(run, [content for _, content in contents])
            return
        for item, content in contents:
            if isinstance(content, ToolResult):
                yield EditLine("user", {"message": {"role": "user", "content": [result_block(content, self._blobs)]}}, (item.id,))
                continue
            for _, block in assistant_blocks((content,)):
                yield EditLine("assistant", block, (item.id,))

    def _user_lines(self, run: ItemRun, contents: list[Content]) -> Iterator[EditLine]:
        content = user_content(contents, self._blobs)
        if not content:
            return
        # Text that an edit inserted in the user's role is not a new prompt.
        is_prompt = run.items[0].kind in {"user", "steering"} and run.items[0].id.count(".") == 1
        fields: Json = {
            "message": {"role": "user", "content": content},
            **({"permissionMode": "default"} if is_prompt else {"isMeta": True}),
        }
        if run.is_whole:
            # The items stay on their first line, so that the next fold preserves or copies that one.
            yield EditLine("user", {**fields, "forkedFrom": {"sessionId": self._session, "messageUuid": run.uuid}})
        else:
            yield EditLine("user", fields, tuple(item.id for item in run.items))

    def _head(self, preserved: list[str]) -> str:
        """The first line of the unbroken run that ends with the last preserved line: a segment cannot skip lines within it."""
        preserved_ids, content_lines = set(preserved), set(self.index.sources.values())
        head = preserved[-1]
        line = self.index.parents.get(head, "")
        while line and (line in preserved_ids or line not in content_lines):
            head = line if line in preserved_ids else head
            line = self.index.parents.get(line, "")
        return head

    def _cleared_line(self, items: Sequence[Item], trigger: str, before: int, after: int) -> EditLine:
        calls = [self._ids.of(item.id, item.content.call_id) for item in items if isinstance(item.content, ToolResult)]
        others = [self.index.sources[item.id] for item in items if not isinstance(item.content, ToolResult)]
        metadata: Json = {
            "trigger": trigger,
            "preTokens": before,
            "tokensSaved": max(0, before - after),
            "compactedToolIds": calls,
            "clearedAttachmentUUIDs": list(dict.fromkeys(others)),
        }
        fields: Json = {"subtype": "microcompact_boundary", "content": "Context microcompacted", "level": "info", "isMeta": False}
        return EditLine("cleared", {**fields, "microcompactMetadata": metadata})

    def _inserted_lines(self, event: Event, index: int, edit: Insert) -> Iterator[EditLine]:
        for item in edit_items(event.seq, index, edit).values():
            yield from self._new_lines(ItemRun((item,)))


_SUMMARY: Json = {"isVisibleInTranscriptOnly": True, "isCompactSummary": True}


def _is_not_append(edit: Insert) -> bool:
    """Whether an insertion does more than append texts at the end."""
    return bool(edit.before) or not all(isinstance(piece, Put) for piece in edit.contents)


def covered_results(log: Log, imported: Container[int]) -> dict[str, ToolResult]:
    """The results that edits made here have covered, as the view shows them.

    The program reads no line that clears a result when it resumes, so the result has to be written as it is to be shown; the log keeps it.
    """
    edited = {
        item_id
        for event in log.events()
        if isinstance(event.body, ViewEdited) and event.seq not in imported
        for edit in event.body.edits
        if isinstance(edit, Mask) and edit.text and edit.form == "shown"
        for item_id in edit.ids
    }
    covered = ((item.id, shown(item)) for item in log.view.items if item.id in edited and item.mask is not None)
    return {item_id: content for item_id, content in covered if isinstance(content, ToolResult)}


def with_stub(event: Event, stubs: Mapping[str, ToolResult]) -> Event:
    """An event as it is to be written: a result that is covered with its stub."""
    stub = stubs.get(f"{event.seq}.0")
    if stub is None or not isinstance(event.body, ToolReturned):
        return event
    result = structs.replace(stub, call_id=event.body.result.call_id)
    return structs.replace(event, body=structs.replace(event.body, result=result))


def put_stubs(line: Json, stubs: Mapping[str, ToolResult]) -> None:
    """Replace covered results on an imported line, in its message and in the copy of the result beside it."""
    for block in tables_at(table_at(line, "message"), "content"):
        stub = stubs.get(text(block, "tool_use_id")) if block.get("type") == "tool_result" else None
        if stub is not None:
            block["content"] = text_of(stub)
            line.pop("toolUseResult", None)
