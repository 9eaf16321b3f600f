"""The transcript format of GitHub Copilot CLI: one file of events for each session and its sub-agents."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import structs

from palimpsest.core.events import (
    Body,
    ChildEnded,
    ChildOpened,
    ContextStated,
    Failed,
    ForeignNoted,
    ModeChanged,
    ModelReplied,
    ModelSwitched,
    SessionOpened,
    Statement,
    Titled,
    ToolReturned,
    ToolStarted,
    TurnEnded,
    Usage,
    UserSaid,
)
from palimpsest.core.items import Content, Form, Part, Signature, Text, Thinking, ToolCall, ToolResult, Value
from palimpsest.core.ports import Blobs
from palimpsest.exchange.files import (
    FileLine,
    LineState,
    changed,
    decoded,
    digest_of,
    head_of,
    object_on,
    raw_of,
    reason,
    resumed,
    sources_below,
    whole_lines,
    without,
)
from palimpsest.exchange.importing import parent_place, session_id
from palimpsest.exchange.transcript import (
    DeferredBody,
    DeferredCompaction,
    ReadEvent,
    ReadOutput,
    ReadPosition,
    ReadProblem,
    TranscriptSource,
    arguments_of,
    call_of,
    milliseconds,
)
from palimpsest.wire.json_reading import Json, is_json, number, table_at, tables_at, text
from palimpsest.wire.media import blob_part

_EXIT = re.compile(r"exit code:? (-?\d+)>?\s*$")
_ENVELOPE = {"type", "data", "id", "timestamp", "parentId"}


class _RunningCall(Value, frozen=True):
    """A call that waits for its result."""

    tool: str
    form: Form = "json"
    path: str = ""


class _ReaderState(LineState, omit_defaults=True):
    """What later lines need to know about earlier ones; the state of a position."""

    model: str = ""
    started: int = 0
    head: str = ""
    newest: str = ""
    folding: str = ""
    waiting: bool = False
    calls: dict[str, _RunningCall] = {}


class CopilotFormat:
    """GitHub Copilot CLI since 0.0.390: `events.jsonl` in a folder for each session."""

    name = "copilot"

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The folder where Copilot CLI keeps its sessions."""
        return (Path(environment.get("COPILOT_HOME") or home / ".copilot") / "session-state",)

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """The session of each file of events, and one for every sub-agent in it."""
        return sources_below(path, (".jsonl",), _copilot_sources)

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The events of a session or a sub-agent, in file order."""
        reader = _EventReader(source, blobs)
        try:
            yield from reader.run(position)
        except OSError as error:
            yield ReadProblem(source.path, reason(error))


def _copilot_sources(path: Path) -> Iterator[TranscriptSource]:
    first = next((value for line in head_of(path).split(b"\n", 16)[:16] if _is_event(value := decoded(line))), None)
    if not is_json(first):
        return
    file_session = path.parent.name if path.name == "events.jsonl" else path.stem
    session = text(table_at(first, "data"), "sessionId") or file_session
    stamp = changed(path)
    yield TranscriptSource("copilot", str(path), session, stamp)
    owners: dict[str, None] = {}
    for line in whole_lines(path):
        if b'"parentToolCallId"' in line.data or b'"agentId"' in line.data:
            value = decoded(line.data)
            if is_json(value) and (owner := _owner_of(value)):
                owners[owner] = None
    for owner in owners:
        yield TranscriptSource("copilot", str(path), f"{session}/{owner}", stamp, session)


def _is_event(value: object) -> bool:
    """Whether a line is an event of Copilot."""
    return is_json(value) and value.keys() >= _ENVELOPE and "." in text(value, "type") and is_json(value["data"])


def _owner_of(event: Json) -> str:
    """The sub-agent that an event belongs to; empty for the main session, to which starts and ends of sub-agents belong."""
    if text(event, "type").startswith("subagent."):
        return ""
    return text(event, "agentId") or text(table_at(event, "data"), "parentToolCallId")


class _EventReader:
    """One pass over the lines of a session."""

    def __init__(self, source: TranscriptSource, blobs: Blobs) -> None:
        self._source = source
        self._path = Path(source.path)
        self._owner = source.session.removeprefix(f"{source.parent}/") if source.parent else ""
        self._blobs = blobs
        self._state = _ReaderState()
        self._opened = False
        # Lines of one reply that are not yielded yet; the last of them has the usage.
        self._reply_lines: list[Json] = []
        self._reply_start = FileLine(0, 0, 0, b"")

    def run(self, position: ReadPosition | None) -> Iterator[ReadOutput]:
        """The events after a position, and the next position."""
        self._state, offset = resumed(self._path, position, self._state)
        self._opened = offset > 0
        last = FileLine(0, offset, offset, b"")
        for line in whole_lines(self._path, offset, self._state.number):
            event = object_on(line, self._path)
            if isinstance(event, ReadProblem):
                yield event
            elif not _is_event(event):
                yield ReadProblem(f"{self._path}:{line.number}", "this is not an event of Copilot")
            elif _owner_of(event) == self._owner:
                if not text(event, "id"):
                    event = {**event, "id": f"line-{line.number}"}
                if self._reply_lines and not self._continues_reply(event):
                    yield from self._copilot_reply()
                yield from self._open(event)
                for index, event_read in enumerate(self._copilot_events(event, line)):
                    yield structs.replace(event_read, after="") if index else event_read
            last = line
        if self._reply_lines and not _is_incomplete(self._reply_lines[-1]):
            yield from self._copilot_reply()
        if self._reply_lines:
            # An incomplete reply is read again when it has grown.
            state = structs.replace(self._state, number=self._reply_start.number - 1, start=self._reply_start.start, digest="")
            yield ReadPosition(self._reply_start.start, raw_of(state))
        else:
            yield self._state.position_after(last)

    def _open(self, event: Json) -> Iterator[ReadEvent]:
        if self._opened:
            return
        self._opened = True
        data = table_at(event, "data")
        context = table_at(data, "context")
        meta = {"version": text(data, "copilotVersion"), "branch": text(context, "branch"), "commit": text(context, "headCommit")}
        opened = SessionOpened(
            self._source.session,
            text(context, "cwd"),
            "copilot",
            model=text(data, "selectedModel") or text(data, "model"),
            opener=parent_place("copilot", self._source.parent),
            meta={name: value for name, value in meta.items() if value},
        )
        yield ReadEvent(opened, milliseconds(data.get("startTime")) or milliseconds(event["timestamp"]), "opened")

    def _continues_reply(self, event: Json) -> bool:
        """Whether an event continues the held reply."""
        data, reply_data = table_at(event, "data"), table_at(self._reply_lines[-1], "data")
        is_same_call = text(data, "apiCallId") == text(reply_data, "apiCallId") != ""
        return event["type"] == "assistant.message" and is_same_call and not tables_at(reply_data, "toolRequests")

    def _copilot_events(self, event: Json, line: FileLine) -> Iterator[ReadEvent]:
        data, state = table_at(event, "data"), self._state
        match event["type"]:
            case "assistant.message":
                if not self._reply_lines:
                    self._reply_start = line
                self._reply_lines.append(event)
            case "user.message":
                yield from self._user(event, data)
            case "system.message" if (prompt := text(data, "content")) and digest_of(prompt.encode()) != state.head:
                state.head = digest_of(prompt.encode())
                yield _read_event(event, ContextStated(head=(Statement("copilot.system", prompt, "system"),)), "content")
            case "system.notification" if text(data, "content").startswith("<system_notification>"):
                state.newest = text(event, "id")
                yield _read_event(event, ContextStated((Statement("copilot.notification", text(data, "content")),)), "content")
            case "tool.execution_start":
                started = ToolStarted(text(data, "toolCallId"), text(data, "toolName"))
                yield _read_event(event, started, "toolCallId", "toolName", "arguments")
            case "tool.execution_complete":
                yield self._copilot_result(event, data)
            case "session.compaction_complete":
                yield self._fold_event(event, data)
            case _:
                yield self._other(event, data)

    def _user(self, event: Json, data: Json) -> Iterator[ReadEvent]:
        typed, transformed, source = text(data, "content"), text(data, "transformedContent"), text(data, "source")
        visible_text, key = transformed or typed, text(event, "id")
        self._state.newest = key
        if (source and source != "user") or not typed.strip():
            body = ContextStated((Statement(f"copilot.{source or 'context'}", visible_text, ref=key),)) if visible_text.strip() else None
            yield _read_event(event, body or ForeignNoted("copilot", (key,)), *(("content", "transformedContent") if body else ()))
            return
        before, has_typed, after = visible_text.partition(typed)
        if not has_typed:
            before, typed, after = "", visible_text, ""
        media = self._media(tables_at(data, "attachments"))
        last: Body = UserSaid((Text(typed, ref=key), *media), steering=text(data, "delivery") == "steering")
        if before.strip():
            yield _earlier_event(event, "before", ContextStated((Statement("copilot.before", before, ref=key),)))
        if after.strip():
            yield _earlier_event(event, "said", last)
            last = ContextStated((Statement("copilot.after", after, ref=key),))
        yield _read_event(event, last, "content", "transformedContent")

    def _copilot_reply(self) -> Iterator[ReadEvent]:
        events, self._reply_lines = self._reply_lines, []
        last, state = events[-1], self._state
        parts: list[Content] = []
        output = 0
        for event in events:
            data = table_at(event, "data")
            state.model = text(data, "model") or state.model
            parts += self._copilot_contents(data)
            output += number(data, "outputTokens")
        state.waiting = any(isinstance(part, ToolCall) for part in parts)
        state.newest = text(last, "id")
        at = milliseconds(last["timestamp"])
        yield ReadEvent(call_of(state.model), state.started or at, f"{last['id']}/call", text(events[0], "parentId"))
        fields = ("content", "toolRequests", "reasoningText", "reasoningOpaque", "outputTokens", "model")
        body = ModelReplied(
            tuple(parts),
            usage=Usage(output=output),
            stop="tool_use" if state.waiting else "end_turn",
            model=state.model,
            message=text(table_at(last, "data"), "messageId"),
        )
        earlier = [_rest_of_line(event, *fields) for event in events[:-1]]
        line = raw_of({**_rest_of_line(last, *fields), **({"earlier": earlier} if earlier else {})})
        yield ReadEvent(body, at, text(last, "id"), line=line)

    def _copilot_contents(self, data: Json) -> Iterator[Content]:
        reasoning, signature = text(data, "reasoningText"), text(data, "reasoningOpaque")
        ref = text(data, "messageId")
        if reasoning or signature:
            # The signature is Copilot's own and useless to any other provider.
            seal = Signature("copilot", text(data, "model"), signature) if signature else None
            yield Thinking(reasoning, seal, "whole" if reasoning else "sealed", ref)
        if text(data, "content").strip():
            yield Text(text(data, "content"), "assistant", text(data, "phase"), ref)
        for request in tables_at(data, "toolRequests"):
            args = request.get("arguments")
            form: Form = "free" if text(request, "type") == "custom" else "json"
            call_id, tool = text(request, "toolCallId"), text(request, "name")
            path = text(args, "path") or text(args, "file_path") if is_json(args) else ""
            self._state.calls[call_id] = _RunningCall(tool, form, path)
            yield ToolCall(call_id, tool, arguments_of(args), form, ref)

    def _copilot_result(self, event: Json, data: Json) -> ReadEvent:
        call_id = text(data, "toolCallId")
        call = self._state.calls.pop(call_id, _RunningCall(text(data, "toolName")))
        result, error = table_at(data, "result"), table_at(data, "error")
        content = text(result, "content") if result else text(error, "message")
        parts: list[Part] = [Text(content)] if content else []
        parts += self._media((*tables_at(result, "contents"), *tables_at(result, "binaryResultsForLlm")))
        self._state.newest = text(event, "id")
        exit_match = _EXIT.search(content[-80:])
        body = ToolReturned(
            ToolResult(call_id, tuple(parts), error=data.get("success") is False, form=call.form),
            call.tool,
            int(exit_match[1]) if exit_match else None,
            (call.path,) if call.path else (),
        )
        rest = {name: value for name, value in result.items() if name != "content" and value != content}
        stored = {**event, "data": {**without(data, "result"), **({"result": rest} if rest else {})}}
        return _read_event(stored, body, "toolCallId", "error")

    def _media(self, tables: Iterable[Json]) -> Iterator[Part]:
        for each in tables:
            data = text(each, "data")
            if data and (part := blob_part(text(each, "mimeType"), data, self._blobs)) is not None:
                yield part

    def _fold_event(self, event: Json, data: Json) -> ReadEvent:
        summary, fold_end = text(data, "summaryContent"), self._state.folding
        self._state.folding = ""
        if data.get("success") is False or not summary:
            error_text = text(data, "error") or "no summary is in the file"
            return _read_event(event, Failed("compaction", "compaction", error_text, "copilot"))

        tokens = number(data, "preCompactionTokens"), number(data, "postCompactionTokens")
        return _read_event(event, DeferredCompaction("copilot", summary, *tokens, last=fold_end), "summaryContent")

    def _child(self, event: Json, data: Json) -> str:
        """The id of the imported session of a sub-agent."""
        return session_id("copilot", f"{self._source.session}/{text(event, 'agentId') or text(data, 'toolCallId')}")

    def _other(self, event: Json, data: Json) -> ReadEvent:
        state, key = self._state, text(event, "id")
        match event["type"]:
            case "assistant.turn_start":
                state.started = milliseconds(event["timestamp"])
            case "assistant.turn_end" if not state.waiting:
                return _read_event(event, TurnEnded())
            case "session.model_change" if text(data, "newModel"):
                previous, state.model = state.model or text(data, "previousModel"), text(data, "newModel")
                return _read_event(event, ModelSwitched(state.model, previous), "newModel")
            case "session.mode_changed" if text(data, "newMode"):
                return _read_event(event, ModeChanged(text(data, "newMode"), text(data, "previousMode")), "newMode", "previousMode")
            case "session.title_changed" if text(data, "title"):
                return _read_event(event, Titled(text(data, "title"), by="copilot"), "title")
            case "session.error":
                return _read_event(event, Failed("call", text(data, "errorType") or "error", text(data, "message"), "copilot"), "message")
            case "abort":
                return _read_event(event, Failed("turn", "aborted", text(data, "reason"), "copilot"), "reason")
            case "session.compaction_start":
                state.folding = state.newest
            case "subagent.started":
                opened = ChildOpened(self._child(event, data), text(data, "toolCallId"), text(data, "agentName"))
                return _read_event(event, opened, "agentName")
            case "subagent.completed":
                return _read_event(event, ChildEnded(self._child(event, data), "done"))
            case "subagent.failed":
                return _read_event(event, ChildEnded(self._child(event, data), "failed", text(data, "error")), "error")
            case _:
                pass
        return _read_event(event, ForeignNoted("copilot", (key,)))


def _is_incomplete(event: Json) -> bool:
    """Whether a reply is incomplete: it has only reasoning, and no usage."""
    data = table_at(event, "data")
    return "outputTokens" not in data and not text(data, "content") and not tables_at(data, "toolRequests")


def _read_event(event: Json, body: Body | DeferredBody, *fields: str) -> ReadEvent:
    """The only or last event of a line, with the rest of the line: all but its key and the fields of the body."""
    line = raw_of(_rest_of_line(event, *fields))
    return ReadEvent(body, milliseconds(event["timestamp"]), text(event, "id"), text(event, "parentId"), line)


def _earlier_event(event: Json, name: str, body: Body) -> ReadEvent:
    """An event of a line before its last one."""
    return ReadEvent(body, milliseconds(event["timestamp"]), f"{event['id']}/{name}", text(event, "parentId"))


def _rest_of_line(event: Json, *fields: str) -> Json:
    """The line without its key and the fields that are in the body."""
    return {**without(event, "id"), "data": without(table_at(event, "data"), *fields)}
