"""The transcript format of Cursor: a database of keys and values with a record for each conversation and for each of its messages."""

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from palimpsest.core.events import ForeignNoted, ModelReplied, SessionOpened, Titled, ToolReturned, Usage, UserSaid
from palimpsest.core.items import Content, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.foreign.editors.places import editor_folders
from palimpsest.foreign.reading.database import is_database, query, tables_of, text_value
from palimpsest.foreign.reading.files import GrowingDocument, decoded, digest_of, raw_of, rest_of, sources_below
from palimpsest.foreign.reading.parts import arguments_of, call_of, milliseconds, parts_of
from palimpsest.foreign.reading.transcript import (
    DeferredResult,
    ReadEvent,
    ReadOutput,
    ReadPosition,
    ReadProblem,
    TranscriptSource,
)
from palimpsest.wire.json_reading import Json, dump, is_json, number, table_at, tables_at, text

NAME = "cursor"
_TABLE = "cursorDiskKV"
_FILE = "state.vscdb"
_HEADERS = "fullConversationHeadersOnly"
_COMPOSER = "composerData:"
# The upper end of the keys that begin with a prefix; the index on keys finds the range.
_END = "\U0010ffff"
# Messages of the program, which grow by gigabytes over the years; these fields repeat what others have.
_BULKY = ("text", "richText", "toolFormerData", "thinking", "codeBlocks", "context", "attachedCodeChunks", "allThinkingBlocks")
_USER, _MODEL = 1, 2


class CursorFormat:
    """Conversations of Cursor's composer and agent."""

    name = NAME

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The database of all workspaces, on Linux, macOS and remote machines."""
        folders = (*editor_folders(home, environment, "Cursor"), home / ".cursor-server" / "data" / "User")
        return tuple(folder / "globalStorage" / _FILE for folder in folders)

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """One session for each conversation that has a message."""
        return sources_below(path, (_FILE,), _sources)

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The messages of a conversation in order."""
        try:
            composer, bubbles = query(Path(source.path), frozenset({_TABLE}), lambda each: _conversation(each, source.session))
        except sqlite3.Error as error:
            yield ReadProblem(source.path, f"conversation {source.session} cannot be read: {error}")
            return
        conversation = _ConversationReader(composer, bubbles, blobs)
        growing = GrowingDocument(position)
        yield from growing.new_events(bubbles, conversation.opening_event(source), conversation.events_of)
        # A title that changed; the first one follows the opening.
        yield from conversation.title_event()
        yield growing.position(bubbles)


def _sources(path: Path) -> Iterator[TranscriptSource | ReadProblem]:
    if not is_database(path):
        return
    try:
        composers = query(path, frozenset({_TABLE}), _composers)
    except sqlite3.Error as error:
        yield ReadProblem(str(path), f"the database cannot be read: {error}")
        return
    for session, count, updated in composers:
        yield TranscriptSource(NAME, str(path), session, f"{count}-{updated}")


def _composers(connection: sqlite3.Connection) -> list[tuple[str, int, int]]:
    """Id, number of messages and time of the last change of each conversation with messages."""
    if _TABLE not in tables_of(connection):
        return []
    found = []
    for key, value in connection.execute("SELECT key, value FROM cursorDiskKV WHERE key >= ? AND key < ?", (_COMPOSER, _COMPOSER + _END)):
        composer = decoded(text_value(value).encode())
        count = len(_headers(composer)) if is_json(composer) else 0
        if is_json(composer) and count:
            found.append((text_value(key).removeprefix(_COMPOSER), count, number(composer, "lastUpdatedAt")))
    return sorted(found)


def _headers(composer: Json) -> list[Json]:
    return tables_at(composer, _HEADERS) or tables_at(composer, "conversation")


def _conversation(connection: sqlite3.Connection, session: str) -> tuple[Json, list[object]]:
    """The record of a conversation, and its messages: apart, or within the record in older versions."""
    composer = _value(connection, f"{_COMPOSER}{session}")
    inside = table_at(composer, "conversationMap")
    bubbles: list[object] = []
    for header in _headers(composer):
        bubble = _value(connection, f"bubbleId:{session}:{text(header, 'bubbleId')}") or table_at(inside, text(header, "bubbleId"))
        bubbles.append({**header, **bubble})
    return composer, bubbles


def _value(connection: sqlite3.Connection, key: str) -> Json:
    row = connection.execute("SELECT value FROM cursorDiskKV WHERE key = ?", (key,)).fetchone()
    value = decoded(text_value(row[0]).encode()) if row is not None else None
    return value if is_json(value) else {}


