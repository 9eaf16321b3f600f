"""The connection to one MCP server, over pipes or HTTP with time limits, and its results as parts for a model."""

import asyncio
import base64
import binascii
import logging
import math
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar

import anyio
import httpx2
import mcp_types as types
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import Client, MCPError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from palimpsest.agent.processes import Running, kept
from palimpsest.agent.tool import ToolError, ToolOutput, bounded, one_line
from palimpsest.coding.tools.read import image_format, image_problem
from palimpsest.core.items import Image, Part
from palimpsest.stores.project import McpServer

LONGEST_RESULT: Final = 400_000
"""Bytes of all texts of a result."""
MOST_IMAGES: Final = 10
MOST_BLOCKS: Final = 1_000
_ADVICE: Final = "ask the server for less at a time"

Block: TypeAlias = types.TextContent | types.ImageContent | types.AudioContent | types.ResourceLink | types.EmbeddedResource
Contents: TypeAlias = types.TextResourceContents | types.BlobResourceContents


def call_output(result: types.CallToolResult, keep: Callable[[bytes], str]) -> ToolOutput:
    """The output of a tool call. `keep` stores the bytes of an image as a blob and returns its address.

    Structured content is shown only where there is no other, because a server repeats it as text.
    """
    output = blocks_output(result.content, keep)
    if not output.text and not output.parts and result.structured_content is not None:
        output = ToolOutput(bounded(msgspec.json.encode(result.structured_content).decode(), LONGEST_RESULT, _ADVICE))
    if not output.text and not output.parts:
        output = ToolOutput("[no output]")
    return ToolOutput(output.text, output.parts, error=bool(result.is_error))


def blocks_output(blocks: Iterable[Block], keep: Callable[[bytes], str]) -> ToolOutput:
    """The texts of some blocks, with a line for each that cannot be shown, and their images."""
    texts: list[str] = []
    images: list[Part] = []
    all_blocks = list(blocks)
    for block in all_blocks[:MOST_BLOCKS]:
        match block:
            case types.TextContent():
                texts.append(block.text)
            case types.ImageContent():
                _add_image(block.data, texts, images, keep)
            case types.AudioContent():
                texts.append(f"[audio {one_line(block.mime_type, 60)}, which cannot be shown]")
            case types.ResourceLink():
                described = f": {one_line(block.description)}" if block.description else ""
                texts.append(f"[resource {one_line(block.name, 100)} at {one_line(block.uri, 500)}{described}]")
            case types.EmbeddedResource():
                _add_contents(block.resource, texts, images, keep)
    if len(all_blocks) > MOST_BLOCKS:
        texts.append(f"[{len(all_blocks) - MOST_BLOCKS:,} more parts left out]")
    return ToolOutput(bounded("\n".join(texts), LONGEST_RESULT, _ADVICE), tuple(images))


def contents_output(contents: Iterable[Contents], keep: Callable[[bytes], str]) -> ToolOutput:
    """The contents of a resource."""
    texts: list[str] = []
    images: list[Part] = []
    for each in list(contents)[:MOST_BLOCKS]:
        _add_contents(each, texts, images, keep)
    return ToolOutput(bounded("\n".join(texts), LONGEST_RESULT, _ADVICE), tuple(images))


def visible(text: str, limit: int) -> str:
    """A text of a server without characters that are not seen, such as those that hide or turn round others; at most `limit` long."""
    shown = "".join(letter for letter in text if letter.isprintable() or letter in "\n\t").strip()
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def _add_contents(contents: Contents, texts: list[str], images: list[Part], keep: Callable[[bytes], str]) -> None:
    shown = one_line(contents.uri, 500)
    match contents:
        case types.TextResourceContents():
            texts.append(f"[resource {shown}]\n{contents.text}")
        case types.BlobResourceContents():
            texts.append(f"[resource {shown}, {one_line(contents.mime_type or 'unknown type', 60)}]")
            if (contents.mime_type or "").startswith("image/"):
                _add_image(contents.blob, texts, images, keep)


def _add_image(data: str, texts: list[str], images: list[Part], keep: Callable[[bytes], str]) -> None:
    """Add an image by its content, whatever the server says about its type, or a line that says why it cannot be shown."""
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    problem = image_problem(decoded)
    found = image_format(decoded)
    if found is None or problem:
        texts.append(f"[an image that cannot be shown: it {problem}]")
    elif len(images) >= MOST_IMAGES:
        texts.append(f"[an image that is not shown: there are more than {MOST_IMAGES}]")
    else:
        images.append(Image(found.media, keep(decoded)))


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
    tasks = [
        asyncio.ensure_future(each)
        for each in (_read_lines(process, arriving, ending), _write_lines(process, leaving), _drain(process, ending))
    ]
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


