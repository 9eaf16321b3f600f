"""Restores imported lines of Claude Code exactly from the log."""

import re
from collections import deque
from collections.abc import Iterator
from uuid import NAMESPACE_URL, uuid5

import msgspec

from palimpsest.core.events import Event
from palimpsest.core.events.event_items import all_items_of
from palimpsest.core.items import Content, Item, Text
from palimpsest.core.ports import Blobs
from palimpsest.foreign.claude.blocks import PLACEHOLDER, fill_blocks
from palimpsest.foreign.file_ids import paired_items
from palimpsest.foreign.reading.importing import provenance_of
from palimpsest.foreign.reading.transcript import FIELD, ExportOrigin
from palimpsest.wire.json_reading import Json, is_json, table_at, tables_at, text

# Separates the id of a line from what follows it in a key: the number of a run, or the name of an accompanying event.
_KEY_SUFFIX = re.compile("[#~]")
_CONVERSATION = frozenset({"user", "assistant", "attachment", "system"})
# Fields that all lines of a conversation share.
_COMMON = ("userType", "cwd", "sessionId", "version", "gitBranch")


class ImportedLines:
    """The imported lines of a log by line number, and the line of each item."""

    def __init__(self, blobs: Blobs, origin: ExportOrigin) -> None:
        self._blobs = blobs
        self._origin = origin
        # By line number; a line that is added here stands half a number before another one.
        self._lines: dict[float, Json] = {}
        # Prompts that were typed during a turn, and that only operations of the queue hold: by the number of that line.
        self._queued: dict[float, tuple[str, str]] = {}
        self._group: list[tuple[int, Json]] = []
        self._group_key = ""
        self._contents: list[tuple[str, Content]] = []
        self.sources: dict[str, str] = {}
        self.attachments: set[str] = set()
        self.events: set[int] = set()
        # Items of tool calls and results in these lines.
        self.paired: list[Item] = []

    def add(self, event: Event) -> bool:
        """Add an event. Returns whether it was imported, so that its lines are in the file."""
        provenance = provenance_of(event.body)
        if provenance is None or provenance.form:
            return False
        self.events.add(event.seq)
        self.paired += paired_items((event,))
        lines = _numbered_lines(msgspec.json.decode(bytes(provenance.line)))
        if _KEY_SUFFIX.split(provenance.key)[0] != self._group_key:
            self._finish_group()
        if lines:
            self._group, self._group_key = lines, provenance.key
        if lines or "#" in provenance.key:
            self._contents += [(item.id, item.content) for item in all_items_of(event)]
        return True

    def lines(self) -> Iterator[Json]:
        """All lines in file order."""
        self._finish()
        return (self._lines[number] for number in sorted(self._lines))

    @property
    def last_line(self) -> Json:
        """The newest line of the conversation; empty if there is none."""
        self._finish()
        return next(
            (line for number in sorted(self._lines, reverse=True) if text(line := self._lines[number], "type") in _CONVERSATION), {}
        )

    @property
    def title_lines(self) -> list[Json]:
        """The newest lines with a title and a tag given by the user."""
        self._finish()
        by_kind = {kind: line for _, line in sorted(self._lines.items()) if (kind := text(line, "type")) in {"custom-title", "tag"}}
        return list(by_kind.values())

    def _finish(self) -> None:
        """Fill in the last lines, and add those that the program needs to show the conversation as the view has it."""
        self._finish_group()
        if self._queued:
            self._deliver_queued()

    def _deliver_queued(self) -> None:
        """Add each queued prompt as a line of the user before the reply that answers it.

        When it resumes, the program reads neither operations of the queue nor attachments for them.
        """
        queued, self._queued = self._queued, {}
        by_uuid = {text(line, "uuid"): line for line in self._lines.values()}
        replies = [number for number, line in sorted(self._lines.items()) if _begins_reply(line, by_uuid.get(text(line, "parentUuid"), {}))]
        for number, (item_id, prompt) in sorted(queued.items()):
            reply = next((each for each in replies if each > number), None)
            before = self._lines[reply] if reply is not None else None
            parent = text(self.last_line, "uuid") if before is None else text(before, "parentUuid")
            seq = int(item_id.partition(".")[0])
            uuid = str(uuid5(NAMESPACE_URL, f"palimpsest:{self._origin.session}:{seq}:queued"))
            common = {name: self.last_line[name] for name in _COMMON if name in self.last_line}
            line: Json = {
                "parentUuid": parent or None,
                **common,
                "isSidechain": False,
                "type": "user",
                "message": {"role": "user", "content": prompt},
                "permissionMode": "default",
                "uuid": uuid,
                "timestamp": text(self._lines[number], "timestamp"),
                FIELD: self._origin.mark(seq),
            }
            self.sources[item_id] = uuid
            if before is None or reply is None:
                self._lines[max(self._lines) + 1] = line
            else:
                before["parentUuid"] = uuid
                self._lines[(max(each for each in self._lines if each < reply) + reply) / 2] = line

    def _finish_group(self) -> None:
        contents = iter(self._contents)
        for number, line in self._group:
            # A reply that was imported in two parts has its first lines twice; the contents belong to the others.
            if number not in self._lines:
                self._lines[number] = line
                self._fill(number, line, contents)
        self._group, self._contents, self._group_key = [], [], ""

    def _fill(self, number: int, line: Json, contents: Iterator[tuple[str, Content]]) -> None:
        uuid = text(line, "uuid")
        match line.get("type"):
            case "attachment":
                self.attachments.add(uuid)
                placeholders = [each for each in tables_at(line, "rendered") if each.get("content") == PLACEHOLDER]
                for each in placeholders:
                    each["content"] = _text(next(self._with_source(uuid, contents), None))
                if not placeholders:
                    # The line has its text elsewhere, as a prompt typed during a turn does.
                    deque(self._with_source(uuid, contents), maxlen=0)
            case "system" if line.get("content") == PLACEHOLDER:
                line["content"] = _text(next(self._with_source(uuid, contents), None))
            case "queue-operation":
                item_id, content = next(contents, ("", None))
                if isinstance(content, Text):
                    self._queued[number] = item_id, content.text
            case "user" | "assistant":
                fill_blocks(table_at(line, "message"), self._with_source(uuid, contents), self._blobs)
            case _:
                pass

    def _with_source(self, uuid: str, contents: Iterator[tuple[str, Content]]) -> Iterator[Content]:
        for item_id, content in contents:
            self.sources[item_id] = uuid
            yield content


