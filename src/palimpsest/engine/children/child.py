"""One sub-agent of this process: its agent, the task that runs it, and how its last run ended."""

import asyncio
from contextlib import suppress

from msgspec import Struct, field

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import Event, Interrupted, ModelReplied, PermissionAsked, ToolRefused, TurnEnded
from palimpsest.core.items import Text
from palimpsest.engine.agent import Agent, Approve
from palimpsest.engine.children.reports import CANCELLED, INTERRUPTED, ChildOutcome, ChildState, outcome_of
from palimpsest.engine.children.roles import AgentRole
from palimpsest.engine.children.tree import AgentTree, Slot
from palimpsest.engine.loop.limits import Limits
from palimpsest.tools.permissions.decision import Approval


class Opening(Struct, frozen=True):
    """How a session is opened. `limits` are further ones beside those of the parent; an empty `model` is that of the parent.

    With `fork` it begins with the conversation of the parent; with `resume` it exists, and keeps its model.
    """

    limits: Limits
    model: str = ""
    fork: bool = False
    resume: bool = False


class Child(Struct):
    """A sub-agent. It is open while it has an `agent`: its file is locked and it holds a `slot`, also between its turns.

    `turn` runs its turn, and `task` records how that ended. `ending` is the outcome that a cancellation of the turn stands for; with
    `stays_open` it takes further input then. Once it is `finishing`, its run takes no more input. `ended` is set while its state is final.
    """

    session: str
    nickname: str
    role: AgentRole
    depth: int
    slot: Slot
    state: ChildState = "pending"
    text: str = ""
    agent: Agent | None = None
    turn: "asyncio.Task[ChildOutcome] | None" = None
    task: "asyncio.Task[None] | None" = None
    ending: ChildOutcome | None = None
    stays_open: bool = False
    finishing: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_running(self) -> bool:
        """Whether a turn runs, or its end is not recorded yet."""
        return self.task is not None and not self.task.done()

    def cancel(self, ending: ChildOutcome) -> None:
        """Cancel its turn, if one runs; the first reason counts."""
        if self.turn is not None and not self.turn.done():
            self.ending = self.ending or ending
            self.turn.cancel()

    def approver(self, tree: AgentTree, path: tuple[str, ...]) -> Approve:
        """What asks the user about a call of this sub-agent. If it is cancelled meanwhile, the call is recorded as refused."""

        async def ask(asked: PermissionAsked) -> Approval:
            try:
                return await tree.ask(asked, path)
            except asyncio.CancelledError:
                by_parent = self.ending is not None and self.ending.text == INTERRUPTED
                by = "parent interrupted" if by_parent else "interrupted"
                why = INTERRUPTED if by_parent else "Its turn ended before there was an answer."
                if self.agent is not None:
                    with suppress(PalimpsestError):
                        self.agent.session.log.append(ToolRefused(asked.call_id, asked.tool, by, why))
                raise

        return ask

    async def run(self, tree: AgentTree) -> ChildOutcome:
        """Run one turn on the queued input and return its outcome, whatever ends it."""
        text = stop = ""
        try:
            if self.agent is None:
                return ChildOutcome("errored", "It is not open.")
            async for piece in self.agent.run():
                body = piece.body if isinstance(piece, Event) else None
                if isinstance(body, ModelReplied) and body.purpose == "turn":
                    text = "".join(part.text for part in body.parts if isinstance(part, Text)) or text
                if isinstance(body, ModelReplied | Interrupted):
                    tree.check_budgets()
                if isinstance(body, TurnEnded):
                    stop = body.stop
        except asyncio.CancelledError:
            return self.ending or ChildOutcome("interrupted", CANCELLED)
        except PalimpsestError as error:
            return ChildOutcome("errored", error.message)
        except Exception as error:  # noqa: BLE001 - whatever a tool or provider of another package raises, the parent must learn of the end
            return ChildOutcome("errored", f"{type(error).__name__}: {error}")
        return outcome_of(stop, text)

    async def release(self) -> None:
        """Close its agent with all that belongs to it, so that its file can be opened elsewhere, and give its slot back."""
        agent, self.agent = self.agent, None
        try:
            if agent is not None:
                async with agent:
                    # Leaving the agent ends its turn, its own sub-agents, its shell and its log.
                    pass
        finally:
            self.slot.release()
