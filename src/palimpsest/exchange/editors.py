"""Readers of sessions from agents in editors: Cline, Roo Code, Kilo Code, Cursor and Zed."""

import re
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from palimpsest.core.errors import BadInput
from palimpsest.core.events import (
    Body,
    ContextStated,
    ForeignNoted,
    ModelReplied,
    SessionOpened,
    Statement,
    Titled,
    ToolReturned,
    Usage,
    UserSaid,
)
from palimpsest.core.items import Content, Part, Put, Signature, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.core.text import whole_number
from palimpsest.exchange.files import (
    LARGEST,
    GrowingDocument,
    changed,
    decoded,
    digest_of,
    document_in,
    is_database,
    not_a_document,
    query,
    raw_of,
    rest_of,
    rows_of,
    sources_below,
    starts_like_json,
    tables_of,
    text_value,
    unpacked,
)
from palimpsest.exchange.importing import parent_place
from palimpsest.exchange.transcript import (
    DeferredBody,
    DeferredFold,
    DeferredResult,
    ReadEvent,
    ReadOutput,
    ReadPosition,
    ReadProblem,
    TranscriptSource,
    arguments_of,
    call_of,
    milliseconds,
    parts_of,
    provider_of,
    thinking_of,
)
from palimpsest.wire.json_reading import Json, dump, is_json, number, table_at, tables_at, text
from palimpsest.wire.media import blob_part

_EDITORS = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")
_SERVERS = (".vscode-server", ".vscode-remote", ".cursor-server")


def editor_folders(home: Path, environment: Mapping[str, str], *editors: str) -> tuple[Path, ...]:
    """The `User` folders of editors that are built like VS Code, on Linux, macOS and remote machines; all editors if none is named."""
    configured = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    roots = (configured, home / "Library" / "Application Support")
    local = [root / name / "User" for name in editors or _EDITORS for root in roots]
    return (*local, *(() if editors else (home / name / "data" / "User" for name in _SERVERS)))


NAME = "cline"
_FILE = "api_conversation_history.json"
_EXTENSIONS = {"saoudrizwan.claude-dev": "Cline", "rooveterinaryinc.roo-cline": "Roo Code", "kilocode.kilo-code": "Kilo Code"}
# What a person wrote is between these tags; other texts in a message of the user are the program's.
_PERSON = re.compile(r"\s*<(task|feedback|user_message|answer)>\n?(.*?)\n?</\1>\s*", re.DOTALL)
_ENVIRONMENT = "<environment_details>"
_FOLDER = re.compile(r"^# Current (?:Working|Workspace) Directory \(([^)\n]{1,4096})\)", re.MULTILINE)
# In older versions a reply ends with its call between tags. The names of these tools have two words.
_CALL_END = re.compile(r"</([a-z]{1,32}_[a-z_]{1,32})>\s*\Z")
_ARGUMENT = re.compile(r"<(\w{1,64})>(.*?)</\1>", re.DOTALL)
_HIDDEN_BY = ("condenseParent", "truncationParent")


class ClineFormat:
    """Cline and its descendants, with calls as blocks of the provider or, in older versions, as tags in the text of a reply."""

    name = NAME

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The task folders of the extensions in all editors, and that of the command line program."""
        folders = (folder / "globalStorage" / name / "tasks" for folder in editor_folders(home, environment) for name in _EXTENSIONS)
        return (*folders, home / ".cline" / "data" / "tasks")

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """One session for each task."""
        return sources_below(path, (_FILE,), _editors_sources)

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The messages of a task in order."""
        path = Path(source.path)
        messages = document_in(path)
        if not isinstance(messages, list):
            yield not_a_document(path)
            return
        task = _TaskReader(path.parent, messages, blobs)
        growing = GrowingDocument(position)
        yield from growing.new_events(messages, task.opening_event(source), task.events_of)
        # A title that changed; the first one follows the opening.
        yield from task.title_event()
        yield growing.position(messages)


def _editors_sources(path: Path) -> Iterator[TranscriptSource]:
    if path.name == _FILE and starts_like_json(path, b'"role"', b'"content"'):
        yield TranscriptSource(NAME, str(path), path.parent.name, changed(path))


