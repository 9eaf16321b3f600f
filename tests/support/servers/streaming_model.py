"""A model on the loopback that streams scripted replies piece by piece, and stops at gates until the test opens them."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, TypeAlias

from loopback import serving


@dataclass(frozen=True)
class Call:
    """A tool call of a reply."""

    tool: str
    args: dict[str, Any]


@dataclass(frozen=True)
class Thought:
    """Thinking of a reply."""

    text: str


@dataclass(frozen=True)
class Gate:
    """A place where the stream waits; `reached` is set when it got there."""

    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class Spent:
    """The tokens that a reply reports: new input, input from the cache, input written to the cache, and output."""

    new: int = 1000
    read: int = 0
    written: int = 0
    output: int = 50


@dataclass(frozen=True)
class Whole:
    """A block of a reply that is streamed in one piece, such as a compaction."""

    block: dict[str, Any]


@dataclass(frozen=True)
class Ended:
    """How a reply ends: its stop reason, and further fields of its last usage and of the message delta."""

    stop: str
    usage: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Refused:
    """A request that is refused: the HTTP status and the error."""

    status: int
    error: dict[str, Any]


Part: TypeAlias = str | Call | Thought | Gate | Spent | Whole | Ended | Refused


@dataclass
class StreamingModel:
    """Where it listens, and what it was asked."""

    url: str = ""
    asked: list[Any] = field(default_factory=list)
    streams: list[Any] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    betas: list[str | None] = field(default_factory=list)
    plain: int = 0
    counted: list[Any] = field(default_factory=list)
    tools_tokens: int = 0

    def cut(self) -> None:
        """Cut all connections, as a network that is lost."""
        for stream in self.streams:
            with suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)

    @property
    def environment(self) -> dict[str, str]:
        """What makes `pal` ask it."""
        return {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": "key", "PAL_OFFLINE": "", "PAL_RETRIES": "0"}


def _events(reply: tuple[Part, ...], number: int) -> Iterator[dict[str, Any] | Gate]:
    spent = next((part for part in reply if isinstance(part, Spent)), Spent())
    cached = {"cache_read_input_tokens": spent.read, "cache_creation_input_tokens": spent.written} if spent.read or spent.written else {}
    usage = {"input_tokens": spent.new, "output_tokens": 1, **cached}
    yield {"type": "message_start", "message": {"id": f"m{number}", "type": "message", "role": "assistant", "content": [], "usage": usage}}
    index, open_kind = -1, ""
    for part in reply:
        if isinstance(part, Gate):
            yield part
            continue
        if isinstance(part, Spent | Ended):
            continue
        if isinstance(part, Whole):
            if open_kind:
                yield {"type": "content_block_stop", "index": index}
            index, open_kind = index + 1, ""
            yield {"type": "content_block_start", "index": index, "content_block": part.block}
            yield {"type": "content_block_stop", "index": index}
            continue
        kind = {str: "text", Call: "tool_use", Thought: "thinking"}[type(part)]
        if kind != open_kind or kind == "tool_use":
            if open_kind:
                yield {"type": "content_block_stop", "index": index}
            index, open_kind = index + 1, kind
            yield {"type": "content_block_start", "index": index, "content_block": _opening(part, number, index)}
        yield {"type": "content_block_delta", "index": index, "delta": _delta(part)}
    if open_kind:
        yield {"type": "content_block_stop", "index": index}
    usual = Ended("tool_use" if any(isinstance(part, Call) for part in reply) else "end_turn")
    ended = next((part for part in reply if isinstance(part, Ended)), usual)
    usage = {"output_tokens": spent.output} | ended.usage
    yield {"type": "message_delta", "delta": {"stop_reason": ended.stop, "stop_sequence": None}, "usage": usage, **ended.more}
    yield {"type": "message_stop"}


def _opening(part: Part, number: int, index: int) -> dict[str, Any]:
    if isinstance(part, Call):
        return {"type": "tool_use", "id": f"call_{number}_{index}", "name": part.tool, "input": {}}
    return {"type": "thinking", "thinking": "", "signature": "s"} if isinstance(part, Thought) else {"type": "text", "text": ""}


def _delta(part: Part) -> dict[str, Any]:
    if isinstance(part, Call):
        return {"type": "input_json_delta", "partial_json": json.dumps(part.args)}
    if isinstance(part, Thought):
        return {"type": "thinking_delta", "thinking": part.text}
    return {"type": "text_delta", "text": part}


@contextmanager
def model_streaming(
    *replies: tuple[Part, ...],
    about: dict[str, list[tuple[Part, ...]]] | None = None,
    answer: Callable[[Any], tuple[Part, ...]] | None = None,
) -> Iterator[StreamingModel]:
    """The model while it runs: the replies in order, the last one for all later requests.

    `about` has the replies to requests whose first message contains a text, such as those of a sub-agent, in order. With `answer`, each
    request has the reply that it returns.
    """
    model = StreamingModel()
    special = {text: list(own) for text, own in (about or {}).items()}
    gates = [part for reply in replies for part in reply if isinstance(part, Gate)]
    lock = threading.Lock()

    class Streaming(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if "count_tokens" in self.path:
                model.counted.append((self.path, asked))
                self.send_response(200 if model.tools_tokens else 404)
                self.end_headers()
                self.wfile.write(json.dumps({"input_tokens": model.tools_tokens}).encode())
                return
            # Requests of sub-agents come at the same time, each in a thread of its own.
            with lock:
                model.asked.append(asked)
                model.keys.append(self.headers["x-api-key"])
                model.betas.append(self.headers["anthropic-beta"])
                number, reply = len(model.asked), self.reply(asked)
            model.streams.append(self.connection)
            refused = next((part for part in reply if isinstance(part, Refused)), None)
            if refused is not None:
                self.send_response(refused.status)
                self.send_header("content-type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps({"type": "error", "error": refused.error}).encode())
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            with suppress(OSError):
                for event in _events(reply, number):
                    if isinstance(event, Gate):
                        event.reached.set()
                        event.opened.wait()
                        continue
                    self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
                    self.wfile.flush()

        def reply(self, asked: Any) -> tuple[Part, ...]:
            if answer is not None:
                return answer(asked)
            first = json.dumps(asked["messages"][0])
            own = next((own for text, own in special.items() if text in first), None)
            if own is not None:
                return own.pop(0)
            model.plain += 1
            return replies[min(model.plain, len(replies)) - 1]

        def log_message(self, *_: object) -> None:
            return

    with serving(Streaming) as model.url:
        try:
            yield model
        finally:
            for gate in gates:
                gate.opened.set()
