"""Makes connections of configured MCP servers: their addresses, environments and time limits; apart, because it imports the SDK."""

from collections.abc import Mapping
from pathlib import Path

from palimpsest.stores.config.mcp_entries import McpServer
from palimpsest.tools.mcp.connection import START_SECONDS, ServerConnection, TimeLimits
from palimpsest.tools.mcp.transport import HttpServer, ServerAddress, StdioServer


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
