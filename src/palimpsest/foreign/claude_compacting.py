"""Edits of ours in the lines by which Claude Code remembers its own: boundaries, summaries, preserved lines, cleared results."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from palimpsest.core.edits import Fold, Insert, Mask, Put
from palimpsest.core.events import Event, ViewEdited
from palimpsest.core.items import ToolResult, text_of
from palimpsest.core.log import Log
from palimpsest.core.view import View
from palimpsest.core.walk import Walk
from palimpsest.foreign.claude_forms import plain_id
from palimpsest.wire.lenient import Json

_SPOKEN = frozenset({"assistant", "thinking", "call"})
_NO_SUMMARY = "Earlier messages of this conversation were taken out without a summary."


@dataclass(frozen=True, slots=True)
class EditLine:
    """One line that stands for an edit, without the fields that all lines have; `items` are those that it brings."""

    sort: Literal["boundary", "summary", "meta", "cleared"]
    fields: Json
    items: tuple[str, ...] = ()


class Compacting:
    """Knows which line each item came from, so that what a fold keeps is named and not copied."""

    def __init__(self, log: Log, sources: dict[str, str], parents: dict[str, str]) -> None:
        self.sources = sources
        self.parents = parents
        self.compacted = False
        self.stays: frozenset[str] = frozenset()
        # Answers that calls got before their results came, if they ever did, by the line of the call.
        self.early: dict[str, str] = {}
        self._path = log.path
        self._walk = Walk(log.reader, self._path)
        self._undone = log.reader.skip(self._path)
        self._log = log
        self._metadata: Json = {}

    def brought(self, seq: int, numbers: Iterable[int], uuid: str) -> None:
        """An event's parts stand on a line."""
        self.sources.update({f"{seq}.{number}": uuid for number in numbers})

    def anchored(self, uuid: str) -> None:
        """The summary has its line: what is preserved stands after it."""
        for key in ("preservedSegment", "preservedMessages"):
            found = self._metadata.get(key)
            if isinstance(found, dict):
                found["anchorUuid"] = uuid

    def lines(self, event: Event, body: ViewEdited, waiting: frozenset[str] = frozenset()) -> Iterator[EditLine]:
        """The lines that stand for an edit; of one that was undone there are none. Calls on the lines `waiting` have no answer yet."""
        self.compacted = False
        undone = self._undone.get(event.seq)
        edits = [(index, edit) for index, edit in enumerate(body.edits) if undone is None or (undone and index not in undone)]
        if any(isinstance(edit, Fold) for _, edit in edits):
            self.compacted = True
            yield from self._folded(event, body, waiting)
            return
        cleared = tuple(item_id for _, edit in edits if isinstance(edit, Mask) for item_id in edit.ids)
        if cleared:
            yield from self._masked(body, cleared)
        for index, edit in edits:
            if isinstance(edit, Insert):
                yield from self._inserted(event, index, edit)

    def _folded(self, event: Event, body: ViewEdited, waiting: frozenset[str]) -> Iterator[EditLine]:
        view = self._walk.view_at(event.seq) if event.seq in self._path else self._log.state_at(event.seq).view
        own = f"{event.seq}."
        made = [item for item in view.items if item.id.startswith(own)]
        summary = [item for item in made if item.kind == "summary"]
        stays = list(self._stays(view, waiting))
        self.stays = frozenset(stays)
        trigger = "manual" if body.moment == "asked" or body.why == "manual" else "auto"
        metadata: Json = {"trigger": trigger, "preTokens": body.tokens_before, "postTokens": body.tokens_after}
        if stays:
            metadata["preservedSegment"] = {"headUuid": self._head(stays), "anchorUuid": "", "tailUuid": stays[-1]}
            metadata["preservedMessages"] = {"anchorUuid": "", "uuids": stays, "allUuids": stays}
        self._metadata = metadata
        boundary: Json = {"subtype": "compact_boundary", "content": "Conversation compacted", "level": "info", "isMeta": False}
        yield EditLine("boundary", {**boundary, "compactMetadata": metadata})
        said = "\n\n".join(text_of(item.content) for item in summary) or _NO_SUMMARY
        fields: Json = {"message": {"role": "user", "content": said}, "isVisibleInTranscriptOnly": True, "isCompactSummary": True}
        yield EditLine("summary", fields, tuple(item.id for item in summary))
        yield from (_meta(item.id, text_of(item.content)) for item in made if item.kind != "summary" and text_of(item.content).strip())

    def _stays(self, view: View, waiting: frozenset[str]) -> dict[str, None]:
        """The lines of a view, in its order; after the calls of a reply stand the answers that they got early."""
        stays: dict[str, None] = {}
        owed: list[str] = []
        for item in view.items:
            if item.kind not in _SPOKEN:
                stays.update(dict.fromkeys(owed))
                owed.clear()
            uuid = self.sources.get(item.id)
            if uuid is not None and not item.hidden:
                stays[uuid] = None
                owed += [self.early[uuid]] if uuid in self.early and uuid not in waiting else []
        stays.update(dict.fromkeys(owed))
        return stays

    def _head(self, stays: list[str]) -> str:
        """Where the unbroken run begins that ends with the last line that stays: a segment cannot leave out what lies within it."""
        wanted, known = set(stays), set(self.sources.values())
        head = stays[-1]
        line = self.parents.get(head, "")
        while line and (line in wanted or line not in known):
            head = line if line in wanted else head
            line = self.parents.get(line, "")
        return head

    def _masked(self, body: ViewEdited, ids: tuple[str, ...]) -> Iterator[EditLine]:
        items = [self._log.item(item_id) for item_id in ids]
        calls = [plain_id(item.content.call_id) for item in items if isinstance(item.content, ToolResult)]
        others = [found for item in items if not isinstance(item.content, ToolResult) and (found := self.sources.get(item.id))]
        saved = max(0, body.tokens_before - body.tokens_after)
        metadata: Json = {
            "trigger": "manual" if body.moment == "asked" else "auto",
            "preTokens": body.tokens_before,
            "tokensSaved": saved,
            "compactedToolIds": calls,
            "clearedAttachmentUUIDs": others,
        }
        fields: Json = {"subtype": "microcompact_boundary", "content": "Context microcompacted", "level": "info", "isMeta": False}
        yield EditLine("cleared", {**fields, "microcompactMetadata": metadata})

    def _inserted(self, event: Event, index: int, edit: Insert) -> Iterator[EditLine]:
        for number, piece in enumerate(edit.contents):
            said = text_of(piece.content) if isinstance(piece, Put) else text_of(self._log.item(piece.id).content)
            if said.strip():
                yield _meta(f"{event.seq}.{index}.{number}", said)


def _meta(item_id: str, said: str) -> EditLine:
    return EditLine("meta", {"message": {"role": "user", "content": said}, "isMeta": True}, (item_id,))
