"""Runs a gateway on the loopback until it is asked to stop, and then lets the requests end that are on their way."""

import asyncio
import gc
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from palimpsest.apps.gateway.gateway import Gateway
from palimpsest.core.errors import BadInput

LOOPBACK: Final = "127.0.0.1"
_WAITING_CONNECTIONS: Final = 256
_METHODS: Final = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
# Seconds that requests on their way get after the gateway was asked to stop.
_GRACE_SECONDS: Final = 10
# Seconds in which a connection must bring the head of a request; one that brings less is closed.
_HEAD_SECONDS: Final = 30.0
# Threads that record give way to the event loop so often, in seconds; with the default of 5 ms a chunk of a stream could wait as long.
_SWITCH_SECONDS: Final = 0.001
# Objects between two searches for garbage.
_COLLECT_EVERY: Final = 1_000


class _TimelyProtocol(H11Protocol):
    """A connection that is closed if it does not bring the whole head of a request in time, its first one or a later one."""

    head_s: float = _HEAD_SECONDS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self.loop.call_later(self.head_s, self._close_unused, None)

    def _close_unused(self, before: object) -> None:
        if self.transport.is_closing():
            return
        # Before its first request it has neither.
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or (cycle.response_complete and self.scope is before):
            self.transport.close()
        else:
            self.loop.call_later(self.head_s, self._close_unused, self.scope)


class _Server(uvicorn.Server):
    """A server whose signals belong to the gateway."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


def listening(port: int) -> socket.socket:
    """Return a socket on the loopback; port 0 takes a free one. Raises `BadInput` if the port is taken."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((LOOPBACK, port))
    except OSError as error:
        found.close()
        raise BadInput(f"port {port} cannot be used ({error.strerror}); choose another with --port", where=LOOPBACK) from error
    found.listen(_WAITING_CONNECTIONS)
    return found


def application(gateway: Gateway) -> Starlette:
    """Return the application of a gateway: every path of it is answered by the gateway."""

    async def answer(request: Request) -> Response:
        return await gateway.answer(request)

    return Starlette(routes=[Route("/{path:path}", answer, methods=_METHODS)])


def stopped_by_signals() -> asyncio.Event:
    """Return an event that an interrupt or a request to end this process sets; to be called in the main thread."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def serve(
    gateway: Gateway, found: socket.socket, ready: Callable[[str], None], stop: asyncio.Event, *, head_s: float = _HEAD_SECONDS
) -> None:
    """Serve until `stop` is set; `ready` gets the address once requests are answered. A head of a request must come in `head_s` seconds."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    # Modules never become garbage. What a request leaves behind holds its bytes, so that it is looked for often.
    gc.freeze()
    gc.set_threshold(_COLLECT_EVERY)
    config = uvicorn.Config(
        application(gateway),
        http=type("Connection", (_TimelyProtocol,), {"head_s": head_s}),
        log_level="critical",
        access_log=False,
        ws="none",
        lifespan="off",
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[found]))
    stopping = asyncio.create_task(stop.wait())
    try:
        # The socket listens before the server has started, so that no early request is lost.
        ready(f"http://{LOOPBACK}:{found.getsockname()[1]}")
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await serving
    finally:
        stopping.cancel()
        await gateway.close()
