"""A server on the loopback that answers every request with the same bytes and records the requests."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from typing import TypeAlias

import pytest
from loopback import serving

Seen: TypeAlias = list[tuple[str, dict[str, str], bytes]]


def _answering(status: int, kind: str, body: bytes, more: Mapping[str, str], seen: Seen) -> type[BaseHTTPRequestHandler]:
    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("content-length", "0"))
            seen.append((self.path, {key.lower(): value for key, value in self.headers.items()}, self.rfile.read(size)))
            self.send_response(status)
            self.send_header("content-type", kind)
            for key, value in more.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    return Answering


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[str, Seen]]]:
    def start(body: bytes, *, status: int = 200, kind: str = "text/event-stream", more: Mapping[str, str] = {}) -> tuple[str, Seen]:
        seen: Seen = []
        return servers.enter_context(serving(_answering(status, kind, body, more, seen))), seen

    with ExitStack() as servers:
        yield start
