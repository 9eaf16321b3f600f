"""The events of a session of Anthropic's Managed Agents: lines, a list, or a page of the API, as a client has saved them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from palimpsest.core.events import (
    Body,
    CallStarted,
    ChildEnded,
    ChildOpened,
    ContextStated,
    Failed,
    ForeignNoted,
    ModelReplied,
    ModelSwitched,
    Permitted,
    SessionOpened,
    Statement,
    Titled,
    ToolRefused,
    ToolReturned,
    TurnEnded,
    Usage,
    UserSaid,
)
from palimpsest.core.items import Content, Document, Part, Text, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.exchange.files import (
    GrowingDocument,
    changed,
    digest_of,
    document_in,
    first_object,
    head_of,
    not_a_document,
    object_on,
    raw_of,
    reason,
    sources_below,
    starts_like_json,
    whole_lines,
    without,
)
from palimpsest.exchange.importing import session_id
from palimpsest.exchange.transcript import (
    DeferredBody,
    DeferredCompaction,
    ReadEvent,
    ReadOutput,
    ReadPosition,
    ReadProblem,
    TranscriptSource,
    arguments_of,
    milliseconds,
    parts_of,
    texts_of,
)
from palimpsest.wire.json_reading import Json, is_json, number, table_at, tables_at, text
from palimpsest.wire.media import blob_part, linked_part

NAME = "managed-agents"
_TYPE = re.compile(r"(agent|session|span|system|user|workflow_run)\.[a-z_]+")
_STAMP = b'"processed_at"'
_START, _END = "span.model_request_start", "span.model_request_end"
_CALLS = {"agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use"}
_WORDS = {"agent.message", "agent.thread_message_sent"}
_CONTENT = _CALLS | _WORDS
# The field of a result that names its call.
_ANSWERS = {
    "agent.tool_result": "tool_use_id",
    "agent.mcp_tool_result": "mcp_tool_use_id",
    "user.tool_result": "tool_use_id",
    "user.custom_tool_result": "custom_tool_use_id",
}
# What comes only after a reply is complete.
_CLOSING = {
    *_ANSWERS,
    "agent.thread_context_compacted",
    "agent.thread_message_received",
    "session.deleted",
    "session.status_idle",
    "session.status_terminated",
    "session.thread_status_idle",
    "session.thread_status_terminated",
    "system.message",
    "user.define_outcome",
    "user.message",
}
_SUMMARY = "The service compacted the conversation before this place; its summary is not in the events."


class ManagedAgentsFormat:
    """Managed Agents: the events of a session or of one of its threads, the session object itself before them if it was saved too."""

    name = NAME

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """None: the sessions are kept by the service."""
        return ()

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """One session for each file."""
        return sources_below(path, (".jsonl", ".json"), _managed_sources)

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The events in their order; those of one request to the model are one reply."""
        path = Path(source.path)
        try:
            listed = list(_listed(path))
        except OSError as error:
            yield ReadProblem(source.path, reason(error))
            return
        if not listed:
            yield not_a_document(path)
            return
        yield from (each for each in listed if isinstance(each, ReadProblem))
        events = _in_order(each for each in listed if not isinstance(each, ReadProblem))
        reader = _ManagedReader(source, blobs, events, int(path.stat().st_mtime) * 1000)
        growing, groups = GrowingDocument(position), _grouped(events)
        yield from growing.new_events(groups, reader.opening_event(), reader.events_of)
        yield growing.position(groups)


def _managed_sources(path: Path) -> Iterator[TranscriptSource]:
    if not starts_like_json(path, _STAMP):
        return
    events = _in_order(each for each in _listed(path) if not isinstance(each, ReadProblem))
    if events and text(events[0], "id"):
        yield TranscriptSource(NAME, str(path), _thread(events) or text(events[0], "id"), changed(path))


