"""Reader of Gemini CLI sessions: recordings and checkpoints, contents of the Gemini API, rewritten histories and rewinds."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec import Raw, structs

from palimpsest.core.events import (
    Body,
    ContextStated,
    Failed,
    ForeignNoted,
    ModelReplied,
    SessionOpened,
    Statement,
    Titled,
    ToolReturned,
    Usage,
    UserSaid,
)
from palimpsest.core.items import Content, Image, Part, Put, Signature, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.exchange.files import (
    GrowingDocument,
    ReadExtent,
    changed,
    digest_of,
    document_in,
    first_object,
    head_of,
    not_a_document,
    object_on,
    raw_of,
    rest_of,
    sources_below,
    starts_like_json,
    state_of,
    whole_lines,
    without,
)
from palimpsest.exchange.importing import parent_place
from palimpsest.exchange.transcript import (
    DeferredBody,
    DeferredFold,
    DeferredMask,
    DeferredResult,
    ReadEvent,
    ReadOutput,
    ReadPosition,
    ReadProblem,
    TranscriptSource,
    call_of,
    milliseconds,
)
from palimpsest.wire.json_reading import Json, dump, is_json, number, table_at, tables_at, text
from palimpsest.wire.media import blob_part

# Starts of the setup message, in newer and older versions.
_SETUP = ("<session_context>", "This is the Gemini CLI")
_ROLES = {"user", "model", "function"}


def contents_in(document: object) -> list[object] | None:
    """The contents of a checkpoint; None if a document is something else."""
    if is_json(document):
        document = next((value for name in ("clientHistory", "history") if _is_content_list(value := document.get(name))), None)
    return list(document) if isinstance(document, list) and _is_content_list(document) else None


def _is_content_list(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(is_json(each) and text(each, "role") in _ROLES and isinstance(each.get("parts"), list) for each in value[:8])
    )


def parts_in(content: object) -> list[Json]:
    """The parts of a Gemini part list: a text, a part, or a list of either."""
    part_list = content if isinstance(content, list) else [content]
    return [each if is_json(each) else {"text": each} for each in part_list if is_json(each) or (isinstance(each, str) and each)]


def text_in(content: object) -> str:
    """The text of some parts, without thoughts."""
    return "".join(text(part, "text") for part in parts_in(content) if part.get("thought") is not True)


def media_in(content: object, blobs: Blobs) -> Iterator[Part]:
    """The images and files among some parts."""
    for part in parts_in(content):
        inline, link = table_at(part, "inlineData"), table_at(part, "fileData")
        if inline and (found := blob_part(text(inline, "mimeType"), text(inline, "data"), blobs)) is not None:
            yield found
        if text(link, "fileUri").startswith(("http://", "https://")) and text(link, "mimeType").startswith("image/"):
            yield Image(text(link, "mimeType"), url=text(link, "fileUri"))


def response_text(response: Json) -> str:
    """The output of a tool as text."""
    found = response.get("output", response.get("error", response.get("content")))
    return found if isinstance(found, str) else dump(response) if response else ""


def is_setup(message_text: str) -> bool:
    """Whether a message was written by the program to describe its environment, and not by a person."""
    return message_text.lstrip().startswith(_SETUP)


class _UnansweredCall(NamedTuple):
    """A call without a response: its id if it has one, its tool, and the key and part index of its reply."""

    call_id: str
    tool: str
    key: str
    number: int


class ContentReader:
    """One pass over the contents of a checkpoint."""

    def __init__(self, blobs: Blobs, at: int) -> None:
        self._blobs = blobs
        self._at = at
        # Calls of older versions have no ids: a response answers the first open call of its tool.
        self._unanswered: list[_UnansweredCall] = []

    def events_of(self, index: int, content: object) -> Iterator[ReadEvent]:
        """The events of one content."""
        key = f"{index}-{digest_of(msgspec.json.encode(content))}"
        if not is_json(content):
            yield ReadEvent(ForeignNoted("gemini", (key,)), self._at, key, line=raw_of(content))
        elif text(content, "role") == "model":
            yield ReadEvent(call_of("gemini"), self._at, f"{key}/call")
            parts = tuple(self._gemini_parts(content))
            self._unanswered += [
                _UnansweredCall(part.call_id, part.tool, key, number) for number, part in enumerate(parts) if isinstance(part, ToolCall)
            ]
            stop = "tool_use" if any(isinstance(part, ToolCall) for part in parts) else "end_turn"
            yield ReadEvent(ModelReplied(parts, stop=stop), self._at, key)
        else:
            yield from self._user_events(content, key)

    def _gemini_parts(self, content: Json) -> Iterator[Content]:
        for part in parts_in(content.get("parts")):
            call, part_text, signature = table_at(part, "functionCall"), text(part, "text"), text(part, "thoughtSignature")
            seal = Signature("google", "gemini", signature) if signature else None
            if part.get("thought") is True:
                yield Thinking(part_text, seal, "digest" if part_text else "sealed")
                continue
            if seal is not None:
                yield Thinking("", seal, "sealed")
            if part_text.strip():
                yield Text(part_text, "assistant")
            if call:
                yield ToolCall(text(call, "id"), text(call, "name"), dump(table_at(call, "args")))

    def _user_events(self, content: Json, key: str) -> Iterator[ReadEvent]:
        parts = content.get("parts")
        responses = (table_at(part, "functionResponse") for part in parts_in(parts))
        bodies: list[Body | DeferredBody] = [self._gemini_result(response) for response in responses if response]
        message_text, media = text_in(parts), tuple(media_in(parts, self._blobs))
        if is_setup(message_text):
            bodies.append(ContextStated((Statement("gemini.setup", message_text),)))
        elif message_text.strip() or media:
            bodies.append(UserSaid((*((Text(message_text),) if message_text.strip() else ()), *media)))
        bodies = bodies or [ForeignNoted("gemini", (key,))]
        for index, body in enumerate(bodies, 1 - len(bodies)):
            yield ReadEvent(body, self._at, f"{key}/{-index}" if index else key)

    def _gemini_result(self, response: Json) -> ToolReturned | DeferredResult:
        """A result, matched by call id, or else with the oldest open call of that tool."""
        name, output = text(response, "name"), table_at(response, "response")
        call_id = text(response, "id")
        found = next((call for call in self._unanswered if (call.call_id == call_id if call_id else call.tool == name)), None)
        if found is not None:
            self._unanswered.remove(found)
        part_text = response_text(output)
        error = "error" in output and "output" not in output
        body = ToolReturned(ToolResult(call_id or f"lost-{name}", (Text(part_text),) if part_text else (), error=error), name)
        return body if call_id or found is None else DeferredResult(found.key, found.number, body)


_MESSAGE_TYPES = {"user", "gemini", "model", "info", "error", "warning"}
_BODY_FIELDS = ("id", "content", "thoughts", "tokens", "model", "toolCalls")


class _RecordsState(ReadExtent, frozen=True):
    """How far the records were read; the last message may grow, so its calls are listed."""

    last: str = ""
    calls: tuple[str, ...] = ()


class RecordReader:
    """One pass over the records of a session."""

    def __init__(self, blobs: Blobs, position: ReadPosition | None) -> None:
        self._blobs = blobs
        self._growing = GrowingDocument(position)
        self._earlier = state_of(position, _RecordsState) or _RecordsState()
        self.is_resumed = position is not None
        self._at = 0
        # Messages on the current path, each with the key of its last event.
        self._path: dict[str, str] = {}
        self._calls: dict[str, list[str]] = {}
        self._results: dict[str, str] = {}
        self._after = ""
        self._last = ""

    def events_of_all(self, records: list[object]) -> Iterator[ReadEvent]:
        """The events of all records that were not read before."""
        start = self._growing.read_before(records)
        records = [_with_ids(record, index) for index, record in enumerate(records)]
        index = 0
        while index < len(records):
            stop = self._versions_end(records, index, start)
            record = next(each for each in reversed(records[index:stop]) if index + 1 == stop or _is_message(each))
            events = list(self._gemini_events(record, index))
            events += [
                self._note_event(each, index + offset)
                for offset, each in enumerate(records[index:stop])
                if not _is_message(each) and each is not record
            ]
            if stop > start:
                yield from events
            index = stop

    def position(self, records: list[object]) -> ReadPosition:
        """The position before the last record, because that may grow."""
        position = self._growing.position(records[:-1])
        extent = msgspec.json.decode(bytes(position.state), type=ReadExtent)
        state = _RecordsState(extent.count, extent.digest, self._last, tuple(self._calls.get(self._last, ())))
        return structs.replace(position, state=raw_of(state))

    def title_event(self, title: str) -> ReadEvent:
        """The title of the session."""
        return ReadEvent(Titled(title, by="gemini"), self._at, f"title-{digest_of(title.encode())}")

    def _versions_end(self, records: list[object], index: int, start: int) -> int:
        """Index after the last version of one message: it is written again whenever it grows, with notes in between."""
        first = records[index]
        stop = last = index + 1
        if not _is_message(first) or not is_json(first):
            return stop
        while stop < len(records) and stop != start:
            each = records[stop]
            if _is_message(each) and is_json(each):
                if each["id"] != first["id"]:
                    break
                last = stop + 1
            elif not _is_metadata(each):
                break
            stop += 1
        return last

    def _gemini_events(self, record: object, index: int) -> Iterator[ReadEvent]:
        if not is_json(record):
            yield self._note_event(record, index)
            return
        self._at = milliseconds(record.get("timestamp")) or self._at
        changes = table_at(record, "$set")
        if text(record, "$rewindTo"):
            self._rewind(text(record, "$rewindTo"))
            yield self._note_event(record, index)
        elif isinstance(changes.get("messages"), list):
            yield from self._history_events(tables_at(changes, "messages"), record, index)
        elif text(changes, "summary"):
            yield self._gemini_event(Titled(text(changes, "summary"), by="gemini"), f"place-{index}", rest_of(record))
        elif text(record, "id") and text(record, "type"):
            yield from self._gemini_message(record)
        else:
            yield self._note_event(record, index)

    def _note_event(self, record: object, index: int) -> ReadEvent:
        return ReadEvent(ForeignNoted("gemini"), self._at, f"place-{index}", line=raw_of(record))

    def _gemini_event(self, body: Body, key: str, line: Raw) -> ReadEvent:
        after, self._after = self._after, ""
        return ReadEvent(body, self._at, key, after, line)

    def _rewind(self, target: str) -> None:
        """Go back to before a message, or to the start if the message is not on the path."""
        names = list(self._path)
        kept_keys = names[: names.index(target)] if target in self._path else []
        self._path = {name: self._path[name] for name in kept_keys}
        self._after = self._path[kept_keys[-1]] if kept_keys else "opened"

    def _gemini_message(self, record: Json) -> Iterator[ReadEvent]:
        key = text(record, "id")
        self._last = key
        if text(record, "type") == "gemini":
            yield from self._gemini_reply(record, key)
            return
        self._path[key] = key
        message_text = text_in(record.get("content"))
        media = tuple(media_in(record.get("content"), self._blobs))
        responses = [table_at(part, "functionResponse") for part in parts_in(record.get("content")) if table_at(part, "functionResponse")]
        line = rest_of(record, *(("id", "content") if not responses else ("id",)))
        match text(record, "type"):
            case "user" if is_setup(message_text):
                yield self._gemini_event(ContextStated((Statement("gemini.setup", message_text),)), key, line)
            case "user" if message_text.strip() or media:
                yield self._gemini_event(UserSaid((*((Text(message_text),) if message_text.strip() else ()), *media)), key, line)
            case "error":
                yield self._gemini_event(Failed("turn", "error", message_text, "gemini"), key, line)
            case _:
                yield self._gemini_event(ForeignNoted("gemini", (key,)), key, rest_of(record))

    def _gemini_reply(self, record: Json, key: str) -> Iterator[ReadEvent]:
        calls = tables_at(record, "toolCalls")
        read_calls = self._calls.get(key)
        if read_calls is None:
            read_calls = list(self._earlier.calls) if key == self._earlier.last else None
        new_calls = [call for call in calls if text(call, "id") not in (read_calls or ())]
        model = text(record, "model")
        if read_calls is None:
            yield self._gemini_event(call_of(model or "gemini"), f"{key}/call", Raw(b"null"))
            parts: tuple[Content, ...] = (*_reply_contents(record), *(_gemini_call(call) for call in calls))
            body = ModelReplied(parts, usage=_gemini_usage(record), stop="tool_use" if calls else "end_turn", model=model)
            stored = {**record, "toolCalls": [without(call, "args", "result") for call in calls]}
            yield self._gemini_event(body, key, rest_of(stored, *(name for name in _BODY_FIELDS if name != "toolCalls")))
        elif new_calls:
            # The message was read before it was complete.
            new_key = f"{key}/{text(new_calls[0], 'id')}"
            yield self._gemini_event(
                ModelReplied(tuple(_gemini_call(call) for call in new_calls), stop="tool_use", model=model), new_key, Raw(b"null")
            )
        self._calls[key] = [*(read_calls or ()), *(text(call, "id") for call in new_calls)]
        self._path[key] = key
        for call in calls:
            if call.get("result") is not None:
                yield from self._result_events(call, key)

    def _result_events(self, call: Json, message: str) -> Iterator[ReadEvent]:
        call_id = text(call, "id")
        key = f"{call_id}/result"
        self._path[message] = key
        result_text = _result_text(call)
        if key in self._results:
            return
        self._results[key] = result_text
        status = text(call, "status")
        media = tuple(media_in(call.get("result"), self._blobs))
        path = text(table_at(call, "args"), "file_path") or text(table_at(call, "args"), "absolute_path")
        result = ToolResult(call_id, (*((Text(result_text),) if result_text else ()), *media), error=status in {"error", "cancelled"})
        self._at = milliseconds(call.get("timestamp")) or self._at
        yield self._gemini_event(ToolReturned(result, text(call, "name"), paths=(path,) if path else ()), key, Raw(b"null"))

    def _history_events(self, messages: list[Json], record: Json, index: int) -> Iterator[ReadEvent]:
        """The program replaced its history: removed messages are folded, shortened results are masked."""
        names = [text(message, "id") for message in messages]
        removed = [name for name in self._path if name not in names]
        added = [message for message in messages if text(message, "id") not in self._path]
        kept_keys = {name: self._path[name] for name in self._path if name in names}
        key = f"place-{index}"
        # A call that was added after its message was read has a reply of its own.
        results = [each for name in removed for call_id in self._calls.get(name, ()) for each in (f"{name}/{call_id}", f"{call_id}/result")]
        summaries = tuple(
            Put("summary", Text(message_text, "assistant" if text(message, "type") == "gemini" else "user"))
            for message in added
            if (message_text := text_in(message.get("content"))).strip()
        )
        if removed or summaries:
            yield ReadEvent(DeferredFold("gemini", "compression", (*removed, *results), summaries), self._at, key, line=rest_of(record))
        else:
            yield self._gemini_event(ForeignNoted("gemini", (key,)), key, rest_of(record))
        for call in (call for message in messages for call in tables_at(message, "toolCalls")):
            result, result_text = f"{text(call, 'id')}/result", _result_text(call)
            if self._results.get(result, result_text) != result_text:
                self._results[result] = result_text
                yield ReadEvent(DeferredMask("gemini", "masking of tool output", result, result_text), self._at, f"{result}/{index}")
        # A rewind cannot go back to before a rewritten history.
        self._path = {name: kept_keys.get(name, key) for name in names}


def _with_ids(record: object, index: int) -> object:
    """The record with ids for its message and calls; some versions and edited files have none."""
    if not is_json(record) or text(record, "type") not in _MESSAGE_TYPES:
        return record
    key = text(record, "id") or f"message-{index}"
    calls = [call if text(call, "id") else {**call, "id": f"{key}.{number}"} for number, call in enumerate(tables_at(record, "toolCalls"))]
    kind = "gemini" if record["type"] == "model" else record["type"]
    return {**record, "id": key, "type": kind, **({"toolCalls": calls} if calls else {})}


def _is_message(record: object) -> bool:
    return is_json(record) and bool(text(record, "id")) and bool(text(record, "type"))


def _is_metadata(record: object) -> bool:
    """Whether a record only notes times or other metadata."""
    changes = table_at(record, "$set") if is_json(record) else {}
    return bool(changes) and "messages" not in changes and "summary" not in changes


def _reply_contents(record: Json) -> Iterator[Content]:
    for thought in tables_at(record, "thoughts"):
        message_text = "\n".join(each for each in (text(thought, "subject"), text(thought, "description")) if each)
        if message_text:
            yield Thinking(message_text, form="digest")
    message_text = text_in(record.get("content"))
    if message_text.strip():
        yield Text(message_text, "assistant")


def _gemini_call(call: Json) -> ToolCall:
    return ToolCall(text(call, "id"), text(call, "name"), dump(table_at(call, "args")))


def _result_text(call: Json) -> str:
    """The output that the model saw; parts beside a response belong to it."""
    parts = parts_in(call.get("result"))
    responses = (response_text(table_at(table_at(part, "functionResponse"), "response")) for part in parts if "functionResponse" in part)
    return "\n".join(each for each in (*responses, text_in([part for part in parts if "functionResponse" not in part])) if each)


def _gemini_usage(record: Json) -> Usage:
    """Token counts of Gemini, where cached tokens are part of the prompt, and thoughts are not part of the output."""
    counts = table_at(record, "tokens")
    cached, thoughts = number(counts, "cached"), number(counts, "thoughts")
    uncached = max(0, number(counts, "input") - cached) + number(counts, "tool")
    return Usage(uncached, cached, output=number(counts, "output") + thoughts, reasoning=thoughts)


FileKind = Literal["document", "lines", "checkpoint"]


class GeminiFormat:
    """Gemini CLI: `chats/session-*.json` and `.jsonl` below `~/.gemini/tmp`, and files that `/chat save` writes."""

    name = "gemini"

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The folder where Gemini CLI keeps its sessions."""
        return (Path(environment.get("GEMINI_CLI_HOME") or home) / ".gemini" / "tmp",)

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """One session for each recording or checkpoint."""
        return sources_below(path, (".json", ".jsonl"), _gemini_sources)

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The messages of a session in order."""
        path = Path(source.path)
        kind_and_header = _file_kind(path)
        if kind_and_header is None:
            yield not_a_document(path)
            return
        kind, header = kind_and_header
        if kind == "checkpoint":
            yield from _checkpoint(source, path, blobs, position)
            return
        records: list[object] = []
        if kind == "lines":
            for line in whole_lines(path):
                record = object_on(line, path)
                if isinstance(record, ReadProblem):
                    yield record
                else:
                    records.append(record)
        else:
            messages = header.get("messages")
            records = list(messages) if isinstance(messages, list) else []
        reader = RecordReader(blobs, position)
        if not reader.is_resumed:
            yield _gemini_opening(source, path, header)
        yield from reader.events_of_all(records)
        title = text(header, "summary")
        if kind == "document" and title:
            yield reader.title_event(title)
        yield reader.position(records)


def _gemini_sources(path: Path) -> Iterator[TranscriptSource]:
    kind_and_header = _file_kind(path)
    if kind_and_header is not None:
        kind, header = kind_and_header
        session = f"{path.parent.name}.{path.stem}" if kind == "checkpoint" else text(header, "sessionId")
        # The recording of a sub-agent is in a folder named after its parent session.
        parent = path.parent.name if path.parent.parent.name == "chats" else ""
        yield TranscriptSource("gemini", str(path), session, changed(path), parent)


def _file_kind(path: Path) -> tuple[FileKind, Json] | None:
    """What kind of file this is, and its header; None if it is of another program."""
    header = first_object(head_of(path))
    if _is_header(header) and "messages" not in header:
        return "lines", header
    if starts_like_json(path, b'"sessionId"', b'"projectHash"', b'"messages"'):
        document = document_in(path)
        return ("document", document) if is_json(document) and _is_header(document) and isinstance(document.get("messages"), list) else None
    if starts_like_json(path, b'"parts"', b'"role"'):
        document = document_in(path)
        contents = contents_in(document)
        return ("checkpoint", document if is_json(document) else {}) if contents is not None else None
    return None


def _is_header(value: Json) -> bool:
    return bool(text(value, "sessionId")) and isinstance(value.get("projectHash"), str)


def _gemini_folder(path: Path, header: Json) -> str:
    """The working directory of a session; empty if the program did not note it."""
    for parent in path.parents[:4]:
        note_file = parent / ".project_root"
        if note_file.is_file():
            return head_of(note_file, 4096).decode("utf-8", "replace").strip()
    directories = header.get("directories")
    first = directories[0] if isinstance(directories, list) and directories else ""
    return first if isinstance(first, str) else ""


def _gemini_opening(source: TranscriptSource, path: Path, header: Json) -> ReadEvent:
    opened = SessionOpened(
        source.session,
        _gemini_folder(path, header),
        "gemini",
        opener=parent_place("gemini", source.parent),
        meta={"project": text(header, "projectHash")} if text(header, "projectHash") else {},
    )
    # Fields that change during a session are left out, so that the first event stays the same.
    return ReadEvent(
        opened, milliseconds(header.get("startTime")), "opened", line=rest_of(header, "messages", "lastUpdated", "summary", "directories")
    )


def _checkpoint(source: TranscriptSource, path: Path, blobs: Blobs, position: ReadPosition | None) -> Iterator[ReadOutput]:
    document = document_in(path)
    contents = contents_in(document)
    if contents is None:
        yield not_a_document(path)
        return
    # A checkpoint has no times; the modification time is the best estimate.
    at = int(path.stat().st_mtime) * 1000
    opened = SessionOpened(source.session, _gemini_folder(path, {}), "gemini", meta={"kind": "checkpoint"})
    stored = rest_of(document if is_json(document) else {}, "history", "clientHistory")
    growing = GrowingDocument(position)
    yield from growing.new_events(contents, ReadEvent(opened, at, "opened", line=stored), ContentReader(blobs, at).events_of)
    yield growing.position(contents)
