"""`pal mcp-servers`: the configured MCP servers, where they come from, and after a trial connection what they offer."""

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from pal.cli.command_line import FINDINGS
from pal.cli.opening import find_home
from pal.cli.output import emit, json_option
from pal.cli.settings import settings_of, working_folder
from pal.cli.tables import Columns, console, one_line
from pal.text import plain
from palimpsest.agent.processes import command_environment
from palimpsest.coding.build import mcp_settings
from palimpsest.coding.mcp_servers import MISSING_EXTRA, is_sdk_missing
from palimpsest.core.errors import BadInput
from palimpsest.stores.project import McpServer, configured_servers, project_command, trust_of
from palimpsest.stores.trust import ProjectTrust

if TYPE_CHECKING:
    from palimpsest.coding.mcp.connection import ServerConnection


_READY, _FAILED = "ready", "failed"


@click.command("mcp-servers", epilog="\b\nExamples:\n  pal mcp-servers\n  pal mcp-servers --connect")
@click.option("--connect", is_flag=True, help="Start each server, list what it offers, and end it again.")
@json_option
def servers(*, connect: bool, as_json: bool) -> None:
    """List the MCP servers of this folder: where each is defined, whether it is used, and what it offers.

    Servers are defined in ~/.config/palimpsest/mcp.json, in the files that the setting `mcp.files` names, and in .mcp.json of the
    project, in the shape that other clients use. Those of the project are used once you trust them (`pal trust`).
    Exit code 1 if a file has a problem or a server cannot be started.
    """
    folder = working_folder()
    if folder is None:
        raise BadInput("the working directory does not exist", where="pal mcp-servers")
    home = find_home()
    settings = mcp_settings(settings_of(home))
    found = configured_servers(folder, os.environ, files=settings.files)
    trust = trust_of(home, folder)
    rows = {server.label: _server_fields(server, trust, settings.disabled) for server in found.servers}
    if connect:
        wanted = [server for server in found.servers if rows[server.label]["state"] == "configured"]
        for label, outcome in asyncio.run(_tried(wanted, settings.call_seconds)).items():
            rows[label] |= outcome
    problems = [str(problem) for problem in found.problems]
    if as_json:
        emit({"servers": list(rows.values()), "problems": problems})
    else:
        _print_servers(list(rows.values()), connected=connect)
        for problem in problems:
            click.echo(plain(f"pal: {problem}"), err=True)
    if problems or any(row["state"] == _FAILED for row in rows.values()):
        click.get_current_context().exit(FINDINGS)


def _server_fields(server: McpServer, trust: ProjectTrust, disabled: frozenset[str]) -> dict[str, object]:
    """One server. Arguments, variables, headers and the path of an address may hold secrets, and are not shown."""
    if server.disabled or server.name in disabled:
        state = "disabled"
    elif server.project and not trust.trusts(project_command(server)):
        state = "untrusted"
    else:
        state = "configured"
    where = server.command if server.url is None else _host(server.url.reveal())
    return {
        "name": server.name,
        "state": state,
        "transport": server.transport,
        "runs": where,
        "origin": str(server.origin),
        "project": server.project,
    }


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}"


async def _tried(wanted: list[McpServer], call_seconds: float) -> dict[str, dict[str, object]]:
    """Connect to servers side by side and return what each offers, or why it could not be started."""
    folder = working_folder()
    try:
        from palimpsest.coding.mcp.connection import connection_to  # it imports the SDK
    except ModuleNotFoundError as error:
        if is_sdk_missing(error):
            raise BadInput(MISSING_EXTRA, where="pal mcp-servers") from error
        raise
    environment: Mapping[str, str] = command_environment(os.environ)
    connections = [connection_to(server, folder, environment, call_seconds) for server in wanted if folder is not None]
    try:
        for connection in connections:
            connection.start()
        for connection in connections:
            await connection.started()
        return {each.label: _outcome(each) for each in connections}
    finally:
        await asyncio.gather(*(each.close() for each in connections))


def _outcome(connection: "ServerConnection") -> dict[str, object]:
    from palimpsest.coding.mcp.tools import (
        ToolChoice,  # it imports the SDK
        prompt_commands,  # it imports the SDK
        server_tools,
    )

    if connection.state != _READY:
        return {"state": _FAILED, "problem": connection.problem}
    tools, problems = server_tools(connection, ToolChoice())
    catalogue = connection.catalogue
    return {
        "state": _READY,
        "tools": [tool.name for tool in tools],
        "left_out": problems,
        "resources": [resource.uri for resource in catalogue.resources] + [template.uri_template for template in catalogue.templates],
        "prompts": [name for name, _ in prompt_commands(connection)],
        "instructions": catalogue.instructions,
    }


def _print_servers(rows: list[dict[str, object]], *, connected: bool) -> None:
    if not rows:
        click.echo("no MCP servers are configured; docs/mcp.md says where they are defined")
        return
    names = ("server", "state", "kind", "runs", "from", *(("tools",) if connected else ()))
    table = Columns(*names, right=("tools",) if connected else (), keep=("server", "state"))
    for row in rows:
        cells = [one_line(str(row[key]), 60) for key in ("name", "state", "transport", "runs", "origin")]
        tools = row.get("tools")
        table.add_row(*cells, *([str(len(tools)) if isinstance(tools, list) else "-"] if connected else []))
    console().print(table)
    for row in rows:
        left_out = row.get("left_out")
        for line in (row.get("problem"), *(left_out if isinstance(left_out, list) else ())):
            if line:
                click.echo(plain(f"{row['name']}: {one_line(str(line), 300)}"))
        prompts = row.get("prompts")
        if isinstance(prompts, list) and prompts:
            click.echo(plain(f"{row['name']}: prompts {', '.join(prompts)}"))
