"""An agent at work behind a screen: starts turns for what the user sends, steers and interrupts them, and takes queued input back."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import Event, InputWithdrawn, UserTyped
from palimpsest.core.items import Part, Text
from palimpsest.engine.loop.feed import Piece

if TYPE_CHECKING:
    # The engine is loaded while the user may type already.
    from palimpsest.engine.agent import Agent


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
        return tuple(_text(log.event(seq).body) for seq in log.inbox)

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
        text = _text(log.event(seq).body)
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


def _text(body: object) -> str:
    return "\n".join(part.text for part in body.parts if isinstance(part, Text)) if isinstance(body, UserTyped) else ""
