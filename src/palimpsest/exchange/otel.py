"""Exports a session as spans of OpenTelemetry: one file of OTLP in JSON, with the names that its conventions give to generative AI."""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Final, TypeAlias

import msgspec

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import (
    TURN,
    CallStarted,
    ContextStated,
    EditUndone,
    Event,
    Failed,
    Interrupted,
    ModelReplied,
    ToolReturned,
    ToolStarted,
    Usage,
    ViewEdited,
    items_of,
)
from palimpsest.core.items import Content, Item, Text, Thinking, ToolCall, ToolResult, text_of
from palimpsest.core.ledger import LedgerProjection
from palimpsest.core.log import Log
from palimpsest.core.spending import total_of
from palimpsest.exchange.secrets import Clean, as_is, clean_text
from palimpsest.wire.json_reading import Json, dump, is_json, number
from palimpsest.wire.media import Fetch, no_blobs
from palimpsest.wire.models import CARDS, ModelCard, find_card

_PROVIDERS: Final = {"anthropic": "anthropic", "openai": "openai", "xai": "x_ai", "deepseek": "deepseek", "google": "gcp.gemini"}
# Kinds of spans and the code of a status, as OTLP numbers them.
_INTERNAL, _CLIENT, _ERROR = 1, 3, 2
_NANOSECONDS = "000000"

Attribute: TypeAlias = str | int | float | bool | list[str] | None
"""The value of an attribute; one that is `None` is not known, and left out."""


def write_otel(
    log: Log,
    seq: int | None = None,
    *,
    cards: Iterable[ModelCard] = CARDS,
    content: bool = False,
    fetch: Fetch = no_blobs,
    clean: Clean = as_is,
) -> Iterator[bytes]:
    """The spans of all calls of a log up to event `seq`, also of those on other branches: they have cost money too.

    With `content` they hold what was said, called and returned; each attribute has what is new since the call before. `clean` is applied
    to every text. Calls of a session that this one was forked from are in the spans of that one.
    """
    last = log.tip if seq is None else seq
    spans = _Spans(log, tuple(cards), fetch if content else None, clean)
    yield b'{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"palimpsest"}}]},'
    yield b'"scopeSpans":[{"scope":{"name":"palimpsest"},"spans":['
    for event in log.reader.run(log.reader.first, last):
        for span in spans.spans_of(event):
            yield msgspec.json.encode(span) + b",\n"
    for span in spans.open_calls():
        yield msgspec.json.encode(span) + b",\n"
    yield msgspec.json.encode(spans.root()) + b"]}]}]}\n"


