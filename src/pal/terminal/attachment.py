"""The session that a terminal is attached to, with its own agent or read-only, and the handover between two terminals."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from pal.terminal.conversation import AgentConversation, OpenReply, load_for_replies
from pal.terminal.input import MessagePart, PastedImage, texts_of
from pal.terminal.painting import Block, NoticeLevel
from pal.terminal.surroundings import Approve, FollowedLog, OpenedAgent, TerminalSurroundings
from palimpsest.agent.feed import Piece
from palimpsest.core.errors import BadInput, Locked, PalimpsestError
from palimpsest.core.events import Event
from palimpsest.core.items import Image
from palimpsest.stores.files import write_private

if TYPE_CHECKING:
    from palimpsest.agent.agent import Agent

_ASKED: Final = b"asked\n"
_REFUSED: Final = b"refused\n"


class HandoverFile:
    """The wish of another terminal for a session. `folder` is that of the home; without one there is no other terminal.

    The file says nothing but that it is wanted: giving the session away is the choice of the user who has it.
    """

    def __init__(self, folder: Path | None, session: str) -> None:
        self._path = None if folder is None else folder / "handover" / session

    def ask(self) -> None:
        """Ask the other terminal for the session."""
        self._write(_ASKED)

    def refuse(self) -> None:
        """Answer that the session is not given away."""
        self._write(_REFUSED)

    def clear(self) -> None:
        """Remove the wish."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    @property
    def is_asked(self) -> bool:
        """Whether another terminal asks for the session."""
        return self._read() == _ASKED

    @property
    def is_refused(self) -> bool:
        """Whether the terminal that has the session has refused."""
        return self._read() == _REFUSED

    def _read(self) -> bytes:
        if self._path is None:
            return b""
        try:
            with self._path.open("rb") as file:
                return file.read(len(_REFUSED))
        except OSError:
            return b""

    def _write(self, data: bytes) -> None:
        if self._path is not None:
            with suppress(PalimpsestError, OSError):
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_private(self._path, data, sync=False)


# Seconds between two looks at what another terminal has written or asked for; a look costs a system call.
_LOOK_SECONDS: Final = 0.2
# Looks that find no writer until a terminal counts as ended: one that is given the session needs a moment to open it.
_LOOKS_WITHOUT_WRITER: Final = 5
READ_ONLY: Final = "read-only: another terminal has this session; /takeover asks for it"
ENDED: Final = "read-only: the other terminal has ended; /takeover or a message goes on here"
Typed = tuple[MessagePart, ...]


class AttachedTerminal(Protocol):
    """The terminal, as its session sees it."""

    def take(self, piece: Piece) -> None:
        """Show an event or a delta."""
        ...

    def show(self, block: Block) -> None:
        """Add a block to the scrollback."""
        ...

    def notice(self, text: str, level: NoticeLevel = "info") -> None:
        """Add a line to the scrollback."""
        ...

    def failed(self, error: PalimpsestError) -> None:
        """Show an error."""
        ...

    def changed(self) -> None:
        """Paint again: the state of the session changed."""
        ...

    def turn_ended(self) -> None:
        """Paint again, and tell the user."""
        ...

    def attached(self, opened: OpenedAgent) -> None:
        """Continue with an agent that is ready: show its notices, and the draft of its session."""
        ...

    def recorded(self) -> None:
        """Forget the copies of messages that waited for the session and are recorded now."""
        ...

    def give_back(self, text: str) -> None:
        """Put what could not be sent before what is typed."""
        ...

    async def gives_away(self) -> bool:
        """Ask the user whether another terminal may have the session."""
        ...


class Attachment:
    """At most one session at a time. `hint` is what the status line says about it; empty while an agent is there.

    `unsent` are messages that wait for the session to be open; the input line keeps them on disk until then.
    """

    def __init__(self, around: TerminalSurroundings, terminal: AttachedTerminal, approve: Approve, unsent: list[Typed]) -> None:
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
        self._terminal.recorded()

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
