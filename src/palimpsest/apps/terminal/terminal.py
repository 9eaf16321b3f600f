"""The agent in a terminal: what the user types becomes turns, commands and answers, and what happens becomes blocks on the screen."""

import asyncio
import gc
import time
from collections import deque
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from msgspec.structs import replace
from rich.cells import cached_cell_len

from palimpsest.apps.terminal.choosing import ENTER, Chooser, Lists, Row
from palimpsest.apps.terminal.commands.room import CommandSide
from palimpsest.apps.terminal.display import Device, Display
from palimpsest.apps.terminal.frame import Frame
from palimpsest.apps.terminal.input.attachments import texts_of
from palimpsest.apps.terminal.input.completion import TerminalCompleter
from palimpsest.apps.terminal.input.keys import key_bindings
from palimpsest.apps.terminal.input.line import InputLine
from palimpsest.apps.terminal.programs.notifying import Notifier
from palimpsest.apps.terminal.programs.status_script import StatusScript
from palimpsest.apps.terminal.questions import Questions
from palimpsest.apps.terminal.screen.blocks import Block, NoticeBlock, NoticeLevel, ThinkingBlock, ToolBlock, UserBlock
from palimpsest.apps.terminal.screen.look import ScreenLook
from palimpsest.apps.terminal.screen.painting import gap, paint
from palimpsest.apps.terminal.screen.placing import placed
from palimpsest.apps.terminal.screen.question import AnswerKey, PermissionQuestion
from palimpsest.apps.terminal.screen.status import Status
from palimpsest.apps.terminal.screen.transcript import Transcript
from palimpsest.apps.terminal.sessions.attachment import Attachment
from palimpsest.apps.terminal.sessions.loading import load_for_first_message
from palimpsest.apps.terminal.state import StatusReader
from palimpsest.apps.terminal.surroundings import OpenedAgent, TerminalSurroundings
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import PermissionAsked
from palimpsest.engine.loop.feed import Piece
from palimpsest.tools.permissions.decision import Approval

# Seconds within which a second Ctrl-C counts as the wish to leave.
TWICE_SECONDS: Final = 1.5
_MOST_OPENED: Final = 20
# Objects between two collections of garbage while the terminal is open, and how many of these until older objects are included. The
# start of `pal` allows far more, see `apps.cli.start`: over hundreds of turns the cycles that painting leaves behind would pile up.
_COLLECT: Final = (1_000, 5, 5)


class Terminal(CommandSide):
    """One terminal with one agent at a time. The user may type while the session is being opened."""

    def __init__(
        self, around: TerminalSurroundings, look: ScreenLook, device: Device, *, vi: bool = False, seconds: float | None = None
    ) -> None:
        self.around = around
        self.look = look
        self.line = InputLine(around.folder, around.root, TerminalCompleter(self._completions, around.root))
        self.display = Display(self.line.buffer, key_bindings(self), Frame(self), look, device, vi=vi)
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
        from palimpsest.apps.terminal.commands.registry import completions  # loaded after the first prompt

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

    def live_blocks(self) -> tuple[Block, ...]:
        """The blocks that still change, without the call that a question is about."""
        asked = self.questions.open
        hidden = None if asked is None else asked.asked.call_id
        return tuple(block for block in self.transcript.live() if not isinstance(block, ToolBlock) or block.call_id != hidden)

    def queued(self) -> tuple[str, ...]:
        """Messages that wait for the next safe point, or for the session to be open."""
        return self.session.queued()

    def question(self) -> PermissionQuestion | None:
        """The open question."""
        return self.questions.open

    def list(self) -> Chooser | None:
        """The open list, filtered by what is typed."""
        return self.lists.shown()

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
        from palimpsest.apps.terminal.commands.command import NotOpen  # loaded after the first prompt
        from palimpsest.apps.terminal.commands.registry import run_line

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
