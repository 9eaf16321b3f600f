"""The agent in a terminal: user input becomes turns, commands and answers, and events become blocks on the screen."""

import asyncio
import gc
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec.structs import replace
from prompt_toolkit.data_structures import Size
from rich.cells import cached_cell_len

from pal.terminal.attachment import Attachment
from pal.terminal.choosing import ENTER, NO_KEYS, NO_SOURCE, Row, RowChoice, RowSource
from pal.terminal.commands.own import OwnCommand, command_folders, find_own_commands
from pal.terminal.conversation import Questions, load_for_first_message
from pal.terminal.display import Device, Display, Frame, FrameOutput, Shown, placed, reflows
from pal.terminal.input import InputLine, Keyboard, Lists, PastedImage, TerminalCompleter, texts_of
from pal.terminal.keys import key_bindings
from pal.terminal.look import ScreenLook, Theme
from pal.terminal.painting import Block, NoticeBlock, NoticeLevel, ThinkingBlock, ToolBlock, UserBlock, gap, paint
from pal.terminal.programs import Notifier, StatusScript, run_and_keep, run_in_shell, secret_line
from pal.terminal.surroundings import OpenedAgent, StatusReader, TerminalSurroundings
from pal.terminal.transcript import AnswerKey, Status, Transcript
from pal.text import unfiltered
from palimpsest.agent.decision import Approval
from palimpsest.agent.feed import Piece
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events import ContextStated, PermissionAsked
from palimpsest.core.items import Text

if TYPE_CHECKING:
    from palimpsest.agent.agent import Agent


# Commands of `pal` that handle Ctrl-C themselves, which only the main thread can; the session waits for them.
_OWN_CTRL_C: Final = frozenset({"import", "memory"})


class CommandSide:
    """What a terminal does for commands; the terminal itself sets the attributes."""

    around: TerminalSurroundings
    look: ScreenLook
    line: InputLine
    frame: Frame
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
        from palimpsest.sources.progress import shell_statement  # few profiles tell the model

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
        self.look = self.frame.look = replace(self.look, theme=cast("Theme", theme))


# Seconds within which a second Ctrl-C counts as the wish to leave.
TWICE_SECONDS: Final = 1.5
_MOST_OPENED: Final = 20
# Objects between two collections of garbage while the terminal is open, and how many of these until older objects are included. The
# start of `pal` allows far more, see `pal.cli.start`: over hundreds of turns the cycles that painting leaves behind would pile up.
_COLLECT: Final = (1_000, 5, 5)