class _Spans:
    """One pass over the events of a log."""

    def __init__(self, log: Log, cards: tuple[ModelCard, ...], fetch: Fetch | None, clean: Clean) -> None:
        self._opened, self._at = log.opened, log.reader.opened.at
        self._session, self._cards, self._fetch, self._clean = log.session, cards, fetch, clean
        self._end = self._at
        self._root = self._span_id("session")
        self._edits: list[Json] = []
        self._open: dict[int, Event] = {}
        # By call: the span of its reply, the call, and when it was made or started.
        self._calls: dict[str, tuple[str, ToolCall, int]] = {}
        self._ledger = LedgerProjection()
        # What entered the context since the call before, and the tools of that call; nothing is collected without consent.
        self._head: list[str] = []
        self._new: list[Item] = []
        self._tools = ""

    def _span_id(self, *place: object) -> str:
        return sha256("/".join(map(str, (self._session, *place))).encode()).hexdigest()[:16]

    def spans_of(self, event: Event) -> Iterator[Json]:
        """The spans that an event completes."""
        self._end = max(self._end, event.at)
        body = event.body
        match body:
            case CallStarted():
                self._open[event.seq] = event
            case ModelReplied():
                yield from self._otel_reply(event, body)
            case Interrupted():
                yield self._interrupted(event, body)
            case Failed(what="call"):
                started = self._close(body.call, body.purpose)
                if started is not None:
                    yield self._chat(
                        started, event, body.purpose, {"error.type": body.error or "_OTHER"}, error=self._otel_content(body.message)
                    )
            case ToolStarted():
                if body.call_id in self._calls:
                    span, call, _ = self._calls[body.call_id]
                    self._calls[body.call_id] = (span, call, event.at)
            case ToolReturned():
                yield self._tool(event, body)
            case ViewEdited() | EditUndone():
                self._edits.append(self._edit(event, body))
            case _:
                pass
        self._ledger.take(event)
        self._remember(event)

    def _remember(self, event: Event) -> None:
        if self._fetch is None:
            return
        body = event.body
        head = body.head if isinstance(body, ContextStated) and body.head is not None else ()
        self._head += [statement.text for statement in head]
        if not isinstance(body, ModelReplied | Interrupted):
            self._new += items_of(event.seq, body)[len(head) :]

    def _close(self, seq: int | None, purpose: str) -> Event | None:
        """Take the open call that an outcome belongs to, as the ledger does: the one that it names, or the newest of its purpose."""
        if seq is None:
            seq = next((key for key, event in reversed(self._open.items()) if purpose in ("", _purpose(event))), None)
        return None if seq is None else self._open.pop(seq, None)

    def _otel_reply(self, event: Event, reply: ModelReplied) -> Iterator[Json]:
        started = self._close(reply.call, reply.purpose)
        facts: dict[str, Attribute] = {
            "gen_ai.response.model": reply.model or None,
            "gen_ai.response.id": reply.message or None,
            "gen_ai.response.finish_reasons": [reply.stop] if reply.stop else None,
            "error.type": "_OTHER" if reply.error else None,
            **_otel_usage(reply.usage),
            "gen_ai.output.messages": self._said(reply.parts, reply.stop),
        }
        span = self._chat(started, event, reply.purpose, facts, model=reply.model, error=self._otel_content(reply.error))
        yield span
        for part in reply.parts:
            if isinstance(part, ToolCall):
                self._calls[part.call_id] = (str(span["spanId"]), part, event.at)
        for index, each in enumerate(reply.beside):
            # Billed with the reply, but never in its window.
            model = each.model or reply.model
            facts = {"gen_ai.response.model": model or None, "palimpsest.call.beside": True, **_otel_usage(each.usage)}
            times = (event.at if started is None else started.at, event.at)
            facts = self._model_facts(model, "chat", facts)
            place = (event.seq, "beside", index)
            yield self._span(f"chat {model}".strip(), place, facts, times=times, kind=_CLIENT, parent=str(span["spanId"]))

    def _interrupted(self, event: Event, body: Interrupted) -> Json:
        """A call that was broken off. What it used may be an estimate of the ledger, which is then said."""
        started, before = self._close(body.call, body.purpose), self._ledger.value()
        self._ledger.take(event)
        spent = self._ledger.value().since(before)
        self._ledger.start_from(before)
        facts: dict[str, Attribute] = {
            "gen_ai.response.model": body.model or None,
            "gen_ai.response.finish_reasons": ["interrupted"],
            "palimpsest.usage.estimated": True if any(each.estimated for each in spent) else None,
            **_otel_usage(total_of(each.usage for each in spent)),
            "gen_ai.output.messages": self._said(body.parts, "interrupted"),
        }
        return self._chat(started, event, body.purpose, facts, model=body.model)

    def _chat(
        self,
        started: Event | None,
        ended: Event,
        purpose: str,
        facts: Mapping[str, Attribute],
        *,
        model: str = "",
        error: str | None = None,
    ) -> Json:
        call = started.body if started is not None and isinstance(started.body, CallStarted) else None
        asked = call.model if call is not None else model or self._opened.model
        purpose = call.purpose if call is not None else purpose
        given: dict[str, Attribute] = {
            "gen_ai.request.model": asked or None,
            "gen_ai.request.max_tokens": _most_tokens(call),
            "palimpsest.call.purpose": purpose if purpose != TURN else None,
            **(self._given(call) if purpose == TURN else {}),
            **facts,
        }
        first = ended if started is None else started
        attributes = self._model_facts(asked, "chat", given)
        times = (first.at, ended.at)
        return self._span(f"chat {asked}".strip(), (first.seq,), attributes, times=times, kind=_CLIENT, parent=self._root, error=error)

    def open_calls(self) -> Iterator[Json]:
        """Calls whose outcome is not in the log: what they used is not known, nor when they ended."""
        for event in self._open.values():
            yield self._chat(event, event, TURN, {"palimpsest.call.open": True})

    def _tool(self, event: Event, body: ToolReturned) -> Json:
        result = body.result
        parent, call, began = self._calls.get(result.call_id, (self._root, None, event.at - body.took_ms))
        name = body.tool or (call.tool if call is not None else "")
        facts: dict[str, Attribute] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.conversation.id": self._session,
            "gen_ai.tool.name": name or None,
            "gen_ai.tool.call.id": result.call_id or None,
            "gen_ai.tool.type": "function",
            "error.type": "_OTHER" if result.error else None,
            "palimpsest.tool.exit": body.exit,
            "gen_ai.tool.call.arguments": self._otel_content(call.args) if call is not None else None,
            "gen_ai.tool.call.result": self._otel_content(text_of(result)),
        }
        return self._span(f"execute_tool {name}".strip(), (event.seq,), facts, times=(began, event.at), parent=parent)

    def _edit(self, event: Event, body: ViewEdited | EditUndone) -> Json:
        facts: dict[str, Attribute] = {"palimpsest.edit.event": event.seq, "palimpsest.edit.why": self._otel_content(body.why)}
        if isinstance(body, EditUndone):
            facts["palimpsest.edit.undoes"] = body.event
        else:
            facts |= {
                "palimpsest.edit.by": body.by,
                "palimpsest.edit.kinds": [type(edit).__name__.lower() for edit in body.edits],
                "palimpsest.edit.moment": body.moment or None,
                "palimpsest.edit.tokens_before": body.tokens_before or None,
                "palimpsest.edit.tokens_after": body.tokens_after if body.tokens_before else None,
                "palimpsest.edit.price_usd": body.price_usd,
                "palimpsest.edit.saved_usd_per_call": body.saved_usd_per_call,
            }
        return {"timeUnixNano": f"{event.at}{_NANOSECONDS}", "name": "palimpsest.edit", "attributes": self._attributes(facts)}

    def root(self) -> Json:
        """The span of the whole session."""
        model = self._opened.model
        facts: dict[str, Attribute] = {"gen_ai.agent.name": self._opened.origin, "gen_ai.request.model": model or None}
        attributes = self._model_facts(model, "invoke_agent", facts)
        span = self._span(f"invoke_agent {self._opened.origin}", ("session",), attributes, times=(self._at, self._end))
        return {**span, "events": self._edits} if self._edits else span

    def _model_facts(self, model: str, operation: str, facts: Mapping[str, Attribute]) -> dict[str, Attribute]:
        card = find_card(model, self._cards) if model else None
        provider = None if card is None else _PROVIDERS.get(card.provider)
        return {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": provider,
            "gen_ai.conversation.id": self._session,
            **facts,
        }

    def _span(
        self,
        name: str,
        place: tuple[object, ...],
        facts: Mapping[str, Attribute],
        *,
        times: tuple[int, int],
        kind: int = _INTERNAL,
        parent: str = "",
        error: str | None = None,
    ) -> Json:
        """A span; it ended in an error if its facts name one, and `error` is what was said about it."""
        start, end = times
        span: dict[str, object] = {"traceId": sha256(self._session.encode()).hexdigest()[:32], "spanId": self._span_id(*place)}
        span |= {"parentSpanId": parent} if parent else {}
        span |= {"name": clean_text(name, self._clean), "kind": kind}
        span |= {"startTimeUnixNano": f"{max(0, start)}{_NANOSECONDS}", "endTimeUnixNano": f"{max(0, start, end)}{_NANOSECONDS}"}
        span["attributes"] = self._attributes(facts)
        if facts.get("error.type") is not None:
            span["status"] = {"code": _ERROR, **({"message": clean_text(error, self._clean)} if error else {})}
        return span

    def _attributes(self, facts: Mapping[str, Attribute]) -> list[Json]:
        return [{"key": name, "value": self._value(value)} for name, value in facts.items() if value is not None]

    def _value(self, value: Attribute) -> Json:
        match value:
            case bool():
                return {"boolValue": value}
            case int():
                return {"intValue": str(value)}
            case float():
                return {"doubleValue": value}
            case list():
                return {"arrayValue": {"values": [self._value(each) for each in value]}}
            case _:
                return {"stringValue": clean_text(str(value), self._clean)}

    def _otel_content(self, words: str) -> str | None:
        """Words of the session: nothing without consent."""
        return None if self._fetch is None else words or None

    def _given(self, call: CallStarted | None) -> dict[str, Attribute]:
        """What is new in the request of a call: instructions, messages, and the tools if they are others."""
        if self._fetch is None:
            return {}
        head, new = self._head, self._new
        self._head, self._new = [], []
        tools = self._definitions(call.tools) if call is not None and call.tools not in ("", self._tools) else None
        messages = [{"role": _role(item.content), "parts": [_otel_part(item.content)]} for item in new]
        return {
            "gen_ai.system_instructions": dump([{"type": "text", "content": words} for words in head]) if head else None,
            "gen_ai.input.messages": dump(messages) if messages else None,
            "gen_ai.tool.definitions": tools,
        }

    def _definitions(self, address: str) -> str | None:
        self._tools = address
        try:
            return None if self._fetch is None else self._fetch(address).decode("utf-8", "replace")
        except PalimpsestError:
            return None

    def _said(self, parts: Iterable[Content], stop: str) -> str | None:
        shown = [_otel_part(part) for part in parts if text_of(part)]
        if self._fetch is None or not shown:
            return None
        return dump([{"role": "assistant", "parts": shown, "finish_reason": stop}])


