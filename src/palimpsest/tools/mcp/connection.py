"""The connection to one MCP server: one task owns it from start to end, others make requests, and each of them has a time limit."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypeVar

import anyio
import mcp_types as types
from mcp import Client, MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from palimpsest.tools.mcp.results import visible
from palimpsest.tools.mcp.transport import Ending, HttpServer, ServerAddress, StdioServer, http_streams, stdio_streams
from palimpsest.tools.tool import ToolError, one_line

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
