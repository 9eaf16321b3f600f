"""A server on the loopback that answers every request with the same bytes and records the requests."""

import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeAlias

import pytest

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
    servers: list[ThreadingHTTPServer] = []

    def start(body: bytes, *, status: int = 200, kind: str = "text/event-stream", more: Mapping[str, str] = {}) -> tuple[str, Seen]:
        seen: Seen = []
        server = ThreadingHTTPServer(("127.0.0.1", 0), _answering(status, kind, body, more, seen))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}", seen

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
