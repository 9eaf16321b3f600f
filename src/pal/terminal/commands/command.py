"""What a command of the terminal is: its name, its help, what it does and what completes its argument."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from pal.terminal.choosing import NO_SOURCE, Row, RowChoice, RowSource
from pal.terminal.commands.own import OwnCommand
from pal.terminal.input import PastedImage
from pal.terminal.painting import Block, NoticeLevel
from palimpsest.agent.agent import Agent
from palimpsest.core.errors import BadInput


class CommandRoom(Protocol):
    """The terminal, as commands see it."""

    @property
    def agent(self) -> Agent | None:
        """The agent; `None` until the session is open."""
        ...

    @property
    def folder(self) -> Path | None:
        """The folder of the home; `None` if it is in memory."""
        ...

    @property
    def root(self) -> Path:
        """The folder of the project."""
        ...

    @property
    def missing(self) -> str:
        """Why no model can be asked; empty if one can."""
        ...

    @property
    def is_running(self) -> bool:
        """Whether a turn is running."""
        ...

    @property
    def session_id(self) -> str:
        """The id of the session that is open or followed; empty if there is none."""
        ...

    def own_commands(self) -> Mapping[str, OwnCommand]:
        """The commands of files of the user and of the project, by name, as they are now."""
        ...

    def notice(self, text: str, level: NoticeLevel = "info") -> None:
        """Add a line to the scrollback."""
        ...

    def write(self, text: str) -> None:
        """Add text with escape sequences to the scrollback."""
        ...

    def show(self, block: Block, *, opened: bool = False) -> None:
        """Add a block to the scrollback."""
        ...

    async def between_turns(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do something that changes the session: now, or after the turn that is running."""
        ...

    def send(self, text: str) -> None:
        """Send a message to the agent."""
        ...

    def insert(self, text: str) -> None:
        """Insert text at the cursor of the input line."""
        ...

    def attach(self, image: PastedImage) -> None:
        """Attach an image to the message that is being typed."""
        ...

    async def choose(self, title: str, rows: Sequence[Row], source: RowSource = NO_SOURCE) -> Row | None:
        """Let the user choose a row; `None` if the user chose none. What was typed before is put back afterwards."""
        ...

    async def walk(self, title: str, rows: Sequence[Row], keys: Mapping[str, str], at: str = "") -> RowChoice | None:
        """Let the user choose a row by Enter or one of the keys; `at` is where the cursor stands first."""
        ...

    async def pal(self, *words: str) -> None:
        """Run a command of `pal`, such as `audit`, and show what it prints."""
        ...

    async def ask_secret(self, question: str) -> str:
        """Return a line that is typed without being shown; nothing keeps it. Empty if the user types none."""
        ...

    def renew_settings(self) -> None:
        """Read the settings again. Raises `BadInput` if a file has a problem; the settings are then as before."""
        ...

    async def pick_session(self, title: str) -> str | None:
        """Return the id of a session with messages that the user chooses; empty if there is none, `None` if the user chose none."""
        ...

    async def shell(self, line: str) -> int:
        """Run a line in the user's own shell, and return its exit code."""
        ...

    async def switch_session(self, session: str, *, fork: bool = False) -> None:
        """Close this session and open another, a fork of it, or a new one if the id is empty."""
        ...

    async def take_over(self) -> None:
        """Go on with a session that another terminal has."""
        ...

    @property
    def theme(self) -> str:
        """The theme of now."""
        ...

    def change_theme(self, theme: str) -> None:
        """Paint with another theme from now on."""
        ...

    def leave(self) -> None:
        """End the terminal."""
        ...


Run = Callable[[CommandRoom, str], Awaitable[None]]
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


Commands = Mapping[str, SlashCommand]


def table(*commands: SlashCommand) -> dict[str, SlashCommand]:
    """Return commands by name."""
    return {command.name: command for command in commands}


class NotOpen(BadInput):
    """No session is open. While one is being opened, the terminal runs the command again once it is."""

    def __init__(self) -> None:
        super().__init__("no session is open; /resume opens one")


def agent_of(room: CommandRoom) -> Agent:
    """Return the agent. Raises `NotOpen` while there is none, `BadInput` while the session is only followed."""
    if room.agent is None and room.session_id:
        raise BadInput("another terminal has this session; /takeover asks for it, /fork goes on in a copy")
    if room.agent is None:
        raise NotOpen
    return room.agent
