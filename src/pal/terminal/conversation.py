"""An agent at work behind a screen: its turns, permission questions, streamed reply on disk, and earlier conversation."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from pal.terminal.look import ScreenLook
from pal.terminal.painting import Block, NoticeBlock, ReplyBlock, ThinkingBlock, ToolBlock, paint
from pal.terminal.transcript import AnswerKey, PermissionQuestion
from pal.text import one_line
from palimpsest.agent.decision import Approval
from palimpsest.agent.feed import Piece
from palimpsest.core.deltas import CallDelta, Delta, PartialReply, TextDelta, ThinkingDelta
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import (
    TURN,
    CallStarted,
    Event,
    Failed,
    InputWithdrawn,
    Interrupted,
    ModelReplied,
    PermissionAsked,
    ToolRefused,
    ToolReturned,
    ToolStarted,
    TurnEnded,
    UserSaid,
    UserTyped,
    ViewEdited,
)
from palimpsest.core.items import Content, Part, Text, Thinking, ToolCall
from palimpsest.core.log import Log
from palimpsest.stores.files import write_private

if TYPE_CHECKING:
    from palimpsest.agent.agent import Agent


class AgentConversation:
    """The turns of one agent. `publish` gets every event and delta; `failed` the error of a turn; `ended` is called after each turn."""

    def __init__(
        self,
        agent: "Agent",
        publish: Callable[[Piece], None],
        failed: Callable[[PalimpsestError], None],
        ended: Callable[[], None],
    ) -> None:
        self.agent = agent
        self._publish = publish
        self._failed = failed
        self._ended = ended
        self._turn: asyncio.Task[None] | None = None
        self._newest = agent.session.log.tip
        # What waits for the end of the running turn, such as another model.
        self.after_turn: list[Callable[[], Awaitable[None]]] = []

    @property
    def is_running(self) -> bool:
        """Whether a turn is running."""
        return self._turn is not None and not self._turn.done()

    @property
    def queued(self) -> tuple[str, ...]:
        """The texts that wait for the next safe point, oldest first."""
        log = self.agent.session.log
        return tuple(message_text(log.event(seq).body) for seq in log.inbox)

    def send(self, *parts: str | Part) -> None:
        """Queue input; it joins the running turn at its next safe point, or starts one. Raises `PalimpsestError` if it is not recorded."""
        self.agent.say(*parts)
        self.go_on()

    def go_on(self) -> None:
        """Start a turn if none is running and there is something to do: queued input, or a turn that was interrupted by a crash."""
        log = self.agent.session.log
        if not self.is_running and (log.inbox or log.health.turn is not None):
            self._turn = asyncio.ensure_future(self._run())

    def take_back(self) -> str:
        """Withdraw the newest queued input and return its text; empty if none waits."""
        log = self.agent.session.log
        if not log.inbox:
            return ""
        seq = log.inbox[-1]
        text = message_text(log.event(seq).body)
        log.append(InputWithdrawn(seq, "user"))
        return text

    async def interrupt(self) -> None:
        """End the running turn: what arrived is kept, and every call is answered."""
        if self.is_running:
            await self.agent.interrupt()
            await self.settled()

    async def settled(self) -> None:
        """Wait until no turn is running."""
        while self._turn is not None and not self._turn.done():
            await asyncio.wait([self._turn])

    def show_new_events(self) -> None:
        """Show what was recorded and not shown yet, such as the events of a command or a job."""
        log = self.agent.session.log
        # The next turn does not bring them again.
        self.agent.unseen()
        for event in log.reader.run(self._newest + 1, log.tip) if log.tip > self._newest else ():
            self._show(event)

    def _show(self, piece: Piece) -> None:
        if isinstance(piece, Event):
            self._newest = piece.seq
        self._publish(piece)

    async def _run(self) -> None:
        # Input that was typed too late for the last safe point starts a turn of its own.
        while True:
            try:
                async for piece in self.agent.run():
                    self._show(piece)
            except PalimpsestError as error:
                self._failed(error)
                break
            finally:
                await self._do_what_waited()
                self.show_new_events()
                self._ended()
            if not self.agent.session.log.inbox:
                break

    async def _do_what_waited(self) -> None:
        waiting, self.after_turn = self.after_turn, []
        for work in waiting:
            try:
                await work()
            except PalimpsestError as error:
                self._failed(error)


def message_text(body: object) -> str:
    """Return the texts of a message of the user; empty for any other event."""
    return "\n".join(part.text for part in body.parts if isinstance(part, Text)) if isinstance(body, UserTyped | UserSaid) else ""


UNATTENDED: Final = "no answer came in time"


class Questions:
    """Asks one question at a time; others wait. `changed` is called when another question is open, or none.

    A rule that the user allowed for good answers later questions of the same rule, so none of them is asked twice.
    """

    def __init__(self, changed: Callable[[], None], call_of: Callable[[str], ToolBlock | None], seconds: float | None = None) -> None:
        self._changed = changed
        self._call_of = call_of
        self._seconds = seconds
        self._one = asyncio.Lock()
        self._answer: asyncio.Future[Approval] | None = None
        self._allowed: set[str] = set()
        self.open: PermissionQuestion | None = None

    async def ask(self, asked: PermissionAsked) -> Approval:
        """Return the answer of the user. Without one in time, the call is refused."""
        async with self._one:
            if asked.rule and asked.rule in self._allowed:
                return Approval("once", "user", "allowed for this rule before")
            self._answer = asyncio.get_running_loop().create_future()
            self.open = PermissionQuestion(asked, self._call_of(asked.call_id))
            self._changed()
            try:
                async with asyncio.timeout(self._seconds):
                    approval = await self._answer
            except TimeoutError:
                return Approval("no", "timeout", UNATTENDED)
            finally:
                self.open = self._answer = None
                self._changed()
            if approval.answer == "always":
                self._allowed.add(asked.rule)
            return approval

    def answer(self, key: AnswerKey, why: str = "") -> None:
        """Answer the open question; `why` of a refusal is shown to the model. A key that the question does not offer is ignored."""
        if self.open is None or self._answer is None or self._answer.done():
            return
        if key not in [offered for offered, _ in self.open.choices]:
            return
        match key:
            case "y":
                self._answer.set_result(Approval("once"))
            case "a":
                self._answer.set_result(Approval("always"))
            case "n" | "esc":
                self._answer.set_result(Approval("no", why=why or "the user said no"))


# Seconds between two writings, as between two paintings; a writing takes 0.05 ms.
_WRITE_SECONDS: Final = 0.05
# Bytes of a reply that are kept, and that are read.
_LARGEST: Final = 1024 * 1024
CUT_OFF: Final = "cut off here: the terminal ended while this reply arrived; the model does not get this part"

_encode: Final = msgspec.json.Encoder().encode
_delta: Final = msgspec.json.Decoder(Delta).decode
_number: Final = msgspec.json.Decoder(int).decode


class OpenReply:
    """The deltas of one call of a session, a line each behind the number of the call. `folder` is that of the home; `None` keeps nothing.

    A reply that cannot be kept is no reason to stop it: failures are ignored.
    """

    def __init__(self, folder: Path | None, session: str) -> None:
        self._path = None if folder is None else folder / "drafts" / f"{session}.reply.jsonl"
        self._call: int | None = None
        self._pending: list[Delta] = []
        self._kept_bytes = 0
        self._written_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def take(self, piece: Piece) -> None:
        """Keep a delta within a frame; forget all of them when the log has the outcome of their call."""
        match piece:
            case Event(body=CallStarted(purpose=purpose), seq=seq) if purpose == TURN:
                self._pending, self._call, self._kept_bytes = [], seq, 0
            case Event(body=ModelReplied(call=call) | Interrupted(call=call) | Failed(call=call)) if (
                call is not None and call == self._call
            ):
                self.forget()
            case TextDelta() | ThinkingDelta() | CallDelta() if self._call is not None:
                self._pending.append(piece)
                self._write_soon()
            case _:
                return

    def write(self) -> None:
        """Write the deltas that wait, which `take` does by itself within a frame."""
        self._stop_timer()
        self._written_at = time.monotonic()
        pending, self._pending = self._pending, []
        # Half a surrogate pair, which a model may send, cannot be written.
        with suppress(PalimpsestError, OSError, UnicodeError):
            data = b"".join(_encode(delta) + b"\n" for delta in pending)
            if self._path is None or not data or self._kept_bytes + len(data) > _LARGEST:
                return
            if self._kept_bytes:
                with self._path.open("ab") as file:
                    file.write(data)
            else:
                # Only now, so that what an earlier terminal has left can be shown until there is something newer.
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_private(self._path, _encode(self._call) + b"\n" + data, sync=False)
            self._kept_bytes += len(data)

    def forget(self) -> None:
        """Remove what was kept."""
        self._pending, self._call = [], None
        self._stop_timer()
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    def cut_off(self, piece: Piece) -> tuple[Block, ...]:
        """Return what had arrived of a call when its process ended, and a line that says so.

        `piece` is the event by which the next process recorded the end of the call, without a part of the reply; empty for all others.
        """
        if not isinstance(piece, Event) or not isinstance(piece.body, Interrupted) or piece.body.parts:
            return ()
        lines = self._kept_lines()
        partial = PartialReply()
        try:
            if not lines or _number(lines[0]) != piece.body.call:
                return ()
            for line in lines[1:]:
                partial.add(_delta(line))
        except msgspec.DecodeError:
            return ()
        return (*_blocks(partial), NoticeBlock(CUT_OFF, "warning"))

    def _kept_lines(self) -> list[bytes]:
        if self._path is None:
            return []
        try:
            with self._path.open("rb") as file:
                # The last line may be incomplete, and lines behind the largest size are left out.
                return file.read(_LARGEST).split(b"\n")[:-1]
        except OSError:
            return []

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _write_soon(self) -> None:
        if self._timer is not None:
            return
        wait = self._written_at + _WRITE_SECONDS - time.monotonic()
        if wait <= 0:
            self.write()
        else:
            self._timer = asyncio.get_running_loop().call_later(wait, self.write)


def _blocks(partial: PartialReply) -> Iterator[Block]:
    for part in partial.parts():
        match part:
            case Text(text=text) if text.strip():
                yield ReplyBlock(text, is_cut_off=True)
            case Thinking(text=text) if text.strip():
                yield ThinkingBlock(text)
            case ToolCall(call_id=call_id, tool=tool, args=args):
                yield ToolBlock(call_id, tool, args, "writing")
            case _:
                continue


# Events at the end of the log that are looked at, whatever its length, and events that are shown.
_LOOKED_AT: Final = 2_000
MOST_SHOWN: Final = 200
# Lines of a preview, and characters of a line.
_MOST_WORDS: Final = 4
_LINE: Final = 160
_SHOWN: Final = UserSaid | ModelReplied | Interrupted | ToolStarted | ToolReturned | ToolRefused | ViewEdited | TurnEnded


def earlier_pieces(log: Log) -> tuple[Event, ...]:
    """Return the newest events of the current path that the screen shows, oldest first, from a message of the user on."""
    first = max(1, log.tip - _LOOKED_AT)
    path = log.path
    shown = [event for event in log.reader.run(first, log.tip) if event.seq in path and isinstance(event.body, _SHOWN)]
    shown = shown[-MOST_SHOWN:]
    start = next((place for place, event in enumerate(shown) if isinstance(event.body, UserSaid)), 0)
    return tuple(shown[start:])


def last_words(log: Log) -> tuple[str, ...]:
    """Return the last messages and replies of a session, a line each, oldest first; at most four."""
    lines: list[str] = []
    for event in earlier_pieces(log):
        match event.body:
            case UserSaid(parts=parts):
                lines += _spoken_line("❯", parts)
            case ModelReplied(parts=parts, purpose="turn"):
                lines += _spoken_line("·", parts)
            case Interrupted(parts=parts, purpose="turn"):
                lines += _spoken_line("· (interrupted)", parts)
            case _:
                continue
    return tuple(lines[-_MOST_WORDS:])


def _spoken_line(mark: str, parts: tuple[Content, ...]) -> list[str]:
    text = " ".join(part.text for part in parts if isinstance(part, Text))
    return [f"{mark} {one_line(text, _LINE)}"] if text.strip() else []


# What painting a reply needs.
_REPLY: Final = ("pal.terminal.markdown", "rich.syntax", "pygments.lexers", "pygments.lexers.python")
_SAMPLE: Final = "# a\n\n- `b`\n\n| c | d |\n|---|---|\n| 1 | 2 |\n\n```python\ne = 1\n```\n"
# What the first call of a model needs, also what httpx imports with its first request; other versions of it may name that differently.
_MESSAGE: Final = ("palimpsest.providers.keys", "httpx", "httpcore", "sniffio", "anyio._backends._asyncio", "anyio._core._synchronization")
_COMMANDS: Final = ("pal.terminal.commands.registry",)


def load_for_replies() -> None:
    """Load what painting a conversation needs. Takes 100 ms the first time; in a thread, keys are taken meanwhile."""
    _load(_REPLY)
    # The first code in colours takes 25 ms, because pygments then looks for languages and makes its styles: no key should wait for that.
    paint(ReplyBlock(_SAMPLE), ScreenLook())


def load_for_first_message() -> None:
    """Load what a first message needs until its reply is painted. Takes 300 ms the first time."""
    _load(_MESSAGE)
    load_for_replies()
    _load(_COMMANDS)


def _load(names: tuple[str, ...]) -> None:
    for name in names:
        # A module that is missing is reported where it is needed.
        with suppress(ImportError):
            import_module(name)
