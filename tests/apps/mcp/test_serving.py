"""`pal mcp` as a process: over pipes, and over HTTP with a token."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from pal_mcp import COMMAND, serving

from pal.cli.mcp import mcp
from pal.mcp.serving import token_of
from palimpsest.agent.tool import ToolOutput
from palimpsest.coding.mcp.connection import HttpServer, ServerConnection, StdioServer, TimeLimits, call_output
from palimpsest.core.errors import StoreError

LIMITS = TimeLimits(60.0, 60.0)


async def tools_and_notes(server: ServerConnection) -> tuple[list[str], ToolOutput]:
    server.start()
    assert await server.started(), server.problem
    try:
        answer = call_output(await server.call_tool("list_notes", {}), str)
        return [tool.name for tool in server.catalogue.tools], answer
    finally:
        await server.close()


@pytest.mark.states("MI-14")
def test_a_client_over_pipes_lists_and_calls_the_tools_that_only_read(tmp_path: Path) -> None:
    server = StdioServer(COMMAND[0], COMMAND[1:], {**os.environ, "PAL_HOME": str(tmp_path / "home")}, tmp_path)
    names, notes = asyncio.run(tools_and_notes(ServerConnection("pal", server, LIMITS)))

    assert names == ["recall", "search_sessions", "show_item", "list_notes"]
    assert notes == ToolOutput("there are no notes")


def test_the_users_configuration_can_allow_a_client_to_change_notes_and_a_projects_cannot(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    names = {}
    for folder in (project / ".palimpsest", home):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.toml").write_text("[mcp]\nwrite_notes = true\n")
        server = StdioServer(COMMAND[0], COMMAND[1:], {**os.environ, "PAL_HOME": str(home)}, project)
        names[folder.name] = asyncio.run(tools_and_notes(ServerConnection("pal", server, LIMITS)))[0]

    reading = ["recall", "search_sessions", "show_item", "list_notes"]
    assert names == {".palimpsest": reading, "home": [*reading, "remember", "forget"]}


def test_over_http_every_request_needs_the_token_of_the_home(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        token = (tmp_path / "mcp-token").read_text()
        first = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        refused = [httpx.post(address, json=first, headers=headers).status_code for headers in ({}, {"Authorization": f"Bearer {token}x"})]
        server = HttpServer(address, {"Authorization": f"Bearer {token}"})
        _, notes = asyncio.run(tools_and_notes(ServerConnection("pal", server, LIMITS)))

    assert refused == [401, 401]
    assert notes == ToolOutput("there are no notes")
    assert (tmp_path / "mcp-token").stat().st_mode & 0o777 == 0o600
    assert token_of(tmp_path) == token


def test_a_token_that_can_be_guessed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mcp-token").write_text("secret")

    with pytest.raises(StoreError, match="the token is too short"):
        token_of(tmp_path)


def test_without_the_extra_the_command_says_how_to_install_it(tmp_path: Path) -> None:
    program = "import sys; sys.modules['mcp_types'] = None\nfrom pal.cli.main import cli\ncli.main(['mcp'])"
    first = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "server/discover"}) + "\n"
    variables = {**os.environ, "PAL_HOME": str(tmp_path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, input=first, capture_output=True, text=True, env=variables, check=False, timeout=120)

    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'palimpsest-agent[mcp]'" in done.stderr


def test_a_port_without_http_is_refused() -> None:
    done = CliRunner().invoke(mcp, ["--port", "1"])

    assert (done.exit_code, "--port needs --http" in done.output) == (2, True)
