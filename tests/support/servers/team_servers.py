"""MCP servers of a team, made with the official SDK: an issue tracker, a handbook, 300 services and a glossary that breaks down.

`team_servers.py KIND FOLDER`: the folder holds their data, and a line in its file `starts` for each start.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import mcp_types as types
from mcp.server import MCPServer, Server
from mcp.server.stdio import stdio_server

RATES: Final = {"eur": "1", "usd": "1.25"}


def entry(kind: str, folder: Path) -> dict[str, Any]:
    """The entry of a server of this file in the shape of `mcpServers`."""
    folder.mkdir(exist_ok=True)
    return {"command": sys.executable, "args": [__file__, kind, str(folder)]}


def entry_once(kind: str, folder: Path) -> dict[str, Any]:
    """The entry of a server that cannot be started a second time; a shell says so, because it is there at once."""
    program = 'test ! -e "$3/starts" || { echo "it is being maintained" >&2; exit 1; }; exec "$0" "$1" "$2" "$3"'
    return {"command": "sh", "args": ["-c", program, sys.executable, __file__, kind, str(folder)]}


def starts(folder: Path) -> list[str]:
    """The kinds of the servers that were started over a folder, in order."""
    return (folder / "starts").read_text().split()


def tracker(folder: Path) -> MCPServer[Any]:
    """Tickets, one file each; comments and the end of a ticket are lines at the end of its file."""
    server: MCPServer[Any] = MCPServer("tracker", instructions="Comment on a ticket before you close it.", log_level="CRITICAL")

    def add(number: str, line: str) -> str:
        with (folder / number).open("a") as file:
            print(line, file=file)
        return "done"

    @server.tool(structured_output=False)
    def get_ticket(number: str) -> str:
        """The text of a ticket."""
        return (folder / number).read_text()

    @server.tool(structured_output=False)
    def comment(number: str, text: str) -> str:
        """Add a comment to a ticket."""
        return add(number, f"comment: {text}")

    @server.tool(structured_output=False)
    def close_ticket(number: str) -> str:
        """Close a ticket."""
        return add(number, "closed")

    @server.prompt()
    def fix(number: str) -> str:
        """Asks for the fix of a ticket."""
        return f"Fix this ticket and run the tests: {(folder / number).read_text().strip()}"

    return server


def handbook(folder: Path) -> MCPServer[Any]:
    """Pages as resources, one file each."""
    server: MCPServer[Any] = MCPServer("handbook", log_level="CRITICAL")

    @server.resource("handbook://index", mime_type="text/plain", description="The names of all pages.")
    def index() -> str:
        return "\n".join(sorted(path.stem for path in folder.glob("*.md")))

    @server.resource("handbook://pages/{name}", mime_type="text/markdown", description="One page.")
    def page(name: str) -> str:
        return (folder / f"{name}.md").read_text()

    return server


def glossary(folder: Path) -> MCPServer[Any]:
    """Translations; the second look-up ends the server."""
    server: MCPServer[Any] = MCPServer("glossary", log_level="CRITICAL")
    words, looked_up = dict(line.split("=") for line in (folder / "words").read_text().split()), []

    @server.tool(structured_output=False)
    def translate(word: str) -> str:
        """The German word for an English one."""
        looked_up.append(word)
        if len(looked_up) > 1:
            os._exit(7)
        return words[word]

    return server


def services() -> Server[Any]:
    """300 tools, of which one converts amounts of money."""
    arguments = {"type": "object", "properties": {"amount": {"type": "number"}, "currency": {"type": "string"}}}
    tools = [
        types.Tool(name=f"service_{number}", description=f"Calls the internal service {number}. " * 20, input_schema={"type": "object"})
        for number in range(299)
    ]
    converter = types.Tool(name="convert", description="Converts an amount of euros to another currency.", input_schema=arguments)
    tools.insert(231, converter)

    async def listed(*_: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def called(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        given = params.arguments or {}
        text = str(given["amount"] * float(RATES[given["currency"]])) if params.name == "convert" else f"{params.name} ran"
        return types.CallToolResult(content=[types.TextContent(text=text)])

    return Server("services", on_list_tools=listed, on_call_tool=called)


async def _serve(server: Server[Any]) -> None:
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


KINDS: Final[Mapping[str, Callable[[Path], MCPServer[Any]]]] = {"tracker": tracker, "handbook": handbook, "glossary": glossary}


def main(kind: str, folder: Path) -> None:
    """Run a server on standard input and output."""
    with (folder / "starts").open("a") as file:
        print(kind, file=file)
    if kind == "services":
        asyncio.run(_serve(services()))
    else:
        KINDS[kind](folder).run("stdio")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