def _otel_part(content: Content) -> Json:
    """A content in the form that the conventions give to parts of messages."""
    match content:
        case ToolCall():
            args = _parsed(content.args)
            return {"type": "tool_call", "id": content.call_id, "name": content.tool, "arguments": args if is_json(args) else content.args}
        case Text() | Thinking():
            return {"type": "text" if isinstance(content, Text) else "reasoning", "content": content.text}
        case ToolResult():
            return {"type": "tool_call_response", "id": content.call_id, "response": text_of(content)}
        case _:
            return {"type": "text", "content": text_of(content)}


def _role(content: Content) -> str:
    if isinstance(content, ToolResult):
        return "tool"
    return "system" if isinstance(content, Text) and content.role in {"system", "developer"} else "user"


def _parsed(data: str | bytes) -> object:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _purpose(event: Event) -> str:
    return event.body.purpose if isinstance(event.body, CallStarted) else ""


def _most_tokens(call: CallStarted | None) -> int | None:
    params = _parsed(bytes(call.params)) if call is not None else None
    return number(params, "max_tokens") or None if is_json(params) else None


def _otel_usage(usage: Usage) -> dict[str, Attribute]:
    """Token counts. The log writes 0 for what was not reported, so a count of 0 is left out."""
    return {
        "gen_ai.usage.input_tokens": usage.prompt or None,
        "gen_ai.usage.output_tokens": usage.output or None,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read or None,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write + usage.cache_write_long or None,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning or None,
    }
