"""What a command of the terminal is: its name, its help, what it does and what completes its argument."""

from collections.abc import Awaitable, Callable, Iterable

from msgspec import Struct

from pal.terminal.terminal import NotOpen, Terminal
from palimpsest.agent.agent import Agent
from palimpsest.core.errors import BadInput

Run = Callable[[Terminal, str], Awaitable[None]]
Complete = Callable[[Agent | None], Iterable[str]]


def no_argument(_: Agent | None) -> Iterable[str]:
    """Complete nothing."""
    return ()


class SlashCommand(Struct, frozen=True):
    """A command. `argument` is how its argument is written in the help; empty without one. `while_running`: also during a turn."""

    name: str
    help: str
    run: Run
    argument: str = ""
    complete: Complete = no_argument
    while_running: bool = True


def table(*commands: SlashCommand) -> dict[str, SlashCommand]:
    """Return commands by name."""
    return {command.name: command for command in commands}


def agent_of(terminal: Terminal) -> Agent:
    """Return the agent. Raises `NotOpen` while there is none, `BadInput` while the session is only followed."""
    if terminal.agent is None and terminal.session_id:
        raise BadInput("another terminal has this session; /takeover asks for it, /fork goes on in a copy")
    if terminal.agent is None:
        raise NotOpen
    return terminal.agent
