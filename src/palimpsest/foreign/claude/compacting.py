"""Writes edits as the lines of Claude Code for them: boundaries, summaries, preserved lines and cleared results."""

from collections.abc import Container, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

from msgspec import structs

from palimpsest.audit.pricing.size_rules import claude_size
from palimpsest.core.edits import Fold, Insert, Mask, Put
from palimpsest.core.events import Event, ToolReturned, ViewEdited
from palimpsest.core.events.event_items import edit_items
from palimpsest.core.items import Content, Item, ToolResult, text_of
from palimpsest.core.log.log import Log
from palimpsest.core.ports import Blobs
from palimpsest.core.projections.view import ViewReplay
from palimpsest.core.tokens.budget import measured_tokens
from palimpsest.core.tokens.counter import TokenCounter
from palimpsest.core.view import View, shown
from palimpsest.foreign.claude.blocks import assistant_blocks, result_block, user_content
from palimpsest.foreign.claude.layout import ItemRun, Layout, LineIndex, layout_of
from palimpsest.foreign.file_ids import FileIds
from palimpsest.wire.json_reading import Json, table_at, tables_at, text


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