def _document(path: Path) -> object:
    try:
        return document_in(path)
    except OSError:
        return None


class _TaskReader:
    """One pass over the messages of a task; the files beside them have times, usage, folder and version."""

    def __init__(self, folder: Path, messages: list[object], blobs: Blobs) -> None:
        self._messages = messages
        self._blobs = blobs
        screen = _document(folder / "ui_messages.json")
        self._screen = [each for each in screen if is_json(each)] if isinstance(screen, list) else []
        metadata, item = _document(folder / "task_metadata.json"), _document(folder / "history_item.json")
        self._metadata = metadata if is_json(metadata) else {}
        self._item = item if is_json(item) else {}
        self._program = next((name for part, name in _EXTENSIONS.items() if part in folder.parts), "Cline")
        self._requests = self._requests_by_reply()
        self._model = self._first_model()
        self._at = next((number(each, "ts") for each in self._screen if number(each, "ts")), 0)
        self._keys: list[str] = []
        # The calls of the newest reply that have no result yet, by the key of the reply and their index in it.
        self._pending: list[tuple[str, int, ToolCall]] = []
        self._folded: set[str] = set()

    def _requests_by_reply(self) -> dict[int, Json]:
        """What the screen says of each request, by the index of the reply."""
        requests = [each for each in self._screen if text(each, "say") == "api_req_started"]
        replies = [index for index, each in enumerate(self._messages) if is_json(each) and text(each, "role") == "assistant"]
        # The index is that of the newest message before the request, which the user's message and the reply follow.
        indexed = [(each.get("conversationHistoryIndex"), each) for each in requests]
        if indexed and all(type(before) is int for before, _ in indexed):
            return {before + 2: each for before, each in indexed if isinstance(before, int)}
        return dict(zip(replies, requests, strict=False))

    def _first_model(self) -> str:
        named = (text(table_at(each, "modelInfo"), "modelId") for each in self._messages if is_json(each))
        used = (text(each, "model_id") for each in tables_at(self._metadata, "model_usage"))
        return next((name for name in (*named, *used) if name), "")

    def opening_event(self, source: TranscriptSource) -> ReadEvent:
        environment = next(iter(tables_at(self._metadata, "environment_history")), {})
        texts = (block for each in self._messages[:1] if is_json(each) for block in _texts(each.get("content")))
        named = next((found[1] for block in texts if (found := _FOLDER.search(block))), "")
        fields = {"program": self._program, "version": text(environment, "cline_version"), "mode": text(self._item, "mode")}
        meta = {name: value for name, value in fields.items() if value}
        opened = SessionOpened(source.session, text(self._item, "workspace") or named, NAME, model=self._model, meta=meta)
        return ReadEvent(opened, self._at or milliseconds(whole_number(source.session) or 0), "opened")

    def title_event(self) -> Iterator[ReadEvent]:
        title = " ".join(text(self._item, "task").split())[:200]
        if title:
            yield ReadEvent(Titled(title, by=NAME), self._at, f"title-{digest_of(title.encode())}")

    def events_of(self, index: int, message: object) -> Iterator[ReadEvent]:
        """The events of one message. Its key leaves out what the program adds to a message later."""
        if not index:
            yield from self.title_event()
        content = message.get("content") if is_json(message) else message
        key = f"{index}-{digest_of(msgspec.json.encode(content))}"
        self._keys.append(key)
        if not is_json(message):
            yield ReadEvent(ForeignNoted(NAME, (key,)), self._at, key, line=raw_of(message))
            return
        self._at = milliseconds(message.get("ts")) or number(self._requests.get(index, {}), "ts") or self._at
        if message.get("isSummary") is True or message.get("isTruncationMarker") is True:
            yield self._fold(index, key, message)
        elif text(message, "role") == "assistant":
            yield from self._deleted_range(index)
            yield from self._editors_reply(index, key, message)
        else:
            yield from self._user(key, message)

    def _fold(self, index: int, key: str, message: Json) -> ReadEvent:
        """A summary or a marker of a truncation, which hides the earlier messages that name it."""
        own_ids = {text(message, "condenseId"), text(message, "truncationId")} - {""}
        before = enumerate(self._messages[:index])
        hidden = [self._keys[at] for at, each in before if is_json(each) and any(text(each, name) in own_ids for name in _HIDDEN_BY)]
        summary = "\n".join(_texts(message.get("content")))
        kept = (Put("summary", Text(summary)),) if summary.strip() else ()
        keys = tuple(each for name in hidden for each in (name, *self._parts_of(name)))
        why = "condensed" if message.get("isSummary") is True else "truncated"
        return ReadEvent(DeferredFold(NAME, why, keys, kept), self._at, key, line=rest_of(message, "content"))

    def _parts_of(self, key: str) -> tuple[str, ...]:
        """Keys of the other events that a message may have yielded."""
        return (f"{key}/context", *(f"{key}/{number}" for number in range(16)))

    def _deleted_range(self, index: int) -> Iterator[ReadEvent]:
        """A fold of the messages that Cline left out of the request for this reply, as a first and a last index."""
        deleted = self._requests.get(index, {}).get("conversationHistoryDeletedRange")
        if not isinstance(deleted, list) or len(deleted) != 2 or not all(type(each) is int for each in deleted):
            return
        first, last = deleted
        key = f"deleted-{first}-{last}"
        if key not in self._folded and 0 <= first <= last < index:
            self._folded.add(key)
            keys = tuple(each for name in self._keys[first : last + 1] for each in (name, *self._parts_of(name)))
            yield ReadEvent(DeferredFold(NAME, "truncated", keys), self._at, key)

    def _editors_reply(self, index: int, key: str, message: Json) -> Iterator[ReadEvent]:
        model = text(table_at(message, "modelInfo"), "modelId") or self._model
        parts = tuple(_editors_contents(message, model))
        calls = [(number, part) for number, part in enumerate(parts) if isinstance(part, ToolCall)]
        self._pending = [(key, number, call) for number, call in calls]
        request = self._requests.get(index, {})
        yield ReadEvent(call_of(model), number(request, "ts") or self._at, f"{key}/call")
        usage = _usage(request, message)
        body = ModelReplied(parts, usage=usage, stop="tool_use" if calls else "end_turn", model=model)
        yield ReadEvent(body, self._at, key, line=rest_of(message, "content", "role"))

    def _user(self, key: str, message: Json) -> Iterator[ReadEvent]:
        """What a person said, results, and the context that the program added, each as an event of its own."""
        content = message.get("content")
        blocks: list[object] = content if isinstance(content, list) else [content]
        said: list[Part] = []
        context: list[str] = []
        rest: list[Part] = []
        events: list[Body | DeferredBody] = []
        for block in blocks:
            if is_json(block) and text(block, "type") == "tool_result":
                events.append(self._editors_result(block))
                continue
            for part in parts_of([block], self._blobs):
                person = _PERSON.fullmatch(part.text) if isinstance(part, Text) else None
                if person is not None:
                    said.append(Text(person[2]))
                elif isinstance(part, Text) and part.text.lstrip().startswith(_ENVIRONMENT):
                    context.append(part.text)
                else:
                    rest.append(part)
        if rest and self._pending and not events:
            events.append(self._unnamed_result(tuple(rest)))
        elif rest and (said or events):
            context[:0] = [part.text for part in rest if isinstance(part, Text)]
        elif rest:
            said = rest
        if said:
            events.append(UserSaid(tuple(said)))
        if context:
            events.append(ContextStated(tuple(Statement("cline.environment", each, ref=key) for each in context)))
        yield from self._numbered(key, events or [ForeignNoted(NAME, (key,))], message)

    def _numbered(self, key: str, events: list[Body | DeferredBody], message: Json) -> Iterator[ReadEvent]:
        *others, last = events
        for index, body in enumerate(others):
            yield ReadEvent(body, self._at, f"{key}/{index}")
        yield ReadEvent(last, self._at, key, line=rest_of(message, "content", "role"))

    def _editors_result(self, block: Json) -> Body:
        call_id = text(block, "tool_use_id")
        tool = next((call.tool for _, _, call in self._pending if call.call_id == call_id), "")
        self._pending = [each for each in self._pending if each[2].call_id != call_id]
        return ToolReturned(ToolResult(call_id, parts_of(block.get("content"), self._blobs), error=block.get("is_error") is True), tool)

    def _unnamed_result(self, parts: tuple[Part, ...]) -> Body | DeferredBody:
        """The result of the oldest pending call, which the message does not name."""
        key, index, call = self._pending.pop(0)
        self._pending.clear()
        body = ToolReturned(ToolResult(call.call_id, parts), call.tool)
        return body if call.call_id else DeferredResult(key, index, body)


