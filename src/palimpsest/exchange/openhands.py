"""Reader of OpenHands sessions: a folder or document of events, from its server or its SDK."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from palimpsest.core.events import (
    Body,
    ContextStated,
    Failed,
    ForeignNoted,
    ModelReplied,
    SessionOpened,
    Statement,
    ToolRefused,
    ToolReturned,
    ToolStarted,
    TurnEnded,
    Usage,
    UserSaid,
)
from palimpsest.core.items import Content, Put, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.core.text import whole_number
from palimpsest.exchange.files import (
    GrowingDocument,
    changed,
    decoded,
    digest_of,
    document_in,
    head_of,
    not_a_document,
    raw_of,
    reason,
    rest_of,
    sources_below,
    starts_like_json,
    whole_lines,
    without,
)
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
    calls_of,
    chat_usage,
    linked_parts,
    milliseconds,
    parts_of,
    texts_of,
    thinking_of,
)
from palimpsest.wire.json_reading import Json, dump, is_json, number, table_at, tables_at, text

# Actions of the program itself, which no model asked for.
_INTERNAL_ACTIONS = {
    "recall",
    "change_agent_state",
    "pause",
    "resume",
    "null",
    "condensation_request",
    "loop_recovery",
    "agent_state_changed",
}
_BODY_FIELDS = ("thought", "reasoning_content", "thinking_blocks", "tool_call", "tool_call_id", "tool_name")


def _condensation(holder: Json, keys: Iterable[str]) -> DeferredFold:
    """The fold of the events with these keys into the summary of a condensation, if it has one."""
    summary = text(holder, "summary")
    return DeferredFold("openhands", "condensation", tuple(keys), (Put("summary", Text(summary)),) if summary else ())


def _first_text(*values: object) -> str:
    """The first non-empty text among some values; empty if there is none."""
    return next((value for value in values if isinstance(value, str) and value), "")


class ServerEvents:
    """One pass over the actions and observations of a conversation."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._model = ""
        self._keys: list[str] = []
        # By action: the id of its call or, if it has none, its index in the reply; and the key of that reply.
        self._calls: dict[str, str | int] = {}
        self._replies: dict[str, str] = {}
        self._responses: dict[str, str] = {}

    def convert(self, events: list[object], start: int) -> Iterator[ReadEvent]:
        """The events from index `start` on; those before were read already."""
        for index, event in enumerate(events):
            converted = list(self._openhands_events(event, index))
            if index >= start:
                yield from converted

    def _openhands_events(self, event: object, index: int) -> Iterator[ReadEvent]:
        if not is_json(event):
            yield ReadEvent(ForeignNoted("openhands"), 0, f"place-{index}", line=raw_of(event))
            return
        number = event.get("id")
        key = str(number) if type(number) is int else f"place-{index}"
        at = milliseconds(event.get("timestamp"))
        self._keys.append(key)
        if text(event, "observation"):
            body = self._observation(event, key)
            yield ReadEvent(
                body or ForeignNoted("openhands", (key,)), at, key, line=rest_of(_without_response(event), *(("content",) if body else ()))
            )
            return
        args = table_at(event, "args")
        match text(event, "action"), text(event, "source"):
            case "system", _ if text(args, "content"):
                yield _read_event(
                    event, ContextStated(head=(Statement("openhands.system", text(args, "content"), "system"),)), at, key, "content"
                )
            case "message", "user":
                parts = (*parts_of(text(args, "content"), self._blobs), *linked_parts(args, self._blobs))
                yield _read_event(event, UserSaid(parts) if parts else ForeignNoted("openhands", (key,)), at, key, "content")
            case "condensation", _:
                yield ReadEvent(_condensation(args, self._forgotten(args)), at, key, line=rest_of(event))
            case name, "agent" if name and name not in _INTERNAL_ACTIONS:
                yield from self._action(event, args, at, key)
            case _:
                yield _read_event(event, ForeignNoted("openhands", (key,)), at, key)

    def _action(self, event: Json, args: Json, at: int, key: str) -> Iterator[ReadEvent]:
        metadata = table_at(event, "tool_call_metadata")
        response = table_at(metadata, "model_response")
        name = text(event, "action")
        call_id, response_id = text(metadata, "tool_call_id"), text(response, "id")
        if name == "finish":
            # The program shows a model only the text of a last action, which has no result.
            call_id = ""
        elif call_id and response_id in self._responses:
            self._calls[key], self._replies[key] = call_id, self._responses[response_id]
            yield _read_event(event, ToolStarted(call_id, text(metadata, "function_name")), at, key)
            return
        self._model = text(response, "model") or self._model
        parts = tuple(self._openhands_parts(event, args, response if call_id else {}))
        self._calls[key] = call_id or (len(parts) - 1 if parts and isinstance(parts[-1], ToolCall) else "")
        self._replies[key] = key
        if call_id and response_id:
            self._responses[response_id] = key
        yield ReadEvent(call_of(self._model), milliseconds(response.get("created")) or at, f"{key}/call")
        choice = next(iter(tables_at(response, "choices")), {})
        body = ModelReplied(
            parts, usage=chat_usage(table_at(response, "usage")), stop=text(choice, "finish_reason"), model=self._model, message=response_id
        )
        if name == "finish":
            yield ReadEvent(body, at, f"{key}/reply")
            yield _read_event(event, TurnEnded(), at, key)
        else:
            yield _read_event(event, body, at, key, "thought")

    def _openhands_parts(self, event: Json, args: Json, response: Json) -> Iterator[Content]:
        message = table_at(next(iter(tables_at(response, "choices")), {}), "message")
        calls = list(calls_of(message))
        reasoning = text(message, "reasoning_content")
        if reasoning:
            yield Thinking(reasoning)
        name = text(event, "action")
        reply_text = texts_of(message.get("content")) or _first_text(args.get("thought"), args.get("final_thought"))
        if name == "message":
            reply_text = text(args, "content")
        if name == "finish":
            last = _first_text(args.get("final_thought"), event.get("message"))
            reply_text = "\n\n".join(dict.fromkeys(each for each in (text(args, "thought"), last) if each))
        if reply_text.strip():
            yield Text(reply_text, "assistant")
        yield from calls
        if not calls and name not in {"message", "finish"}:
            yield ToolCall("", name, dump(without(args, "thought")))

    def _observation(self, event: Json, key: str) -> Body | DeferredBody | None:
        extras = table_at(event, "extras")
        content = text(event, "content")
        kind = text(event, "observation")
        if kind == "recall":
            recalled = _recalled_text(extras)
            return ContextStated((Statement("openhands.recall", recalled, ref=key),)) if recalled else None
        cause = str(event.get("cause"))
        metadata = table_at(event, "tool_call_metadata")
        call = text(metadata, "tool_call_id") or self._calls.get(cause, "")
        if kind in _INTERNAL_ACTIONS or call == "":
            return Failed("action", "error", content, "openhands") if kind == "error" else None
        exit_code = table_at(extras, "metadata").get("exit_code", extras.get("exit_code"))
        path = text(extras, "path")
        is_error = kind in {"error", "user_rejected"} or event.get("success") is False
        parts = (*parts_of(content, self._blobs), *linked_parts(extras, self._blobs))
        body = ToolReturned(
            ToolResult(call if isinstance(call, str) else "", parts, error=is_error),
            text(metadata, "function_name") or kind,
            exit_code if type(exit_code) is int else None,
            (path,) if path else (),
        )
        return body if isinstance(call, str) else DeferredResult(self._replies[cause], call, body)

    def _forgotten(self, args: Json) -> list[str]:
        """Keys of the events that a condensation forgets."""
        listed, first, last = (args.get(f"forgotten_event{name}") for name in ("_ids", "s_start_id", "s_end_id"))
        forgotten = [str(each) for each in listed] if isinstance(listed, list) else []
        if not isinstance(listed, list) and type(first) is int and type(last) is int:
            forgotten = [key for key in self._keys if (number := whole_number(key)) is not None and first <= number <= last]
        return [self._replies.get(key, key) for key in forgotten]