def _listed(path: Path) -> Iterator[Json | ReadProblem]:
    """The events of a file, and what is there instead; nothing if the file does not begin with an event or a session."""
    first = first_object(head_of(path))
    if _is_ours(first):
        for line in whole_lines(path):
            event = object_on(line, path)
            is_known = isinstance(event, ReadProblem) or text(event, "type")
            yield event if is_known else ReadProblem(f"{path}:{line.number}", "this is no event")
        return
    if first and "data" not in first:
        # Lines of another program, which are no document.
        return
    document = document_in(path)
    listed = document.get("data") if is_json(document) else document
    if not isinstance(listed, list) or not listed or not _is_ours(listed[0]):
        return
    for index, event in enumerate(listed):
        yield event if is_json(event) and text(event, "type") else ReadProblem(f"{path}, event {index}", "this is no event")


def _is_ours(event: object) -> bool:
    """Whether a value is an event or a session object. Events of other programs keep what they say in a field `data`."""
    if not is_json(event) or not text(event, "id") or "data" in event:
        return False
    return bool(_TYPE.fullmatch(text(event, "type"))) or (text(event, "type") == "session" and bool(table_at(event, "agent")))


def _in_order(listed: Iterable[Json]) -> list[Json]:
    """The events from the oldest to the newest, each once: pages may overlap, and the API also lists the newest first."""
    events = list({text(event, "id") or f"no id {index}": event for index, event in enumerate(listed)}.values())
    times = [at for event in events if (at := milliseconds(event.get("processed_at")))]
    ordered = events[::-1] if times and times[0] > times[-1] else events
    return sorted(ordered, key=lambda event: text(event, "type") != "session")


def _thread(events: Iterable[Json]) -> str:
    """The id of the thread if the events are those of a thread below the session: only such a list has no status of the session."""
    thread = ""
    for event in events:
        kind = text(event, "type")
        if kind == "session" or kind.startswith("session.status_"):
            return ""
        if kind.startswith("session.thread_status_"):
            thread = thread or text(event, "session_thread_id")
    return thread


def _grouped(events: list[Json]) -> list[object]:
    """Lists of events: those of one reply together, each other one alone. A reply that is not complete at the end is left for later."""
    groups: list[object] = []
    reply: list[Json] = []
    own = {"", _thread(events)}
    for event in events:
        kind, is_part = text(event, "type"), _is_part(event)
        # What another thread gets or does, beside a request of this one, does not end its reply.
        is_closing = kind in _CLOSING and text(event, "session_thread_id") in own
        if reply and (kind == _START or is_closing or (not is_part and _is_complete(reply))):
            groups.append(reply)
            reply = []
        if is_part:
            reply.append(event)
        else:
            groups.append([event])
    return [*groups, reply] if _is_complete(reply) else groups


def _is_part(event: Json) -> bool:
    """Whether an event belongs to a reply of this thread: calls of other threads are shown in the list too."""
    kind = text(event, "type")
    return kind in {_START, _END} or (kind in _CONTENT and not text(event, "session_thread_id"))


def _is_complete(reply: list[Json]) -> bool:
    """Whether nothing of a reply is missing as far as one can tell: a list without the requests themselves may end at any event."""
    kinds = {text(event, "type") for event in reply}
    return bool(reply) and (_START not in kinds or (_END in kinds and (bool(kinds & _CONTENT) or _failed(reply))))


def _failed(reply: list[Json]) -> bool:
    return any(event.get("is_error") is True for event in reply if text(event, "type") == _END)


