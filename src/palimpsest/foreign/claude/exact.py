"""Lines of Claude Code that were imported, put together again exactly as they were."""

import re
from collections import deque
from collections.abc import Iterator

import msgspec

from palimpsest.core.events import Event
from palimpsest.core.events.event_items import all_items_of
from palimpsest.core.items import Content, Item
from palimpsest.core.ports import Blobs
from palimpsest.foreign.claude.blocks import HOLE, fill_blocks
from palimpsest.foreign.file_ids import paired_items
from palimpsest.foreign.reading.importing import provenance_of
from palimpsest.wire.json_reading import Json, is_json, table_at, tables_at, text

# What follows the id of a line in the key of a fact: a further run of the line, or something that goes with it.
_LINE = re.compile("[#~]")
_TALK = frozenset({"user", "assistant", "attachment", "system"})


class Kept:
    """The imported lines of a log by their numbers, and which line each item came from."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._lines: dict[int, Json] = {}
        self._open: list[tuple[int, Json]] = []
        self._open_key = ""
        self._contents: list[tuple[str, Content]] = []
        self.sources: dict[str, str] = {}
        self.attachments: set[str] = set()
        self.events: set[int] = set()
        # The calls and results of these lines.
        self.halves: list[Item] = []

    def take(self, event: Event) -> bool:
        """Take in an event; whether it was imported, so that its lines are known."""
        found = provenance_of(event.body)
        if found is None:
            return False
        self.events.add(event.seq)
        self.halves += paired_items((event,))
        lines = _numbered(msgspec.json.decode(bytes(found.line)))
        if _LINE.split(found.key)[0] != self._open_key:
            self._close()
        if lines:
            self._open, self._open_key = lines, found.key
        if lines or "#" in found.key:
            self._contents.extend(_brought(event))
        return True

    def lines(self) -> Iterator[Json]:
        """All lines in the order of the file."""
        self._close()
        return (self._lines[number] for number in sorted(self._lines))

    @property
    def last(self) -> Json:
        """The newest line of the conversation; an empty one if there is none."""
        self._close()
        return next((line for number in sorted(self._lines, reverse=True) if text(line := self._lines[number], "type") in _TALK), {})

    @property
    def names(self) -> list[Json]:
        """The newest title and tag that the user gave."""
        self._close()
        found = {kind: line for _, line in sorted(self._lines.items()) if (kind := text(line, "type")) in {"custom-title", "tag"}}
        return list(found.values())

    def _close(self) -> None:
        contents = iter(self._contents)
        for number, line in self._open:
            # A reply that was imported in two parts names its first lines twice; its contents belong to the others.
            if number not in self._lines:
                self._lines[number] = line
                self._fill(line, contents)
        self._open, self._contents, self._open_key = [], [], ""

    def _fill(self, line: Json, contents: Iterator[tuple[str, Content]]) -> None:
        uuid = text(line, "uuid")
        match line.get("type"):
            case "attachment":
                self.attachments.add(uuid)
                holes = [each for each in tables_at(line, "rendered") if each.get("content") == HOLE]
                for each in holes:
                    each["content"] = _text(next(self._noting(uuid, contents), None))
                if not holes:
                    # The line says what it brought in words of its own, as that of a prompt does which was typed during a turn.
                    deque(self._noting(uuid, contents), maxlen=0)
            case "system" if line.get("content") == HOLE:
                line["content"] = _text(next(self._noting(uuid, contents), None))
            case "user" | "assistant":
                fill_blocks(table_at(line, "message"), self._noting(uuid, contents), self._blobs)
            case _:
                pass

    def _noting(self, uuid: str, contents: Iterator[tuple[str, Content]]) -> Iterator[Content]:
        for item_id, content in contents:
            self.sources[item_id] = uuid
            yield content


def _numbered(value: object) -> list[tuple[int, Json]]:
    if not isinstance(value, list):
        return []
    pairs = [pair for pair in value if isinstance(pair, list) and len(pair) == 2]
    return [(number, line) for number, line in pairs if isinstance(number, int) and is_json(line)]


def _brought(event: Event) -> list[tuple[str, Content]]:
    """The contents that an event brought, by their item ids."""
    return [(item.id, item.content) for item in all_items_of(event)]


def pending_calls(lines: list[Json]) -> dict[str, str]:
    """The calls of the newest reply that no line answers, and the lines that they stand on."""
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