def _begins_reply(line: Json, parent: Json) -> bool:
    """Whether a line of the conversation is the first one of a reply, and so not behind another line of it."""
    message = text(table_at(line, "message"), "id")
    is_reply = line.get("type") == "assistant" and line.get("isSidechain") is not True and "parentUuid" in line
    return is_reply and not (parent.get("type") == "assistant" and text(table_at(parent, "message"), "id") == message)


def _numbered_lines(value: object) -> list[tuple[int, Json]]:
    if not isinstance(value, list):
        return []
    pairs = [pair for pair in value if isinstance(pair, list) and len(pair) == 2]
    return [(number, line) for number, line in pairs if isinstance(number, int) and is_json(line)]


def pending_calls(lines: list[Json]) -> dict[str, str]:
    """The calls of the newest reply without a result, by call id, with their lines."""
    calls: dict[str, str] = {}
    newest = ""
    for line in lines:
        message = table_at(line, "message")
        blocks = tables_at(message, "content")
        if line.get("type") == "assistant":
            if text(message, "id") != newest:
                calls, newest = {}, text(message, "id")
            calls.update({text(block, "id"): text(line, "uuid") for block in blocks if block.get("type") == "tool_use"})
        elif line.get("type") == "user":
            for block in blocks:
                calls.pop(text(block, "tool_use_id"), None)
    return calls


def _text(content: Content | None) -> str:
    return getattr(content, "text", "") if content is not None else ""
