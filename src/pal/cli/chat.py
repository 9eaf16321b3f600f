"""`pal` without a command: opens the agent in this terminal."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from pal.cli.agents import MODES, chosen_session, permission_options, session_options
from pal.cli.opening import find_home
from pal.cli.settings import FiniteRange, settings_of
from palimpsest.core.errors import BadInput
from palimpsest.stores.config import ThemeName

_EXAMPLES = f"""\b
Examples:
  pal                       a new session in this folder
  pal --continue            go on with the newest session of this folder
  pal chat "fix the tests"  begin with a message
  pal --resume 3f2a         go on with this session

{MODES}

\b
/help in the terminal lists its commands and keys."""


@click.command(epilog=_EXAMPLES)
@click.argument("prompt", required=False, default="")
@session_options
@permission_options
@click.option("--vi", is_flag=True, help="Edit the input with the keys of vi.")
@click.option("--screen-reader", is_flag=True, help="Words instead of symbols, no columns, nothing that moves.")
@click.option("--theme", type=click.Choice(["dark", "light"]), default=None, help="Colours of the terminal; default: the setting.")
@click.option("--answer-seconds", type=FiniteRange(0, min_open=True), default=None, help="Refuse a question after so many seconds.")
def chat(
    *,
    prompt: str,
    continues: bool,
    resume: str,
    fork: str,
    model: str,
    profile_name: str,
    mode: str | None,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    folders: tuple[Path, ...],
    vi: bool,
    screen_reader: bool,
    theme: ThemeName | None,
    answer_seconds: float | None,
) -> None:
    """Open the agent in this terminal, in the project of this folder.

    Everything is recorded in a session, and what was typed and not sent is kept too: `pal --continue` goes on after a
    closed terminal or a lost connection.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadInput("this is no terminal; `pal -p PROMPT` runs without one", where="pal")
    home = find_home()
    options = {"model": model, "profile": profile_name, "mode": mode}
    settings = settings_of(home, options, strict=True)
    with chosen_session(home, continues=continues, resume=resume, fork=fork) as session:
        pass
    from pal.cli.terminal_agents import TerminalAgents  # the terminal takes 100 ms to load
    from pal.terminal.look import ScreenLook, colours_of
    from pal.terminal.running import run_terminal
    from pal.terminal.surroundings import TerminalSurroundings

    agents = TerminalAgents(home, settings, options, allow=allow, deny=deny, folders=folders)
    config = settings.config.terminal
    look = ScreenLook(colours=colours_of(os.environ, is_terminal=True), theme=theme or config.theme, spoken=screen_reader)
    around = TerminalSurroundings(
        agents.open, agents.follow, _run_pal, agents.sessions, agents.renew, Path.cwd(), home.local_folder, session, prompt, config
    )
    asyncio.run(run_terminal(around, look, vi=vi, seconds=answer_seconds))


def _run_pal(words: Sequence[str]) -> None:
    """Run a command of `pal` in this process; its exit code does not matter here."""
    from pal.cli.main import cli  # the group imports this module

    try:
        cli.main(list(words))
    except SystemExit:
        sys.stdout.flush()