async def _read_lines(
    process: asyncio.subprocess.Process, arriving: MemoryObjectSendStream[SessionMessage | Exception], ending: Ending
) -> None:
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
                await arriving.send(_decoded_message(b"".join(pending)))
                pending, size = [line], len(line)
            if size > LARGEST_MESSAGE:
                ending.reason = f"it sent a message of more than {LARGEST_MESSAGE // 1024 // 1024} MiB"
                return
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), _GRACE)
        ending.reason = "it ended" if process.returncode is None else f"it ended with exit code {process.returncode}"
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        ending.reason = ending.reason or "its pipes were closed"


def _decoded_message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _write_lines(process: asyncio.subprocess.Process, leaving: MemoryObjectReceiveStream[SessionMessage]) -> None:
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


ServerState: TypeAlias = Literal["new", "starting", "ready", "ended", "failed", "closed"]
"""`ended` can be started again, `failed` could not be started."""
Result = TypeVar("Result")

START_SECONDS: Final = 60.0
CALL_SECONDS: Final = 120.0
MOST_RESTARTS: Final = 3
"""Times that a server which ended is started again in one session, each because of a call."""
MOST_TOOLS: Final = 1_000
MOST_LISTED: Final = 500
"""Resources, resource templates and prompts of a server, each."""
_MOST_PAGES: Final = 50
_LONGEST_ERROR: Final = 500
_LONGEST_INSTRUCTIONS: Final = 4_000
# Seconds between two lists of the same server, which may say at any rate that its list has changed.
_BETWEEN_LISTS: Final = 1.0
_CLOSE_SECONDS: Final = 15.0
_REASON_SECONDS: Final = 0.5
_LISTEN_SECONDS: Final = 2.0
# The address of a server that went away and of a session that it no longer knows.
_LOST: Final = frozenset({types.CONNECTION_CLOSED})
_SESSION_LOST: Final = "Session terminated"

# Without a destination of its own, Python writes the warnings of the SDK to the user's terminal.
logging.getLogger("mcp").addHandler(logging.NullHandler())
logging.getLogger("client").addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What a server offers, bounded in number; `instructions` is what it says about itself, at most 4,000 characters."""

    tools: tuple[types.Tool, ...] = ()
    resources: tuple[types.Resource, ...] = ()
    templates: tuple[types.ResourceTemplate, ...] = ()
    prompts: tuple[types.Prompt, ...] = ()
    instructions: str = ""


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Seconds that the start of a server and its first lists may take, and seconds of each call."""

    start: float = START_SECONDS
    call: float = CALL_SECONDS


