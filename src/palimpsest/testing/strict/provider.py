"""The strict double of a provider, in the process or on the loopback, and its replies as the events of streams."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from palimpsest.testing.strict.answers import (
    STRICT_MODELS,
    BilledTokenClasses,
    JsonObject,
    ScriptedFailure,
    ScriptedReply,
    StrictRecord,
    StrictRefusal,
    StrictRequest,
    blocks_of,
    model_facts,
)
from palimpsest.testing.strict.binding import THINKING, Bindings, BindingWords, Enforcement
from palimpsest.testing.strict.messages import AnsweredMessage, StrictMessages
from palimpsest.testing.strict.openai import StrictCompletions, StrictResponses

_PIECE: Final = 12


def message_stream(message: JsonObject) -> Iterator[bytes]:
    """The events of a message of Anthropic; what it says of the input comes with its start, its stop reason and output at the end."""
    start = {key: value for key, value in message.items() if key not in {"content", "stop_reason", "stop_sequence", "context_management"}}
    usage = {**message["usage"], "output_tokens": 1}
    usage.pop("iterations", None)
    start |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield _event({"type": "message_start", "message": start})
    for index, block in enumerate(message["content"]):
        opened, deltas = _pieces_of(block)
        yield _event({"type": "content_block_start", "index": index, "content_block": opened})
        for delta in deltas:
            yield _event({"type": "content_block_delta", "index": index, "delta": delta})
        yield _event({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    final = {key: value for key, value in message["usage"].items() if key not in {"cache_creation", "service_tier"}}
    last: JsonObject = {"type": "message_delta", "delta": ended, "usage": final}
    if "context_management" in message:
        last["context_management"] = message["context_management"]
    yield _event(last)
    yield _event({"type": "message_stop"})


def _pieces_of(block: JsonObject) -> tuple[JsonObject, list[JsonObject]]:
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in _cut(block["text"])]
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _cut(block["thinking"])]
            return {**block, "thinking": "", "signature": ""}, [*deltas, {"type": "signature_delta", "signature": block["signature"]}]
        case "tool_use" | "server_tool_use":
            pieces = _cut(json.dumps(block["input"], ensure_ascii=False))
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        case "compaction" if "signature" not in block:
            return {**block, "content": ""}, [{"type": "compaction_delta", "content": block["content"]}]
        case _:
            return block, []


def _cut(text: str) -> list[str]:
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


def _event(event: JsonObject) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode(errors="replace")


def response_stream(response: JsonObject) -> Iterator[bytes]:
    """The events of a response of OpenAI; sealed reasoning is whole only when its item is done."""
    started = {**response, "status": "in_progress", "output": [], "usage": None}
    listed: list[JsonObject] = [{"type": "response.created", "response": started}]
    for index, item in enumerate(response["output"]):
        opened = {**item, "content": []} if item["type"] == "message" else {**item, "status": "in_progress"}
        if item["type"] == "reasoning":
            opened = {**item, "encrypted_content": ""}
        if item["type"] == "function_call":
            opened["arguments"] = ""
        listed.append({"type": "response.output_item.added", "output_index": index, "item": opened})
        place = {"output_index": index, "item_id": item.get("id")}
        if item["type"] == "message":
            part = {"content_index": 0, **place}
            text = item["content"][0]["text"]
            empty = {"type": "output_text", "text": "", "annotations": []}
            listed.append({"type": "response.content_part.added", **part, "part": empty})
            listed += [{"type": "response.output_text.delta", **part, "delta": piece, "logprobs": []} for piece in _cut(text)]
            listed.append({"type": "response.output_text.done", **part, "text": text, "logprobs": []})
            listed.append({"type": "response.content_part.done", **part, "part": item["content"][0]})
        if item["type"] == "function_call":
            listed += [{"type": "response.function_call_arguments.delta", **place, "delta": piece} for piece in _cut(item["arguments"])]
            listed.append({"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"]})
        listed.append({"type": "response.output_item.done", "output_index": index, "item": item})
    listed.append({"type": "response.completed", "response": response})
    for number, event in enumerate(listed):
        yield _event({**event, "sequence_number": number})


def completion_stream(completion: JsonObject) -> Iterator[bytes]:
    """The chunks of a completion of OpenAI, with its usage in the last one."""
    facts = {**{key: completion[key] for key in ("id", "created", "model")}, "object": "chat.completion.chunk"}
    choice = completion["choices"][0]
    message = choice["message"]
    deltas: list[JsonObject] = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in _cut(message["content"] or ""))]
    deltas += [{"tool_calls": [{"index": index, **call}]} for index, call in enumerate(message.get("tool_calls", ()))]
    for delta in deltas:
        yield _chunk({**facts, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield _chunk({**facts, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    yield _chunk({**facts, "choices": [], "usage": completion["usage"]})
    yield b"data: [DONE]\n\n"


def _chunk(chunk: JsonObject) -> bytes:
    return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode(errors="replace")


StrictAnswer = str | Sequence[JsonObject] | ScriptedReply | ScriptedFailure
"""A scripted answer: a text, blocks of the wire, a whole reply, or an error."""
StrictScript = Sequence[StrictAnswer] | Callable[[StrictRequest], StrictAnswer]
_OPENAI_PATHS: Final = ("/responses", "/responses/compact", "/chat/completions")
_STREAMS: Final = {"/messages": message_stream, "/responses": response_stream, "/chat/completions": completion_stream}
_HEADERS: Final = {"anthropic-version": "2023-06-01", "x-api-key": "key"}


class AnsweredRequest(NamedTuple):
    """A status with its headers and the pieces of its body."""

    status: int
    headers: Mapping[str, str]
    pieces: tuple[bytes, ...]

    @property
    def json(self) -> Any:
        """The body of an answer that is not a stream."""
        return json.loads(b"".join(self.pieces))


class StrictCounts(NamedTuple):
    """What a double was sent so far. Thinking is counted in blocks, over all requests that were answered."""

    requests: int
    refused: Mapping[str, int]
    thinking_sent: int
    thinking_kept: int
    thinking_dropped: int
    billed: BilledTokenClasses
    dollars: float


class StrictProvider:
    """A provider that refuses, drops and bills as the documents of late 2026 say, for tests of programs that edit a conversation.

    It knows nothing of this engine: thinking carries a signature that is valid behind the very prefix it was made with.

        with StrictProvider([[thinks("hm"), calls("ls", path=".")], "Done."]) as provider:
            client = Anthropic(base_url=provider.url, api_key="key")
            asked = {"model": "claude-opus-5-5", "max_tokens": 4096, "tools": TOOLS}
            first = client.messages.create(messages=[{"role": "user", "content": "look"}], **asked)
            ...  # send the reply back with a result, in which the first message was changed
        assert provider.counts.refused == {"binding": 1}
        assert provider.records[-1].refused == "binding"

    `script` is a list of answers, of which the last is repeated, or a function of the request; it is asked only for
    requests that are accepted. `enforce` says whom the check of thinking refuses (`Bindings`). `now` is the time in
    seconds by which caches and threads die; only the test moves it. `answer` serves one request without a server.
    """

    def __init__(
        self,
        script: StrictScript = ("Done.",),
        *,
        enforce: Enforcement = "always",
        words: BindingWords = BindingWords(),  # noqa: B008 - a frozen value
        window: int | None = None,
        thinks: bool = True,
        summary: str | ScriptedReply | ScriptedFailure = "A summary.",
    ) -> None:
        self.url = ""
        self.now = 0.0
        self.records: list[StrictRecord] = []
        self._script = script
        self._scripted = 0
        self._thinks = thinks
        self._summary = summary
        self._messages = StrictMessages(Bindings(enforce, words), self._reply, self._summarise, window=window)
        self._responses = StrictResponses(self._reply, self._summarise)
        self._completions = StrictCompletions(self._reply)
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None

    @property
    def counts(self) -> StrictCounts:
        """The sums over all requests so far."""
        bills = [bill for record in self.records for bill in record.billed]
        fields = ("input", "read", "written", "written_long", "output", "thinking")
        return StrictCounts(
            len(self.records),
            dict(Counter(record.refused for record in self.records if record.refused)),
            sum(record.thinking_sent for record in self.records if not record.refused),
            sum(record.thinking_kept for record in self.records),
            sum(record.thinking_dropped for record in self.records),
            BilledTokenClasses(*(sum(getattr(bill, field) for bill in bills) for field in fields)),
            sum(record.dollars for record in self.records),
        )

    @property
    def bodies(self) -> list[JsonObject]:
        """The bodies of all requests that asked for a reply, in order."""
        return [record.request.body for record in self.records if not record.request.path.endswith("/count_tokens")]

    def answer(self, body: JsonObject, *, path: str = "/v1/messages", headers: Mapping[str, str] = _HEADERS) -> AnsweredRequest:
        """Answer one request, as the server does; header names are in lower case."""
        plain = path.partition("?")[0].rstrip("/")
        listed = body.get("messages")
        request = StrictRequest(plain, dict(headers), body, tuple(listed) if isinstance(listed, list) else ())
        # Requests of sub-agents come at the same time, each in a thread of its own.
        with self._lock:
            try:
                answered = self._answered(request)
            except _Failing as failing:
                return self._failed(request, failing.failure)
            except StrictRefusal as refusal:
                return self._refused(request, refusal)
            self._record(answered)
        reply = answered.reply
        stream = next((stream for ending, stream in _STREAMS.items() if plain.endswith(ending)), None)
        if not body.get("stream") or stream is None:
            return AnsweredRequest(200, {"content-type": "application/json"}, (json.dumps(reply).encode(),))
        return AnsweredRequest(200, {"content-type": "text/event-stream"}, tuple(stream(reply)))

    def _answered(self, request: StrictRequest) -> AnsweredMessage:
        if request.path.endswith(("/messages", "/messages/count_tokens")):
            return self._messages.answer(request, self.now)
        if request.path.endswith(_OPENAI_PATHS[:2]):
            return self._responses.answer(request, self.now)
        if request.path.endswith(_OPENAI_PATHS):
            return self._completions.answer(request, self.now)
        raise StrictRefusal("path", f"Not found: {request.path}", 404, "not_found_error")

    def _reply(self, request: StrictRequest) -> ScriptedReply:
        if callable(self._script):
            answer = self._script(request)
        else:
            answer = self._script[min(self._scripted, len(self._script) - 1)]
            self._scripted += 1
        reply = _scripted(answer)
        if self._thinks and not isinstance(answer, ScriptedReply) and not any(block["type"] in THINKING for block in reply.blocks):
            reply = ScriptedReply((thinks(f"thought {len(self.records) + 1}"), *reply.blocks))
        return reply

    def _summarise(self, _: StrictRequest) -> ScriptedReply:
        return _scripted(self._summary)

    def _record(self, answered: AnsweredMessage) -> None:
        dropped = sum(fate.dropped for fate in answered.fates)
        dollars = sum(bill.dollars(answered.model) for bill in answered.billed) if answered.model is not None else 0.0
        self.records.append(StrictRecord(answered.request, 200, "", len(answered.fates), dropped, answered.billed, dollars, answered.reply))

    def _refused(self, request: StrictRequest, refusal: StrictRefusal) -> AnsweredRequest:
        reply = _error(request, refusal.kind, refusal.message, refusal.code)
        self.records.append(StrictRecord(request, refusal.status, refusal.reason, _thinking_in(request), reply=reply))
        headers = {"content-type": "application/json", **refusal.headers}
        return AnsweredRequest(refusal.status, headers, (json.dumps(reply).encode(),))

    def _failed(self, request: StrictRequest, failure: ScriptedFailure) -> AnsweredRequest:
        reply = _error(request, failure.kind, failure.message, failure.code)
        self.records.append(StrictRecord(request, failure.status, "scripted", _thinking_in(request), reply=reply))
        headers = {"content-type": "application/json", **failure.headers}
        return AnsweredRequest(failure.status, headers, (json.dumps(reply).encode(),))

    def __enter__(self) -> Self:
        self._server = _listening(self)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def _error(request: StrictRequest, kind: str, message: str, code: str) -> JsonObject:
    if request.path.endswith(_OPENAI_PATHS):
        return {"error": {"type": kind, "message": message, "param": None, "code": code or None}}
    error: JsonObject = {"type": kind, "message": message}
    if code:
        error["details"] = {"error_code": code}
    return {"type": "error", "error": error, "request_id": "req_strict"}


def _scripted(answer: StrictAnswer) -> ScriptedReply:
    if isinstance(answer, ScriptedFailure):
        raise _Failing(answer)
    if isinstance(answer, ScriptedReply):
        return answer
    return ScriptedReply((says(answer),) if isinstance(answer, str) else tuple(answer))


class _Failing(Exception):
    def __init__(self, failure: ScriptedFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class _ManyClientsAtOnce(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def _listening(provider: StrictProvider) -> ThreadingHTTPServer:
    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind = "anthropic" if self.headers.get("anthropic-version") else "openai"
            listed = {"object": "list", "data": [model_facts(model) for model in STRICT_MODELS.values() if model.provider == kind]}
            self._send(AnsweredRequest(200, {"content-type": "application/json"}, (json.dumps(listed).encode(),)))

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length", "0")))
            headers: dict[str, str] = {}
            for name, value in self.headers.items():
                low = name.lower()
                headers[low] = f"{headers[low]},{value}" if low in headers else value
            try:
                body = json.loads(data)
            except ValueError:
                body = None
            if not isinstance(body, dict):
                self._send(AnsweredRequest(400, {"content-type": "application/json"}, (_NOT_JSON,)))
                return
            self._send(provider.answer(body, path=self.path, headers=headers))

        def _send(self, answered: AnsweredRequest) -> None:
            self.send_response(answered.status)
            for name, value in answered.headers.items():
                self.send_header(name, value)
            self.end_headers()
            for piece in answered.pieces:
                self.wfile.write(piece)

        def log_message(self, *_: object) -> None:
            return

    server = _ManyClientsAtOnce(("127.0.0.1", 0), Answering)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    return server


_NOT_JSON: Final = b'{"type":"error","error":{"type":"invalid_request_error","message":"The request body is not valid JSON"}}'


def _thinking_in(request: StrictRequest) -> int:
    contents = [message.get("content") for message in request.messages if hasattr(message, "get")]
    return sum(str(block.get("type")) in THINKING for content in contents for block in blocks_of(content))


def thinks(text: str) -> JsonObject:
    """A thinking block of a scripted reply."""
    return {"type": "thinking", "thinking": text}


def says(text: str) -> JsonObject:
    """A text block of a scripted reply."""
    return {"type": "text", "text": text}


def calls(tool: str, **given: object) -> JsonObject:
    """A call of a tool in a scripted reply; its id is given by the double."""
    return {"type": "tool_use", "name": tool, "input": given}