def _without_response(event: Json) -> Json:
    """The event without the reply that caused it, which the action has."""
    metadata = without(table_at(event, "tool_call_metadata"), "model_response")
    return {**event, "tool_call_metadata": metadata} if "tool_call_metadata" in event else event


def _recalled_text(extras: Json) -> str:
    """What the program adds to a conversation from the repository and its notes."""
    texts = [text(extras, "repo_instructions"), text(extras, "additional_agent_instructions")]
    texts += [text(each, "content") for each in tables_at(extras, "microagent_knowledge")]
    return "\n\n".join(each for each in texts if each.strip())


def _read_event(event: Json, body: Body, at: int, key: str, *fields: str) -> ReadEvent:
    stored = {**event, "args": without(table_at(event, "args"), *fields)} if "args" in event else event
    return ReadEvent(body, at, key, line=rest_of(stored))


class SdkEvents:
    """One pass over the events of a conversation; `state` is the program's state file."""

    def __init__(self, state: Json, blobs: Blobs) -> None:
        self._blobs = blobs
        self._model = text(table_at(table_at(state, "agent"), "llm"), "model")
        self._usage = _usage_of(state)
        self._replies: dict[str, str] = {}

    def convert(self, events: list[object], start: int) -> Iterator[ReadEvent]:
        """The events from index `start` on; those before were read already."""
        index = 0
        while index < len(events):
            group = self._group(events, index, start)
            converted = list(self._openhands_events(group, index))
            if index >= start:
                yield from converted
            index += len(group)

    def _group(self, events: list[object], index: int, start: int) -> list[object]:
        """The actions of one reply, or a single event; a group does not span `start`."""
        first = events[index]
        response = text(first, "llm_response_id") if is_json(first) and text(first, "kind") == "ActionEvent" else ""
        stop = index + 1
        while response and stop < len(events) and stop != start:
            each = events[stop]
            if not is_json(each) or text(each, "kind") != "ActionEvent" or text(each, "llm_response_id") != response:
                break
            stop += 1
        return events[index:stop]

    def _openhands_events(self, group: list[object], index: int) -> Iterator[ReadEvent]:
        event = group[-1]
        if not is_json(event) or not text(event, "id"):
            yield ReadEvent(ForeignNoted("openhands"), 0, f"place-{index}", line=raw_of(event))
            return
        key, at = text(event, "id"), milliseconds(event.get("timestamp"))
        match text(event, "kind"), text(event, "source"):
            case "ActionEvent", _:
                yield from self._actions([each for each in group if is_json(each)], at, key)
            case "MessageEvent", "agent":
                message = table_at(event, "llm_message")
                contents: tuple[Content, ...] = (*thinking_of(message, self._model), *_assistant(message.get("content")))
                yield from self._openhands_reply(event, contents, at, key, "llm_message")
            case "MessageEvent", source:
                yield from self._openhands_message(event, source, at, key)
            case "SystemPromptEvent", _:
                prompt = texts_of([event.get("system_prompt")])
                dynamic = texts_of([event.get("dynamic_context")])
                head = (
                    Statement("openhands.system", prompt, "system"),
                    *((Statement("openhands.context", dynamic, "system"),) if dynamic else ()),
                )
                yield ReadEvent(ContextStated(head=head), at, key, line=rest_of(event, "system_prompt", "dynamic_context"))
            case "Condensation", _:
                forgotten_ids = event.get("forgotten_event_ids")
                forgotten = [str(each) for each in forgotten_ids] if isinstance(forgotten_ids, list) else []
                fold = _condensation(event, (self._replies.get(each, each) for each in forgotten))
                yield ReadEvent(fold, at, key, line=rest_of(event, "summary"))
            case _:
                yield from self._result_events(event, at, key)

    def _openhands_message(self, event: Json, source: str, at: int, key: str) -> Iterator[ReadEvent]:
        parts = parts_of(table_at(event, "llm_message").get("content"), self._blobs)
        added = texts_of(event.get("extended_content"))
        extended = ContextStated((Statement("openhands.context", added, ref=key),)) if added.strip() else None
        body: Body
        if source == "user" and parts:
            body = UserSaid(parts)
        else:
            message_text = "\n".join(part.text for part in parts if isinstance(part, Text))
            body = (
                ContextStated((Statement(f"openhands.{source}", message_text, ref=key),))
                if message_text.strip()
                else ForeignNoted("openhands", (key,))
            )
        if extended is not None:
            yield ReadEvent(body, at, f"{key}/said")
            body = extended
        yield ReadEvent(body, at, key, line=rest_of(event, "llm_message", "extended_content"))

    def _actions(self, events: list[Json], at: int, key: str) -> Iterator[ReadEvent]:
        first = events[0]
        parts: list[Content] = [*thinking_of(first, self._model), *_assistant(first.get("thought"))]
        for event in events:
            call = table_at(event, "tool_call")
            function = table_at(call, "function") or call
            call_id, tool = text(event, "tool_call_id") or text(call, "id"), text(event, "tool_name") or text(function, "name")
            parts.append(ToolCall(call_id, tool, arguments_of(function.get("arguments") or table_at(event, "action"))))
            self._replies[text(event, "id")] = key
        last = events[-1]
        earlier = [without(event, *_BODY_FIELDS) for event in events[:-1]]
        yield from self._openhands_reply({**last, "earlier": earlier} if earlier else last, tuple(parts), at, key, *_BODY_FIELDS)

    def _openhands_reply(self, event: Json, parts: tuple[Content, ...], at: int, key: str, *body_fields: str) -> Iterator[ReadEvent]:
        response = text(event, "llm_response_id")
        yield ReadEvent(call_of(self._model), at, f"{key}/call")
        calls = any(isinstance(part, ToolCall) for part in parts)
        # The usage of a reply counts once, however many events it has.
        usage = self._usage.pop(response, Usage())
        body = ModelReplied(parts, usage=usage, stop="tool_use" if calls else "end_turn", model=self._model, message=response)
        yield ReadEvent(body, at, key, line=rest_of(event, "id", *body_fields))

    def _result_events(self, event: Json, at: int, key: str) -> Iterator[ReadEvent]:
        call_id, tool = text(event, "tool_call_id"), text(event, "tool_name")
        match text(event, "kind"):
            case "ObservationEvent" if call_id:
                observation = table_at(event, "observation")
                content = observation.get("content") or _first_text(*(observation.get(name) for name in ("output", "error", "message")))
                parts = (*parts_of(content, self._blobs), *parts_of(event.get("extended_content"), self._blobs))
                exit_code = observation.get("exit_code", table_at(observation, "metadata").get("exit_code"))
                path = text(observation, "path")
                result = ToolResult(call_id, parts, error=observation.get("is_error") is True)
                body: Body = ToolReturned(result, tool, exit_code if type(exit_code) is int else None, (path,) if path else ())
                stored = {**event, "observation": without(observation, "content")}
                yield ReadEvent(body, at, key, line=rest_of(stored, "extended_content"))
            case "UserRejectObservation" if call_id:
                why, by = text(event, "rejection_reason"), text(event, "rejection_source") or "user"
                yield ReadEvent(ToolRefused(call_id, tool, by, why), at, f"{key}/refused")
                result = ToolResult(call_id, parts_of(why, self._blobs), error=True)
                yield ReadEvent(ToolReturned(result, tool), at, key, line=rest_of(event))
            case "AgentErrorEvent" if call_id:
                result = ToolResult(call_id, parts_of(text(event, "error"), self._blobs), error=True)
                yield ReadEvent(ToolReturned(result, tool), at, key, line=rest_of(event, "error"))
            case "ConversationErrorEvent" | "AgentErrorEvent":
                error_text = text(event, "detail") or text(event, "error")
                yield ReadEvent(Failed("turn", text(event, "code") or "error", error_text, "openhands"), at, key, line=rest_of(event))
            case _:
                yield ReadEvent(ForeignNoted("openhands", (key,)), at, key, line=rest_of(event))