def _texts(content: object) -> list[str]:
    """The texts of a message, each block apart."""
    blocks: list[object] = content if isinstance(content, list) else [content]
    found = (each if isinstance(each, str) else text(each, "text") if is_json(each) else "" for each in blocks)
    return [each for each in found if each]


def _editors_contents(message: Json, model: str) -> Iterator[Content]:
    """The contents of a reply."""
    content = message.get("content")
    blocks: list[object] = content if isinstance(content, list) else [content]
    if not any(is_json(each) and text(each, "type") == "thinking" for each in blocks):
        yield from thinking_of(message, model)
    for block in blocks:
        value = block if isinstance(block, str) else text(block, "text") if is_json(block) else ""
        match text(block, "type") if is_json(block) else "text":
            case "thinking":
                yield from thinking_of({"thinking_blocks": [block]}, model)
            case "reasoning" if value:
                yield Thinking(value)
            case "tool_use" if is_json(block):
                yield ToolCall(text(block, "id"), text(block, "name"), arguments_of(block.get("input")))
            case _:
                yield from _tagged_call(value)


def _tagged_call(reply: str) -> Iterator[Content]:
    """A text, and the call between tags at its end if it has one."""
    end = _CALL_END.search(reply)
    before, found, inside = reply[: end.start()].rpartition(f"<{end[1]}>") if end is not None else ("", "", "")
    if end is None or not found:
        yield from [Text(reply, "assistant")] if reply.strip() else []
        return
    if before.strip():
        yield Text(before.rstrip(), "assistant")
    arguments = {name: value.strip("\n") for name, value in _ARGUMENT.findall(inside)}
    yield ToolCall("", end[1], dump(arguments or {"text": inside.strip()}))


