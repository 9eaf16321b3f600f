"""From the events of OpenHands' SDK to facts of ours."""

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
from palimpsest.foreign.openhands.events import shown_parts, source_of, summary_of, words
from palimpsest.foreign.reading.files import rest_of
from palimpsest.foreign.reading.forgetting import Forgetting
from palimpsest.foreign.reading.parts import call_of, milliseconds, provider_of, texts_of
from palimpsest.foreign.reading.transcript import Told
from palimpsest.wire.json_reading import Json, dump, is_json, number, table_at, tables_at, text


class SdkEvents:
    """One pass over the events of a conversation; `state` is what the program keeps beside them."""

    def __init__(self, state: Json, blobs: Blobs) -> None:
        self._blobs = blobs
        self._model = text(table_at(table_at(state, "agent"), "llm"), "model")
        self._usage = _usage_of(state)
        self._replies: dict[str, str] = {}

    def tell(self, events: list[object], start: int) -> Iterator[Told]:
        """The facts of the events from `start` on; those before it were told already."""
        place = 0
        while place < len(events):
            group = self._group(events, place, start)
            facts = list(self._facts(group, place))
            if place >= start:
                yield from facts
            place += len(group)

    def _group(self, events: list[object], place: int, start: int) -> list[object]:
        """The actions of one reply, or a single event; what was told already is a group of its own."""
        first = events[place]
        response = text(first, "llm_response_id") if is_json(first) and text(first, "kind") == "ActionEvent" else ""
        stop = place + 1
        while response and stop < len(events) and stop != start:
            each = events[stop]
            if not is_json(each) or text(each, "kind") != "ActionEvent" or text(each, "llm_response_id") != response:
                break
            stop += 1
        return events[place:stop]

    def _facts(self, group: list[object], place: int) -> Iterator[Told]:
        event = group[-1]
        if not is_json(event) or not text(event, "id"):
            yield Told(ForeignNoted("openhands"), 0, f"place-{place}", line=Raw(msgspec.json.encode(event)))
            return
        key, at = text(event, "id"), milliseconds(event.get("timestamp"))
        match text(event, "kind"), source_of(event):
            case "ActionEvent", _:
                yield from self._actions([each for each in group if is_json(each)], at, key)
            case "MessageEvent", "agent":
                message = table_at(event, "llm_message")
                parts: tuple[Content, ...] = (*self._thoughts(message), *_assistant(message.get("content")))
                yield from self._reply(event, parts, at, key, "llm_message")
            case "MessageEvent", who:
                yield from self._message(event, who, at, key)
            case "SystemPromptEvent", _:
                prompt = texts_of([event.get("system_prompt")])
                more = texts_of([event.get("dynamic_context")])
                head = (
                    Statement("openhands.system", prompt, "system"),
                    *((Statement("openhands.context", more, "system"),) if more else ()),
                )
                yield Told(ContextStated(head=head), at, key, line=rest_of(event, "system_prompt", "dynamic_context"))
            case "Condensation", _:
                given = event.get("forgotten_event_ids")
                gone = [str(each) for each in given] if isinstance(given, list) else []
                forgetting = Forgetting("openhands", "condensation", (self._replies.get(each, each) for each in gone), summary_of(event))
                yield Told(forgetting, at, key, line=rest_of(event, "summary"))
            case _:
                yield from self._answer(event, at, key)

    def _message(self, event: Json, who: str, at: int, key: str) -> Iterator[Told]:
        parts = shown_parts(table_at(event, "llm_message").get("content"), self._blobs)
        added = texts_of(event.get("extended_content"))
        said = ContextStated((Statement("openhands.context", added, ref=key),)) if added.strip() else None
        body: Body
        if who == "user" and parts:
            body = UserSaid(parts)
        else:
            told = "\n".join(part.text for part in parts if isinstance(part, Text))
            body = ContextStated((Statement(f"openhands.{who}", told, ref=key),)) if told.strip() else ForeignNoted("openhands", (key,))
        if said is not None:
            yield Told(body, at, f"{key}/said")
            body = said
        yield Told(body, at, key, line=rest_of(event, "llm_message", "extended_content"))

    def _actions(self, events: list[Json], at: int, key: str) -> Iterator[Told]:
        first = events[0]
        parts: list[Content] = [*self._thoughts(first), *_assistant(first.get("thought"))]
        for event in events:
            call = table_at(event, "tool_call")
            function = table_at(call, "function") or call
            given = function.get("arguments")
            args = given if isinstance(given, str) else dump(given or table_at(event, "action"))
            parts.append(
                ToolCall(text(event, "tool_call_id") or text(call, "id"), text(event, "tool_name") or text(function, "name"), args)
            )
            self._replies[text(event, "id")] = key
        last = events[-1]
        earlier = [{name: value for name, value in event.items() if name not in _SAID} for event in events[:-1]]
        yield from self._reply({**last, "earlier": earlier} if earlier else last, tuple(parts), at, key, *_SAID)

    def _reply(self, event: Json, parts: tuple[Content, ...], at: int, key: str, *said: str) -> Iterator[Told]:
        response = text(event, "llm_response_id")
        yield Told(call_of(self._model), at, f"{key}/call")
        calls = any(isinstance(part, ToolCall) for part in parts)
        # Every reply counts once, however many events it became.
        usage = self._usage.pop(response, Usage())
        body = ModelReplied(parts, usage=usage, stop="tool_use" if calls else "end_turn", model=self._model, message=response)
        yield Told(body, at, key, line=rest_of(event, "id", *said))

    def _thoughts(self, holder: Json) -> Iterator[Thinking]:
        blocks = tables_at(holder, "thinking_blocks")
        for block in blocks:
            thought, sealed = text(block, "thinking"), text(block, "signature")
            seal = Signature(provider_of(self._model), self._model.rpartition("/")[2], sealed) if sealed else None
            if thought or seal is not None:
                yield Thinking(thought, seal, "whole" if thought else "sealed")
        if not blocks and text(holder, "reasoning_content"):
            yield Thinking(text(holder, "reasoning_content"))

    def _answer(self, event: Json, at: int, key: str) -> Iterator[Told]:
        call_id, tool = text(event, "tool_call_id"), text(event, "tool_name")
        match text(event, "kind"):
            case "ObservationEvent" if call_id:
                seen = table_at(event, "observation")
                content = seen.get("content")
                parts = shown_parts(content or words(seen.get("output"), seen.get("error"), seen.get("message")), self._blobs)
                parts += shown_parts(event.get("extended_content"), self._blobs)
                code = seen.get("exit_code", table_at(seen, "metadata").get("exit_code"))
                path = text(seen, "path")
                result = ToolResult(call_id, parts, error=seen.get("is_error") is True)
                body: Body = ToolReturned(result, tool, code if type(code) is int else None, (path,) if path else ())
                left = {**event, "observation": {name: value for name, value in seen.items() if name != "content"}}
                yield Told(body, at, key, line=rest_of(left, "extended_content"))
            case "UserRejectObservation" if call_id:
                why, by = text(event, "rejection_reason"), text(event, "rejection_source") or "user"
                yield Told(ToolRefused(call_id, tool, by, why), at, f"{key}/refused")
                yield Told(ToolReturned(ToolResult(call_id, (Text(why),) if why else (), error=True), tool), at, key, line=rest_of(event))
            case "AgentErrorEvent" if call_id:
                fault = text(event, "error")
                result = ToolResult(call_id, (Text(fault),) if fault else (), error=True)
                yield Told(ToolReturned(result, tool), at, key, line=rest_of(event, "error"))
            case "ConversationErrorEvent" | "AgentErrorEvent":
                fault = text(event, "detail") or text(event, "error")
                yield Told(Failed("turn", text(event, "code") or "error", fault, "openhands"), at, key, line=rest_of(event))
            case _:
                yield Told(ForeignNoted("openhands", (key,)), at, key, line=rest_of(event))


_SAID = ("thought", "reasoning_content", "thinking_blocks", "tool_call", "tool_call_id", "tool_name")


def _assistant(content: object) -> tuple[Text, ...]:
    said = texts_of(content)
    return (Text(said, "assistant"),) if said.strip() else ()


def _usage_of(state: Json) -> dict[str, Usage]:
    """The tokens of each reply, which the program keeps beside the events."""
    found: dict[str, Usage] = {}
    for metrics in table_at(table_at(state, "stats"), "usage_to_metrics").values():
        for each in tables_at(metrics, "token_usages") if is_json(metrics) else []:
            cached, written = number(each, "cache_read_tokens"), number(each, "cache_write_tokens")
            fresh = max(0, number(each, "prompt_tokens") - cached - written)
            found[text(each, "response_id")] = Usage(
                fresh, cached, written, output=number(each, "completion_tokens"), reasoning=number(each, "reasoning_tokens")
            )
    found.pop("", None)
    return found
