"""Edits of ours in the lines by which Claude Code remembers its own: boundaries, summaries, preserved lines, cleared results."""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

from palimpsest.core.edits import Fold, Insert, Mask, Put
from palimpsest.core.events import Event, ViewEdited
from palimpsest.core.events.event_items import edit_items
from palimpsest.core.items import Content, Item, ToolResult
from palimpsest.core.log.log import Log
from palimpsest.core.ports import Blobs
from palimpsest.core.projections.view import ViewReplay
from palimpsest.core.view import View, shown
from palimpsest.foreign.claude.forms import assistant_blocks, result_block, user_content
from palimpsest.foreign.claude.layout import Layout, LineIndex, Unit, layout_of
from palimpsest.foreign.file_ids import FileIds
from palimpsest.wire.json_reading import Json


@dataclass(frozen=True, slots=True)
class EditLine:
    """One line that stands for an edit, without the fields that all lines have; `items` are those that it brings.

    A line of a reply has only its `block`, for the message around it is the writer's.
    """

    sort: Literal["boundary", "summary", "user", "assistant", "cleared"]
    fields: Json
    items: tuple[str, ...] = ()


class Compacting:
    """Knows which line each item came from, so that what a fold keeps is named and not copied."""

    def __init__(self, log: Log, blobs: Blobs, session: str, index: LineIndex, ids: FileIds) -> None:
        self.index = index
        self.compacted = False
        self.stays: frozenset[str] = frozenset()
        # The line that was made last: who yields a line can name it afterwards.
        self.newest = ""
        self._log = log
        self._blobs = blobs
        self._session = session
        self._ids = ids
        self._path = log.path
        self._walk = ViewReplay(log.reader, self._path)
        self._undone = log.reader.undone_edits(self._path)
        # Whether an edit changed the view in a way that only a boundary can tell.
        self._dirty = False
        self._metadata: Json = {}

    def anchored(self, uuid: str) -> None:
        """The summary has its line: what is preserved stands after it."""
        for key in ("preservedSegment", "preservedMessages"):
            found = self._metadata.get(key)
            if isinstance(found, dict):
                found["anchorUuid"] = uuid

    def lines(self, event: Event, body: ViewEdited, pending: AbstractSet[str] = frozenset()) -> Iterator[EditLine]:
        """The lines that stand for an edit; of one that was undone there are none. Calls on the lines `pending` have no answer yet."""
        self.compacted = False
        undone = self._undone.get(event.seq)
        edits = [(index, edit) for index, edit in enumerate(body.edits) if undone is None or (undone and index not in undone)]
        on_path = event.seq in self._path
        if any(isinstance(edit, Fold) for _, edit in edits):
            view = self._walk.view_at(event.seq) if on_path else self._log.state_at(event.seq).view
            self._dirty = self._dirty and not on_path
            trigger = "manual" if body.moment == "asked" or body.why == "manual" else "auto"
            details: Json = {"trigger": trigger, "preTokens": body.tokens_before, "postTokens": body.tokens_after}
            yield from self._folded(view, f"{event.seq}.", details, pending)
            return
        masks = {item_id: edit for _, edit in edits if isinstance(edit, Mask) for item_id in edit.ids}
        cleared = [self._log.item(item_id) for item_id in masks if self._is_clearable(item_id, masks)]
        # The program lists notes that it dropped too; where they are no attachments of the file, a boundary follows that hides them.
        notes = [item for item_id in masks if self._is_hidden_note(item := self._log.item(item_id), masks) and item not in cleared]
        if cleared or notes:
            yield self._cleared(body, [*cleared, *notes])
        for index, edit in edits:
            if isinstance(edit, Insert) and not _moves(edit):
                yield from self._inserted(event, index, edit)
        told = {item.id for item in cleared}
        # A cached mask leaves what shows as it is.
        hidden = any(mask.form != "cached" and item_id not in told for item_id, mask in masks.items())
        moved = hidden or any(isinstance(edit, Insert) and _moves(edit) for _, edit in edits)
        self._dirty = self._dirty or (moved and on_path)

    def undone(self) -> None:
        """An edit was undone whose lines stand already."""
        self._dirty = True

    def _is_clearable(self, item_id: str, masks: Mapping[str, Mask]) -> bool:
        """Whether the file can say that an item is masked: a result has a text in its place, and an attachment is gone as a whole."""
        if masks[item_id].text or masks[item_id].form == "cached":
            return isinstance(self._log.item(item_id).content, ToolResult)
        uuid = self.index.sources.get(item_id, "")
        return uuid in self.index.attachments and all(each in masks and not masks[each].text for each in self.index.brings[uuid])

    def _is_hidden_note(self, item: Item, masks: Mapping[str, Mask]) -> bool:
        uuid = self.index.sources.get(item.id, "")
        if item.kind != "recalled" or not uuid or uuid in self.index.attachments:
            return False
        return all(each in masks and not masks[each].text for each in self.index.brings[uuid])

    def settled(self, view: View, pending: AbstractSet[str]) -> Iterator[EditLine]:
        """The lines that make the file show the view, where edits since the last boundary did more than clear results and add texts."""
        self.compacted = False
        if self._dirty:
            self._dirty = False
            tokens = view.reported.tokens if view.reported is not None else 0
            yield from self._folded(view, "-", {"trigger": "auto", "preTokens": tokens, "postTokens": tokens}, pending)

    def _folded(self, view: View, made: str, details: Json, pending: AbstractSet[str]) -> Iterator[EditLine]:
        self.compacted = True
        # What another provider sealed is on no line and leaves none.
        items = [item for item in view.items if item.id in self.index.sources or any(self._new(Unit((item,))))]
        layout = layout_of(items, self.index, made, pending)
        stays: list[str] = []
        for unit, is_named in layout.rest:
            if is_named:
                stays.append(unit.uuid)
                continue
            for line in self._new(unit):
                yield line
                stays.append(self.newest)
        self.stays = frozenset(stays)
        yield self._boundary(layout, details, stays)
        if not layout.leading:
            self.anchored(self.newest)
        for number, unit in enumerate(layout.leading, 1):
            is_summary = number == len(layout.leading)
            for line in self._new(unit):
                yield EditLine("summary", {**line.fields, **_SUMMARY}, line.items) if is_summary else line

    def _boundary(self, layout: Layout, details: Json, stays: list[str]) -> EditLine:
        metadata = dict(details)
        if stays or not layout.leading:
            ends = {"headUuid": self._head(stays), "anchorUuid": "", "tailUuid": stays[-1]} if stays else {"anchorUuid": ""}
            metadata["preservedSegment"] = ends
            metadata["preservedMessages"] = {"anchorUuid": "", "uuids": stays, "allUuids": stays}
        self._metadata = metadata
        fields: Json = {"subtype": "compact_boundary", "content": "Conversation compacted", "level": "info", "isMeta": False}
        return EditLine("boundary", {**fields, "compactMetadata": metadata})

    def _new(self, unit: Unit) -> Iterator[EditLine]:
        """The new lines of a unit. A line that is written once more says of which one it is a copy."""
        contents = [(item, self._ids.renamed(item.id, content)) for item in unit.items if (content := shown(item)) is not None]
        if unit.of_user:
            yield from self._of_user(unit, [content for _, content in contents])
            return
        for item, content in contents:
            if isinstance(content, ToolResult):
                yield EditLine("user", {"message": {"role": "user", "content": [result_block(content, self._blobs)]}}, (item.id,))
                continue
            for _, block in assistant_blocks((content,)):
                yield EditLine("assistant", block, (item.id,))

    def _of_user(self, unit: Unit, contents: list[Content]) -> Iterator[EditLine]:
        content = user_content(contents, self._blobs)
        if not content:
            return
        # What an edit puts in the user's role was not said once more.
        said = unit.items[0].kind in {"user", "steering"} and unit.items[0].id.count(".") == 1
        fields: Json = {"message": {"role": "user", "content": content}, **({"permissionMode": "default"} if said else {"isMeta": True})}
        if unit.whole:
            # The items stay where they first were, so that the next fold names that line or copies it again.
            yield EditLine("user", {**fields, "forkedFrom": {"sessionId": self._session, "messageUuid": unit.uuid}})
        else:
            yield EditLine("user", fields, tuple(item.id for item in unit.items))

    def _head(self, stays: list[str]) -> str:
        """Where the unbroken run begins that ends with the last line that stays: a segment cannot leave out what lies within it."""
        wanted, known = set(stays), set(self.index.sources.values())
        head = stays[-1]
        line = self.index.parents.get(head, "")
        while line and (line in wanted or line not in known):
            head = line if line in wanted else head
            line = self.index.parents.get(line, "")
        return head

    def _cleared(self, body: ViewEdited, items: Iterable[Item]) -> EditLine:
        calls = [self._ids.of(item.id, item.content.call_id) for item in items if isinstance(item.content, ToolResult)]
        others = [self.index.sources[item.id] for item in items if not isinstance(item.content, ToolResult)]
        metadata: Json = {
            "trigger": "manual" if body.moment == "asked" else "auto",
            "preTokens": body.tokens_before,
            "tokensSaved": max(0, body.tokens_before - body.tokens_after),
            "compactedToolIds": calls,
            "clearedAttachmentUUIDs": list(dict.fromkeys(others)),
        }
        fields: Json = {"subtype": "microcompact_boundary", "content": "Context microcompacted", "level": "info", "isMeta": False}
        return EditLine("cleared", {**fields, "microcompactMetadata": metadata})

    def _inserted(self, event: Event, index: int, edit: Insert) -> Iterator[EditLine]:
        for item in edit_items(event.seq, index, edit).values():
            yield from self._new(Unit((item,)))


_SUMMARY: Json = {"isVisibleInTranscriptOnly": True, "isCompactSummary": True}


def _moves(edit: Insert) -> bool:
    """Whether an insertion does more than to add texts to the end."""
    return bool(edit.before) or not all(isinstance(piece, Put) for piece in edit.contents)