class _ConversationReader:
    """One pass over the messages of a conversation; a reply spans several of them."""

    def __init__(self, composer: Json, bubbles: list[object], blobs: Blobs) -> None:
        self._composer = composer
        self._blobs = blobs
        tables = [each for each in bubbles if is_json(each)]
        named = (text(table_at(each, "modelInfo"), "modelName") for each in tables)
        self._model = next((name for name in (*named, text(table_at(composer, "modelConfig"), "modelName")) if name), "")
        self._cwd = next((folder for each in tables if (folder := _folder(each))), "")
        self._at = milliseconds(composer.get("createdAt"))
        # Thinking comes as a message of its own, before the text or the call that it belongs to.
        self._thinking: list[Thinking] = []

    def opening_event(self, source: TranscriptSource) -> ReadEvent:
        fields = {"branch": text(self._composer, "createdOnBranch"), "mode": text(self._composer, "unifiedMode")}
        meta = {name: value for name, value in fields.items() if value}
        return ReadEvent(SessionOpened(source.session, self._cwd, NAME, model=self._model, meta=meta), self._at, "opened")

    def title_event(self) -> Iterator[ReadEvent]:
        title = text(self._composer, "name")
        if title:
            yield ReadEvent(Titled(title, by=NAME), self._at, f"title-{digest_of(title.encode())}")

    def events_of(self, index: int, message: object) -> Iterator[ReadEvent]:
        if not index:
            yield from self.title_event()
        if not is_json(message):
            yield ReadEvent(ForeignNoted(NAME), self._at, f"place-{index}", line=raw_of(message))
            return
        self._at = milliseconds(message.get("createdAt")) or self._at
        content = [message.get(name) for name in ("text", "thinking", "toolFormerData")]
        key = f"{text(message, 'bubbleId') or index}-{digest_of(msgspec.json.encode(content))}"
        said = text(message, "text")
        if message.get("type") == _USER and said.strip():
            yield ReadEvent(UserSaid((Text(said),)), self._at, key, line=rest_of(message, *_BULKY))
        elif message.get("type") == _MODEL:
            yield from self._reply(key, message)
        else:
            yield ReadEvent(ForeignNoted(NAME, (key,)), self._at, key, line=rest_of(message, *_BULKY))

    def _reply(self, key: str, message: Json) -> Iterator[ReadEvent]:
        thinking = text(table_at(message, "thinking"), "text")
        if thinking.strip():
            self._thinking.append(Thinking(thinking))
        said, tool = text(message, "text"), table_at(message, "toolFormerData")
        if not said.strip() and not _tool_name(tool):
            yield ReadEvent(ForeignNoted(NAME, (key,)), self._at, key, line=rest_of(message, *_BULKY))
            return
        parts: list[Content] = [*self._thinking, *([Text(said, "assistant")] if said.strip() else [])]
        self._thinking = []
        name = _tool_name(tool)
        if name:
            parts.append(ToolCall(text(tool, "toolCallId"), name, arguments_of(tool.get("rawArgs") or tool.get("params"))))
        yield ReadEvent(call_of(self._model), self._at, f"{key}/call")
        tokens = table_at(message, "tokenCount")
        usage = Usage(number(tokens, "inputTokens"), output=number(tokens, "outputTokens"))
        body = ModelReplied(tuple(parts), usage=usage, stop="tool_use" if name else "end_turn", model=self._model)
        yield ReadEvent(body, self._at, key, line=rest_of(message, *_BULKY))
        yield from self._result(key, len(parts) - 1, name, tool)

    def _result(self, key: str, index: int, name: str, tool: Json) -> Iterator[ReadEvent]:
        """The result that the record of a call has; nothing while it runs."""
        result, status = tool.get("result"), text(tool, "status")
        if not name or (not result and status not in {"completed", "success", "error", "cancelled"}):
            return
        shown = result if isinstance(result, str) else dump(result) if result else text(tool, "error") or status
        call_id = text(tool, "toolCallId")
        body = ToolReturned(ToolResult(call_id, parts_of(shown, self._blobs), error=status in {"error", "cancelled"}), name)
        yield ReadEvent(body if call_id else DeferredResult(key, index, body), self._at, f"{key}/result")


def _tool_name(tool: Json) -> str:
    """The name of a tool; older versions have a number only."""
    kind = tool.get("tool")
    return text(tool, "name") or (f"tool_{kind}" if type(kind) is int else text(tool, "tool"))


def _folder(message: Json) -> str:
    uris = message.get("workspaceUris")
    first = uris[0] if isinstance(uris, list) and uris else ""
    return unquote(urlsplit(first).path) if isinstance(first, str) and first.startswith("file:") else ""
