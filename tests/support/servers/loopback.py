"""A server on the loopback that answers requests one after the other, the last answer for all that come later."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Answer(NamedTuple):
    """A status and the JSON that goes with it."""

    status: int
    body: str


@contextmanager
def answering(*answers: Answer) -> Iterator[str]:
    """The address of such a server."""
    left = list(answers)

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", "0")))
            answer = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(answer.status)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(answer.body.encode())

        def log_message(self, *_: object) -> None:
            return

    with serving(Answering) as url:
        yield url


class _ManyClients(ThreadingHTTPServer):
    """A server that many clients may ask at once: the usual queue of five turns the others away."""

    request_queue_size = 128


@contextmanager
def serving(kind: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server whose requests are answered by a class."""
    server = _ManyClients(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
