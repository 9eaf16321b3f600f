"""From the events of GitHub Copilot's CLI to facts of ours, line by line."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Raw, Struct, structs

from palimpsest.core.edits import Fold, Put
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
    ViewEdited,
)
from palimpsest.core.items import Content, Form, Part, Signature, Text, Thinking, ToolCall, ToolResult, Value
from palimpsest.core.ports import Blobs
from palimpsest.foreign.reading.files import Line, digest_of, object_on, still_there, whole_lines
from palimpsest.foreign.reading.importing import opener_in, session_id
from palimpsest.foreign.reading.parts import blob_part, call_of, milliseconds
from palimpsest.foreign.reading.transcript import BadLine, Desk, Mark, Source, Told
from palimpsest.wire.json_reading import Json, dump, is_json, number, table_at, tables_at, text

_EXIT = re.compile(r"exit code:? (-?\d+)>?\s*$")
_ENVELOPE = {"type", "data", "id", "timestamp", "parentId"}


class _Open(Value, frozen=True):
    """A call that waits for its result."""

    tool: str
    form: Form = "json"
    path: str = ""


class _State(Struct, omit_defaults=True):
    """What the next line must know of the lines before it."""

    number: int = 0
    start: int = 0
    digest: str = ""
    model: str = ""
    started: int = 0
    head: str = ""
    newest: str = ""
    folding: str = ""
    waiting: bool = False
    calls: dict[str, _Open] = {}


def is_event(value: object) -> bool:
    """Whether a line is an event of Copilot."""
    return is_json(value) and value.keys() >= _ENVELOPE and "." in text(value, "type") and is_json(value["data"])


def owner_of(event: Json) -> str:
    """The sub-agent that an event belongs to; that one began or ended is its parent's business."""
    if text(event, "type").startswith("subagent."):
        return ""
    return text(event, "agentId") or text(table_at(event, "data"), "parentToolCallId")


