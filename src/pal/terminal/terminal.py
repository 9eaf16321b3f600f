"""The agent in a terminal: user input becomes turns, commands and answers, and events become blocks on the screen."""

import asyncio
import gc
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

from msgspec.structs import replace
from prompt_toolkit.key_binding import KeyBindingsBase
from rich.cells import cached_cell_len

from pal.terminal.choosing import NO_KEYS, NO_SOURCE, Row, RowChoice, RowSource
from pal.terminal.conversation import AgentConversation, OpenReply, Questions, load_for_first_message, load_for_replies
from pal.terminal.display import Device, Display, Frame, Shown, placed
from pal.terminal.handover import HandoverFile
from pal.terminal.input import InputLine, Lists, MessagePart, PastedImage, TerminalCompleter, texts_of
from pal.terminal.look import ScreenLook, Theme
from pal.terminal.own_commands import OwnCommand, command_folders, find_own_commands
from pal.terminal.painting import Block, NoticeBlock, NoticeLevel, ThinkingBlock, ToolBlock, UserBlock, gap, paint
from pal.terminal.programs import Notifier, StatusScript, run_and_keep, run_in_shell, secret_line
from pal.terminal.surroundings import Approve, FollowedLog, OpenedAgent, StatusReader, TerminalSurroundings
from pal.terminal.transcript import AnswerKey, Status, Transcript
from palimpsest.agent.decision import Approval
from palimpsest.agent.feed import Piece
from palimpsest.core.errors import BadInput, Locked, PalimpsestError
from palimpsest.core.events import ContextStated, Event, PermissionAsked
from palimpsest.core.items import Image, Text

if TYPE_CHECKING:
    from palimpsest.agent.agent import Agent


# Commands of `pal` that handle Ctrl-C themselves, which only the main thread can; the session waits for them.
_OWN_CTRL_C: Final = frozenset({"import", "memory"})
# Seconds within which a second Ctrl-C counts as the wish to leave.
TWICE_SECONDS: Final = 1.5
_MOST_OPENED: Final = 20
# Objects between two collections of garbage while the terminal is open, and how many of these until older objects are included. The
# start of `pal` allows far more, see `pal.cli.start`: over hundreds of turns the cycles that painting leaves behind would pile up.
_COLLECT: Final = (1_000, 5, 5)


Rows: TypeAlias = Sequence[Row]


class NotOpen(BadInput):
    """No session is open. While one is being opened, the terminal runs the command again once it is."""

    def __init__(self) -> None:
        super().__init__("no session is open; /resume opens one")


class Commands(NamedTuple):
    """What runs a line of a command, and what completes it."""

    run: Callable[["Terminal", str], Awaitable[None]]
    complete: Callable[[str, "Agent | None", Mapping[str, OwnCommand]], Iterable[tuple[str, str]]]


class Terminal:
    """One terminal with one agent at a time. The user may type while the session is being opened.

    `keys` gives what each key does; `commands` is asked for the first time after the first prompt.
    """

    def __init__(
        self,
        around: TerminalSurroundings,
        look: ScreenLook,
        device: Device,
        keys: Callable[["Terminal"], KeyBindingsBase],
        commands: Callable[[], Commands],
        *,
        vi: bool,
        seconds: float | None,
    ) -> None:
        self._commands = commands
        self.around = around
        self.look = look
        self.line = InputLine(around.folder, around.root, TerminalCompleter(self._completions, around.root))
        self.frame = Frame(look, self._shown, self.status)
        self.display = Display(self.line.buffer, keys(self), self.frame, device, vi=vi)
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

    # What commands use.

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

    async def choose(self, title: str, rows: Sequence[Row], source: RowSource = NO_SOURCE, at: str = "") -> Row | None:
        """Let the user choose a row; `None` if the user chose none. What was typed is put back afterwards. `at` is the first row."""
        chosen = await self.lists.choose(title, rows, NO_KEYS, source, at)
        return None if chosen is None else chosen.row

    async def walk(
        self, title: str, rows: Callable[[], Rows | Awaitable[Rows]], keys: Mapping[str, str] = NO_KEYS, at: str = "", *, without: str = ""
    ) -> AsyncIterator[RowChoice]:
        """Let the user choose rows by Enter or one of the keys, one after another, until they leave the list; `at` is the first row.

        `rows` is asked before each choice; `without` is said if there are none, and the walk ends.
        """
        while True:
            found = rows()
            shown = await found if isinstance(found, Awaitable) else found
            if not shown and without:
                self.notice(without)
            chosen = await self.lists.choose(title, shown, keys, at=at) if shown else None
            if chosen is None:
                return
            at = chosen.row.value
            yield chosen

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

    @property
    def theme(self) -> Theme:
        """The theme of now."""
        return self.look.theme

    def change_theme(self, theme: str) -> None:
        """Paint with another theme from now on."""
        self.look = self.frame.look = replace(self.look, theme=cast("Theme", theme))

    # What the session uses.

    def attached(self, opened: OpenedAgent) -> None:
        """Continue with an agent that is ready: show its notices, and the draft of its session."""
        for notice in opened.notices:
            self.notice(notice)
        self.line.of_session(opened.agent.id)
        self.missing = opened.missing
        if opened.missing and not opened.earlier:
            self.command("/start")

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
        return self._commands().complete(line, self.agent, self.own_commands())

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
                self.command(taken.text)
            else:
                self.session.send(taken.parts)
        except PalimpsestError as error:
            # What cannot be recorded, such as on a full disk, stays in the input.
            self.failed(error)
        else:
            self.hint = ""
            self.line.sent(taken)
        self.display.refresh()

    def command(self, line: str) -> None:
        """Run a line of a command beside the screen."""
        self.start(self._run_line(line))

    async def _run_line(self, line: str) -> None:
        try:
            await self._commands().run(self, line)
        except NotOpen:
            if self._opening_ended.is_set():
                raise
            self.notice("it waits until the session is open")
            await self._opening_ended.wait()
            await self._commands().run(self, line)
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
            self.command("/rewind")
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
            self.command("/audit")

    def edit(self) -> None:
        """Let the user write the message in an editor."""
        self.start(self.display.edit())

    def suspend(self) -> None:
        """Stop the process, as in a shell; its continuation shows the input again."""
        self.line.keep()
        self.display.suspend()

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


