"""The tools `list_mcp_resources` and `read_mcp_resource`: what MCP servers offer to be read."""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Final

import mcp_types as types
from msgspec import Meta, Struct

from palimpsest.tools.mcp.connection import ServerConnection
from palimpsest.tools.mcp.results import contents_output
from palimpsest.tools.tool import AgentTool, ToolError, ToolOutput, bounded, define, one_line
from palimpsest.tools.workspace import Workspace
from palimpsest.wire.request import ToolKind

LIST: Final = "list_mcp_resources"
READ: Final = "read_mcp_resource"
_LONGEST_LIST: Final = 50_000


class ResourceList(Struct, frozen=True, forbid_unknown_fields=True):
    """`server` limits the list to one server."""

    server: str = ""


class ResourceAddress(Struct, frozen=True, forbid_unknown_fields=True):
    """The server and the URI of a resource."""

    server: str
    uri: Annotated[str, Meta(min_length=1, max_length=4_000)]


def resource_tools(connections: Callable[[], Sequence[ServerConnection]], kind: ToolKind) -> tuple[AgentTool, AgentTool]:
    """The two tools over the servers of now. The list is the one that the servers gave last; reading asks the server, with class `kind`."""

    async def listed(arguments: ResourceList, _: Workspace) -> ToolOutput:
        lines = [line for each in _chosen(connections(), arguments.server) for line in _lines(each)]
        return ToolOutput(bounded("\n".join(lines), _LONGEST_LIST, "name a server") or "No server offers a resource.")

    async def read(arguments: ResourceAddress, workspace: Workspace) -> ToolOutput:
        (connection,) = _chosen(connections(), arguments.server)
        result = await connection.read_resource(arguments.uri)
        return contents_output(result.contents, workspace.keep)

    return (
        define(
            ResourceList,
            listed,
            name=LIST,
            description="List the resources that the connected MCP servers offer, by address; templates have `{names}` to fill in.",
            kind="reports",
            parallel=True,
        ),
        define(
            ResourceAddress,
            read,
            name=READ,
            description=f"Read a resource of an MCP server by its address. `{LIST}` lists the servers and addresses.",
            kind=kind,
        ),
    )


def _chosen(connections: Iterable[ServerConnection], server: str) -> list[ServerConnection]:
    """The server of a name, or all for an empty one. Raises `ToolError` if there is none."""
    known = list(connections)
    found = [each for each in known if server in ("", each.label)]
    if server and not found:
        raise ToolError(f"there is no MCP server {server!r}; the servers are: {', '.join(each.label for each in known) or 'none'}")
    return found


def _lines(connection: ServerConnection) -> Iterable[str]:
    catalogue = connection.catalogue
    for resource in catalogue.resources:
        yield _line(connection.label, resource.uri, resource)
    for template in catalogue.templates:
        yield _line(connection.label, template.uri_template, template)


def _line(label: str, address: str, offered: types.Resource | types.ResourceTemplate) -> str:
    kind = f" ({one_line(offered.mime_type, 60)})" if offered.mime_type else ""
    described = f": {one_line(offered.description)}" if offered.description else ""
    return f"{label} {one_line(address, 500)}{kind} {one_line(offered.name, 100)}{described}"