def _assistant(content: object) -> tuple[Text, ...]:
    extended = texts_of(content)
    return (Text(extended, "assistant"),) if extended.strip() else ()


def _usage_of(state: Json) -> dict[str, Usage]:
    """The usage of each reply by its id, from the program's state."""
    usage_by_reply: dict[str, Usage] = {}
    for metrics in table_at(table_at(state, "stats"), "usage_to_metrics").values():
        for each in tables_at(metrics, "token_usages") if is_json(metrics) else []:
            cached, written = number(each, "cache_read_tokens"), number(each, "cache_write_tokens")
            uncached = max(0, number(each, "prompt_tokens") - cached - written)
            usage_by_reply[text(each, "response_id")] = Usage(
                uncached, cached, written, output=number(each, "completion_tokens"), reasoning=number(each, "reasoning_tokens")
            )
    usage_by_reply.pop("", None)
    return usage_by_reply


_EVENT_FILE = re.compile(r"(?:event-)?(\d+)(?:-[0-9a-f-]+)?\.json")
_OUTPUT = "output.jsonl"
_LIST_FIELDS = ("trajectory", "history", "events")


class OpenhandsFormat:
    """OpenHands 0.x (actions and observations) and its SDK 1.x (events with a kind)."""

    name = "openhands"

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The folders of the server's and of the SDK's conversations."""
        configured = environment.get("OPENHANDS_CONVERSATIONS_DIR")
        folder = home / ".openhands"
        return (folder / "sessions", Path(configured) if configured else folder / "conversations")

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """One session for each folder of events, and for each document that lists events."""
        folders: set[Path] = set()

        def sources_in(file: Path) -> Iterator[TranscriptSource]:
            if file.parent.name == "events" and _EVENT_FILE.fullmatch(file.name):
                if file.parent not in folders and _is_event(decoded(head_of(file, 1 << 26))):
                    folders.add(file.parent)
                    stamp = f"{sum(1 for _ in file.parent.iterdir())}-{file.parent.stat().st_mtime_ns}"
                    yield TranscriptSource(self.name, str(file.parent), file.parent.parent.name, stamp)
            elif file.name.endswith(".jsonl"):
                yield from _outputs_in(file)
            elif starts_like_json(file, b'"source"', b'"timestamp"') and _events_in(document_in(file)) is not None:
                yield TranscriptSource(self.name, str(file), file.stem, changed(file))

        return sources_below(path, (".json", _OUTPUT), sources_in)

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The events of a conversation in order."""
        path = Path(source.path)
        events: list[object] = []
        state: Json = {}
        if path.is_dir():
            for found in _events_in_folder(path):
                if isinstance(found, ReadProblem):
                    yield found
                else:
                    events.append(found)
            state_file = path.parent / "base_state.json"
            value = document_in(state_file) if state_file.is_file() else None
            state = value if is_json(value) else {}
        else:
            value = _output(source) if path.name.endswith(".jsonl") else document_in(path)
            listed = _events_in(value)
            state = _state_of(value) if path.name.endswith(".jsonl") and is_json(value) else state
            if listed is None:
                yield not_a_document(path)
                return
            events = listed
        growing = GrowingDocument(position)
        start = growing.read_before(events)
        json_events = [event for event in events if is_json(event)]
        converter = SdkEvents(state, blobs) if any("kind" in event for event in json_events) else ServerEvents(blobs)
        if not start:
            yield _openhands_opening(source, json_events, state)
        yield from converter.convert(events, start)
        yield growing.position(events)


