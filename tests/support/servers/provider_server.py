"""A provider on the loopback that keeps the very bytes it was sent, and answers with the very bytes it is given."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from loopback import serving


@dataclass(frozen=True)
class Sent:
    """A request as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    """What is answered: pieces that are written one after the other, each after its gate if it has one."""

    pieces: Sequence[bytes | threading.Event]
    content_type: str = "text/event-stream"
    status: int = 200


@dataclass
class Provider:
    """Where it listens, and what it was sent."""

    url: str = ""
    sent: list[Sent] = field(default_factory=list)


def messages_stream(number: int, text: str, *, tokens: int = 100, cached: int = 0, path: str = "") -> list[bytes]:
    """A reply of Anthropic Messages as a stream, one piece an event: a text, or a call that reads a file if there is a path."""
    if path:
        block: dict[str, Any] = {"type": "tool_use", "id": f"toolu_{number}", "name": "Read", "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps({"file_path": path})}
    else:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": text}
    message: dict[str, Any] = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
    }
    usage = {"input_tokens": tokens - cached, "cache_read_input_tokens": cached, "cache_creation_input_tokens": 0, "output_tokens": 1}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message | {"usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use" if path else "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 5},
        },
        {"type": "message_stop"},
    ]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


@contextmanager
def provider(*replies: Reply) -> Iterator[Provider]:
    """The provider while it runs; each POST gets the next reply, and the last one is repeated."""
    found = Provider()
    lock = threading.Lock()

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(Reply((b'{"data": []}',), "application/json"))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            with lock:
                number = len(found.sent)
                found.sent.append(Sent(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            self._answer(replies[min(number, len(replies) - 1)])

        def _answer(self, reply: Reply) -> None:
            self.send_response(reply.status)
            self.send_header("content-type", reply.content_type)
            self.end_headers()
            for piece in reply.pieces:
                if isinstance(piece, threading.Event):
                    piece.wait(20)
                else:
                    self.wfile.write(piece)
                    self.wfile.flush()

        def log_message(self, *_: object) -> None:
            return

    with serving(Answering) as url:
        found.url = url
        yield found