class ServerConnection:
    """The connection to a server. `start` returns at once; `started` waits for the outcome of a start.

    Requests raise `ToolError` if the server is not there, gives no answer in time, ends meanwhile, or answers with an error. A server that
    was ready and ended is started again by the next request. What it asks of its client (sampling, elicitation, roots) the SDK refuses.
    """

    def __init__(self, label: str, address: ServerAddress, limits: TimeLimits | None = None) -> None:
        self.label = label
        self.state: ServerState = "new"
        self.problem = ""
        self.catalogue = Catalogue()
        self._address = address
        self._limits = limits or TimeLimits()
        self._client: Client | None = None
        self._owner: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()
        self._ending = Ending()
        self._restarts = 0
        self._was_ready = False
        self._starting: anyio.CancelScope | None = None

    def start(self) -> None:
        """Start the server in a task of its own."""
        if self.state in ("starting", "ready", "closed"):
            return
        self.state, self.problem = "starting", ""
        self._settled, self._stop, self._ending = asyncio.Event(), asyncio.Event(), Ending()
        self._owner = asyncio.create_task(self._own(), name=f"mcp {self.label}")

    async def started(self) -> bool:
        """Wait until the server is ready or its start failed; returns whether it is ready."""
        await self._settled.wait()
        return self.state == "ready"

    async def close(self) -> None:
        """End the connection, and the server if it is a process of ours, with all that it started."""
        self.state = "closed"
        self._stop.set()
        if self._starting is not None:
            self._starting.cancel()
        owner = self._owner
        if owner is not None and not owner.done():
            _, running = await asyncio.wait({owner}, timeout=_CLOSE_SECONDS)
            for task in running:
                task.cancel()
                await asyncio.wait({task}, timeout=_CLOSE_SECONDS)
        self._settled.set()

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        """The result of a tool. A result that does not fit the schema which the server declared for it is returned as it is."""
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=arguments))
        return await self._request(lambda client: client.session.send_request(request, types.CallToolResult))

    async def read_resource(self, uri: str) -> types.ReadResourceResult:
        """The contents of a resource."""
        return await self._request(lambda client: client.session.read_resource(uri))

    async def get_prompt(self, name: str, arguments: dict[str, str]) -> types.GetPromptResult:
        """The messages of a prompt."""
        return await self._request(lambda client: client.session.get_prompt(name, arguments))

    async def _request(self, ask: Callable[[Client], Awaitable[Result]]) -> Result:
        client = await self._connected()
        ending, limit = self._ending, asyncio.timeout(self._limits.call)
        try:
            async with limit:
                return await ask(client)
        except MCPError as error:
            if error.code not in _LOST and error.message != _SESSION_LOST:
                raise ToolError(f"the MCP server {self.label} refused: {one_line(error.message, _LONGEST_ERROR)}") from error
            raise ToolError(await self._lost(ending)) from error
        except TimeoutError as error:
            if not limit.expired():
                raise ToolError(await self._lost(ending)) from error
            raise ToolError(f"the MCP server {self.label} gave no answer within {self._limits.call:g} s") from error
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
            raise ToolError(await self._lost(ending)) from error
        except (ValueError, RuntimeError) as error:
            # Among them are answers that do not follow the protocol, and those that want an input.
            reason = one_line(str(error), _LONGEST_ERROR)
            raise ToolError(f"the MCP server {self.label} gave an answer that cannot be used: {reason}") from error

    async def _lost(self, ending: Ending) -> str:
        """Note that the connection is lost, and return what the model gets."""
        ending.happened.set()
        # The owner knows the reason a moment later.
        await self._owner_done(_REASON_SECONDS)
        why = ending.describe() or "the connection was lost"
        return f"the MCP server {self.label} went away during this call, whose outcome is unknown ({one_line(why, _LONGEST_ERROR)})"

    async def _owner_done(self, seconds: float) -> None:
        if self._owner is not None:
            await asyncio.wait({self._owner}, timeout=seconds)

    async def _connected(self) -> Client:
        if self._ending.happened.is_set():
            await self._owner_done(_CLOSE_SECONDS)
        if self._client is None and self._was_ready and self.state in ("ended", "failed"):
            if self._restarts >= MOST_RESTARTS:
                raise ToolError(f"the MCP server {self.label} ended too often and is not started again: {self.problem}")
            self._restarts += 1
            self.start()
        if self.state == "starting":
            await self._settled.wait()
        if self._client is None:
            raise ToolError(f"the MCP server {self.label} is not available: {self.problem or self.state}")
        return self._client

    async def _own(self) -> None:
        """Hold the connection from its start to its end, in this one task, as the SDK needs it."""
        ending, stop, was_ready = self._ending, self._stop, False
        if stop.is_set():
            return
        try:
            with anyio.fail_after(self._limits.start) as scope:
                self._starting = scope
                async with self._client_of(ending) as client, self._following(client):
                    # Listed only now, so that no change is missed between the list and the start of listening.
                    self.catalogue = await _catalogue(client, self.catalogue)
                    # The scope has to enclose the client; from here on its limit no longer holds.
                    scope.deadline = math.inf
                    self._starting = None
                    self._client, self._was_ready, was_ready = client, True, True
                    if self.state == "starting":
                        self.state = "ready"
                    self._settled.set()
                    await self._hold(client, ending, stop)
        except TimeoutError:
            ending.reason = f"it was not ready within {self._limits.start:g} s"
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever a server or the SDK does, it costs this server only
            ending.reason = ending.reason or one_line(_reason(error), _LONGEST_ERROR)
        finally:
            self._client = self._starting = None
            ending.happened.set()
            if not stop.is_set():
                self.problem = one_line(ending.describe() or "the connection was lost", _LONGEST_ERROR)
                self.state = "ended" if was_ready else "failed"
            self._settled.set()

    def _client_of(self, ending: Ending) -> Client:
        streams: AbstractAsyncContextManager[tuple[Any, Any]]
        match self._address:
            case StdioServer():
                streams = stdio_streams(self._address, ending)
            case HttpServer():
                streams = http_streams(self._address)
        info = types.Implementation(name="palimpsest", version="0")
        return Client(streams, message_handler=self._notified, client_info=info, cache=None, read_timeout_seconds=None)

    async def _notified(self, message: object) -> None:
        """Note that a list has changed; all else that a server sends unasked is ignored."""
        changes = (types.ToolListChangedNotification, types.ResourceListChangedNotification, types.PromptListChangedNotification)
        if isinstance(message, changes):
            self._changed.set()

    async def _hold(self, client: Client, ending: Ending, stop: asyncio.Event) -> None:
        """Wait until the server ends or the connection is closed, and list again what has changed meanwhile."""
        waits = {"stop": asyncio.create_task(stop.wait()), "end": asyncio.create_task(ending.happened.wait())}
        try:
            while True:
                change = asyncio.create_task(self._changed.wait())
                done, _ = await asyncio.wait({change, *waits.values()}, return_when=asyncio.FIRST_COMPLETED)
                change.cancel()
                if not done.isdisjoint(waits.values()):
                    return
                self._changed.clear()
                with suppress(MCPError, ValueError, TimeoutError):
                    with anyio.fail_after(self._limits.call):
                        self.catalogue = await _catalogue(client, self.catalogue)
                await asyncio.wait(set(waits.values()), timeout=_BETWEEN_LISTS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits.values():
                task.cancel()
            await asyncio.gather(*waits.values(), return_exceptions=True)

    @asynccontextmanager
    async def _following(self, client: Client) -> AsyncIterator[None]:
        """Listen for changes of the lists, which newer servers send only to those who listen; yields when that has begun or failed."""
        begun = asyncio.Event()

        async def follow() -> None:
            try:
                if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                    async with client.listen(tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True) as changes:
                        begun.set()
                        async for _ in changes:
                            self._changed.set()
            except Exception:  # noqa: BLE001, S110 - a server that cannot be listened to has the list of its start
                pass
            finally:
                begun.set()

        task = asyncio.create_task(follow())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LISTEN_SECONDS):
                    await begun.wait()
            yield
        finally:
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({task}, timeout=_LISTEN_SECONDS)


