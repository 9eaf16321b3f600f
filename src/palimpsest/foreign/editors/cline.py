"""The transcript format of Cline, Roo Code and Kilo Code: a folder for each task with the messages of its requests."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from palimpsest.core.edits import Put
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
from palimpsest.core.format.texts import whole_number
from palimpsest.core.items import Content, Part, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.foreign.editors.places import editor_folders
from palimpsest.foreign.reading.files import (
    GrowingDocument,
    changed,
    decoded,
    digest_of,
    document_in,
    not_a_document,
    raw_of,
    rest_of,
    sources_below,
    starts_like_json,
)
from palimpsest.foreign.reading.parts import arguments_of, call_of, milliseconds, parts_of, thinking_of
from palimpsest.foreign.reading.transcript import (
    DeferredBody,
    DeferredFold,
    DeferredResult,
    ReadEvent,
    ReadOutput,
    ReadPosition,
    ReadProblem,
    TranscriptSource,
)
from palimpsest.wire.json_reading import Json, dump, is_json, number, table_at, tables_at, text

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
        return sources_below(path, (_FILE,), _sources)

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


def _sources(path: Path) -> Iterator[TranscriptSource]:
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
            yield from self._reply(index, key, message)
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

    def _reply(self, index: int, key: str, message: Json) -> Iterator[ReadEvent]:
        model = text(table_at(message, "modelInfo"), "modelId") or self._model
        parts = tuple(_contents(message, model))
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
                events.append(self._result(block))
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

    def _result(self, block: Json) -> Body:
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


def _contents(message: Json, model: str) -> Iterator[Content]:
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
