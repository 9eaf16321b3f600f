"""MCP servers that an editor names for a session, as servers of the user."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from acp.schema import AcpMcpServer, HttpMcpServer, McpServerStdio, SseMcpServer

from palimpsest.core.errors import BadInput
from palimpsest.core.redaction import Credential
from palimpsest.stores.config.mcp_entries import McpServer

ClientServer: TypeAlias = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio
_MOST = 50


def client_servers(servers: Sequence[ClientServer] | None, root: Path) -> tuple[McpServer, ...]:
    """Return the servers of a request in their order; the editor names them for its user, so they need no further trust.

    Raises `BadInput` for one that is reached through the editor itself, which is not announced, and for more than 50.
    """
    given = servers or ()
    if len(given) > _MOST:
        raise BadInput(f"the editor names {len(given)} MCP servers; at most {_MOST} are started", where="mcpServers")
    return tuple(_server(server, root) for server in given)


def _server(server: ClientServer, root: Path) -> McpServer:
    match server:
        case McpServerStdio():
            arguments = tuple(Credential(word) for word in server.args)
            env = {variable.name: Credential(variable.value) for variable in server.env}
            return McpServer(name=server.name, origin=root, definition=b"", command=server.command, args=arguments, env=env)
        case HttpMcpServer() | SseMcpServer():
            headers = {header.name: Credential(header.value) for header in server.headers}
            url = Credential(server.url)
            return McpServer(name=server.name, origin=root, definition=b"", transport=server.type, url=url, headers=headers)
        case AcpMcpServer():
            raise BadInput("MCP servers inside the editor are not supported; use one over stdio or HTTP", where=server.name)
