"""The agent in a terminal: what the user types becomes turns, commands and answers, and what happens becomes blocks on the screen."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer, ThreadedCompleter
from prompt_toolkit.input import Input
from prompt_toolkit.output import Output

from palimpsest.apps.terminal.conversation import Conversation
from palimpsest.apps.terminal.display import Display
from palimpsest.apps.terminal.input.attachments import Attachments
from palimpsest.apps.terminal.input.drafts import Draft
from palimpsest.apps.terminal.input.history import HistoryFile
from palimpsest.apps.terminal.input.keys import key_bindings
from palimpsest.apps.terminal.placing import first_line
from palimpsest.apps.terminal.questions import AnswerKey, Question, Questions
from palimpsest.apps.terminal.screen.blocks import Block, NoticeBlock, NoticeLevel, ThinkingBlock, ToolBlock
from palimpsest.apps.terminal.screen.frame import Frame
from palimpsest.apps.terminal.screen.look import Look
from palimpsest.apps.terminal.screen.painting import paint
from palimpsest.apps.terminal.screen.status import Status
from palimpsest.apps.terminal.screen.transcript import Transcript
from palimpsest.apps.terminal.state import status_of
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import PermissionAsked
from palimpsest.engine.agent import Agent
from palimpsest.engine.loop.feed import Piece
from palimpsest.tools.permissions.decision import Approval

# Seconds within which a second Ctrl-C or Esc counts as the same wish.
TWICE_SECONDS: Final = 1.0
# Seconds from the last key to the writing of a draft.
_DRAFT_SECONDS: Final = 0.3
_MOST_OPENED: Final = 20

Approve = Callable[[PermissionAsked], Awaitable[Approval]]


class OpenedAgent(Struct, frozen=True):
    """An agent that is ready, and what the user should know about it."""

    agent: Agent
    notices: tuple[str, ...] = ()


class TerminalSettings(Struct, frozen=True):
    """What a terminal needs beside the agent: where history and drafts are kept, how it looks, and which keys edit."""

    folder: Path | None
    look: Look = Look()
    vi: bool = False
    answer_seconds: float | None = None


class Terminal:
    """One terminal with one agent. `open_agent` makes the agent outside of the event loop, while the user may type already."""

    def __init__(
        self,
        settings: TerminalSettings,
        open_agent: Callable[[Approve], OpenedAgent],
        run_command: Callable[["Terminal", str], Awaitable[None]],
        completer: Completer,
        input: Input,
        output: Output,
    ) -> None:
        self.settings = settings
        self.look = settings.look
        self._open_agent = open_agent
        self._run_command = run_command
        self.attachments = Attachments()
        self.buffer = Buffer(
            multiline=True,
            history=HistoryFile(None if settings.folder is None else settings.folder / "history.jsonl"),
            completer=ThreadedCompleter(completer),
            complete_while_typing=True,
            enable_history_search=True,
            tempfile_suffix=".md",
            on_text_changed=lambda _: self._keep_draft_soon(),
        )
        self.display = Display(self.buffer, key_bindings(self), Frame(self), self.look, input, output, vi=settings.vi)
        self.transcript = Transcript()
        self.questions = Questions(self.display.refresh, self.transcript.call, settings.answer_seconds)
        self.conversation: Conversation | None = None
        self.opened: deque[Block] = deque(maxlen=_MOST_OPENED)
        self.hint = "opening the session"
        self._draft = Draft(None, "")
        self._draft_timer: asyncio.TimerHandle | None = None
        self._unsent: list[str] = []
        self._stopped_at = self._escaped_at = 0.0
        self._work: set[asyncio.Task[None]] = set()

    @property
    def agent(self) -> Agent | None:
        """The agent; `None` until the session is open."""
        return None if self.conversation is None else self.conversation.agent

    async def run(self) -> None:
        """Show the screen until the user leaves, then end the session in order."""
        opening = asyncio.ensure_future(self._open())
        try:
            await self.display.run()
        finally:
            self._keep_draft()
            opening.cancel()
            with suppress(asyncio.CancelledError, PalimpsestError):
                await opening
            if self.conversation is not None:
                await self.conversation.interrupt()

    async def _open(self) -> None:
        try:
            opened = await asyncio.to_thread(self._open_agent, self.questions.ask)
        except PalimpsestError as error:
            self.show(NoticeBlock(str(error), "error"))
            self.hint = "no session is open; Ctrl-D leaves"
            return
        agent = opened.agent
        self.conversation = Conversation(agent, self.take, self._failed, self._turn_ended)
        for notice in opened.notices:
            self.show(NoticeBlock(notice))
        self._draft = Draft(self.settings.folder, agent.id)
        if not self.buffer.text:
            self.buffer.text = self._draft.read()
            self.buffer.cursor_position = len(self.buffer.text)
        self.hint = ""
        for text in self._unsent:
            self.conversation.send(text)
        self._unsent.clear()
        self.conversation.go_on()
        self.display.refresh()

    def take(self, piece: Piece) -> None:
        """Show an event or a delta."""
        for block in self.transcript.take(piece):
            self.show(block)
        self.display.refresh()

    def show(self, block: Block) -> None:
        """Add a block to the scrollback."""
        if isinstance(block, ToolBlock | ThinkingBlock):
            self.opened.append(block)
        self.display.write(paint(block, replace(self.look, width=self.display.size.columns), first_line=first_line(block, self._root)))

    @property
    def _root(self) -> Path | None:
        return None if self.agent is None else self.agent.toolbox.workspace.root

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
            self.notice(str(error), "error")

    def _failed(self, error: PalimpsestError) -> None:
        self.notice(str(error), "error")

    def _turn_ended(self) -> None:
        self.display.refresh()

    # What the frame shows.

    def live_blocks(self) -> tuple[Block, ...]:
        """The blocks that still change."""
        return self.transcript.live()

    def queued(self) -> tuple[str, ...]:
        """Messages that wait for the next safe point."""
        return tuple(self._unsent) if self.conversation is None else self.conversation.queued

    def question(self) -> Question | None:
        """The open question."""
        return self.questions.open

    def status(self) -> Status:
        """What the status line says."""
        if self.conversation is None:
            return Status(hint=self.hint)
        return status_of(self.conversation, self.hint)

    # What keys do.

    def submit(self) -> None:
        """Send what is typed: a command, a shell line of the user, or a message."""
        text = self.buffer.text.strip()
        if not text:
            return
        message = self.attachments.unfolded(text)
        self.buffer.append_to_history()
        self.buffer.reset()
        self.attachments.clear()
        self._keep_draft()
        if text.startswith("/") or text.startswith("!"):
            self.start(self._run_command(self, text))
        elif self.conversation is None:
            self._unsent.append(message)
        else:
            try:
                self.conversation.send(message)
            except PalimpsestError as error:
                # What cannot be recorded, such as on a full disk, stays in the input.
                self.buffer.text = message
                self.notice(str(error), "error")
        self.display.refresh()

    def escape(self) -> None:
        """Interrupt the agent, or refuse an open question and stop."""
        self._escaped_at = time.monotonic()
        if self.questions.open is not None:
            self.questions.answer("esc")
        if self.conversation is not None and self.conversation.is_running:
            self.start(self.conversation.interrupt())

    def rewind(self) -> None:
        """Offer to go back to an earlier message."""
        if self.conversation is not None and self.conversation.is_running:
            self.escape()
        else:
            self.start(self._run_command(self, "/rewind"))

    def stop(self) -> None:
        """Interrupt, clear the input, or leave if it is pressed twice."""
        now, before = time.monotonic(), self._stopped_at
        self._stopped_at = now
        if self.questions.open is not None or (self.conversation is not None and self.conversation.is_running):
            self.escape()
            self.hint = "Ctrl-C again leaves"
        elif self.buffer.text:
            # Nothing typed is lost: the arrow up brings it back.
            self.buffer.append_to_history()
            self.buffer.reset()
            self._keep_draft()
        elif now - before <= TWICE_SECONDS:
            self.leave()
        else:
            self.hint = "Ctrl-C again leaves"
        self.display.refresh()

    def leave(self) -> None:
        """End the terminal."""
        self._keep_draft()
        self.display.exit()

    def open_block(self) -> None:
        """Show the newest folded block in full; the next time the one before it."""
        if self.opened:
            block = self.opened.pop()
            look = replace(self.look, width=self.display.size.columns)
            self.display.write(paint(block, look, opened=True, first_line=first_line(block, self._root)))

    def next_mode(self) -> None:
        """Change to the next mode."""
        self.start(self._run_command(self, "/mode next"))

    def paste(self, text: str) -> None:
        """Insert a pasted text; a long one as a mark."""
        self.buffer.insert_text(self.attachments.folded(text))

    def paste_image(self) -> None:
        """Attach the image of the clipboard."""
        self.start(self._run_command(self, "/image"))

    def take_back(self) -> bool:
        """Take the newest queued message back into the input; false if none waits."""
        text = "" if self.conversation is None else self.conversation.take_back()
        if text:
            self.buffer.text = text
            self.buffer.cursor_position = len(text)
            self.display.refresh()
        return bool(text)

    def answer(self, key: AnswerKey) -> None:
        """Answer the open question."""
        self.questions.answer(key)

    @property
    def is_asking(self) -> bool:
        """Whether a question is open."""
        return self.questions.open is not None

    # Drafts.

    def _keep_draft_soon(self) -> None:
        if self._draft_timer is None:
            with suppress(RuntimeError):
                self._draft_timer = asyncio.get_running_loop().call_later(_DRAFT_SECONDS, self._keep_draft)

    def _keep_draft(self) -> None:
        if self._draft_timer is not None:
            self._draft_timer.cancel()
            self._draft_timer = None
        self._draft.keep(self.attachments.unfolded(self.buffer.text))
