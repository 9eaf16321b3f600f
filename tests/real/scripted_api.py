"""A scripted model on the loopback that speaks the APIs of Anthropic and OpenAI as streams, and keeps every request it was sent."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import loopback
from simulated_bill import REPLY_TOKENS, SimulatedBill

from palimpsest.core.events import Usage

Json = dict[str, Any]
SUMMARY = "<analysis>done</analysis>\n\n<summary>\n1. Primary Request and Intent:\n   THE-SUMMARY\n</summary>"


@dataclass
class ScriptedApi:
    """Where it listens, what it was asked, and the calls that it makes next: name and arguments, one for each request with tools.

    With a bill, usage is that of the cache simulator; else each request has `input_tokens`. `before_reply` is called with the number of
    the request, from 1, while the agent waits for the reply.
    """

    url: str = ""
    requests: list[Json] = field(default_factory=list)
    calls: list[tuple[str, Json]] = field(default_factory=list)
    input_tokens: int = 1_000
    bill: SimulatedBill | None = None
    before_reply: Callable[[int], None] = lambda _number: None

    def usage(self, request: Json) -> Usage:
        """The usage of a request of the API of Anthropic."""
        return Usage(input=self.input_tokens, output=REPLY_TOKENS) if self.bill is None else self.bill.add(request)

    def conversation(self) -> list[Json]:
        """The requests that carry tools: those of the agent itself, without titles and summaries."""
        return [request for request in self.requests if request.get("tools")]

    def reply(self, request: Json) -> list[Json]:
        """The content blocks of the next reply."""
        if "THE-SUMMARY" not in json.dumps(request) and _asks_for_summary(request):
            return [{"type": "text", "text": SUMMARY}]
        names = [tool.get("name", "") for tool in request.get("tools") or ()]
        if self.calls and names:
            wanted, arguments = self.calls[0]
            found = next((name for name in names if name == wanted or name.endswith(f"__{wanted}")), "")
            if found:
                self.calls.pop(0)
                return [{"type": "tool_use", "id": f"toolu_{len(self.requests)}", "name": found, "input": arguments}]
        return [{"type": "text", "text": f"answer {len(self.requests)}"}]

    def response(self, request: Json) -> Json:
        """The output item of the next reply to a request of the API of OpenAI."""
        if self.calls and request.get("tools"):
            wanted, arguments = self.calls.pop(0)
            space, _, name = wanted.rpartition(".")
            own = {"namespace": space} if space else {}
            call = {"type": "function_call", "call_id": f"call_{len(self.requests)}", "name": name, "arguments": json.dumps(arguments)}
            return {**call, **own}
        text = {"type": "output_text", "text": f"answer {len(self.requests)}", "annotations": []}
        return {"type": "message", "role": "assistant", "id": f"msg_{len(self.requests)}", "status": "completed", "content": [text]}


def _response_events(item: Json, number: int, tokens: int) -> Iterator[Json]:
    usage = {"input_tokens": tokens, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 20, "total_tokens": tokens + 20}
    yield {"type": "response.created", "response": {"id": f"resp_{number}"}}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    done = {"id": f"resp_{number}", "usage": {**usage, "output_tokens_details": {"reasoning_tokens": 0}}, "output": [item]}
    yield {"type": "response.completed", "response": done}


def _asks_for_summary(request: Json) -> bool:
    last = json.dumps((request.get("messages") or [{}])[-1])
    return "summary" in last.lower() and "detailed" in last.lower()


def _events(blocks: list[Json], request: Json, number: int, used: Usage) -> Iterator[Json]:
    written = {"ephemeral_5m_input_tokens": used.cache_write, "ephemeral_1h_input_tokens": used.cache_write_long}
    usage = {
        "input_tokens": used.input,
        "cache_creation_input_tokens": used.cache_write + used.cache_write_long,
        "cache_creation": written,
        "cache_read_input_tokens": used.cache_read,
        "output_tokens": 1,
    }
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": request.get("model", "m"), "content": []}
    yield {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}}
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            yield {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}
            yield {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": block["text"]}}
        else:
            yield {"type": "content_block_start", "index": index, "content_block": {**block, "input": {}}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
    yield {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": used.output}}
    yield {"type": "message_stop"}


@contextmanager
def serving() -> Iterator[ScriptedApi]:
    """The model while it runs."""
    api = ScriptedApi()

    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._send(b"", "text/plain")

        def do_GET(self) -> None:
            self._send(b"{}", "application/json")

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
            if "count_tokens" in self.path:
                self._send(json.dumps({"input_tokens": 100}).encode(), "application/json")
            elif self.path.endswith("/responses"):
                api.requests.append(body)
                api.before_reply(len(api.requests))
                lines = _response_events(api.response(body), len(api.requests), api.input_tokens)
                stream = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in lines)
                self._send(stream.encode(), "text/event-stream")
            elif "/v1/messages" not in self.path:
                self._send(b"{}", "application/json")
            else:
                api.requests.append(body)
                api.before_reply(len(api.requests))
                lines = _events(api.reply(body), body, len(api.requests), api.usage(body))
                stream = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in lines)
                self._send(stream.encode(), "text/event-stream")

        def _send(self, data: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            return

    with loopback.serving(Answering) as api.url:
        yield api
