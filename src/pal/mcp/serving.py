"""Serves MCP: over standard input and output with early replies while the SDK loads, or over HTTP on the loopback with a token."""

import os
import secrets
import socket
from collections import deque
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO, cast

import msgspec

from pal.mcp.greeting import early_list, early_reply, is_notification
from palimpsest.core.errors import StoreError
from palimpsest.stores.files import read_regular, write_private

LOOPBACK: Final = "127.0.0.1"
TOKEN_FILE: Final = "mcp-token"  # noqa: S105 - the name of the file that holds it
# Bytes of one message; a client that sends more is no client.
_MOST_LINE: Final = 8_000_000
_TOKEN_BYTES: Final = 32


class _LineReader:
    """Lines of a client: those that were read already, then those of the pipe; a line that is too long ends them."""

    def __init__(self, read: list[bytes], pipe: BinaryIO) -> None:
        self._read = deque(read)
        self._pipe = pipe

    def readline(self) -> str:
        """Return the next line; empty at the end."""
        line = self._read.popleft() if self._read else self._pipe.readline(_MOST_LINE)
        return line.decode("utf-8", "replace") if line.endswith(b"\n") else ""


class _ReplyWriter:
    """Lines for a client, without the SDK's replies to requests that were answered early."""

    def __init__(self, pipe: BinaryIO, answered: Collection[int | str]) -> None:
        self._pipe = pipe
        self._answered = set(answered)

    def write(self, line: str) -> int:
        """Write one line, unless the client has it already."""
        if self._answered:
            reply = msgspec.json.decode(line)
            number = reply.get("id")
            if "method" not in reply and number in self._answered:
                self._answered.remove(number)
                return len(line)
        return self._pipe.write(line.encode("utf-8", "replace"))

    def flush(self) -> None:
        """Send what was written."""
        self._pipe.flush()


def serve_stdio(tools: Callable[[], list[dict[str, Any]]], make_server: Callable[[], Any]) -> None:
    """Serve the client at the other end of standard input and output until it ends the connection.

    `tools` returns the declarations of the tools. `make_server` imports the SDK; that happens in a thread, while what can be answered
    without it is answered.
    """
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # What anything prints must not reach the client.
    os.dup2(2, 1)
    first = incoming.readline(_MOST_LINE)
    if not first.endswith(b"\n"):
        return
    reply = early_reply(first)
    if reply is not None:
        outgoing.write(reply.line)
        outgoing.flush()
    # Everything below delays the first reply if it is imported before.
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    read, answered = [first], set[int | str]() if reply is None else {reply.id}
    with ThreadPoolExecutor(1) as thread:
        loading = thread.submit(make_server)
        while reply is not None or (answered and is_notification(read[-1])):
            read.append(incoming.readline(_MOST_LINE))
            reply = early_list(read[-1], tools)
            if reply is not None:
                answered.add(reply.id)
                outgoing.write(reply.line)
                outgoing.flush()
        server = loading.result()
    asyncio.run(serve_lines(server, read, incoming, outgoing, answered))


async def serve_lines(server: Any, read: list[bytes], incoming: BinaryIO, outgoing: BinaryIO, answered: Collection[int | str] = ()) -> None:
    """Serve a client that has sent some lines, and has got the replies to the requests of these ids, until its lines end."""
    import anyio  # it comes with the SDK
    from mcp.server.stdio import stdio_server  # the SDK

    reader = anyio.wrap_file(cast("TextIO", _LineReader(read, incoming)))
    writer = anyio.wrap_file(cast("TextIO", _ReplyWriter(outgoing, answered)))
    async with stdio_server(reader, writer) as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def serve_http(server: Any, port: int, token: str, on_ready: Callable[[str], None]) -> None:
    """Serve at a port of the loopback interface, 0 for a free one, until the process is interrupted. `on_ready` gets the address.

    Raises `StoreError` if the port cannot be used.
    """
    import uvicorn  # it comes with the SDK

    from pal.mcp.server import with_token  # it imports the SDK

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