class _ManagedReader:
    """One pass over the events of a session."""

    def __init__(self, source: TranscriptSource, blobs: Blobs, events: list[Json], at: int) -> None:
        self._source = source
        self._blobs = blobs
        self._at = next((time for event in events if (time := _time(event))), at)
        self._session = events[0] if events and text(events[0], "type") == "session" else {}
        self._model = text(table_at(table_at(self._session, "agent"), "model"), "id")
        # The tools of the calls of this thread, by the ids of the calls; those of other threads are shown in the list too.
        self._tools: dict[str, str] = {}

    def opening_event(self) -> ReadEvent:
        agent = table_at(self._session, "agent")
        fields = {"agent": text(agent, "name"), "environment": text(self._session, "environment_id")}
        meta = {name: value for name, value in fields.items() if value}
        return ReadEvent(SessionOpened(self._source.session, "", NAME, model=self._model, meta=meta), self._at, "opened")

    def events_of(self, index: int, group: object) -> Iterator[ReadEvent]:
        events = [each for each in group if is_json(each)] if isinstance(group, list) else []
        last = events[-1]
        key = text(last, "id") or f"{index}-{digest_of(msgspec.json.encode(last))}"
        self._at = _time(last) or self._at
        if _is_part(last):
            yield from self._managed_reply(events, key)
            return
        line = raw_of(_rest(last))
        *earlier, body = list(self._bodies(last)) or [ForeignNoted(NAME, (key,))]
        yield from (ReadEvent(each, self._at, f"{key}/{number}") for number, each in enumerate(earlier))
        yield ReadEvent(body, self._at, key, line=line)

    def _managed_reply(self, events: list[Json], key: str) -> Iterator[ReadEvent]:
        """A request and its reply. Nothing is a reply that has neither content nor an end, such as a request that was given up."""
        end = next((event for event in events if text(event, "type") == _END), None)
        line = raw_of({"events": [_rest(event) for event in events]})
        parts = tuple(part for event in events if (part := self._managed_content(event)) is not None)
        if end is None and not parts:
            yield ReadEvent(ForeignNoted(NAME, (key,)), self._at, key, line=line)
            return
        yield ReadEvent(CallStarted(self._model, "anthropic"), _time(events[0]) or self._at, f"{key}/call")
        counts = table_at(end or {}, "model_usage")
        usage, error = _managed_usage(counts), "the model request failed" if _failed(events) else ""
        if error and not parts and not usage.total:
            yield ReadEvent(Failed("call", "model_request_failed", by=NAME), self._at, key, line=line)
            return
        stop = "error" if error else "tool_use" if any(isinstance(part, ToolCall) for part in parts) else "end_turn"
        tier = "" if text(counts, "speed") == "standard" else text(counts, "speed")
        yield ReadEvent(ModelReplied(parts, usage=usage, stop=stop, model=self._model, error=error, tier=tier), self._at, key, line=line)

    def _managed_content(self, event: Json) -> Content | None:
        kind = text(event, "type")
        if kind in _CALLS:
            server = text(event, "mcp_server_name")
            tool = f"mcp__{server}__{text(event, 'name')}" if server else text(event, "name")
            self._tools[text(event, "id")] = tool
            return ToolCall(text(event, "id"), tool, arguments_of(event.get("input")))
        words = texts_of(event.get("content")) if kind in _WORDS else ""
        if kind == "agent.thread_message_sent" and words:
            words = f'<message to="{text(event, "to_agent_name") or "the main agent"}">\n{words}\n</message>'
        return Text(words, "assistant") if words.strip() else None

    def _bodies(self, event: Json) -> Iterator[Body | DeferredBody]:
        """What an event means that is no part of a reply; nothing for one that is only kept."""
        kind, thread = text(event, "type"), text(event, "session_thread_id")
        is_own = thread in {"", self._source.session}
        match kind:
            case "user.message" if parts := tuple(self._managed_parts(event)):
                yield UserSaid(parts)
            case "user.define_outcome" if text(event, "description"):
                yield UserSaid((Text(text(event, "description")),))
            case "system.message" if words := texts_of(event.get("content")):
                yield ContextStated((Statement(f"{NAME}.system", words, "developer"),))
            case "agent.thread_message_received" if parts := tuple(self._managed_parts(event)):
                sender = text(event, "from_agent_name")
                # What the main agent sends to a thread is the task of that thread.
                yield ContextStated((Statement(f"{NAME}.{sender}", texts_of(event.get("content"))),)) if sender else UserSaid(parts)
            case "user.interrupt" if is_own:
                yield Failed("turn", "interrupted", by=NAME)
            case "agent.thread_context_compacted":
                yield DeferredCompaction(NAME, _SUMMARY)
            case "session.error":
                error = table_at(event, "error")
                yield Failed("session", text(error, "type") or "error", text(error, "message"), NAME)
            case "session.status_idle" | "session.thread_status_idle" if is_own:
                stop = text(table_at(event, "stop_reason"), "type")
                if stop != "requires_action":
                    yield TurnEnded("done" if stop in {"", "end_turn"} else stop)
            case "session.thread_created" | "session.thread_status_idle" | "session.thread_status_terminated" if not is_own:
                yield from self._child(event, kind)
            case "session" | "session.updated":
                yield from self._configured(event)
            case "span.outcome_evaluation_end":
                # The grader is billed too, and its model is not named.
                yield ModelReplied((), usage=_managed_usage(table_at(event, "usage")), model="unknown", purpose="outcome evaluation")
            case "user.tool_confirmation":
                yield from self._confirmed(event)
            case _ if kind in _ANSWERS:
                yield from self._managed_result(event)
            case _:
                return

    def _managed_result(self, event: Json) -> Iterator[Body]:
        """The result of a call of this thread."""
        call_id = text(event, _ANSWERS[text(event, "type")])
        if call_id in self._tools:
            result = ToolResult(call_id, tuple(self._managed_parts(event)), error=event.get("is_error") is True)
            yield ToolReturned(result, self._tools[call_id])

    def _confirmed(self, event: Json) -> Iterator[Body]:
        call_id = text(event, "tool_use_id")
        if call_id not in self._tools:
            return
        if text(event, "result") == "allow":
            yield Permitted(call_id, self._tools[call_id], "user")
        elif text(event, "result") == "deny":
            yield ToolRefused(call_id, self._tools[call_id], "user", text(event, "deny_message"))

    def _child(self, event: Json, kind: str) -> Iterator[Body]:
        """The start or the end of a thread below this one. What it used is in its own events."""
        child = session_id(NAME, text(event, "session_thread_id"))
        if kind == "session.thread_created":
            yield ChildOpened(child, role=text(event, "agent_name"))
            return
        stop = text(table_at(event, "stop_reason"), "type") or "terminated"
        if stop != "requires_action":
            status = "done" if stop == "end_turn" else "failed"
            yield ChildEnded(child, status, "" if stop == "end_turn" else stop, cost_usd=None, children_usd=None)

    def _configured(self, event: Json) -> Iterator[Body]:
        """The title, the model and the instructions of a session, where they are stated first or have changed."""
        agent = table_at(event, "agent")
        if title := text(event, "title"):
            yield Titled(title, by=NAME)
        model = text(table_at(agent, "model"), "id")
        if model and model != self._model:
            previous, self._model = self._model, model
            yield ModelSwitched(model, previous)
        if system := text(agent, "system"):
            yield ContextStated(head=(Statement(f"{NAME}.system", system, "system"),))

    def _managed_parts(self, event: Json) -> Iterator[Part]:
        """The parts of a message or a result. Files that are named only by an id of the service stay in the line."""
        for block in tables_at(event, "content"):
            source, title = table_at(block, "source"), text(block, "title")
            match text(block, "type"), text(source, "type"):
                case "search_result", _:
                    yield Text("\n".join(words for words in (title, text(block, "source"), texts_of(block.get("content"))) if words))
                case "document", "text" if text(source, "data"):
                    yield Text(text(source, "data"))
                case "document", "url" if text(source, "url"):
                    yield Document("application/pdf", url=text(source, "url"), name=title)
                case "document", "base64" if part := blob_part(text(source, "media_type"), text(source, "data"), self._blobs, title):
                    yield part
                case "image", "url" if part := linked_part(text(source, "url"), self._blobs):
                    yield part
                case _:
                    yield from parts_of([block], self._blobs)


def _time(event: Json) -> int:
    return milliseconds(event.get("processed_at") or event.get("created_at"))


def _managed_usage(counts: Json) -> Usage:
    read, written = number(counts, "cache_read_input_tokens"), number(counts, "cache_creation_input_tokens")
    return Usage(number(counts, "input_tokens"), read, written, output=number(counts, "output_tokens"))


def _rest(event: Json) -> Json:
    """An event without its id, without the arguments of a call, and without a content that is text alone: the body has them."""
    content = event.get("content")
    blocks = content if isinstance(content, list) else []
    is_text = bool(blocks) and all(is_json(block) and block.keys() == {"type", "text"} for block in blocks)
    return without(event, "id", *(["input"] if text(event, "type") in _CALLS else []), *(["content"] if is_text else []))