def _outputs_in(path: Path) -> Iterator[TranscriptSource]:
    """The runs of an evaluation, one on each line, with the offset of the line in their stamp."""
    if b'"instance_id"' not in head_of(path):
        return
    for line in whole_lines(path):
        value = decoded(line.data)
        if is_json(value) and (instance := text(value, "instance_id")) and _events_in(value) is not None:
            yield TranscriptSource("openhands", str(path), f"{path.parent.name}.{instance}", f"{line.start}-{digest_of(line.data)}")


def _output(source: TranscriptSource) -> object:
    """The run on the line of a source."""
    start = source.changed.partition("-")[0]
    line = next(whole_lines(Path(source.path), whole_number(start) or 0), None)
    return None if line is None else decoded(line.data)


def _state_of(run: Json) -> Json:
    """What an evaluation says of a run, in the shape of the state file of a conversation."""
    llm = table_at(table_at(run, "metadata"), "llm_config") or table_at(table_at(run, "metadata"), "llm")
    return {"agent": {"llm": {"model": text(llm, "model")}, "kind": text(table_at(run, "metadata"), "agent_class")}}


def _is_event(value: object) -> bool:
    if not is_json(value) or not isinstance(value.get("timestamp"), str):
        return False
    if "kind" in value:
        return isinstance(value["kind"], str) and isinstance(value.get("id"), str) and isinstance(value.get("source"), str)
    return isinstance(value.get("action"), str) or isinstance(value.get("observation"), str)