def _usage(request: Json, message: Json) -> Usage:
    """The usage of a reply: as the screen has it, or else as the message has it, which does not tell cache reads from writes."""
    told = decoded(text(request, "text").encode("utf-8", "replace"))
    if is_json(told) and "tokensOut" in told:
        read, written = number(told, "cacheReads"), number(told, "cacheWrites")
        return Usage(number(told, "tokensIn"), read, written, output=number(told, "tokensOut"))
    tokens = table_at(table_at(message, "metrics"), "tokens")
    return Usage(number(tokens, "prompt"), number(tokens, "cached"), output=number(tokens, "completion"))


CURSOR_NAME = "cursor"
_TABLE = "cursorDiskKV"
_CURSOR_FILE = "state.vscdb"
_HEADERS = "fullConversationHeadersOnly"
_COMPOSER = "composerData:"
# The upper end of the keys that begin with a prefix; the index on keys finds the range.
_END = "\U0010ffff"
# Messages of the program, which grow by gigabytes over the years; these fields repeat what others have.
_BULKY = ("text", "richText", "toolFormerData", "thinking", "codeBlocks", "context", "attachedCodeChunks", "allThinkingBlocks")
_USER, _MODEL = 1, 2


class CursorFormat:
    """Conversations of Cursor's composer and agent."""

    name = CURSOR_NAME

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The database of all workspaces, on Linux, macOS and remote machines."""
        folders = (*editor_folders(home, environment, "Cursor"), home / ".cursor-server" / "data" / "User")
        return tuple(folder / "globalStorage" / _CURSOR_FILE for folder in folders)

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """One session for each conversation that has a message."""
        return sources_below(path, (_CURSOR_FILE,), _cursor_sources)

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


def _cursor_sources(path: Path) -> Iterator[TranscriptSource | ReadProblem]:
    if not is_database(path):
        return
    try:
        composers = query(path, frozenset({_TABLE}), _composers)
    except sqlite3.Error as error:
        yield ReadProblem(str(path), f"the database cannot be read: {error}")
        return
    for session, count, updated in composers:
        yield TranscriptSource(CURSOR_NAME, str(path), session, f"{count}-{updated}")


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
        self._cwd = next((folder for each in tables if (folder := _editors_folder(each))), "")
        self._at = milliseconds(composer.get("createdAt"))
        # Thinking comes as a message of its own, before the text or the call that it belongs to.
        self._thinking: list[Thinking] = []

    def opening_event(self, source: TranscriptSource) -> ReadEvent:
        fields = {"branch": text(self._composer, "createdOnBranch"), "mode": text(self._composer, "unifiedMode")}
        meta = {name: value for name, value in fields.items() if value}
        return ReadEvent(SessionOpened(source.session, self._cwd, CURSOR_NAME, model=self._model, meta=meta), self._at, "opened")

    def title_event(self) -> Iterator[ReadEvent]:
        title = text(self._composer, "name")
        if title:
            yield ReadEvent(Titled(title, by=CURSOR_NAME), self._at, f"title-{digest_of(title.encode())}")

    def events_of(self, index: int, message: object) -> Iterator[ReadEvent]:
        if not index:
            yield from self.title_event()
        if not is_json(message):
            yield ReadEvent(ForeignNoted(CURSOR_NAME), self._at, f"place-{index}", line=raw_of(message))
            return
        self._at = milliseconds(message.get("createdAt")) or self._at
        content = [message.get(name) for name in ("text", "thinking", "toolFormerData")]
        key = f"{text(message, 'bubbleId') or index}-{digest_of(msgspec.json.encode(content))}"
        said = text(message, "text")
        if message.get("type") == _USER and said.strip():
            yield ReadEvent(UserSaid((Text(said),)), self._at, key, line=rest_of(message, *_BULKY))
        elif message.get("type") == _MODEL:
            yield from self._editors_reply(key, message)
        else:
            yield ReadEvent(ForeignNoted(CURSOR_NAME, (key,)), self._at, key, line=rest_of(message, *_BULKY))

    def _editors_reply(self, key: str, message: Json) -> Iterator[ReadEvent]:
        thinking = text(table_at(message, "thinking"), "text")
        if thinking.strip():
            self._thinking.append(Thinking(thinking))
        said, tool = text(message, "text"), table_at(message, "toolFormerData")
        if not said.strip() and not _tool_name(tool):
            yield ReadEvent(ForeignNoted(CURSOR_NAME, (key,)), self._at, key, line=rest_of(message, *_BULKY))
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
        yield from self._editors_result(key, len(parts) - 1, name, tool)

    def _editors_result(self, key: str, index: int, name: str, tool: Json) -> Iterator[ReadEvent]:
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


def _editors_folder(message: Json) -> str:
    uris = message.get("workspaceUris")
    first = uris[0] if isinstance(uris, list) and uris else ""
    return unquote(urlsplit(first).path) if isinstance(first, str) and first.startswith("file:") else ""


ZED_NAME = "zed"
_TABLES = frozenset({"threads"})
_ZED_FILE = "threads.db"
_Row = dict[str, object]


class ZedFormat:
    """Threads of Zed's own agent, version 0.3.0 of their documents, and the flat messages of 0.2.0."""

    name = ZED_NAME

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The database of threads on Linux and on macOS."""
        data = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share")
        return tuple(folder / "threads" / _ZED_FILE for folder in (data / "zed", home / "Library" / "Application Support" / "Zed"))

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """One session for each thread."""
        return sources_below(path, (_ZED_FILE,), _zed_sources)

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The messages of a thread in order."""
        try:
            rows = query(Path(source.path), _TABLES, lambda each: rows_of(each, "SELECT * FROM threads WHERE id = ?", source.session))
            document = decoded(_data(rows[0])) if rows else None
        except (sqlite3.Error, BadInput) as error:
            yield ReadProblem(source.path, f"thread {source.session} cannot be read: {error}")
            return
        messages = document.get("messages") if is_json(document) else None
        if not is_json(document) or not isinstance(messages, list):
            yield ReadProblem(source.path, f"thread {source.session} is no document that is known")
            return
        thread = _ThreadReader(document, rows[0], blobs)
        growing = GrowingDocument(position)
        yield from growing.new_events(messages, thread.opening_event(source), thread.events_of)
        # A title that changed; the first one follows the opening.
        yield from thread.title_event()
        yield growing.position(messages)


