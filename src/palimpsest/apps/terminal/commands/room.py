"""The terminal as commands use it: lists to choose from, programs that print, messages, and other sessions."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from msgspec.structs import replace

from palimpsest.apps.terminal.choosing import NO_KEYS, NO_SOURCE, Lists, Row, RowChoice, RowSource
from palimpsest.apps.terminal.commands.own.files import command_folders, find_own_commands
from palimpsest.apps.terminal.commands.own.template import OwnCommand
from palimpsest.apps.terminal.display import Display
from palimpsest.apps.terminal.input.attachments import PastedImage
from palimpsest.apps.terminal.input.line import InputLine
from palimpsest.apps.terminal.programs.notifying import Notifier
from palimpsest.apps.terminal.programs.shell_line import run_and_keep, run_in_shell, secret_line
from palimpsest.apps.terminal.programs.status_script import StatusScript
from palimpsest.apps.terminal.screen.look import ScreenLook, Theme
from palimpsest.apps.terminal.screen.transcript import Transcript
from palimpsest.apps.terminal.sessions.attachment import Attachment
from palimpsest.apps.terminal.surroundings import TerminalSurroundings
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ContextStated
from palimpsest.core.items import Text

if TYPE_CHECKING:
    # The engine is loaded while the user may type already.
    from palimpsest.engine.agent import Agent

# Commands of `pal` that handle Ctrl-C themselves, which only the main thread can; the session waits for them.
_OWN_CTRL_C: Final = frozenset({"import", "memory"})


class CommandSide:
    """What a terminal does for commands; the terminal itself sets the attributes."""

    around: TerminalSurroundings
    look: ScreenLook
    line: InputLine
    display: Display
    lists: Lists
    session: Attachment
    transcript: Transcript
    notifier: Notifier
    script: StatusScript
    missing: str

    @property
    def agent(self) -> "Agent | None":
        """The agent; `None` until the session is open."""
        return self.session.agent

    @property
    def folder(self) -> Path | None:
        """The folder of the home; `None` if it is in memory."""
        return self.around.folder

    @property
    def root(self) -> Path:
        """The folder of the project."""
        return self.around.root

    @property
    def is_running(self) -> bool:
        """Whether a turn is running."""
        return self.session.is_running

    @property
    def session_id(self) -> str:
        """The id of the session that is open or followed; empty if there is none."""
        return self.session.session_id

    async def between_turns(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do something that changes the session: now, or after the turn that is running."""
        conversation = self.session.conversation
        if conversation is None or not conversation.is_running:
            await work()
            return
        conversation.after_turn.append(work)

    def own_commands(self) -> Mapping[str, OwnCommand]:
        """The commands of files of the user and of the project, by name, as they are now."""
        return find_own_commands(command_folders(self.folder, Path.home(), self.around.root, os.environ))

    def send(self, text: str) -> None:
        """Send the text of a command to the agent: nothing in it was typed by the user as it stands."""
        self.session.send((Text(text, attached=True),))

    def insert(self, text: str) -> None:
        """Insert text at the cursor of the input line."""
        self.line.buffer.insert_text(text)

    def attach(self, image: PastedImage) -> None:
        """Attach an image to the message that is being typed."""
        self.line.attach(image)

    async def choose(self, title: str, rows: Sequence[Row], source: RowSource = NO_SOURCE) -> Row | None:
        """Let the user choose a row; `None` if the user chose none. What was typed is put back afterwards."""
        chosen = await self.lists.choose(title, rows, NO_KEYS, source)
        return None if chosen is None else chosen.row

    async def walk(self, title: str, rows: Sequence[Row], keys: Mapping[str, str], at: str = "") -> RowChoice | None:
        """Let the user choose a row by Enter or one of the keys; `at` is where the cursor stands first."""
        return await self.lists.choose(title, rows, keys, at=at)

    async def pal(self, *words: str) -> None:
        """Run a command of `pal`, and show what it prints. The session goes on meanwhile."""
        has_keys = words[0] in _OWN_CTRL_C
        await self.display.above(lambda: self.around.run_pal(words), in_thread=not has_keys, reads_keys=has_keys)

    async def ask_secret(self, question: str) -> str:
        """Return a line that is typed without being shown; nothing keeps it. Empty if the user types none."""
        return await self.display.above(lambda: secret_line(question), in_thread=True)

    def renew_settings(self) -> None:
        """Read the settings again; this session uses their providers, model cards and those of the terminal from now on."""
        if self.agent is not None:
            renewed = self.around.renew(self.agent)
            self.missing = renewed.missing
            if renewed.config.theme != self.notifier.config.theme:
                self.change_theme(renewed.config.theme)
            self.notifier.config = self.script.config = renewed.config
            self.display.refresh()

    async def pick_session(self, title: str) -> str | None:
        """Return the id of a session with messages that the user chooses; empty if there is none, `None` if the user chose none."""
        listed = await asyncio.to_thread(self.around.sessions)
        if not listed.rows:
            return ""
        chosen = await self.choose(title, listed.rows, listed.source)
        return None if chosen is None else chosen.value

    async def shell(self, line: str) -> int:
        """Run a line in the user's own shell, which has the terminal until its end, and return its exit code.

        Under a profile that tells the model about such lines, it is stated with its output.
        """
        agent = self.agent
        root = self.around.root if agent is None else agent.toolbox.workspace.root
        if agent is None or not agent.session.profile.states_shell_lines:
            return await self.display.above(lambda: run_in_shell(line, root), in_thread=True)
        ran = await self.display.above(lambda: run_and_keep(line, root), in_thread=True)
        from palimpsest.sources.user_events import shell_statement  # few profiles tell the model

        session = agent.session

        async def state() -> None:
            session.log.append(ContextStated((shell_statement(line, ran.code, ran.seconds, ran.output),)))

        await self.between_turns(state)
        return ran.code

    async def switch_session(self, session: str, *, fork: bool = False) -> None:
        """Close this session and open another, a fork of it, or a new one if the id is empty; `?` lets the user choose."""
        if session == "?":
            chosen = await self.pick_session("Which session?")
            if chosen is None:
                return
            if not chosen:
                raise BadInput("there is no session with messages yet; /start import brings those of other agents")
            session = chosen
        self.line.leave_session()
        await self.session.close(shown=fork)
        self.transcript = Transcript()
        await self.session.open(session, fork=fork)

    async def take_over(self) -> None:
        """Go on with a session that another terminal has."""
        await self.session.take_over()

    @property
    def theme(self) -> Theme:
        """The theme of now."""
        return self.look.theme

    def change_theme(self, theme: str) -> None:
        """Paint with another theme from now on."""
        self.look = replace(self.look, theme=cast("Theme", theme))
