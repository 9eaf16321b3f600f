"""The envelope of a rollout line, and the events that open a session."""

import re
from collections.abc import Iterator

from msgspec import structs

from palimpsest.core.events import ContextStated, SessionOpened, Statement
from palimpsest.core.items import Text
from palimpsest.core.ports import Blobs
from palimpsest.foreign.codex.item_reader import ITEM_TYPES
from palimpsest.foreign.codex.stored_lines import store_lines
from palimpsest.foreign.reading.importing import parent_place
from palimpsest.foreign.reading.transcript import ReadEvent
from palimpsest.wire.json_reading import Json, dump, is_json, table_at, text

NAME = "codex"


# Keys of the first line in the oldest files, which has no type.
_OLD_KEYS = frozenset({"id", "timestamp", "instructions", "git"})
_THREAD = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def envelope(table: Json) -> tuple[str, Json]:
    """The type and the payload of a line. The oldest files have bare items, and a first line without a type."""
    payload = table.get("payload")
    kind = text(table, "type")
    if is_json(payload):
        return kind, payload
    if kind in ITEM_TYPES:
        return "response_item", table
    if not kind and "timestamp" in table and _OLD_KEYS.issuperset(table) and _THREAD.fullmatch(text(table, "id")):
        return "session_meta", table
    return "", table


class PendingOpening:
    """The opening of a session, held until the first model is known."""

    def __init__(self, at: int, meta: Json, lines: list[tuple[int, bytes]]) -> None:
        self._at = at
        self._opened = opened_by(meta)
        self._instructions = text(table_at(meta, "base_instructions"), "text") or text(meta, "instructions")
        self._lines = lines

    @property
    def model(self) -> str:
        """The model that the first line names; empty if it names none."""
        return self._opened.model

    @property
    def last_key(self) -> str:
        """Key of the last event of the opening."""
        return "head" if self._instructions else "open"

    def events(self, model: str, blobs: Blobs) -> Iterator[ReadEvent]:
        """`SessionOpened`, and the base instructions as the head."""
        opened = structs.replace(self._opened, model=self._opened.model or model)
        if not self._instructions:
            yield ReadEvent(opened, self._at, "open", "", store_lines(self._lines, (), blobs))
            return
        yield ReadEvent(opened, self._at, "open")
        head = (Statement("base_instructions", self._instructions, "system"),)
        yield ReadEvent(ContextStated(head=head), self._at, "head", "", store_lines(self._lines, (Text(self._instructions),), blobs))


def opened_by(meta: Json) -> SessionOpened:
    """`SessionOpened` from the payload of the first line."""
    git, source = table_at(meta, "git"), meta.get("source")
    spawned = table_at(table_at(source, "subagent"), "thread_spawn") if is_json(source) else {}
    fields = {
        "id": text(meta, "id"),
        "version": text(meta, "cli_version"),
        "originator": text(meta, "originator"),
        "source": source if isinstance(source, str) else dump(source) if source else "",
        "provider": text(meta, "model_provider"),
        "branch": text(git, "branch"),
        "commit": text(git, "commit_hash"),
        "forked_from": text(meta, "forked_from_id"),
        "nickname": text(meta, "agent_nickname") or text(spawned, "agent_nickname"),
        "role": text(meta, "agent_role") or text(meta, "agent_type") or text(spawned, "agent_role"),
    }
    model = text(table_at(table_at(meta, "base_instructions"), "provenance"), "model")
    known_fields = {name: value for name, value in fields.items() if value}
    return SessionOpened("", text(meta, "cwd"), NAME, model=model, opener=parent_place(NAME, parent_of(meta)), meta=known_fields)


def parent_of(meta: Json) -> str:
    """The thread that opened this one; empty if none did."""
    source = meta.get("source")
    spawned = table_at(table_at(source, "subagent"), "thread_spawn") if is_json(source) else {}
    return text(spawned, "parent_thread_id") or text(meta, "parent_thread_id")
