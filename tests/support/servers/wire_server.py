"""A model on the loopback that speaks all three wires: it streams scripted replies as the providers do, and keeps what it was sent."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from loopback import serving


@dataclass(frozen=True)
class Said:
    """A scripted reply: a text, and calls as name and arguments; or an HTTP status with its headers.

    `prompt` and `output` are the tokens of its usage. `items` are further output items of Responses, without ids.
    `cut_after` closes the connection after that many stream events, `stall_after` sends nothing
    more after them.
    """

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    status: int = 200
    message: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    cut_after: int | None = None
    stall_after: int | None = None
    prompt: int = 20
    output: int = 7
    items: tuple[dict[str, Any], ...] = ()


@dataclass
class WireServer:
    """Where the model listens, and what it was sent: the path and the body of each request."""

    url: str = ""
    stopping: threading.Event = field(default_factory=threading.Event)
    requests: list[tuple[str, Any]] = field(default_factory=list)


def _events_anthropic(said: Said, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    message: dict[str, Any] = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
    }
    yield "message_start", {"message": message | {"usage": {"input_tokens": said.prompt, "output_tokens": 1}}}
    index = 0
    if said.text:
        yield "content_block_start", {"index": index, "content_block": {"type": "text", "text": ""}}
        for piece in _pieces(said.text):
            yield "content_block_delta", {"index": index, "delta": {"type": "text_delta", "text": piece}}
        yield "content_block_stop", {"index": index}
        index += 1
    for place, (name, args) in enumerate(said.calls):
        block = {"type": "tool_use", "id": f"call_{number}_{place}", "name": name, "input": {}}
        yield "content_block_start", {"index": index, "content_block": block}
        for piece in _pieces(args):
            yield "content_block_delta", {"index": index, "delta": {"type": "input_json_delta", "partial_json": piece}}
        yield "content_block_stop", {"index": index}
        index += 1
    delta = {"stop_reason": "tool_use" if said.calls else "end_turn", "stop_sequence": None}
    yield "message_delta", {"delta": delta, "usage": {"output_tokens": said.output}}
    yield "message_stop", {}


def _events_responses(said: Said, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    response = {"id": f"resp_{number}", "object": "response", "model": "m", "status": "in_progress", "output": []}
    yield "response.created", {"response": response}
    output: list[dict[str, Any]] = []
    if said.text:
        item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": []}
        yield "response.output_item.added", {"output_index": 0, "item": item}
        part = {"type": "output_text", "text": "", "annotations": []}
        yield "response.content_part.added", {"output_index": 0, "content_index": 0, "item_id": item["id"], "part": part}
        for piece in _pieces(said.text):
            yield "response.output_text.delta", {"output_index": 0, "content_index": 0, "item_id": item["id"], "delta": piece}
        done = item | {"content": [{"type": "output_text", "text": said.text, "annotations": []}]}
        output.append(done)
        yield "response.output_item.done", {"output_index": 0, "item": done}
    for place, (name, args) in enumerate(said.calls):
        index = len(output)
        call = {"type": "function_call", "id": f"fc_{number}_{place}", "call_id": f"call_{number}_{place}", "name": name}
        yield "response.output_item.added", {"output_index": index, "item": call | {"arguments": ""}}
        for piece in _pieces(args):
            yield "response.function_call_arguments.delta", {"output_index": index, "item_id": call["id"], "delta": piece}
        finished: dict[str, Any] = call | {"arguments": args, "status": "completed"}
        output.append(finished)
        yield "response.output_item.done", {"output_index": index, "item": finished}
    for place, given in enumerate(said.items):
        whole = given | {"id": f"it_{number}_{place}", "call_id": f"call_{number}_{place}", "status": "completed"}
        yield "response.output_item.added", {"output_index": len(output), "item": whole | {"input": ""}}
        yield "response.output_item.done", {"output_index": len(output), "item": whole}
        output.append(whole)
    usage = {"input_tokens": said.prompt, "output_tokens": said.output, "total_tokens": said.prompt + said.output}
    yield "response.completed", {"response": response | {"status": "completed", "output": output, "usage": usage}}


def _events_chat(said: Said, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> tuple[str, dict[str, Any]]:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        return "", {"id": f"chatcmpl_{number}", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}

    yield chunk({"role": "assistant", "content": ""})
    for piece in _pieces(said.text):
        yield chunk({"content": piece})
    for place, (name, args) in enumerate(said.calls):
        function = {"name": name, "arguments": ""}
        yield chunk({"tool_calls": [{"index": place, "id": f"call_{number}_{place}", "type": "function", "function": function}]})
        for piece in _pieces(args):
            yield chunk({"tool_calls": [{"index": place, "function": {"arguments": piece}}]})
    yield chunk({}, "tool_calls" if said.calls else "stop")
    last = chunk({})[1] | {
        "choices": [],
        "usage": {"prompt_tokens": said.prompt, "completion_tokens": said.output, "total_tokens": said.prompt + said.output},
    }
    yield "", last


def _pieces(text: str) -> list[str]:
    return [text[start : start + 12] for start in range(0, len(text), 12)]


def _stream(path: str, said: Said, number: int) -> list[bytes]:
    if path.endswith("/messages"):
        events, last = _events_anthropic(said, number), b""
    elif path.endswith("/responses"):
        events, last = _events_responses(said, number), b""
    else:
        events, last = _events_chat(said, number), b"data: [DONE]\n\n"
    lines = []
    for sequence, (name, data) in enumerate(events):
        whole = data if not name else {"type": name, "sequence_number": sequence, **data}
        lines.append((f"event: {name}\n" if name else "").encode() + b"data: " + json.dumps(whole).encode() + b"\n\n")
    return [*lines, *([last] if last else [])]


def _whole(path: str, said: Said, number: int) -> dict[str, Any]:
    """The reply to a request that wants no stream."""
    if path.endswith("/responses/compact"):
        usage = {"input_tokens": said.prompt, "output_tokens": said.output, "total_tokens": said.prompt + said.output}
        return {"id": f"resp_{number}", "object": "response.compaction", "created_at": 1, "output": list(said.items), "usage": usage}
    if path.endswith("/responses"):
        response: dict[str, Any] = list(_events_responses(said, number))[-1][1]["response"]
        return response
    names = [(f"call_{number}_{place}", name, args) for place, (name, args) in enumerate(said.calls)]
    if path.endswith("/messages"):
        blocks: list[dict[str, Any]] = [{"type": "text", "text": said.text}] if said.text else []
        blocks += [{"type": "tool_use", "id": call, "name": name, "input": json.loads(args)} for call, name, args in names]
        facts = {
            "stop_reason": "tool_use" if names else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": said.prompt, "output_tokens": said.output},
        }
        return {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m", "content": blocks, **facts}
    calls = [{"id": call, "type": "function", "function": {"name": name, "arguments": args}} for call, name, args in names]
    message = {"role": "assistant", "content": said.text or None, **({"tool_calls": calls} if calls else {})}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    usage = {"prompt_tokens": said.prompt, "completion_tokens": said.output, "total_tokens": said.prompt + said.output}
    return {"id": f"c_{number}", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


@contextmanager
def wire_server(
    *replies: Said, answer: Callable[[Any], Said] | None = None, models: tuple[dict[str, Any], ...] = ()
) -> Iterator[WireServer]:
    """The model while it runs; each request gets the next reply, and the last is repeated; or `answer` chooses it. `models` are listed."""
    server = WireServer()

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = json.dumps({"object": "list", "data": models}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            number = len(server.requests)
            server.requests.append((self.path, body))
            said = replies[min(number, len(replies) - 1)] if answer is None else answer(body)
            self.send_response(said.status)
            for name, value in said.headers:
                self.send_header(name, value)
            if said.status != 200:
                self._plain(said)
                return
            if not body.get("stream"):
                self._json(_whole(self.path, said, number))
                return
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for line in _stream(self.path, said, number)[: said.cut_after if said.stall_after is None else said.stall_after]:
                self.wfile.write(line)
            if said.stall_after is not None:
                self.wfile.flush()
                server.stopping.wait()

        def _plain(self, said: Said) -> None:
            self._json({"type": "error", "error": {"type": "api_error", "message": said.message}})

        def _json(self, value: object) -> None:
            data = json.dumps(value).encode()
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            return

    with serving(Answering) as server.url:
        try:
            yield server
        finally:
            server.stopping.set()
