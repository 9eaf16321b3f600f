"""The MCP servers of a session, started beside its first turn, with their tools and prompts."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from palimpsest.agent.session import Session
from palimpsest.agent.tool import AgentTool
from palimpsest.agent.tool_calls import DeferredTools
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.settings import CodingSettings
from palimpsest.core.events import Failed
from palimpsest.core.items import Part, Text
from palimpsest.stores.home import Home
from palimpsest.stores.project import ConfiguredServers, McpServer, configured_servers, project_command, trust_of

if TYPE_CHECKING:
    from palimpsest.coding.mcp.connection import ServerConnection


_SDK: Final = frozenset({"mcp", "mcp_types", "anyio", "httpx2", "pydantic"})
COMMAND: Final = "/mcp__"
"""The beginning of input that names a prompt of a server."""
MISSING_EXTRA: Final = "MCP servers are configured, and the MCP client is not installed; pip install 'palimpsest-agent[mcp]'"


def is_sdk_missing(error: ModuleNotFoundError) -> bool:
    """Return whether an import failed because the extra `mcp` is not installed."""
    return (error.name or "").partition(".")[0] in _SDK


def session_servers(settings: CodingSettings, root: Path, home: Home) -> tuple[tuple[McpServer, ...], tuple[str, ...]]:
    """Return the servers that may be started in a project, and what the user should know about the others.

    A server that the project names is started only if the user trusted exactly its definition. `home` keeps the trust.
    """
    if not settings.mcp.active:
        return (), ()
    found = configured_servers(root, os.environ, files=settings.mcp.files)
    given = {server.label: server for server in settings.mcp.given}
    known = (*given.values(), *(server for server in found.servers if server.label not in given))
    wanted = [server for server in known if not server.disabled and server.name not in settings.mcp.disabled]
    trusted = trust_of(home, root) if any(server.project for server in wanted) else None
    untrusted = [server for server in wanted if server.project and (trusted is None or not trusted.trusts(project_command(server)))]
    notices = [str(problem) for problem in _problems(found, settings)]
    if untrusted:
        names = ", ".join(server.name for server in untrusted)
        notices.append(f"MCP servers of this project that you have not trusted are not started: {names}; see `pal trust`")
    return tuple(server for server in wanted if server not in untrusted), tuple(notices)


def _problems(found: ConfiguredServers, settings: CodingSettings) -> Sequence[object]:
    known = {server.name for server in (*settings.mcp.given, *found.servers)}
    unknown = [name for name in settings.mcp.read_only if name not in known]
    return [*found.problems, *(f"mcp.read_only: there is no MCP server {name!r}" for name in sorted(unknown))]


class McpServers:
    """The servers of a session. A server that hangs or ends costs its own tools only; without servers nothing is loaded.

    Tools are offered at the start of a turn, in the order of the configuration. Once offered they stay, also if their server ends or lists
    them no longer: a call then gets an error, whereas taking the declaration away would break the cached prefix of every later request.
    `environment` is that of commands.
    """

    def __init__(
        self,
        session: Session,
        workspace: Workspace,
        servers: Sequence[McpServer],
        settings: CodingSettings,
        *,
        environment: Mapping[str, str],
        deferred: DeferredTools,
    ) -> None:
        self._session = session
        self._workspace = workspace
        self._servers = {server.label: server for server in servers}
        self._settings = settings
        self._environment = environment
        self._deferred = deferred
        self._connections: list[ServerConnection] | None = None if servers else []
        self._offered: dict[str, frozenset[str]] = {}
        self._reported: set[str] = set()
        self.tools: tuple[AgentTool, ...] = ()
        """All tools that were offered."""

    @property
    def instructions(self) -> dict[str, str]:
        """What each server says about itself, by its label."""
        return {each.label: each.catalogue.instructions for each in self._connections or () if each.catalogue.instructions}

    async def await_tools(self, tools: frozenset[str] | None) -> None:
        """Wait for servers that start, and offer what is new of them; with some names only if a tool of these is missing."""
        if tools is None or not tools <= self._deferred.tools.keys():
            await self.join()

    async def join(self) -> None:
        """Start the servers and wait for them the first time, and offer the tools that came since."""
        connections = await self._started()
        if not connections:
            return
        new: list[AgentTool] = []
        for connection in connections:
            new += self._new_tools(connection)
            self._report(connection)
        new += self._resource_tools(connections)
        if new:
            self.tools += tuple(new)
            self._deferred.join(new)

    async def expand(self, parts: tuple[str | Part, ...]) -> tuple[str | Part, ...]:
        """Return input with the prompt of a server in place of its name, `/mcp__SERVER__PROMPT arguments`; other input as it is.

        Raises `BadInput` if there is no such prompt, `ToolError` if the server does not give it.
        """
        first = parts[0] if parts else ""
        text = first.text if isinstance(first, Text) else first if isinstance(first, str) else ""
        if not self._servers or not text.startswith(COMMAND):
            return parts
        connections = await self._started()
        from palimpsest.coding.mcp.tools import expanded_prompt  # it imports the SDK

        return (*await expanded_prompt(text, connections, self._workspace), *parts[1:])

    def prompts(self) -> tuple[tuple[str, str], ...]:
        """Return the command of each prompt of the servers that have started, and what the server says about it."""
        if not self._connections:
            return ()
        from palimpsest.coding.mcp.tools import prompt_commands  # it imports the SDK

        known = (command for connection in self._connections for command in prompt_commands(connection))
        return tuple((name, prompt.description or "") for name, prompt in known)

    async def close(self) -> None:
        """End all connections side by side."""
        await asyncio.gather(*(each.close() for each in self._connections or ()))

    async def _started(self) -> Sequence["ServerConnection"]:
        if self._connections is None:
            self._connections = await self._session.environment.offload(self._new_connections) or []
            for connection in self._connections:
                connection.start()
            if not self._connections:
                self._fail("MCP", MISSING_EXTRA)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.mcp.start_seconds):
                    for connection in self._connections:
                        await connection.started()
        return self._connections

    def _new_connections(self) -> list["ServerConnection"] | None:
        """The connections, not started; `None` if the SDK is not installed. Importing it takes most of a second."""
        try:
            from palimpsest.coding.mcp.connection import connection_to  # it imports the SDK
        except ModuleNotFoundError as error:
            if not is_sdk_missing(error):
                raise
            return None
        root, limits = self._workspace.root, self._settings.mcp
        return [connection_to(server, root, self._environment, limits.call_seconds) for server in self._servers.values()]

    def _new_tools(self, connection: "ServerConnection") -> list[AgentTool]:
        from palimpsest.coding.mcp.tools import (
            ToolChoice,  # it imports the SDK
            server_tools,
        )

        server = self._servers[connection.label]
        listed = frozenset(tool.name for tool in connection.catalogue.tools)
        known = self._offered.get(connection.label, frozenset())
        if listed <= known:
            return []
        self._offered[connection.label] = known | listed
        choice = ToolChoice(server.only, server.without | known, reads=self._is_read_only(server))
        tools, problems = server_tools(connection, choice, self._taken())
        for problem in problems:
            self._fail(f"MCP server {connection.label}", problem)
        return [tool for tool in tools if tool.name not in self._settings.disabled]

    def _resource_tools(self, connections: Sequence["ServerConnection"]) -> list[AgentTool]:
        from palimpsest.coding.mcp.tools import (
            LIST,  # it imports the SDK
            resource_tools,
        )

        offering = [each for each in connections if each.catalogue.resources or each.catalogue.templates]
        if not offering or LIST in self._taken():
            return []
        trusted = all(self._is_read_only(self._servers[each.label]) for each in connections)
        tools = resource_tools(lambda: connections, "reads" if trusted else "runs")
        return [tool for tool in tools if tool.name not in self._settings.disabled]

    def _is_read_only(self, server: McpServer) -> bool:
        return server.name in self._settings.mcp.read_only

    def _taken(self) -> frozenset[str]:
        return frozenset(self._deferred.tools) | frozenset(tool.name for tool in self._deferred.declarations)

    def _report(self, connection: "ServerConnection") -> None:
        """Record once that a server is late, or that it could not be started."""
        if connection.state == "starting":
            why = f"it is not ready after {self._settings.mcp.start_seconds:g} s; its tools join with a later turn"
        elif connection.state == "failed":
            why = connection.problem
        else:
            return
        self._fail(f"MCP server {connection.label}", why)

    def _fail(self, what: str, why: str) -> None:
        if f"{what}: {why}" not in self._reported:
            self._reported.add(f"{what}: {why}")
            self._session.log.append(Failed(what, "mcp", why))
