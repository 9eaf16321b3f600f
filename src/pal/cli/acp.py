"""`pal acp`: serves an editor by the Agent Client Protocol."""

import sys
from typing import Final

import click

from pal.cli.opening import find_home
from palimpsest.core.errors import BadInput

_SDK: Final = frozenset({"acp", "pydantic"})
_EXAMPLES = """\b
Example, in the settings of Zed:
  "agent_servers": {"Palimpsest": {"type": "custom", "command": "pal", "args": ["acp"]}}

\b
docs/editors.md has the settings for JetBrains and Neovim."""


@click.command(epilog=_EXAMPLES)
def acp() -> None:
    """Serve an editor by the Agent Client Protocol, until the editor ends the connection.

    The editor starts this command; standard input and output carry the protocol, and notices go to standard error.
    Sessions are those of `pal`: the editor lists and loads them, and `pal show` and `pal audit` show what the editor did.
    Model, mode, rules and limits come from the settings of each project (`pal config`). Needs the extra `acp`.
    """
    try:
        from pal.acp.server import serve  # it imports the SDK
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _SDK:
            raise
        raise BadInput("the protocol is not installed; pip install 'palimpsest-agent[acp]'", where="pal acp") from error
    if sys.stdin.isatty():
        click.echo("pal acp: this speaks to an editor, not to a terminal; Ctrl-D ends it, docs/editors.md says how to set it up", err=True)
    serve(find_home())
