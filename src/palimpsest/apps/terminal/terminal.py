"""The agent in a terminal: what the user types becomes turns, commands and answers, and what happens becomes blocks on the screen."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from msgspec.structs import replace

from palimpsest.apps.terminal.choosing import Chooser, Row
from palimpsest.apps.terminal.commands.completion import TerminalCompleter
from palimpsest.apps.terminal.commands.registry import run_line
from palimpsest.apps.terminal.conversation import AgentConversation
from palimpsest.apps.terminal.display import Device, Display
from palimpsest.apps.terminal.frame import Frame
from palimpsest.apps.terminal.input.attachments import PastedImage
from palimpsest.apps.terminal.input.keys import key_bindings
from palimpsest.apps.terminal.input.line import InputLine, texts_of
from palimpsest.apps.terminal.questions import AnswerKey, PermissionQuestion, Questions
from palimpsest.apps.terminal.screen.blocks import Block, NoticeBlock, NoticeLevel, ThinkingBlock, ToolBlock
from palimpsest.apps.terminal.screen.look import ScreenLook, Theme
from palimpsest.apps.terminal.screen.painting import paint
from palimpsest.apps.terminal.screen.placing import first_line
from palimpsest.apps.terminal.screen.status import Status
from palimpsest.apps.terminal.screen.transcript import Transcript
from palimpsest.apps.terminal.shell_line import run_in_shell
from palimpsest.apps.terminal.state import StatusReader
from palimpsest.apps.terminal.surroundings import TerminalSurroundings
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.items import Image, Part, Text
from palimpsest.engine.agent import Agent
from palimpsest.engine.loop.feed import Piece

# Seconds within which a second Ctrl-C counts as the wish to leave.
TWICE_SECONDS: Final = 1.5
_MOST_OPENED: Final = 20


class Terminal:
    """One terminal with one agent at a time. The user may type while the session is being opened."""

    def __init__(
        self, around: TerminalSurroundings, look: ScreenLook, device: Device, *, vi: bool = False, seconds: float | None = None
    ) -> None:
        self.around = around
        self.look = look
        self.line = InputLine(around.folder, TerminalCompleter(lambda: self.agent, around.root))
        self.display = Display(self.line.buffer, key_bindings(self), Frame(self), look, device, vi=vi)
        self.transcript = Transcript()
        self.questions = Questions(self._question_changed, self._call, seconds)
        self.conversation: AgentConversation | None = None
        self.chooser: Chooser | None = None
        self.opened: deque[Block] = deque(maxlen=_MOST_OPENED)
        self.hint = ""
        self._status = StatusReader()
        self._unsent: list[tuple[str | PastedImage, ...]] = [(around.prompt,)] if around.prompt else []
        self._stopped_at = self._escaped_at = 0.0
        self._work: set[asyncio.Task[None]] = set()

    @property
    def agent(self) -> Agent | None:
        """The agent; `None` until the session is open."""
        return None if self.conversation is None else self.conversation.agent

    @property
    def folder(self) -> Path | None:
        """The folder of the home; `None` if it is in memory."""
        return self.around.folder

    @property
    def is_running(self) -> bool:
        """Whether a turn is running."""
        return self.conversation is not None and self.conversation.is_running

    async def run(self) -> None:
        """Show the screen until the user leaves, then end the session in order."""
        opening = asyncio.ensure_future(self._guarded(self._open(self.around.session)))
        try:
            await self.display.run()
        finally:
            self.line.keep()
            opening.cancel()
            with suppress(asyncio.CancelledError):
                await opening
            await self._close()

    async def _open(self, session: str, *, fork: bool = False) -> None:
        self.hint = "opening the session"
        try:
            opened = await asyncio.to_thread(self.around.open_agent, session, self.questions.ask, fork=fork)
        except PalimpsestError:
            self.hint = "no session is open; /resume opens one, Ctrl-D leaves"
            unsent, self._unsent = self._unsent, []
            self.line.put("\n".join((*(text for parts in unsent for text in texts_of(parts)), self.line.text)).strip())
            raise
        self.conversation = AgentConversation(opened.agent, self.take, self._failed, self.display.refresh)
        self.hint = ""
        for piece in opened.earlier:
            self.take(piece)
        for notice in opened.notices:
            self.notice(notice)
        self.line.of_session(opened.agent.id)
        unsent, self._unsent = self._unsent, []
        for parts in unsent:
            self._send(parts)
        self.conversation.go_on()
        self.display.refresh()

    async def _close(self) -> None:
        """End the session in order: the turn is interrupted and recorded, hooks and jobs end, and the log is released."""
        conversation, self.conversation = self.conversation, None
        if conversation is not None:
            await conversation.interrupt()
            await conversation.agent.__aexit__(None, None, None)

    def _question_changed(self) -> None:
        if self.questions.open is None and self.chooser is None:
            self.line.bring_back()
        self.display.refresh()

    def _call(self, call_id: str) -> ToolBlock | None:
        return self.transcript.call(call_id)

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
        self.write(paint(block, look, opened=opened, first_line=first_line(block, self.around.root)))

    def write(self, text: str) -> None:
        """Add text with escape sequences to the scrollback."""
        self.display.write(text)

    def notice(self, text: str, level: NoticeLevel = "info") -> None:
        """Add a line to the scrollback."""
        self.show(NoticeBlock(text, level))

    def start(self, work: Awaitable[None]) -> None:
        """Run something beside the screen; its failure is one line."""
        task = asyncio.ensure_future(self._guarded(work))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _run_line(self, line: str) -> None:
        """Run a command, and show what it did to the session: between turns, no turn publishes its events."""
        try:
            await run_line(self, line)
        finally:
            if self.conversation is not None:
                self.conversation.publish_unseen()

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except PalimpsestError as error:
            self._failed(error)

    def _failed(self, error: PalimpsestError) -> None:
        self.notice(str(error), "error")

    # What commands use.

    def send(self, text: str) -> None:
        """Send a message to the agent."""
        self._send((text,))

    def insert(self, text: str) -> None:
        """Insert text at the cursor of the input line."""
        self.line.buffer.insert_text(text)

    def attach(self, image: PastedImage) -> None:
        """Attach an image to the message that is being typed."""
        self.line.attach(image)

    async def choose(self, title: str, rows: Sequence[Row]) -> Row | None:
        """Let the user choose a row; `None` if the user chose none. What was typed is put back afterwards."""
        if self.chooser is not None:
            raise BadInput("another list is open; Esc closes it")
        self.chooser = Chooser(title, rows)
        self.line.set_aside()
        self.display.refresh()
        try:
            return await self.chooser.chosen()
        finally:
            self.chooser = None
            self.line.bring_back()
            self.display.refresh()

    async def pal(self, *words: str) -> None:
        """Run a command of `pal`, and show what it prints."""
        await self.display.above(lambda: self.around.run_pal(words))

    async def shell(self, line: str) -> int:
        """Run a line in the user's own shell, which has the terminal until its end, and return its exit code."""
        root = self.around.root if self.agent is None else self.agent.toolbox.workspace.root
        return await self.display.above(lambda: run_in_shell(line, root), in_thread=True)

    async def switch_session(self, session: str, *, fork: bool = False) -> None:
        """Close this session and open another, a fork of it, or a new one if the id is empty; `?` lets the user choose."""
        if session == "?":
            rows = await asyncio.to_thread(self.around.sessions)
            chosen = await self.choose("Which session?", rows)
            if chosen is None:
                return
            session = chosen.value
        self.line.keep()
        self.line.put("")
        await self._close()
        self.transcript = Transcript()
        await self._open(session, fork=fork)

    def change_theme(self, theme: str) -> None:
        """Paint with another theme from now on."""
        self.look = replace(self.look, theme=cast("Theme", theme))

    # What the frame shows.

    def live_blocks(self) -> tuple[Block, ...]:
        """The blocks that still change, without the call that a question is about."""
        asked = self.questions.open
        hidden = None if asked is None else asked.asked.call_id
        return tuple(block for block in self.transcript.live() if not isinstance(block, ToolBlock) or block.call_id != hidden)

    def queued(self) -> tuple[str, ...]:
        """Messages that wait for the next safe point, or for the session to be open."""
        if self.conversation is not None:
            return self.conversation.queued if self.is_running else ()
        return tuple("".join(part for part in parts if isinstance(part, str)) for parts in self._unsent)

    def question(self) -> PermissionQuestion | None:
        """The open question."""
        return self.questions.open

    def list(self) -> Chooser | None:
        """The open list, filtered by what is typed."""
        if self.chooser is not None:
            self.chooser.filter(self.line.text)
        return self.chooser

    def status(self) -> Status:
        """What the status line says."""
        return Status(hint=self.hint) if self.conversation is None else self._status.read(self.conversation, self.hint)

    # What keys do.

    def submit(self) -> None:
        """Send what is typed: a command, a shell line of the user, or a message. While a question is open, it is the reason of a no."""
        if not self.line.text.strip():
            return
        try:
            taken = self.line.take(None if self.agent is None else self.agent.session.environment.keep)
            if self.questions.open is not None:
                self.questions.answer("n", "".join(texts_of(taken.parts)))
            elif taken.text.startswith(("/", "!")) and len(taken.parts) == 1:
                self.start(self._run_line(taken.text))
            else:
                self._send(taken.parts)
        except PalimpsestError as error:
            # What cannot be recorded, such as on a full disk, stays in the input.
            self._failed(error)
        else:
            self.hint = ""
            self.line.sent(taken)
        self.display.refresh()

    def _send(self, parts: tuple[str | PastedImage, ...]) -> None:
        conversation = self.conversation
        if conversation is None:
            self._unsent.append(parts)
            return
        blobs = conversation.agent.session.environment.blobs
        said: list[Part] = [Text(part) if isinstance(part, str) else Image(part.media, blobs.put(part.data)) for part in parts]
        conversation.send(*said)

    def escape(self) -> None:
        """Close a list, refuse an open question and stop, or interrupt the agent; pressed twice, go back to an earlier message."""
        now, before = time.monotonic(), self._escaped_at
        self._escaped_at = now
        if now - before <= TWICE_SECONDS and not self.is_busy:
            self._escaped_at = 0.0
            self.start(self._run_line("/rewind"))
            return
        self._interrupt()

    def _interrupt(self) -> None:
        if self.chooser is not None:
            self.chooser.leave()
            return
        if self.questions.open is not None:
            self.questions.answer("esc")
        if self.conversation is not None and self.is_running:
            self.start(self.conversation.interrupt())

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
            self.show(replace(asked.call, state="writing"), opened=True)
        elif self.opened:
            self.show(self.opened.pop(), opened=True)

    def next_mode(self) -> None:
        """Change to the next mode."""
        self.start(self._run_line("/mode next"))

    def paste(self, text: str) -> None:
        """Insert a pasted text; a long one as a mark."""
        self.line.paste(text)

    def edit(self) -> None:
        """Let the user write the message in an editor."""
        self.start(self.display.edit())

    def suspend(self) -> None:
        """Stop the process, as in a shell; its continuation shows the input again."""
        self.line.keep()
        self.display.app.suspend_to_background()

    def put_aside(self) -> None:
        """Put what is typed aside until the open question is answered, so that its keys answer."""
        self.line.set_aside()

    def paste_image(self) -> None:
        """Attach the image of the clipboard."""
        self.start(self._run_line("/image"))

    def take_back(self) -> bool:
        """Take the newest queued message back into the input; false if none waits."""
        text = "" if self.conversation is None else self.conversation.take_back()
        if text:
            self.line.put(text)
            self.display.refresh()
        return bool(text)

    def answer(self, key: AnswerKey) -> None:
        """Answer the open question."""
        self.questions.answer(key)

    def move(self, by: int) -> None:
        """Move in the open list."""
        if self.chooser is not None:
            self.chooser.move(by)

    def take_row(self) -> None:
        """Choose the row under the cursor of the open list."""
        if self.chooser is not None:
            self.chooser.take()

    @property
    def is_busy(self) -> bool:
        """Whether Esc has something to end: a list, a question or a turn."""
        return self.chooser is not None or self.questions.open is not None or self.is_running

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
        return self.chooser is not None
