"""`pal mcp`: serves recall, sessions and notes to other agents by the Model Context Protocol."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pal.mcp.serving import (
    TOKEN_FILE,
    serve_http,
    serve_stdio,
    token_of,
)
from palimpsest.core.errors import BadInput

if TYPE_CHECKING:
    from pal.mcp.answers import Answers
    from palimpsest.stores.config import Config
    from palimpsest.stores.home import Home


_SDK: Final = frozenset({"mcp", "mcp_types", "pydantic", "anyio", "starlette", "uvicorn"})
_EXAMPLES = """\b
Examples:
  pal plug claude        (registers this server with the rest of the plugin)
  claude mcp add pal -- pal mcp
  pal mcp --http --port 7330"""


@click.command(epilog=_EXAMPLES)
@click.option("--write", is_flag=True, help="Offer `remember` and `forget`, too, as mcp.write_notes does; else nothing can be changed.")
@click.option("--http", is_flag=True, help="Serve streamable HTTP on the loopback interface instead of standard input and output.")
@click.option("--port", type=click.IntRange(0, 65_535), metavar="N", help="Port of --http; default: a free one.")
@click.option(
    "--cwd",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    metavar="DIR",
    help="Folder of the project; default: the working directory.",
)
def mcp(*, write: bool, http: bool, port: int | None, cwd: Path) -> None:
    """Serve recall, sessions and notes of a project to another agent by MCP, until it ends the connection.

    The agent starts this command; standard input and output carry the protocol. With --http the address and the file of the token,
    which every request needs, are printed to standard error; PAL_MCP_TOKEN sets another token. Needs the extra `mcp`.
    """
    if http:
        _serve_http(cwd.resolve(), port or 0, write=write)
        return
    if port is not None:
        raise click.UsageError("--port needs --http; without it, standard input and output carry the protocol")
    if sys.stdin.isatty():
        click.echo("pal mcp: this speaks to an agent, not to a terminal; Ctrl-D ends it, docs/inside.md says how to set it up", err=True)
    opened: list[Answers] = []
    try:
        serve_stdio(lambda: _declarations(write=write), lambda: _server(_home(), cwd.resolve(), opened, write=write))
    finally:
        for answers in opened:
            answers.close()


def _declarations(*, write: bool) -> list[dict[str, Any]]:
    from pal.mcp.answers import offered_tools  # after the first reply

    return [tool.declaration() for tool in offered_tools(write=write or _settings(_home()).mcp.write_notes)]


def _home() -> "Home":
    from pal.cli.opening import find_home  # after the first reply

    return find_home()


def _settings(home: "Home") -> "Config":
    from pal.cli.settings import settings_of  # after the first reply

    return settings_of(home).config


def _serve_http(root: Path, port: int, *, write: bool) -> None:
    home = _home()
    if home.local_folder is None:
        raise BadInput("a home in memory has no sessions to serve; set PAL_HOME to a folder", where="pal mcp")
    token = os.environ.get("PAL_MCP_TOKEN", "").strip()
    place = "PAL_MCP_TOKEN" if token else str(home.local_folder / TOKEN_FILE)
    opened: list[Answers] = []
    try:
        server = _server(home, root, opened, write=write)
        serve_http(
            server,
            port,
            token or token_of(home.local_folder),
            lambda address: click.echo(f"pal mcp: {address}, token in {place}", err=True),
        )
    finally:
        for answers in opened:
            answers.close()


def _server(home: "Home", root: Path, opened: "list[Answers]", *, write: bool) -> Any:
    """Return the server of the SDK. Raises `BadInput` if the extra is not installed."""
    try:
        from pal.mcp.server import server_of  # it imports the SDK
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _SDK:
            raise
        raise BadInput("the protocol is not installed; pip install 'palimpsest-agent[mcp]'", where="pal mcp") from error
    from pal.mcp.answers import Answers  # after the first reply
    from palimpsest.memory.session_memory import project_memory

    config = _settings(home)
    answers = Answers(home, root, project_memory(home, root, config.memory), write=write or config.mcp.write_notes)
    opened.append(answers)
    return server_of(answers)