class Terminal(CommandSide):
    """One terminal with one agent at a time. The user may type while the session is being opened."""

    def __init__(
        self, around: TerminalSurroundings, look: ScreenLook, device: Device, *, vi: bool = False, seconds: float | None = None
    ) -> None:
        self.around = around
        self.look = look
        self.line = InputLine(around.folder, around.root, TerminalCompleter(self._completions, around.root))
        self.frame = Frame(look, self._shown, self.status)
        self.display = Display(self.line.buffer, key_bindings(self), self.frame, device, vi=vi)
        self.transcript = Transcript()
        self.questions = Questions(self._question_changed, self._call, seconds)
        self.session = Attachment(around, self, self._ask, self.line.waiting)
        self.notifier = Notifier(around.config, around.root, self.display.write, self.start)
        self.script = StatusScript(around.config, around.root, self.display.refresh)
        self.lists = Lists(self.line, self.display.refresh)
        self.opened: deque[Block] = deque(maxlen=_MOST_OPENED)
        self.last_block: Block | None = None
        self.hint = self.missing = ""
        self._status = StatusReader()
        self._stopped_at = self._escaped_at = 0.0
        self._work: set[asyncio.Task[None]] = set()
        self._opening_ended = asyncio.Event()

    async def run(self) -> None:
        """Show the screen until the user leaves, then end the session in order."""
        opening = asyncio.ensure_future(self._open())
        try:
            await self.display.run()
        finally:
            self.line.keep()
            opening.cancel()
            with suppress(asyncio.CancelledError):
                await opening
            if self.session.agent is not None and self.session.agent.session.is_blank:
                # The session is not kept, but what was typed and not sent is.
                self.line.of_project()
            await self.session.close()

    async def _open(self) -> None:
        await self._guarded(self.session.open(self.around.session))
        self._opening_ended.set()
        await asyncio.to_thread(load_for_first_message)
        # What the start has made stays until the end: leaving it out makes every later collection short enough for a key in between.
        gc.freeze()
        gc.set_threshold(*_COLLECT)

    # What the session uses.

    def attached(self, opened: OpenedAgent) -> None:
        """Continue with an agent that is ready: show its notices, and the draft of its session."""
        for notice in opened.notices:
            self.notice(notice)
        self.line.of_session(opened.agent.id)
        self.missing = opened.missing
        if opened.missing and not opened.earlier:
            self.start(self._command("/start"))

    def recorded(self) -> None:
        """Forget the copies of messages that are recorded now."""
        self.line.keep()

    def changed(self) -> None:
        """Paint again, and run the script of the status line."""
        self.display.refresh()
        agent = self.agent
        if agent is not None:
            log = "" if self.folder is None else str(self.folder / "sessions" / agent.id)
            self.start(self.script.refresh(agent.id, log, self.status()))

    def turn_ended(self) -> None:
        """Tell the user, paint again, and drop what painting has measured: rich keeps the width of thousands of lines."""
        cached_cell_len.cache_clear()
        self.notifier.notify("turn_ended", "the agent is done", "" if self.agent is None else self.agent.id)
        self.changed()

    async def _ask(self, asked: PermissionAsked) -> Approval:
        self.notifier.notify("question", f"{asked.tool} needs your permission", "" if self.agent is None else self.agent.id)
        return await self.questions.ask(asked)

    def give_back(self, text: str) -> None:
        """Put what could not be sent before what is typed."""
        self.line.put(f"{text}\n{self.line.text}".strip())

    async def gives_away(self) -> bool:
        """Ask the user whether another terminal may have the session."""
        rows = (Row("", "no, keep it here"), Row("yes", "yes: it goes on there, and is shown here read-only"))
        chosen = await self.choose("Another terminal asks for this session. Give it away?", rows)
        return chosen is not None and bool(chosen.value)

    def _question_changed(self) -> None:
        if self.questions.open is None and self.lists.open is None:
            self.line.bring_back()
        self.display.refresh()

    def _call(self, call_id: str) -> ToolBlock | None:
        found = self.transcript.call(call_id)
        call = None if found is None else placed(replace(found, state="writing"), self.around.root)
        return call if isinstance(call, ToolBlock) else None

    def take(self, piece: Piece) -> None:
        """Show an event or a delta."""
        for block in self.transcript.take(piece):
            self.show(block)
        self.display.refresh()

    def show(self, block: Block, *, opened: bool = False) -> None:
        """Add a block to the scrollback."""
        if isinstance(block, ToolBlock | ThinkingBlock) and not opened:
            self.opened.append(block)
        look = replace(self.look, width=self.display.size.columns)
        self.write(gap(self.last_block, block) + paint(placed(block, self.around.root), look, opened=opened))
        self.last_block = block

    def write(self, text: str) -> None:
        """Add text with escape sequences to the scrollback."""
        self.display.write(text)

    def _completions(self, line: str) -> Iterable[tuple[str, str]]:
        from pal.terminal.commands.registry import completions  # loaded after the first prompt

        return completions(line, self.agent, self.own_commands())

    def notice(self, text: str, level: NoticeLevel = "info") -> None:
        """Add a line to the scrollback."""
        self.show(NoticeBlock(text, level))

    def start(self, work: Awaitable[None]) -> None:
        """Run something beside the screen; its failure is one line."""
        task = asyncio.ensure_future(self._guarded(work))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except PalimpsestError as error:
            self.failed(error)

    def failed(self, error: PalimpsestError) -> None:
        """Show an error."""
        self.notice(str(error), "error")

    def broke(self, context: Mapping[str, Any]) -> None:
        """Show a defect of this program in one line: the session goes on."""
        error = context.get("exception")
        self.notice(f"a defect of pal: {context.get('message', '')} {type(error).__name__ if error else ''} {error or ''}", "error")

    # What the frame shows.

    def _shown(self) -> Shown:
        """What stands above the input. The call that a question is about stands in the question."""
        question = self.questions.open
        hidden = None if question is None else question.asked.call_id
        blocks = tuple(block for block in self.transcript.live() if not isinstance(block, ToolBlock) or block.call_id != hidden)
        return Shown(self.last_block, blocks, self.session.queued(), question, self.is_answering, self.lists.shown())

    def status(self) -> Status:
        """What the status line says."""
        hint = self.session.hint or self.hint
        status = Status(hint=hint) if self.session.conversation is None else self._status.read(self.session.conversation, hint)
        return replace(status, own=self.script.text)

    # What keys do.

    def submit(self) -> None:
        """Send what is typed: a command, a shell line of the user, or a message. While a question is open, it is the reason of a no."""
        self.notifier.seen()
        if not self.line.text.strip():
            return
        try:
            taken = self.line.take(None if self.agent is None else self.agent.session.environment.keep)
            if self.questions.open is not None:
                self.questions.answer("n", "".join(texts_of(taken.parts)))
            elif taken.text.startswith(("/", "!")) and len(taken.parts) == 1:
                self.show(UserBlock(taken.text, command=True))
                self.start(self._command(taken.text))
            else:
                self.session.send(taken.parts)
        except PalimpsestError as error:
            # What cannot be recorded, such as on a full disk, stays in the input.
            self.failed(error)
        else:
            self.hint = ""
            self.line.sent(taken)
        self.display.refresh()

    async def _command(self, line: str) -> None:
        from pal.terminal.commands.command import NotOpen  # loaded after the first prompt
        from pal.terminal.commands.registry import run_line

        try:
            await run_line(self, line)
        except NotOpen:
            if self._opening_ended.is_set():
                raise
            self.notice("it waits until the session is open")
            await self._opening_ended.wait()
            await run_line(self, line)
        finally:
            if self.session.conversation is not None and not self.is_running:
                self.session.conversation.show_new_events()

    def escape(self) -> None:
        """Close a list, refuse an open question and stop, or interrupt the agent; pressed twice, go back to an earlier message."""
        now, before = time.monotonic(), self._escaped_at
        # One that closes a list is not the first of two.
        self._escaped_at = now if self.lists.open is None else 0.0
        if now - before <= TWICE_SECONDS and not self.is_busy:
            self._escaped_at = 0.0
            self.start(self._command("/rewind"))
            return
        self._interrupt()

    def _interrupt(self) -> None:
        if self.lists.open is not None:
            self.lists.open.leave()
            return
        if self.questions.open is not None:
            self.questions.answer("esc")
        if self.session.conversation is not None and self.is_running:
            self.start(self.session.conversation.interrupt())

    def stop(self) -> None:
        """Interrupt, clear the input, or leave if it is pressed twice."""
        now, before = time.monotonic(), self._stopped_at
        self._stopped_at = now
        if self.is_busy:
            self._interrupt()
        elif self.line.text:
            self.line.clear()
        elif now - before <= TWICE_SECONDS:
            self.leave()
            return
        self.hint = "Ctrl-C again leaves"
        self.display.refresh()

    def leave(self) -> None:
        """End the terminal; the draft is kept."""
        self.line.keep()
        self.display.exit()

    def open_block(self) -> None:
        """Show the call of the open question in full, or the newest folded block; the next time the one before it."""
        asked = self.questions.open
        if asked is not None and asked.call is not None:
            self.show(asked.call, opened=True)
        elif self.opened:
            self.show(self.opened.pop(), opened=True)

    def audit(self) -> None:
        """Show the edits of the context, the newest first, unless a list or a question is open."""
        if self.lists.open is None and self.questions.open is None:
            self.start(self._command("/audit"))

    def next_mode(self) -> None:
        """Change to the next mode."""
        self.start(self._command("/mode next"))

    def paste(self, text: str) -> None:
        """Insert a pasted text; a long one as a mark."""
        self.line.paste(text)

    def edit(self) -> None:
        """Let the user write the message in an editor."""
        self.start(self.display.edit())

    def suspend(self) -> None:
        """Stop the process, as in a shell; its continuation shows the input again."""
        self.line.keep()
        self.display.suspend()

    def put_aside(self) -> None:
        """Put what is typed aside until the open question is answered, so that its keys answer."""
        self.line.set_aside()

    def paste_image(self) -> None:
        """Attach the image of the clipboard."""
        self.start(self._command("/image"))

    def take_back(self) -> bool:
        """Take the newest queued message back into the input; false if none waits."""
        text = "" if self.session.conversation is None else self.session.conversation.take_back()
        if text:
            self.line.put(text)
            self.display.refresh()
        return bool(text)

    def answer(self, key: AnswerKey) -> None:
        """Answer the open question."""
        self.notifier.seen()
        self.questions.answer(key)

    def step(self, by: int) -> None:
        """Move in the open list."""
        if self.lists.open is not None:
            self.lists.open.step(by)

    def take_row(self, key: str = ENTER) -> None:
        """Choose the row under the cursor of the open list by a key."""
        if self.lists.open is not None:
            self.lists.open.take(key)

    def offers(self, key: str) -> bool:
        """Whether the open list has a use for a letter."""
        return self.lists.offers(key)

    @property
    def is_busy(self) -> bool:
        """Whether Esc has something to end: a list, a question or a turn."""
        return self.lists.open is not None or self.questions.open is not None or self.is_running

    @property
    def is_asking(self) -> bool:
        """Whether a question is open."""
        return self.questions.open is not None

    @property
    def is_answering(self) -> bool:
        """Whether keys answer a question. What is typed is a message as soon as it has begun."""
        return self.questions.open is not None and not self.line.text

    @property
    def is_choosing(self) -> bool:
        """Whether a list is open."""
        return self.lists.open is not None


