"""Converts the actions and observations of OpenHands' server."""

from collections.abc import Iterator

import msgspec
from msgspec import Raw

from palimpsest.core.events import (
    Body,
    ContextStated,
    Failed,
    ForeignNoted,
    ModelReplied,
    Statement,
    ToolReturned,
    ToolStarted,
    TurnEnded,
    UserSaid,
)
from palimpsest.core.items import Content, Part, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.foreign.openhands.events import first_text, images, summary_of
from palimpsest.foreign.reading.deferred import DeferredBody, DeferredFold, DeferredResult
from palimpsest.foreign.reading.files import rest_of
from palimpsest.foreign.reading.parts import call_of, chat_usage, milliseconds, parts_of, texts_of
from palimpsest.foreign.reading.transcript import ReadEvent
from palimpsest.wire.json_reading import Json, dump, is_json, table_at, tables_at, text

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


class ServerEvents:
    """One pass over the events of a conversation."""

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
            converted = list(self._events(event, index))
            if index >= start:
                yield from converted

    def _events(self, event: object, index: int) -> Iterator[ReadEvent]:
        if not is_json(event):
            yield ReadEvent(ForeignNoted("openhands"), 0, f"place-{index}", line=Raw(msgspec.json.encode(event)))
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
                parts: tuple[Part, ...] = (*parts_of(text(args, "content"), self._blobs), *images(args.get("image_urls"), self._blobs))
                yield _read_event(event, UserSaid(parts) if parts else ForeignNoted("openhands", (key,)), at, key, "content")
            case "condensation", _:
                yield ReadEvent(self._condensation(args), at, key, line=rest_of(event))
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
        parts = tuple(self._parts(event, args, response if call_id else {}))
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

    def _parts(self, event: Json, args: Json, response: Json) -> Iterator[Content]:
        message = table_at(next(iter(tables_at(response, "choices")), {}), "message")
        requests = tables_at(message, "tool_calls")
        reasoning = text(message, "reasoning_content")
        if reasoning:
            yield Thinking(reasoning)
        name = text(event, "action")
        reply_text = texts_of(message.get("content")) or first_text(args.get("thought"), args.get("final_thought"))
        if name == "message":
            reply_text = text(args, "content")
        if name == "finish":
            last = first_text(args.get("final_thought"), event.get("message"))
            reply_text = "\n\n".join(dict.fromkeys(each for each in (first_text(args.get("thought")), last) if each))
        if reply_text.strip():
            yield Text(reply_text, "assistant")
        for request in requests:
            function = table_at(request, "function")
            arguments = function.get("arguments")
            yield ToolCall(text(request, "id"), text(function, "name"), arguments if isinstance(arguments, str) else dump(arguments or {}))
        if not requests and name not in {"message", "finish"}:
            yield ToolCall("", name, dump({field: value for field, value in args.items() if field != "thought"}))

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
        shown = parts_of(content, self._blobs)
        is_error = kind in {"error", "user_rejected"} or event.get("success") is False
        parts = (*shown, *images(extras.get("image_urls"), self._blobs))
        body = ToolReturned(
            ToolResult(call if isinstance(call, str) else "", parts, error=is_error),
            text(metadata, "function_name") or kind,
            exit_code if type(exit_code) is int else None,
            (path,) if path else (),
        )
        return body if isinstance(call, str) else DeferredResult(self._replies[cause], call, body)

    def _condensation(self, args: Json) -> DeferredFold:
        listed, first, last = (args.get(f"forgotten_event{name}") for name in ("_ids", "s_start_id", "s_end_id"))
        if isinstance(listed, list):
            forgotten = [str(each) for each in listed]
        elif type(first) is int and type(last) is int:
            forgotten = [key for key in self._keys if key.isdigit() and first <= int(key) <= last]
        else:
            forgotten = []
        return DeferredFold("openhands", "condensation", [self._replies.get(key, key) for key in forgotten], summary_of(args))


def _without_response(event: Json) -> Json:
    """The event without the reply that caused it, which the action has."""
    metadata = {name: value for name, value in table_at(event, "tool_call_metadata").items() if name != "model_response"}
    return {**event, "tool_call_metadata": metadata} if "tool_call_metadata" in event else event


def _recalled_text(extras: Json) -> str:
    """What the program adds to a conversation from the repository and its notes."""
    texts = [text(extras, "repo_instructions"), text(extras, "additional_agent_instructions")]
    texts += [text(each, "content") for each in tables_at(extras, "microagent_knowledge")]
    return "\n\n".join(each for each in texts if each.strip())


def _read_event(event: Json, body: Body, at: int, key: str, *fields: str) -> ReadEvent:
    args = {name: value for name, value in table_at(event, "args").items() if name not in fields}
    stored = {**event, "args": args} if "args" in event else event
    return ReadEvent(body, at, key, line=rest_of(stored))
