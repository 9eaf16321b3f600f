"""Serves MCP: over standard input and output with an early reply to `initialize`, or over HTTP on the loopback interface with a token."""

import asyncio
import os
import secrets
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO, cast

import msgspec

from palimpsest.apps.mcp.greeting import EarlyReply, early_reply
from palimpsest.core.errors import StoreError
from palimpsest.stores.files import read_regular, write_private

LOOPBACK: Final = "127.0.0.1"
TOKEN_FILE: Final = "mcp-token"  # noqa: S105 - the name of the file that holds it
# Bytes of one message; a client that sends more is no client.
_MOST_LINE: Final = 8_000_000
_TOKEN_BYTES: Final = 32


class _Incoming:
    """Lines of a client: the first, which was read already, then those of the pipe; a line that is too long ends them."""

    def __init__(self, first: bytes, pipe: BinaryIO) -> None:
        self._first = first
        self._pipe = pipe

    def readline(self) -> str:
        """Return the next line; empty at the end."""
        line, self._first = self._first, b""
        line = line or self._pipe.readline(_MOST_LINE)
        return line.decode("utf-8", "replace") if line.endswith(b"\n") else ""


class _Outgoing:
    """Lines for a client, without the SDK's reply to the request that was answered early."""

    def __init__(self, pipe: BinaryIO, early: EarlyReply | None) -> None:
        self._pipe = pipe
        self._early = early

    def write(self, line: str) -> int:
        """Write one line, unless the client has it already."""
        if self._early is not None:
            reply = msgspec.json.decode(line)
            if reply.get("id") == self._early.id and "method" not in reply:
                self._early = None
                return len(line)
        return self._pipe.write(line.encode("utf-8", "replace"))

    def flush(self) -> None:
        """Send what was written."""
        self._pipe.flush()


def serve_stdio(version: str, make_server: Callable[[], Any]) -> None:
    """Serve the client at the other end of standard input and output until it ends the connection.

    `make_server` imports the SDK; it is called after the first line was read and, if that is `initialize`, answered.
    """
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # What anything prints must not reach the client.
    os.dup2(2, 1)
    first = incoming.readline(_MOST_LINE)
    if not first.endswith(b"\n"):
        return
    early = early_reply(first, version)
    if early is not None:
        outgoing.write(early.line)
        outgoing.flush()
    asyncio.run(serve_lines(make_server(), first, incoming, outgoing, early))


async def serve_lines(server: Any, first: bytes, incoming: BinaryIO, outgoing: BinaryIO, early: EarlyReply | None) -> None:
    """Serve a client that has sent its first line, and has got the early reply to it if there was one, until its lines end."""
    import anyio  # noqa: PLC0415 - it comes with the SDK
    from mcp.server.stdio import stdio_server  # noqa: PLC0415 - the SDK

    reader = anyio.wrap_file(cast("TextIO", _Incoming(first, incoming)))
    writer = anyio.wrap_file(cast("TextIO", _Outgoing(outgoing, early)))
    async with stdio_server(reader, writer) as (read, write):
        await server.run(read, write, server.create_initialization_options())


def serve_http(server: Any, port: int, token: str, on_ready: Callable[[str], None]) -> None:
    """Serve at a port of the loopback interface, 0 for a free one, until the process is interrupted. `on_ready` gets the address.

    Raises `StoreError` if the port cannot be used.
    """
    import uvicorn  # noqa: PLC0415 - it comes with the SDK

    from palimpsest.apps.mcp.server import with_token  # noqa: PLC0415 - it imports the SDK

    try:
        listener = socket.create_server((LOOPBACK, port))
    except OSError as error:
        raise StoreError(f"the port cannot be used: {error.strerror or error}; choose another with --port", where=str(port)) from error
    app = with_token(server.streamable_http_app(host=LOOPBACK), token)
    on_ready(f"http://{LOOPBACK}:{listener.getsockname()[1]}/mcp")
    with listener:
        uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="on")).run(sockets=[listener])


def token_of(folder: Path) -> str:
    """Return the token of a home, which is made with the first use and readable by its owner only. Raises `StoreError` if it cannot be."""
    path = folder / TOKEN_FILE
    folder.mkdir(parents=True, exist_ok=True)
    write_private(path, secrets.token_urlsafe(_TOKEN_BYTES).encode(), replace=False)
    token = read_regular(path).decode("ascii", "replace").strip()
    if len(token) < _TOKEN_BYTES:
        raise StoreError("the token is too short; delete the file, and a new one is made", where=str(path))
    return token
