"""A model on the loopback that answers each request by a function, and keeps what it was asked."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from threading import Lock
from typing import Any

import msgspec
from loopback import serving

Blocks = list[dict[str, Any]]


@dataclass
class AnsweringModel:
    """Where it listens, and every request in the order in which they came."""

    url: str = ""
    asked: list[Any] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """What makes `pal` ask it."""
        return {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": "key", "PAL_OFFLINE": ""}

    def asked_with(self, text: str) -> list[Any]:
        """The requests whose last message contains a text."""
        return [request for request in self.asked if text in last_text(request)]


def last_text(request: Any) -> str:
    """All texts of the last message of a request."""
    content = request["messages"][-1]["content"]
    return content if isinstance(content, str) else "\n".join(block.get("text", "") for block in content)


def says(text: str) -> Blocks:
    """A reply of words."""
    return [{"type": "text", "text": text}]


def calls(*given: tuple[str, dict[str, Any]]) -> Blocks:
    """A reply that calls tools."""
    return [
        {"type": "tool_use", "id": f"toolu_{tool}_{number}", "name": tool, "input": value} for number, (tool, value) in enumerate(given)
    ]


@contextmanager
def model_answering(answer: Callable[[Any], Blocks | int], *, tokens: Callable[[Any], int] = lambda _: 10) -> Iterator[AnsweringModel]:
    """The model while it runs. A number instead of blocks is the status of an error; `tokens` are the input tokens that it reports."""
    model, lock = AnsweringModel(), Lock()

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = msgspec.json.decode(self.rfile.read(int(self.headers["content-length"])))
            if "count_tokens" in self.path:
                # This server does not count.
                self.send_response(404)
                self.end_headers()
                return
            with lock:
                model.asked.append(request)
                found = answer(request)
            self.send_response(found if isinstance(found, int) else 200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(msgspec.json.encode(_reply(found, request, tokens(request))))

        def log_message(self, *_: object) -> None:
            return

    with serving(Answering) as model.url:
        yield model


def _reply(found: Blocks | int, request: Any, tokens: int) -> dict[str, Any]:
    if isinstance(found, int):
        return {"type": "error", "error": {"type": "not_found_error", "message": "no such model"}}
    stop = "tool_use" if any(block["type"] == "tool_use" for block in found) else "end_turn"
    return {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": found,
        "stop_reason": stop,
        "usage": {"input_tokens": tokens, "output_tokens": 5},
    }