# Seconds between two looks at what another terminal has written or asked for; a look costs a system call.
_LOOK_SECONDS: Final = 0.2
# Looks that find no writer until a terminal counts as ended: one that is given the session needs a moment to open it.
_LOOKS_WITHOUT_WRITER: Final = 5
READ_ONLY: Final = "read-only: another terminal has this session; /takeover asks for it"
ENDED: Final = "read-only: the other terminal has ended; /takeover or a message goes on here"
Typed = tuple[MessagePart, ...]


class Attachment:
    """At most one session at a time. `hint` is what the status line says about it; empty while an agent is there.

    `unsent` are messages that wait for the session to be open; the input line keeps them on disk until then.
    """

    def __init__(self, around: TerminalSurroundings, terminal: Terminal, approve: Approve, unsent: list[Typed]) -> None:
        self._around = around
        self._terminal = terminal
        self._approve = approve
        self._unsent = unsent
        if around.prompt:
            unsent.append((around.prompt,))
        self._watch: asyncio.Task[None] | None = None
        self._newest = 0
        self._has_asked = False
        self.conversation: AgentConversation | None = None
        self.followed: FollowedLog | None = None
        self.hint = ""

    @property
    def agent(self) -> "Agent | None":
        """The agent; `None` until the session is open, and while it is only followed."""
        return None if self.conversation is None else self.conversation.agent

    @property
    def session_id(self) -> str:
        """The id of the session that is open or followed; empty if there is none."""
        if self.conversation is not None:
            return self.conversation.agent.id
        return "" if self.followed is None else self.followed.log.session

    @property
    def is_running(self) -> bool:
        """Whether a turn is running."""
        return self.conversation is not None and self.conversation.is_running

    def queued(self) -> tuple[str, ...]:
        """Messages that wait for the next safe point, or for the session to be open."""
        if self.conversation is not None:
            return self.conversation.queued if self.is_running else ()
        return tuple("".join(part for part in parts if isinstance(part, str)) for parts in self._unsent)

    async def open(self, session: str, *, fork: bool = False) -> None:
        """Open a session, a fork of it, or a new one if the id is empty; follow it if another process has it.

        Raises `PalimpsestError` if it cannot be opened.
        """
        self.hint = "opening the session"
        try:
            resumed, forked = ("", session) if fork else (session, "")
            opened = await asyncio.to_thread(self._around.open_agent, resumed, forked, self._approve)
        except Locked:
            await self._follow(session)
            return
        except PalimpsestError:
            self.hint = "no session is open; /resume opens one, Ctrl-D leaves"
            self._give_back()
            raise
        terminal = self._terminal
        open_reply = OpenReply(self._around.folder, opened.agent.id)

        def publish(piece: Piece) -> None:
            open_reply.take(piece)
            terminal.take(piece)

        self.conversation = AgentConversation(opened.agent, publish, terminal.failed, terminal.turn_ended)
        self.hint = ""
        await self._show_again(opened.earlier, open_reply)
        self._newest = 0
        terminal.attached(opened)
        self._send_waiting()
        self.conversation.go_on()
        self._look_after(self._watch_wishes(HandoverFile(self._around.folder, opened.agent.id)))
        terminal.changed()

    async def close(self, *, shown: bool = False) -> None:
        """End the session in order: the turn is interrupted and recorded, hooks and jobs end, and the log is released.

        With `shown` the session that is opened next begins with what stands on the screen already, and only the rest is shown.
        """
        watch, self._watch = self._watch, None
        if watch is not None and watch is not asyncio.current_task():
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
        conversation, self.conversation = self.conversation, None
        followed, self.followed = self.followed, None
        if followed is not None:
            followed.log.close()
        if conversation is not None:
            await conversation.interrupt()
            self._newest = conversation.agent.session.log.tip
            await conversation.agent.__aexit__(None, None, None)
        if not shown:
            self._newest = 0

    def send(self, parts: Typed) -> None:
        """Send a message, or keep it until the session is open. Raises `BadInput` while another terminal has the session."""
        conversation = self.conversation
        if conversation is None:
            if self.followed is not None and self.followed.has_writer():
                raise BadInput("another terminal has this session; /takeover asks for it")
            self._unsent.append(parts)
            if self.followed is not None:
                self._look_after(self._open_again(self.followed.log.session))
            return
        blobs = conversation.agent.session.environment.blobs
        conversation.send(*(Image(part.media, blobs.put(part.data)) if isinstance(part, PastedImage) else part for part in parts))

    def _send_waiting(self) -> None:
        """Send what waited for the session. What cannot be recorded goes back into the input, before the error is raised."""
        try:
            while self._unsent:
                self.send(self._unsent[0])
                del self._unsent[0]
        except PalimpsestError:
            self._give_back()
            raise
        self._terminal.line.keep()

    def _give_back(self) -> None:
        texts = [text for parts in self._unsent for text in texts_of(parts)]
        self._unsent.clear()
        self._terminal.give_back("\n".join(texts))

    async def take_over(self) -> None:
        """Go on with a followed session here: at once if its terminal has ended, else after it was asked for and given.

        Raises `BadInput` if this terminal has the session.
        """
        followed = self.followed
        if followed is None:
            raise BadInput("this terminal has its session already")
        session = followed.log.session
        if followed.has_writer():
            self._has_asked = True
            HandoverFile(self._around.folder, session).ask()
            self.hint = "asked the other terminal for the session"
            self._terminal.changed()
            return
        await self._open_again(session)

    async def _open_again(self, session: str) -> None:
        HandoverFile(self._around.folder, session).clear()
        self._has_asked = False
        try:
            await self.close(shown=True)
            await self.open(session)
        except PalimpsestError as error:
            self._terminal.failed(error)

    async def _follow(self, session: str) -> None:
        """Show a session that another process writes, and its new events as they come."""
        followed = await asyncio.to_thread(self._around.follow, session)
        self.followed = followed
        self.hint = READ_ONLY
        await self._show_again(followed.earlier, OpenReply(self._around.folder, session))
        self._newest = followed.log.tip
        self._look_after(self._watch_log(followed, HandoverFile(self._around.folder, session)))
        self._terminal.changed()

    async def _show_again(self, earlier: tuple[Piece, ...], open_reply: OpenReply) -> None:
        """Show what an earlier conversation said, and what had arrived of a reply when its terminal was killed.

        What this terminal has followed so far stands on its screen.
        """
        if earlier:
            await asyncio.to_thread(load_for_replies)
        for piece in earlier:
            if not isinstance(piece, Event) or piece.seq > self._newest:
                cut_off = open_reply.cut_off(piece)
                for block in cut_off:
                    self._terminal.show(block)
                if not cut_off:
                    self._terminal.take(piece)
                # Painting hundreds of pieces takes long: keys are taken between two of them.
                await asyncio.sleep(0)

    def _look_after(self, work: Coroutine[Any, Any, None]) -> None:
        if self._watch is not None and self._watch is not asyncio.current_task():
            self._watch.cancel()
        self._watch = asyncio.get_running_loop().create_task(work)

    async def _watch_log(self, followed: FollowedLog, wish: HandoverFile) -> None:
        """Show new events until the terminal that writes them ends; open the session if this one has asked for it."""
        without_writer = 0
        while without_writer < _LOOKS_WITHOUT_WRITER:
            without_writer = 0 if followed.has_writer() else without_writer + 1
            try:
                for event in followed.log.follow():
                    self._terminal.take(event)
                    self._newest = event.seq
            except PalimpsestError as error:
                self._terminal.failed(error)
                return
            if self._has_asked and without_writer:
                await self._open_again(followed.log.session)
                return
            if self._has_asked and wish.is_refused:
                wish.clear()
                self._has_asked, self.hint = False, READ_ONLY
                self._terminal.notice("the other terminal keeps the session", "warning")
            await asyncio.sleep(_LOOK_SECONDS)
        self.hint = ENDED
        self._terminal.changed()

    async def _watch_wishes(self, wish: HandoverFile) -> None:
        """Show what is recorded between turns; ask the user when another terminal wants the session, which is then followed here."""
        # A wish from before belongs to a terminal that has ended or has opened the session since.
        wish.clear()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if self.conversation is not None and not self.conversation.is_running:
                # What jobs noted or have to say after a turn.
                self.conversation.show_new_events()
            if not wish.is_asked:
                continue
            if not await self._terminal.gives_away():
                wish.refuse()
                continue
            agent = self.agent
            if agent is None:
                return
            session = agent.id
            await self.close(shown=True)
            await self._follow(session)
            return