def _zed_sources(path: Path) -> Iterator[TranscriptSource | ReadProblem]:
    if not is_database(path):
        return
    try:
        rows = query(path, _TABLES, _threads)
    except sqlite3.Error as error:
        yield ReadProblem(str(path), f"the database cannot be read: {error}")
        return
    for row in rows:
        stamp = f"{text_value(row['updated_at'])}-{text_value(row['size'])}"
        yield TranscriptSource(ZED_NAME, str(path), text_value(row["id"]), stamp, text_value(row.get("parent_id")))


def _threads(connection: sqlite3.Connection) -> list[_Row]:
    if "threads" not in tables_of(connection):
        return []
    try:
        return rows_of(connection, "SELECT id, updated_at, length(data) AS size, parent_id FROM threads ORDER BY updated_at, id")
    except sqlite3.OperationalError:
        # Older databases have no parents, and databases of other programs have other columns.
        return rows_of(connection, "SELECT id, updated_at, length(data) AS size FROM threads ORDER BY updated_at, id")


def _data(row: _Row) -> bytes:
    data = row.get("data")
    stored = data if isinstance(data, bytes) else str(data).encode()
    return unpacked(stored, LARGEST) if text_value(row.get("data_type")) == "zstd" else stored


class _ThreadReader:
    """One pass over the messages of a thread. Messages have no times, so all events have that of the thread."""

    def __init__(self, document: Json, row: _Row, blobs: Blobs) -> None:
        self._document = document
        self._blobs = blobs
        self._model = text(table_at(document, "model"), "model")
        snapshot = table_at(document, "initial_project_snapshot")
        self._began = milliseconds(snapshot.get("timestamp")) or milliseconds(document.get("updated_at"))
        folders = text_value(row.get("folder_paths")).splitlines()
        trees = [text(each, "worktree_path") for each in tables_at(snapshot, "worktree_snapshots")]
        self._cwd = next((folder for folder in (*folders, *trees) if folder), "")
        self._usage = table_at(document, "request_token_usage")
        self._asked = ""

    def opening_event(self, source: TranscriptSource) -> ReadEvent:
        fields = {"version": text(self._document, "version"), "provider": text(table_at(self._document, "model"), "provider")}
        meta = {name: value for name, value in fields.items() if value}
        opener = parent_place(ZED_NAME, source.parent)
        opened = SessionOpened(source.session, self._cwd, ZED_NAME, model=self._model, opener=opener, meta=meta)
        return ReadEvent(opened, self._began, "opened")

    def title_event(self) -> Iterator[ReadEvent]:
        title = text(self._document, "title") or text(self._document, "summary")
        if title:
            yield ReadEvent(Titled(title, by=ZED_NAME), self._began, f"title-{digest_of(title.encode())}")

    def events_of(self, index: int, message: object) -> Iterator[ReadEvent]:
        if not index:
            yield from self.title_event()
        key = f"{index}-{digest_of(msgspec.json.encode(message))}"
        table = message if is_json(message) else {}
        if user := table_at(table, "User"):
            yield from self._user(key, user)
        elif agent := table_at(table, "Agent"):
            results = [each for each in table_at(agent, "tool_results").values() if is_json(each)]
            yield from self._editors_reply(key, tuple(self._editors_contents(agent)), results, agent)
        elif text(table, "role") == "user":
            parts = tuple(Text(text(each, "text")) for each in tables_at(table, "segments") if text(each, "text"))
            yield ReadEvent(UserSaid(parts) if parts else ForeignNoted(ZED_NAME, (key,)), self._began, key, line=rest_of(table, "segments"))
        elif text(table, "role") == "assistant":
            segments = ({_SEGMENTS.get(text(each, "type"), ""): each} for each in tables_at(table, "segments"))
            calls = ({"ToolUse": each} for each in tables_at(table, "tool_uses"))
            flat: Json = {"content": [*segments, *calls]}
            yield from self._editors_reply(key, tuple(self._editors_contents(flat)), tables_at(table, "tool_results"), table)
        else:
            yield ReadEvent(ForeignNoted(ZED_NAME, (key,)), self._began, key, line=raw_of(message))

    def _user(self, key: str, user: Json) -> Iterator[ReadEvent]:
        """What the user said, and then what the mentions in it brought."""
        self._asked = text(user, "id")
        parts: list[Part] = []
        mentioned: list[Statement] = []
        for each in tables_at(user, "content"):
            if text(each, "Text"):
                parts.append(Text(text(each, "Text")))
            elif image := table_at(each, "Image"):
                part = blob_part("image/png", text(image, "source"), self._blobs)
                parts += [part] if part is not None else []
            elif mention := table_at(each, "Mention"):
                parts.append(Text(f"@{dump(mention.get('uri'))}"))
                mentioned += [Statement("zed.mention", text(mention, "content"), ref=key)] if text(mention, "content") else []
        said: Body = UserSaid(tuple(parts)) if parts else ForeignNoted(ZED_NAME, (key,))
        if mentioned:
            yield ReadEvent(said, self._began, f"{key}/said")
            said = ContextStated(tuple(mentioned))
        yield ReadEvent(said, self._began, key, line=rest_of(user, "content"))

    def _editors_reply(self, key: str, parts: tuple[Content, ...], results: list[Json], message: Json) -> Iterator[ReadEvent]:
        calls = {part.call_id: part for part in parts if isinstance(part, ToolCall)}
        yield ReadEvent(call_of(self._model), self._began, f"{key}/call")
        # The usage is that of the newest request for a message of the user, so it counts with the first reply to it.
        usage, self._asked = _zed_usage(table_at(self._usage, self._asked)), ""
        body = ModelReplied(parts, usage=usage, stop="tool_use" if calls else "end_turn", model=self._model)
        yield ReadEvent(body, self._began, key, line=rest_of(message, "content", "tool_results", "segments", "tool_uses"))
        for number_of_result, each in enumerate(results):
            call_id = text(each, "tool_use_id")
            if call_id in calls:
                result = ToolResult(call_id, tuple(self._result_parts(each.get("content"))), error=each.get("is_error") is True)
                event = ToolReturned(result, text(each, "tool_name") or calls[call_id].tool)
                yield ReadEvent(event, self._began, f"{key}/{number_of_result}", line=rest_of(each, "content", "output"))

    def _editors_contents(self, message: Json) -> Iterator[Content]:
        for each in tables_at(message, "content"):
            name, value = next(iter(each.items()), ("", None))
            match name:
                case "Text":
                    reply = value if isinstance(value, str) else text(value, "text") if is_json(value) else ""
                    yield from [Text(reply, "assistant")] if reply.strip() else []
                case "Thinking":
                    yield from self._thinking(value)
                case "ToolUse" if is_json(value):
                    yield ToolCall(text(value, "id"), text(value, "name"), arguments_of(value.get("input") or text(value, "raw_input")))
                case _:
                    pass

    def _thinking(self, value: object) -> Iterator[Thinking]:
        thinking = value if isinstance(value, str) else text(value, "text") if is_json(value) else ""
        signature = text(value, "signature") if is_json(value) else ""
        if thinking:
            yield Thinking(thinking, Signature(provider_of(self._model), self._model, signature) if signature else None)

    def _result_parts(self, content: object) -> Iterator[Part]:
        """The parts of a result: a text, or one or several texts and images under their names."""
        if isinstance(content, str):
            yield from [Text(content)] if content else []
        for each in content if isinstance(content, list) else [content]:
            if is_json(each) and (found := text(each, "Text") or text(each, "text")):
                yield Text(found)
            elif is_json(each) and (part := blob_part("image/png", text(table_at(each, "Image"), "source"), self._blobs)) is not None:
                yield part


_SEGMENTS = {"text": "Text", "thinking": "Thinking"}


def _zed_usage(usage: Json) -> Usage:
    read, written = number(usage, "cache_read_input_tokens"), number(usage, "cache_creation_input_tokens")
    return Usage(number(usage, "input_tokens"), read, written, output=number(usage, "output_tokens"))
