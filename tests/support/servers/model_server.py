"""A model on the loopback: it answers every request with the same words, or with the same error, and keeps what it was sent."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import msgspec
from loopback import serving
from pal_runs import MODEL


@dataclass
class Model:
    """Where it listens, and what it was asked."""

    url: str = ""
    asked: list[Any] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """What makes `pal` ask it."""
        return {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": "key", "PAL_OFFLINE": ""}


@contextmanager
def model_saying(words: str, *, status: int = 200, usage: Mapping[str, str] | None = None) -> Iterator[Model]:
    """The model while it runs; with another status the words are its complaint. `usage` is told beside the tokens."""
    model = Model()
    told: dict[str, Any] = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [{"type": "text", "text": words}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 10, "output_tokens": 5, **(usage or {})},
    }
    body = msgspec.json.encode(told if status == 200 else {"type": "error", "error": {"type": "api_error", "message": words}})

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            model.asked.append(msgspec.json.decode(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    with serving(Answering) as model.url:
        yield model
