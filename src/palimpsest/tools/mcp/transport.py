"""How an MCP server is reached: a process of ours with messages on its pipes, or an HTTP address; both bounded in size."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from palimpsest.tools.shell.keeper import kept
from palimpsest.tools.shell.processes import Running
from palimpsest.tools.tool import ToolError

LARGEST_MESSAGE: Final = 32 * 1024 * 1024
"""Bytes of one message; a server that sends a larger one is ended."""
LONGEST_STDERR: Final = 4_096
"""Bytes of the end of a server's standard error that are kept, to say why it ended."""
_CHUNK: Final = 65_536
# Seconds that a server has to end by itself once its standard input is closed.
_GRACE: Final = 1.0
_CONNECT_SECONDS: Final = 30.0
_SILENT_SECONDS: Final = 600.0

Incoming: TypeAlias = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing: TypeAlias = MemoryObjectSendStream[SessionMessage]


@dataclass(frozen=True, slots=True)
class StdioServer:
    """A server that is started as a process. `env` is its whole environment."""

    command: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: Path = field(default_factory=Path.cwd)


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server at an address, by streamable HTTP, or by the older HTTP with server-sent events if `sse` is true."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    sse: bool = False


ServerAddress: TypeAlias = StdioServer | HttpServer


class Ending:
    """Why a connection ended, as far as it is known: the end of what the server wrote to standard error, its exit code, our own reason."""

    def __init__(self) -> None:
        self.happened = asyncio.Event()
        self.reason = ""
        self._stderr = b""

    def keep(self, chunk: bytes) -> None:
        """Keep the end of the standard error."""
        self._stderr = (self._stderr + chunk)[-LONGEST_STDERR:]

    def describe(self) -> str:
        """The reason, and the last lines of the standard error, on one line."""
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines()[-3:]
        return " | ".join(filter(None, (self.reason, *(line.strip() for line in lines))))


@asynccontextmanager
async def stdio_streams(server: StdioServer, ending: Ending) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """Start a server and yield the streams of its messages; in the end it and all that it started are ended.

    Raises `ToolError` if it cannot be started.
    """
    running = await _start(server)
    arriving, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, leaving = anyio.create_memory_object_stream[SessionMessage](0)
    process = running.process
    tasks = [asyncio.ensure_future(each) for each in (_read(process, arriving, ending), _write(process, leaving), _drain(process, ending))]
    try:
        yield incoming, outgoing
    finally:
        with anyio.CancelScope(shield=True):
            for stream in (incoming, outgoing):
                stream.close()
            await _end(running)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for closing in (arriving, leaving):
                closing.close()


async def _start(server: StdioServer) -> Running:
    path = server.env.get("PATH")
    found = (server.cwd / server.command).is_file() if "/" in server.command else shutil.which(server.command, path=path) is not None
    if not found:
        raise ToolError(f"there is no program {server.command!r}")
    if not server.cwd.is_dir():
        raise ToolError(f"there is no folder {str(server.cwd)!r}")
    try:
        # Shielded, because a process that is started while its start is cancelled would be left behind.
        with anyio.CancelScope(shield=True):
            process = await asyncio.create_subprocess_exec(
                *kept((server.command, *server.args)),
                cwd=server.cwd,
                env=dict(server.env),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
    except (OSError, ValueError) as error:
        raise ToolError(f"the program {server.command!r} cannot be started ({error})") from error
    return Running(process, server.command)


async def _read(process: asyncio.subprocess.Process, arriving: MemoryObjectSendStream[SessionMessage | Exception], ending: Ending) -> None:
    """Pass on the messages until one cannot be, and then read on, because a server that cannot write does not end."""
    try:
        await _pass_on(process, arriving, ending)
    finally:
        ending.happened.set()
        arriving.close()
    while process.stdout is not None and await process.stdout.read(_CHUNK):
        pass


async def _pass_on(
    process: asyncio.subprocess.Process, arriving: MemoryObjectSendStream[SessionMessage | Exception], ending: Ending
) -> None:
    """Pass on each line of the standard output as a message, or as an error if it is none."""
    pending: list[bytes] = []
    size = 0
    try:
        while process.stdout is not None and (chunk := await process.stdout.read(_CHUNK)):
            end_of_line, *lines = chunk.split(b"\n")
            pending.append(end_of_line)
            size += len(end_of_line)
            for line in lines:
                await arriving.send(_message(b"".join(pending)))
                pending, size = [line], len(line)
            if size > LARGEST_MESSAGE:
                ending.reason = f"it sent a message of more than {LARGEST_MESSAGE // 1024 // 1024} MiB"
                return
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), _GRACE)
        ending.reason = "it ended" if process.returncode is None else f"it ended with exit code {process.returncode}"
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        ending.reason = ending.reason or "its pipes were closed"


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _write(process: asyncio.subprocess.Process, leaving: MemoryObjectReceiveStream[SessionMessage]) -> None:
    with suppress(OSError, anyio.ClosedResourceError):
        async for message in leaving:
            if process.stdin is None:
                return
            process.stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await process.stdin.drain()


async def _drain(process: asyncio.subprocess.Process, ending: Ending) -> None:
    while process.stderr is not None and (chunk := await process.stderr.read(_CHUNK)):
        ending.keep(chunk)


async def _end(running: Running) -> None:
    """Close the standard input, which ends a well-behaved server, and then end what is left of it."""
    if running.process.stdin is not None:
        running.process.stdin.close()
    try:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(running.process.wait(), _GRACE)
    finally:
        await running.kill()


@asynccontextmanager
async def http_streams(server: HttpServer) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the streams of a server at an address. Redirects to other hosts are not followed, so headers reach no other host."""
    timeout = httpx2.Timeout(_CONNECT_SECONDS, read=_SILENT_SECONDS)
    if server.sse:
        async with sse_client(server.url, dict(server.headers), _CONNECT_SECONDS, _SILENT_SECONDS) as streams:
            yield streams
        return
    client = httpx2.AsyncClient(headers=dict(server.headers), timeout=timeout, transport=_BoundedTransport())
    async with client, streamable_http_client(server.url, http_client=client, max_sse_event_size=LARGEST_MESSAGE) as streams:
        yield streams


class _BoundedTransport(httpx2.AsyncHTTPTransport):
    """Ends a response that is larger than the largest message; the SDK bounds the events of a stream itself."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        if not is_stream and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _BoundedStream(response.stream)
        return response


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > LARGEST_MESSAGE:
                raise httpx2.StreamError(f"the response has more than {LARGEST_MESSAGE // 1024 // 1024} MiB")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