def _events_in(document: object) -> list[object] | None:
    """The events of a document; None if it lists something else."""
    if is_json(document):
        document = next((document[name] for name in _LIST_FIELDS if isinstance(document.get(name), list)), None)
    if not isinstance(document, list) or not document:
        return None
    # The first evaluations wrote each action together with its observation.
    events = [part for each in document for part in (each if isinstance(each, list) else [each])]
    return events if all(_is_event(each) for each in events[:8]) else None


def _events_in_folder(folder: Path) -> Iterator[object | ReadProblem]:
    """The events of a folder by number; a last one that is still being written is left out."""
    numbered = [(int(found[1]), file) for file in folder.iterdir() if (found := _EVENT_FILE.fullmatch(file.name))]
    files = [file for _, file in sorted(numbered)]
    for file in files:
        try:
            value = decoded(head_of(file, 1 << 30))
        except OSError as error:
            yield ReadProblem(str(file), reason(error))
            continue
        if value is not None:
            yield value
        elif file is not files[-1]:
            yield ReadProblem(str(file), "this is not a complete JSON document")


def _openhands_opening(source: TranscriptSource, events: list[Json], state: Json) -> ReadEvent:
    agent = table_at(state, "agent")
    first = events[0] if events else {}
    replies = (table_at(table_at(event, "tool_call_metadata"), "model_response") for event in events)
    model = text(table_at(agent, "llm"), "model") or next((name for reply in replies if (name := text(reply, "model"))), "")
    working_dir = text(table_at(state, "workspace"), "working_dir")
    version = text(table_at(first, "args"), "openhands_version")
    meta = {name: value for name, value in (("version", version), ("agent", text(agent, "kind"))) if value}
    opened = SessionOpened(source.session, working_dir, "openhands", model=model, meta=meta)
    return ReadEvent(opened, milliseconds(first.get("timestamp")), "opened", line=rest_of({"id": state.get("id")} if state else {}))
