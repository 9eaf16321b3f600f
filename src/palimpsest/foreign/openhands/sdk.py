"""Converts the events of OpenHands' SDK."""

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
    ToolRefused,
    ToolReturned,
    Usage,
    UserSaid,
)
from palimpsest.core.items import Content, Signature, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.foreign.openhands.events import first_text, message_parts, source_of, summary_of
from palimpsest.foreign.reading.deferred import DeferredFold
from palimpsest.foreign.reading.files import rest_of
from palimpsest.foreign.reading.parts import call_of, milliseconds, provider_of, texts_of
from palimpsest.foreign.reading.transcript import ReadEvent
from palimpsest.wire.json_reading import Json, dump, is_json, number, table_at, tables_at, text


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
            converted = list(self._events(group, index))
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

    def _events(self, group: list[object], index: int) -> Iterator[ReadEvent]:
        event = group[-1]
        if not is_json(event) or not text(event, "id"):
            yield ReadEvent(ForeignNoted("openhands"), 0, f"place-{index}", line=Raw(msgspec.json.encode(event)))
            return
        key, at = text(event, "id"), milliseconds(event.get("timestamp"))
        match text(event, "kind"), source_of(event):
            case "ActionEvent", _:
                yield from self._actions([each for each in group if is_json(each)], at, key)
            case "MessageEvent", "agent":
                message = table_at(event, "llm_message")
                parts: tuple[Content, ...] = (*self._thinking(message), *_assistant(message.get("content")))
                yield from self._reply(event, parts, at, key, "llm_message")
            case "MessageEvent", source:
                yield from self._message(event, source, at, key)
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
                fold = DeferredFold("openhands", "condensation", (self._replies.get(each, each) for each in forgotten), summary_of(event))
                yield ReadEvent(fold, at, key, line=rest_of(event, "summary"))
            case _:
                yield from self._result_events(event, at, key)

    def _message(self, event: Json, source: str, at: int, key: str) -> Iterator[ReadEvent]:
        parts = message_parts(table_at(event, "llm_message").get("content"), self._blobs)
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
        parts: list[Content] = [*self._thinking(first), *_assistant(first.get("thought"))]
        for event in events:
            call = table_at(event, "tool_call")
            function = table_at(call, "function") or call
            arguments = function.get("arguments")
            args = arguments if isinstance(arguments, str) else dump(arguments or table_at(event, "action"))
            parts.append(
                ToolCall(text(event, "tool_call_id") or text(call, "id"), text(event, "tool_name") or text(function, "name"), args)
            )
            self._replies[text(event, "id")] = key
        last = events[-1]
        earlier = [{name: value for name, value in event.items() if name not in _BODY_FIELDS} for event in events[:-1]]
        yield from self._reply({**last, "earlier": earlier} if earlier else last, tuple(parts), at, key, *_BODY_FIELDS)

    def _reply(self, event: Json, parts: tuple[Content, ...], at: int, key: str, *body_fields: str) -> Iterator[ReadEvent]:
        response = text(event, "llm_response_id")
        yield ReadEvent(call_of(self._model), at, f"{key}/call")
        calls = any(isinstance(part, ToolCall) for part in parts)
        # The usage of a reply counts once, however many events it has.
        usage = self._usage.pop(response, Usage())
        body = ModelReplied(parts, usage=usage, stop="tool_use" if calls else "end_turn", model=self._model, message=response)
        yield ReadEvent(body, at, key, line=rest_of(event, "id", *body_fields))

    def _thinking(self, holder: Json) -> Iterator[Thinking]:
        blocks = tables_at(holder, "thinking_blocks")
        for block in blocks:
            thinking, signature = text(block, "thinking"), text(block, "signature")
            seal = Signature(provider_of(self._model), self._model.rpartition("/")[2], signature) if signature else None
            if thinking or seal is not None:
                yield Thinking(thinking, seal, "whole" if thinking else "sealed")
        if not blocks and text(holder, "reasoning_content"):
            yield Thinking(text(holder, "reasoning_content"))

    def _result_events(self, event: Json, at: int, key: str) -> Iterator[ReadEvent]:
        call_id, tool = text(event, "tool_call_id"), text(event, "tool_name")
        match text(event, "kind"):
            case "ObservationEvent" if call_id:
                observation = table_at(event, "observation")
                content = observation.get("content")
                parts = message_parts(
                    content or first_text(observation.get("output"), observation.get("error"), observation.get("message")), self._blobs
                )
                parts += message_parts(event.get("extended_content"), self._blobs)
                exit_code = observation.get("exit_code", table_at(observation, "metadata").get("exit_code"))
                path = text(observation, "path")
                result = ToolResult(call_id, parts, error=observation.get("is_error") is True)
                body: Body = ToolReturned(result, tool, exit_code if type(exit_code) is int else None, (path,) if path else ())
                stored = {**event, "observation": {name: value for name, value in observation.items() if name != "content"}}
                yield ReadEvent(body, at, key, line=rest_of(stored, "extended_content"))
            case "UserRejectObservation" if call_id:
                why, by = text(event, "rejection_reason"), text(event, "rejection_source") or "user"
                yield ReadEvent(ToolRefused(call_id, tool, by, why), at, f"{key}/refused")
                yield ReadEvent(
                    ToolReturned(ToolResult(call_id, (Text(why),) if why else (), error=True), tool), at, key, line=rest_of(event)
                )
            case "AgentErrorEvent" if call_id:
                error_text = text(event, "error")
                result = ToolResult(call_id, (Text(error_text),) if error_text else (), error=True)
                yield ReadEvent(ToolReturned(result, tool), at, key, line=rest_of(event, "error"))
            case "ConversationErrorEvent" | "AgentErrorEvent":
                error_text = text(event, "detail") or text(event, "error")
                yield ReadEvent(Failed("turn", text(event, "code") or "error", error_text, "openhands"), at, key, line=rest_of(event))
            case _:
                yield ReadEvent(ForeignNoted("openhands", (key,)), at, key, line=rest_of(event))


_BODY_FIELDS = ("thought", "reasoning_content", "thinking_blocks", "tool_call", "tool_call_id", "tool_name")


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