# A terminal that reports no size.
_USUAL: Final = Size(rows=24, columns=80)
# A tenth of Python's default.
_SWITCH_SECONDS: Final = 0.0005


async def run_terminal(around: TerminalSurroundings, look: ScreenLook, *, vi: bool, seconds: float | None) -> None:
    """Run the agent in the terminal of standard input and output until the user leaves, or a signal or a closed terminal ends it."""
    # Keys wait for the threads that plan and encode a request: each time that the loop needs the interpreter, for at most so long.
    sys.setswitchinterval(_SWITCH_SECONDS)
    # What the screen shows of texts is cleaned where it is painted; the rest is its own sequences.
    output = FrameOutput(unfiltered(sys.stdout), _size, os.environ.get("TERM"))
    terminal = Terminal(around, look, Device(Keyboard(sys.stdin), output, reflows(os.environ)), vi=vi, seconds=seconds)
    loop = asyncio.get_running_loop()
    for ending in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(ending, terminal.leave)
    loop.set_exception_handler(lambda _, context: terminal.broke(context))
    loop.add_signal_handler(signal.SIGCONT, terminal.display.come_back)
    try:
        await terminal.run()
    except EOFError:
        # A terminal that was closed has no more input, which may be noticed before the signal arrives.
        return


def _size() -> Size:
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return _USUAL
    return Size(rows=size.lines or _USUAL.rows, columns=size.columns or _USUAL.columns)