async def _catalogue(client: Client, known: Catalogue) -> Catalogue:
    """What a server offers. Only a list of tools that fails is raised; of other lists the known entries stay."""
    can = client.server_capabilities
    tools = await _all(lambda cursor: client.list_tools(cursor=cursor), lambda page: page.tools, MOST_TOOLS) if can.tools else ()
    resources, templates, prompts = known.resources, known.templates, known.prompts
    with suppress(MCPError, ValueError):
        if can.resources:
            resources = await _all(lambda cursor: client.list_resources(cursor=cursor), lambda page: page.resources)
            templates = await _all(lambda cursor: client.list_resource_templates(cursor=cursor), lambda page: page.resource_templates)
    with suppress(MCPError, ValueError):
        if can.prompts:
            prompts = await _all(lambda cursor: client.list_prompts(cursor=cursor), lambda page: page.prompts)
    return Catalogue(tools, resources, templates, prompts, visible(client.instructions or "", _LONGEST_INSTRUCTIONS))


Page = TypeVar("Page", types.ListToolsResult, types.ListResourcesResult, types.ListResourceTemplatesResult, types.ListPromptsResult)
Entry = TypeVar("Entry")


async def _all(
    page_at: Callable[[str | None], Awaitable[Page]], entries_of: Callable[[Page], list[Entry]], most: int = MOST_LISTED
) -> tuple[Entry, ...]:
    """The entries of all pages of a list, at most `most`."""
    found: list[Entry] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await page_at(cursor)
        found += entries_of(page)
        cursor = page.next_cursor
        if cursor is None or len(found) >= most:
            break
    return tuple(found[:most])


def _reason(error: BaseException) -> str:
    """The message of an error, or of the first one in a group of errors."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return str(error) or type(error).__name__


def connection_to(server: McpServer, root: Path, environment: Mapping[str, str], call_seconds: float) -> ServerConnection:
    """Return a connection to a server, which is not started. `environment` is that of commands, to which the server's own is added."""
    limits = TimeLimits(server.start_seconds or START_SECONDS, server.call_seconds or call_seconds)
    return ServerConnection(server.label, _address(server, root, environment), limits)


def _address(server: McpServer, root: Path, environment: Mapping[str, str]) -> ServerAddress:
    if server.url is not None:
        headers = {name: value.reveal() for name, value in server.headers.items()}
        return HttpServer(server.url.reveal(), headers, sse=server.transport == "sse")
    own = {name: value.reveal() for name, value in server.env.items()}
    # The entry of a project is written for the folder of its file, which may lie above the one that the session works in.
    folder = (server.origin.parent if server.project else root) / Path(server.cwd).expanduser()
    return StdioServer(server.command, tuple(word.reveal() for word in server.args), {**environment, **own}, folder)