class EventReader:
    """One pass over the lines of a session."""

    def __init__(self, source: Source, blobs: Blobs) -> None:
        self._source = source
        self._path = Path(source.path)
        self._owner = source.session.removeprefix(f"{source.parent}/") if source.parent else ""
        self._blobs = blobs
        self._state = _State()
        self._opened = False
        # Replies of one request that came in several lines: the last of them counts the tokens.
        self._held: list[Json] = []
        self._held_line = Line(0, 0, 0, b"")

    def run(self, mark: Mark | None) -> Iterator[Told | BadLine | Mark]:
        """The facts after a mark, and where the next run goes on."""
        offset = self._resume(mark)
        last = Line(0, offset, offset, b"")
        for line in whole_lines(self._path, offset, self._state.number):
            event = object_on(line, self._path)
            if isinstance(event, BadLine):
                yield event
            elif not is_event(event):
                yield BadLine(f"{self._path}:{line.number}", "this is not an event of Copilot")
            elif owner_of(event) == self._owner:
                if not text(event, "id"):
                    event = {**event, "id": f"line-{line.number}"}
                if self._held and not self._belongs(event):
                    yield from self._reply()
                yield from self._open(event)
                for place, told in enumerate(self._take(event, line)):
                    yield structs.replace(told, after="") if place else told
            last = line
        if self._held and not _unfinished(self._held[-1]):
            yield from self._reply()
        if self._held:
            # What is still being written is read again when there is more of it.
            state = structs.replace(self._state, number=self._held_line.number - 1, start=self._held_line.start, digest="")
            yield Mark(self._held_line.start, Raw(msgspec.json.encode(state)))
            return
        if last.number:
            self._state.number, self._state.start, self._state.digest = last.number, last.start, digest_of(last.data)
        yield Mark(last.stop, Raw(msgspec.json.encode(self._state)))

    def _resume(self, mark: Mark | None) -> int:
        """Go on after the last line told, if it is still there."""
        if mark is None:
            return 0
        try:
            state = msgspec.json.decode(bytes(mark.state), type=_State)
        except msgspec.DecodeError:
            return 0
        if not still_there(self._path, state.start, mark.offset, state.digest):
            return 0
        self._state, self._opened = state, True
        return mark.offset

    def _open(self, event: Json) -> Iterator[Told]:
        if self._opened:
            return
        self._opened = True
        data = table_at(event, "data")
        where = table_at(data, "context")
        facts = {"version": text(data, "copilotVersion"), "branch": text(where, "branch"), "commit": text(where, "headCommit")}
        yield Told(
            SessionOpened(
                self._source.session,
                text(where, "cwd"),
                "copilot",
                model=text(data, "selectedModel") or text(data, "model"),
                opener=opener_in("copilot", self._source.parent),
                meta={name: value for name, value in facts.items() if value},
            ),
            milliseconds(data.get("startTime")) or milliseconds(event["timestamp"]),
            "opened",
        )

    def _belongs(self, event: Json) -> bool:
        """Whether an event continues the reply that is held."""
        data, held = table_at(event, "data"), table_at(self._held[-1], "data")
        same = text(data, "apiCallId") == text(held, "apiCallId") != ""
        return event["type"] == "assistant.message" and same and not tables_at(held, "toolRequests")

    def _take(self, event: Json, line: Line) -> Iterator[Told]:
        data, state = table_at(event, "data"), self._state
        match event["type"]:
            case "assistant.message":
                if not self._held:
                    self._held_line = line
                self._held.append(event)
            case "user.message":
                yield from self._user(event, data)
            case "system.message" if (said := text(data, "content")) and digest_of(said.encode()) != state.head:
                state.head = digest_of(said.encode())
                yield _told(event, ContextStated(head=(Statement("copilot.system", said, "system"),)), "content")
            case "system.notification" if text(data, "content").startswith("<system_notification>"):
                state.newest = text(event, "id")
                yield _told(event, ContextStated((Statement("copilot.notification", text(data, "content")),)), "content")
            case "tool.execution_start":
                yield _told(event, ToolStarted(text(data, "toolCallId"), text(data, "toolName")), "toolCallId", "toolName", "arguments")
            case "tool.execution_complete":
                yield self._result(event, data)
            case "session.compaction_complete":
                yield self._folded(event, data)
            case _:
                yield self._other(event, data)

    def _user(self, event: Json, data: Json) -> Iterator[Told]:
        typed, seen, source = text(data, "content"), text(data, "transformedContent"), text(data, "source")
        shown, key = seen or typed, text(event, "id")
        self._state.newest = key
        if (source and source != "user") or not typed.strip():
            body = ContextStated((Statement(f"copilot.{source or 'context'}", shown, ref=key),)) if shown.strip() else None
            yield _told(event, body or ForeignNoted("copilot", (key,)), *(("content", "transformedContent") if body else ()))
            return
        before, found, after = shown.partition(typed)
        if not found:
            before, typed, after = "", shown, ""
        pictures = tuple(self._media(tables_at(data, "attachments")))
        steering = text(data, "delivery") == "steering"
        if before.strip():
            yield _part_told(event, "before", ContextStated((Statement("copilot.before", before, ref=key),)))
        if after.strip():
            yield _part_told(event, "said", UserSaid((Text(typed, ref=key), *pictures), steering=steering))
            yield _told(event, ContextStated((Statement("copilot.after", after, ref=key),)), "content", "transformedContent")
        else:
            yield _told(event, UserSaid((Text(typed, ref=key), *pictures), steering=steering), "content", "transformedContent")

    def _reply(self) -> Iterator[Told]:
        events, self._held = self._held, []
        last, state = events[-1], self._state
        parts: list[Content] = []
        output = 0
        for event in events:
            data = table_at(event, "data")
            state.model = text(data, "model") or state.model
            parts += self._contents(data)
            output += number(data, "outputTokens")
        state.waiting = any(isinstance(part, ToolCall) for part in parts)
        state.newest = text(last, "id")
        at = milliseconds(last["timestamp"])
        yield Told(call_of(state.model), state.started or at, f"{last['id']}/call", text(events[0], "parentId"))
        said = ("content", "toolRequests", "reasoningText", "reasoningOpaque", "outputTokens", "model")
        body = ModelReplied(
            tuple(parts),
            usage=Usage(output=output),
            stop="tool_use" if state.waiting else "end_turn",
            model=state.model,
            message=text(table_at(last, "data"), "messageId"),
        )
        earlier = [_beside(event, *said) for event in events[:-1]]
        beside = {**_beside(last, *said), "earlier": earlier} if earlier else _beside(last, *said)
        yield Told(body, at, text(last, "id"), line=Raw(msgspec.json.encode(beside)))

    def _contents(self, data: Json) -> Iterator[Content]:
        thought, sealed = text(data, "reasoningText"), text(data, "reasoningOpaque")
        ref = text(data, "messageId")
        if thought or sealed:
            # Copilot's own service made the seal, so no other provider may be given it.
            seal = Signature("copilot", text(data, "model"), sealed) if sealed else None
            yield Thinking(thought, seal, "whole" if thought else "sealed", ref)
        if text(data, "content").strip():
            yield Text(text(data, "content"), "assistant", text(data, "phase"), ref)
        for request in tables_at(data, "toolRequests"):
            args = request.get("arguments")
            form: Form = "free" if text(request, "type") == "custom" else "json"
            call_id, tool = text(request, "toolCallId"), text(request, "name")
            path = text(args, "path") or text(args, "file_path") if is_json(args) else ""
            self._state.calls[call_id] = _Open(tool, form, path)
            yield ToolCall(call_id, tool, args if isinstance(args, str) else dump(args or {}), form, ref)

    def _result(self, event: Json, data: Json) -> Told:
        call_id = text(data, "toolCallId")
        call = self._state.calls.pop(call_id, _Open(text(data, "toolName")))
        result, error = table_at(data, "result"), table_at(data, "error")
        content = text(result, "content") if result else text(error, "message")
        parts: list[Part] = [Text(content)] if content else []
        parts += self._media((*tables_at(result, "contents"), *tables_at(result, "binaryResultsForLlm")))
        self._state.newest = text(event, "id")
        code = _EXIT.search(content[-80:])
        body = ToolReturned(
            ToolResult(call_id, tuple(parts), error=data.get("success") is False, form=call.form),
            call.tool,
            int(code[1]) if code else None,
            (call.path,) if call.path else (),
        )
        beside = _beside(event, "toolCallId", "result", "error")
        left = {name: value for name, value in result.items() if name != "content" and value != content}
        data_left = {**table_at(beside, "data"), **({"result": left} if left else {})}
        return Told(body, milliseconds(event["timestamp"]), text(event, "id"), text(event, "parentId"), _raw({**beside, "data": data_left}))

    def _media(self, tables: Iterable[Json]) -> Iterator[Part]:
        for each in tables:
            data = text(each, "data")
            if data and (part := blob_part(text(each, "mimeType"), data, self._blobs)) is not None:
                yield part

    def _folded(self, event: Json, data: Json) -> Told:
        summary, until = text(data, "summaryContent"), self._state.folding
        self._state.folding = ""
        if data.get("success") is False or not summary:
            fault = text(data, "error") or "no summary is in the file"
            return _told(event, Failed("compaction", "compaction", fault, "copilot"))

        def fold(desk: Desk) -> Body:
            ids = desk.view.ids
            if not ids:
                # What finds nothing to edit is noted, so that it is not tried again on a later view.
                return ForeignNoted("copilot")
            known = [name for name in desk.ids(until) if name in ids] if until else []
            put = Put("summary", Text(summary))
            return ViewEdited(
                (Fold(ids[0], known[-1] if known else ids[-1], (put,)),),
                "copilot",
                "compaction",
                tokens_before=number(data, "preCompactionTokens"),
                tokens_after=number(data, "postCompactionTokens"),
            )

        beside = _raw(_beside(event, "summaryContent"))
        return Told(fold, milliseconds(event["timestamp"]), text(event, "id"), text(event, "parentId"), beside)

    def _child(self, event: Json, data: Json) -> str:
        """The session of a sub-agent."""
        return session_id("copilot", f"{self._source.session}/{text(event, 'agentId') or text(data, 'toolCallId')}")

    def _other(self, event: Json, data: Json) -> Told:
        state, key = self._state, text(event, "id")
        match event["type"]:
            case "assistant.turn_start":
                state.started = milliseconds(event["timestamp"])
            case "assistant.turn_end" if not state.waiting:
                return _told(event, TurnEnded())
            case "session.model_change" if text(data, "newModel"):
                previous, state.model = state.model or text(data, "previousModel"), text(data, "newModel")
                return _told(event, ModelSwitched(state.model, previous), "newModel")
            case "session.mode_changed" if text(data, "newMode"):
                return _told(event, ModeChanged(text(data, "newMode"), text(data, "previousMode")), "newMode", "previousMode")
            case "session.title_changed" if text(data, "title"):
                return _told(event, Titled(text(data, "title"), by="copilot"), "title")
            case "session.error":
                return _told(event, Failed("call", text(data, "errorType") or "error", text(data, "message"), "copilot"), "message")
            case "abort":
                return _told(event, Failed("turn", "aborted", text(data, "reason"), "copilot"), "reason")
            case "session.compaction_start":
                state.folding = state.newest
            case "subagent.started":
                return _told(event, ChildOpened(self._child(event, data), text(data, "toolCallId"), text(data, "agentName")), "agentName")
            case "subagent.completed":
                return _told(event, ChildEnded(self._child(event, data), "done"))
            case "subagent.failed":
                return _told(event, ChildEnded(self._child(event, data), "failed", text(data, "error")), "error")
            case _:
                pass
        return _told(event, ForeignNoted("copilot", (key,)))


def _unfinished(event: Json) -> bool:
    """Whether a reply has only begun: nothing but a thought, and its tokens are not counted yet."""
    data = table_at(event, "data")
    return "outputTokens" not in data and not text(data, "content") and not tables_at(data, "toolRequests")


def _told(event: Json, body: Body, *said: str) -> Told:
    """The fact that an event is, or the last of several."""
    return Told(body, milliseconds(event["timestamp"]), text(event, "id"), text(event, "parentId"), _raw(_beside(event, *said)))


def _part_told(event: Json, name: str, body: Body) -> Told:
    """A fact that stands in an event before its last one."""
    return Told(body, milliseconds(event["timestamp"]), f"{event['id']}/{name}", text(event, "parentId"))


def _raw(value: Json) -> Raw:
    return Raw(msgspec.json.encode(value))


def _beside(event: Json, *said: str) -> Json:
    """An event without its key and what the body says of it."""
    data = {name: value for name, value in table_at(event, "data").items() if name not in said}
    return {**{name: value for name, value in event.items() if name != "id"}, "data": data}
