"""The sub-agents of one agent: starts them, sends them input, waits for them, resumes and closes them, and records their ends."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeAlias, get_args

from msgspec import Struct

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import ChildEnded, ChildOpened, Usage
from palimpsest.core.format.texts import whole_number
from palimpsest.core.items import Part
from palimpsest.core.projections.children import RUNNING, ChildRecord
from palimpsest.engine.agent import Agent, Approve
from palimpsest.engine.children.child import Child, Opening
from palimpsest.engine.children.context import FamilyContext
from palimpsest.engine.children.reports import (
    CANCELLED,
    CLOSED,
    GO_ON,
    INTERRUPTED,
    KILLED,
    OVER_BUDGET,
    REPLACED,
    ChildOutcome,
    ChildState,
    bounded_report,
    briefing,
)
from palimpsest.engine.children.roles import DEFAULT_ROLE, AgentRole, narrower_limits
from palimpsest.engine.children.tree import AgentTree, Slot
from palimpsest.engine.loop.context import ContextStating
from palimpsest.engine.loop.ending import Result, uncancelled
from palimpsest.engine.loop.limits import NOTHING, Spent, session_usd
from palimpsest.stores.home import AnyHome, new_id, remove
from palimpsest.tools.tool import CURRENT_CALL, ToolError, one_line

EquipChild: TypeAlias = Callable[[Agent, AgentRole, Approve], object]
"""Gives a sub-agent the tools of its parent, as far as its role allows."""
# The key of the source that states the roles.
_ROLES_SOURCE: Final = "agents"
_STATES: Final[Mapping[str, ChildState]] = {state: state for state in get_args(ChildState)}


class SpawnRequest(Struct, frozen=True):
    """What is asked for: the task, the role, and what differs from the defaults."""

    message: str
    role: str = DEFAULT_ROLE
    nickname: str = ""
    fork: bool = False
    model: str = ""


class ChildAgents:
    """The sub-agents of an agent. On creation, those that run by the log and cannot by now are recorded as killed.

    A sub-agent is open from its start until it is closed, fails or is interrupted: its file is locked and it holds a slot of the tree.
    """

    def __init__(self, agent: Agent, home: AnyHome, tree: AgentTree, equip: EquipChild) -> None:
        self._agent = agent
        self._home = home
        self._tree = tree
        self._roles = tree.roles
        self._equip = equip
        self._known: dict[str, Child] = {}
        meta = agent.session.log.opened.meta
        self._role = self._roles.get(meta.get("role", ""), self._roles[DEFAULT_ROLE])
        self._nickname = meta.get("nickname", "")
        self.depth = whole_number(meta.get("depth", "")) or 0
        self._path = tree.paths.get(agent.id, (self._nickname,) if self._nickname else ())
        tree.names.update(child.nickname for child in agent.session.log.children)
        tree.over_budget.append(self._stop_if_over_budget)
        agent.children = self
        agent.resources.push_async_callback(self.close)
        self._record_killed()

    @property
    def agent(self) -> Agent:
        """The agent whose sub-agents they are."""
        return self._agent

    @property
    def tree(self) -> AgentTree:
        """The tree that they belong to."""
        return self._tree

    @property
    def may_spawn(self) -> bool:
        """Whether the agent may have sub-agents at its depth."""
        return self.depth < self._tree.depth

    def context(self, inner: ContextStating) -> FamilyContext:
        """Return a context that also states the briefing of this agent, if it is a sub-agent, and the ends of its sub-agents."""
        text = briefing(self._nickname, self._role) if self._nickname and self._agent.session.log.opened.opener is not None else ""
        return FamilyContext(inner, self._agent.session, text)

    def roles(self) -> dict[str, str]:
        """The descriptions of the roles that a source may state, by name; empty where there may be no sub-agents.

        Texts of a project are left out if the source states with the role of the system.
        """
        source = next((each for each in self._agent.session.profile.sources.sources if each.key == _ROLES_SOURCE), None)
        if source is None or not self.may_spawn:
            return {}
        return {role.name: role.description for role in self._roles.values() if source.role != "system" or role.origin != "project"}

    def unstated_roles(self) -> dict[str, str]:
        """The descriptions of all other roles, which the tool itself lists."""
        stated = self.roles()
        return {role.name: role.description for role in self._roles.values() if role.name not in stated}

    def live(self) -> dict[str, str]:
        """The nicknames of the open sub-agents, by session."""
        return {child.session: child.nickname for child in self._known.values() if child.agent is not None}

    def spent(self) -> dict[str, Spent]:
        """What each open sub-agent and those below it have spent so far, by session."""
        live = {child.session: child.agent for child in self._known.values() if child.agent is not None}
        return {
            name: Spent(agent.session.log.ledger.usage.total, session_usd(agent.session)) + agent.children_spent()
            for name, agent in live.items()
        }

    def state(self, name: str) -> ChildOutcome:
        """State and report of a sub-agent by id or nickname; `not_found` if this agent has started none of that name."""
        record = self._record(name)
        if record is None:
            return ChildOutcome("not_found")
        child = self._known.get(record.session)
        if child is not None:
            return ChildOutcome(child.state, child.text)
        return ChildOutcome(_STATES.get(record.status, "interrupted"), record.text)

    async def spawn(self, request: SpawnRequest) -> Child:
        """Start a sub-agent and return it; it works beside this agent from then on.

        Raises `ToolError` for an unknown role, beyond the limits of depth and number, or if its session cannot be made.
        """
        role = self._roles.get(request.role)
        if role is None:
            raise ToolError(f"there is no role {one_line(request.role, 80)}; the roles are {', '.join(self._roles)}")
        if not request.message.strip():
            raise ToolError("the message is empty; describe the task")
        self._tree.check_depth(self.depth + 1)
        nickname = self._tree.nickname(request.nickname.strip())
        slot = self._reserved(nickname)
        try:
            child = Child(new_id(self._home), nickname, role, self.depth + 1, slot)
            await self._open(child, Opening(narrower_limits(self._tree.limits, role.limits), request.model or role.model, request.fork))
        except BaseException:
            slot.release()
            self._tree.names.discard(nickname)
            raise
        await self._start(child, (request.message,))
        return child

    def _reserved(self, nickname: str) -> Slot:
        """Reserve a place; without one the nickname is free again."""
        try:
            return self._tree.reserve()
        except ToolError:
            self._tree.names.discard(nickname)
            raise

    async def send(self, name: str, message: str, *, interrupt: bool = False) -> Child:
        """Give a sub-agent input: it starts its next turn, or joins the running one; with `interrupt` the running one is ended first.

        Raises `ToolError` if it is unknown or not open.
        """
        child = self._open_child(name)
        if not message.strip():
            raise ToolError("the message is empty")
        if child.is_running and not child.finishing and not interrupt and child.agent is not None:
            child.agent.say(message)
            return child
        if child.is_running:
            child.stays_open = True
            child.cancel(ChildOutcome("interrupted", REPLACED))
            await self._settled([child])
        if child.agent is None:
            raise ToolError(f"{child.nickname} has ended ({child.state}); resume it with resume_agent first")
        await self._start(child, (message,), resumed=True)
        return child

    async def wait(self, names: Sequence[str], seconds: float) -> bool:
        """Wait until the first of some sub-agents is final, at most `seconds`. Returns whether that happened in time."""
        running = [child for name in names if (child := self._child(name)) is not None and not child.ended.is_set()]
        if len(running) < len(names):
            return True
        events = [asyncio.ensure_future(child.ended.wait()) for child in running]
        timer = asyncio.ensure_future(_as_coroutine(self._agent.session.environment.sleep(seconds)))
        try:
            await asyncio.wait((*events, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*events, timer):
                task.cancel()
        return any(child.ended.is_set() for child in running)

    async def resume(self, name: str) -> Child:
        """Open a sub-agent that is not open, and let it go on if it had not completed its task. Returns it.

        Raises `ToolError` if it is unknown or open, beyond the limits, or if another process writes to its session.
        """
        record = self._record(name)
        if record is None:
            raise ToolError(f"this agent has started no sub-agent {one_line(name, 80)}")
        known = self._known.get(record.session)
        if known is not None and known.agent is not None:
            raise ToolError(f"{known.nickname} is open already ({known.state}); give it input with send_input")
        role = self._roles.get(record.role)
        if role is None:
            # Another role could allow more.
            raise ToolError(f"the role {record.role!r} of {record.nickname} does not exist any more")
        self._tree.check_depth(self.depth + 1)
        slot = self._tree.reserve()
        before = self.state(record.session)
        child = Child(record.session, record.nickname, role, self.depth + 1, slot, before.state, before.text)
        try:
            agent = await self._open(child, Opening(narrower_limits(self._tree.limits, role.limits), resume=True))
        except BaseException:
            slot.release()
            raise
        if record.status == "completed":
            child.state = "completed"
            child.ended.set()
        else:
            log = agent.session.log
            # An open turn and queued input need no further word.
            await self._start(child, () if log.health.turn is not None or log.inbox else (GO_ON,), resumed=True)
        return child

    async def close_child(self, name: str) -> ChildOutcome:
        """End a sub-agent and those below it, and give its slot back. Returns its state before. Raises `ToolError` if it is not open."""
        child = self._open_child(name)
        before = ChildOutcome(child.state, child.text)
        child.cancel(ChildOutcome("closed", CLOSED))
        await self._settled([child])
        await uncancelled(child.release())
        child.state = "closed"
        return before

    async def interrupt(self) -> None:
        """End the turns of all running sub-agents and of those below them; each can be resumed."""
        running = [child for child in self._known.values() if child.is_running]
        for child in running:
            child.cancel(ChildOutcome("interrupted", INTERRUPTED))
        await self._settled(running)

    async def settle(self) -> None:
        """End the turns of the sub-agents that do not outlive that of this agent: of all if it was cancelled, or they never do."""
        turn = asyncio.current_task()
        if self.depth or self._tree.end_with_turn or (turn is not None and turn.cancelling()):
            await self.interrupt()

    async def close(self) -> None:
        """Interrupt the running sub-agents and close all, also if this task is cancelled meanwhile."""
        with suppress(ValueError):
            self._tree.over_budget.remove(self._stop_if_over_budget)
        await uncancelled(self._close_all())

    async def _close_all(self) -> None:
        await self.interrupt()
        for child in tuple(self._known.values()):
            with suppress(PalimpsestError, OSError):
                await child.release()

    async def _open(self, child: Child, opening: Opening) -> Agent:
        """Open the session of a sub-agent and equip it; a new session that cannot be used is deleted again."""
        from palimpsest.engine.children.opening import open_child  # few sessions have sub-agents, and a start is measured

        self._tree.paths[child.session] = (*self._path, child.nickname)
        agent = open_child(self._agent, self._home, child, opening)
        try:
            self._equip(agent, child.role, child.approver(self._tree, self._tree.paths[child.session]))
        except BaseException:
            await uncancelled(child.release())
            if not opening.resume:
                with suppress(PalimpsestError):
                    remove(self._home.store, child.session)
            raise
        self._known[child.session] = child
        return agent

    async def _start(self, child: Child, parts: tuple[str | Part, ...], *, resumed: bool = False) -> None:
        """Record the input and the start, durably, and run a turn of the sub-agent beside this one."""
        session, agent = self._agent.session, child.agent
        if agent is None:
            raise ToolError(f"{child.nickname} is not open")
        for part in parts:
            agent.say(part)
        session.log.append(
            ChildOpened(child.session, CURRENT_CALL.get(), child.role.name, nickname=child.nickname, depth=child.depth, resumed=resumed)
        )
        child.state, child.text, child.ending, child.stays_open, child.finishing = "running", "", None, False, False
        child.ended.clear()
        try:
            # A crash must not leave a session that costs money and that no log names.
            await session.environment.offload(session.log.sync)
        finally:
            child.turn = asyncio.create_task(child.run(self._tree), name=child.nickname)
            child.task = asyncio.create_task(self._follow(child, child.turn))

    async def _follow(self, child: Child, turn: "asyncio.Task[ChildOutcome]") -> None:
        """Record how a turn of a sub-agent ended. A turn that is cancelled before its first step ends here too."""
        while True:
            while not turn.done():
                try:
                    await asyncio.wait((turn,))
                except asyncio.CancelledError:
                    child.cancel(ChildOutcome("interrupted", CANCELLED))
            outcome = (child.ending or ChildOutcome("interrupted", CANCELLED)) if turn.cancelled() else turn.result()
            if outcome.state != "completed" or child.agent is None or not child.agent.session.log.inbox:
                break
            # Input came when the turn took none any more.
            child.turn = turn = asyncio.create_task(child.run(self._tree), name=child.nickname)
        child.finishing = True
        await uncancelled(self._finish(child, outcome))

    async def _finish(self, child: Child, outcome: ChildOutcome) -> None:
        """End what is below a sub-agent, close it unless it can take further input, and record its end with what it cost."""
        agent, usage, usd, below = child.agent, Usage(), None, NOTHING
        if agent is not None:
            if agent.children is not None:
                await agent.children.interrupt()
            usage, usd, below = agent.session.log.ledger.usage, session_usd(agent.session), agent.children_spent()
        child.state, child.text = outcome.state, bounded_report(outcome.text, child.session)
        try:
            if outcome.state != "completed" and not child.stays_open:
                # A file that cannot be closed in order is recovered when it is opened again.
                with suppress(PalimpsestError, OSError):
                    await child.release()
        finally:
            # What cannot be recorded now, such as on a full disk, is recorded when the session is opened again.
            with suppress(PalimpsestError):
                ended = ChildEnded(child.session, child.state, child.text, usage, usd, below.usd, below.tokens)
                self._agent.session.log.append(ended)
            child.ended.set()

    async def _settled(self, children: Sequence[Child]) -> None:
        """Wait until the runs of some sub-agents have ended and are recorded, also if this task is cancelled meanwhile."""
        tasks = [child.task for child in children if child.task is not None and not child.task.done()]
        if tasks:
            await uncancelled(_as_coroutine(asyncio.wait(tasks)))

    def _stop_if_over_budget(self) -> None:
        meter = self._agent.meter
        if meter is not None and meter.spent_out() is not None:
            for child in self._known.values():
                child.cancel(ChildOutcome("interrupted", OVER_BUDGET))

    def _record_killed(self) -> None:
        """Record an end for each sub-agent that runs by the log: the process that ran it has ended. Its file says what it cost."""
        log = self._agent.session.log
        for record in log.children:
            # Imported sub-agents, which have no depth, were never run here.
            if record.status == RUNNING and record.depth:
                from palimpsest.engine.loop.child_costs import recorded_spending

                spent = recorded_spending(self._home, record.session)
                cost = (spent.usage, spent.usd, spent.children_usd, spent.children_tokens)
                log.append(ChildEnded(record.session, "killed", KILLED, *cost))

    def _record(self, name: str) -> ChildRecord | None:
        records = [record for record in self._agent.session.log.children if record.depth]
        return next((record for record in records if name and name in (record.session, record.nickname)), None)

    def _child(self, name: str) -> Child | None:
        record = self._record(name)
        return None if record is None else self._known.get(record.session)

    def _open_child(self, name: str) -> Child:
        if self._record(name) is None:
            raise ToolError(f"this agent has started no sub-agent {one_line(name, 80)}")
        child = self._child(name)
        if child is None or child.agent is None:
            raise ToolError(f"{one_line(name, 80)} is not open ({self.state(name).state}); resume it with resume_agent first")
        return child


async def _as_coroutine(waiting: Awaitable[Result]) -> Result:
    return await waiting
