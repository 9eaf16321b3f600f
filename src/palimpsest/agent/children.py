"""Sub-agents of an agent: starts, forks, resumes and closes their sessions within shared limits, and records their ends."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace as dataclass_replace
from pathlib import Path
from typing import Final, TypeAlias, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from palimpsest.agent.agent import Agent, Approve, Parts, open_parts
from palimpsest.agent.decision import Approval
from palimpsest.agent.limits import NO_LIMITS, NOTHING, Limits, Spent, TurnMeter, recorded_spending, session_usd
from palimpsest.agent.roles import (
    BRIEFING,
    CANCELLED,
    CLOSED,
    DEFAULT_ROLE,
    GO_ON,
    INTERRUPTED,
    KILLED,
    OVER_BUDGET,
    REPLACED,
    AgentRole,
    ChildOutcome,
    ChildState,
    bounded_report,
    briefing,
    load_roles,
    narrower_limits,
    notice,
    outcome_of,
    pick_nickname,
)
from palimpsest.agent.session import Environment, Session, SessionThread
from palimpsest.agent.tool import CURRENT_CALL, ToolError, one_line
from palimpsest.agent.turn import Result, uncancelled
from palimpsest.audit.working_state import DIALOGUE_FORK
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import (
    ChildEnded,
    ChildOpened,
    Event,
    EventRef,
    Interrupted,
    ModelReplied,
    PermissionAsked,
    SessionOpened,
    Statement,
    ToolRefused,
    ToolReturned,
    TurnEnded,
    Usage,
    ViewEdited,
)
from palimpsest.core.items import Fold, Item, Keep, Part, Text, ToolCall, ToolResult, pending_calls
from palimpsest.core.ledger import CHILD_NOTICE, has_end_to_state
from palimpsest.core.log import Log
from palimpsest.core.ports import SessionStore
from palimpsest.core.spending import RUNNING, ChildRecord
from palimpsest.core.text import whole_number
from palimpsest.policies.profile import AgentRules
from palimpsest.stores.home import Home, new_id, remove

_NICKNAME: Final = re.compile(r"\w[\w .'-]{0,39}")


class AgentSettings(Struct, frozen=True):
    """Settings of the user for sub-agents; `None` leaves a number to the profile. `limits` hold for each turn of each sub-agent.

    With `end_with_turn`, sub-agents of the agent that the user talks to end with its turn, as those of a sub-agent do in any case.
    """

    max_depth: int | None = None
    max_threads: int | None = None
    limits: Limits = NO_LIMITS
    end_with_turn: bool = False


class Slot(Struct):
    """A place among the open sub-agents of a tree; `release` gives it back, once."""

    tree: "AgentTree"
    held: bool = True

    def release(self) -> None:
        """Give the place back."""
        if self.held:
            self.held = False
            self.tree.open -= 1


class AgentTree:
    """What all agents of a run share. `approve` asks the user; `chance` returns a random number from 0 to 1.

    `roles` are by name, and `problems` says which files are no roles. `open` is the number of reserved places. `paths` are the nicknames
    from the top down to each sub-agent, by its session. `over_budget` are called when a call was paid.
    """

    def __init__(
        self,
        approve: Approve,
        rules: AgentRules,
        settings: AgentSettings,
        roles: Mapping[str, AgentRole],
        chance: Callable[[], float],
        *,
        problems: tuple[str, ...] = (),
    ) -> None:
        self.depth = settings.max_depth or rules.depth
        self.threads = settings.max_threads or rules.threads
        self.limits = settings.limits
        self.end_with_turn = settings.end_with_turn
        self.roles = roles
        self.problems = problems
        self.open = 0
        self.paths: dict[str, tuple[str, ...]] = {}
        self.names: set[str] = set()
        self.over_budget: list[Callable[[], None]] = []
        self._approve = approve
        self._chance = chance
        self._asking = asyncio.Lock()

    def reserve(self) -> Slot:
        """Reserve a place for one more sub-agent. Raises `ToolError` if all are taken."""
        if self.open >= self.threads:
            raise ToolError(f"{self.threads} sub-agents are open, which is the most; wait for one and close it with close_agent first")
        self.open += 1
        return Slot(self)

    def check_depth(self, depth: int) -> None:
        """Raise `ToolError` if no sub-agent may be so deep."""
        if depth > self.depth:
            raise ToolError(f"sub-agents may be {self.depth} deep at most, and this one would be deeper; do the task yourself")

    def nickname(self, wanted: str = "") -> str:
        """Return a nickname that no agent of this tree has had. Raises `ToolError` if the wanted one is taken or no name."""
        name = wanted or pick_nickname(self.names, self._chance())
        if wanted and _NICKNAME.fullmatch(wanted) is None:
            raise ToolError("a nickname has letters, digits, spaces and dashes, at most 40")
        if wanted in self.names:
            raise ToolError(f"the nickname {wanted!r} is taken; give another one or none")
        self.names.add(name)
        return name

    async def ask(self, asked: PermissionAsked, path: tuple[str, ...] = ()) -> Approval:
        """Ask the user, after all questions that came before; `path` are the nicknames down to the sub-agent whose call it is."""
        if path:
            # The id of a call is unique in its own session only.
            named = f"Sub-agent {' > '.join(path)} asks: {asked.question}"
            asked = replace(asked, question=named, call_id=f"{'/'.join(path)}/{asked.call_id}")
        async with self._asking:
            return await self._approve(asked)

    def check_budgets(self) -> None:
        """Let each agent of the tree whose turn has reached its cost limit stop its sub-agents."""
        for check in tuple(self.over_budget):
            check()


def new_tree(session: Session, root: Path, approve: Approve, settings: AgentSettings, hides: Callable[[str], bool]) -> AgentTree:
    """Return the tree of an agent that the user talks to, with the roles of the user and of its project but those that a rule `hides`."""
    roles, problems = load_roles(Path.home(), root, hides)
    return AgentTree(approve, session.profile.agents, settings, roles, session.environment.chance, problems=problems)


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


def _with_report(log: Log, child: ChildRecord) -> ChildRecord:
    """The record with its report, which it does not hold any more once the end was stated on another branch."""
    ended = None if child.ended is None else log.event(child.ended).body
    return replace(child, text=ended.text) if isinstance(ended, ChildEnded) else child


EquipChild: TypeAlias = Callable[[Parts, AgentRole, Approve], Parts]
"""Returns the parts of a sub-agent with the tools of its parent, as far as its role allows."""
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

    `parent` are the parts of the agent without what it is equipped with. A sub-agent is open from its start until it is closed, fails or
    is interrupted: its file is locked and it holds a slot of the tree.
    """

    def __init__(self, parent: Parts, tree: AgentTree, equip: EquipChild) -> None:
        self._parent = parent
        self.session = parent.session
        self._home = parent.home
        self._tree = tree
        self._roles = tree.roles
        self._equip = equip
        self._known: dict[str, Child] = {}
        self._meter: TurnMeter | None = None
        log = parent.session.log
        meta = log.opened.meta
        self._role = self._roles.get(meta.get("role", ""), self._roles[DEFAULT_ROLE])
        self._nickname = meta.get("nickname", "")
        self.depth = whole_number(meta.get("depth", "")) or 0
        self._path = tree.paths.get(log.session, (self._nickname,) if self._nickname else ())
        self._briefing = briefing(self._nickname, self._role) if self._nickname and log.opened.opener is not None else ""
        tree.names.update(child.nickname for child in log.children)
        tree.over_budget.append(self._stop_if_over_budget)
        parent.resources.push_async_callback(self.close)
        self._record_killed()

    @property
    def tree(self) -> AgentTree:
        """The tree that they belong to."""
        return self._tree

    @property
    def may_spawn(self) -> bool:
        """Whether the agent may have sub-agents at its depth."""
        return self.depth < self._tree.depth

    def watch(self, meter: TurnMeter) -> None:
        """Stop them once this turn of the agent has reached its limit in dollars or tokens."""
        self._meter = meter

    def due(self) -> tuple[Statement, ...]:
        """Return the briefing of the agent, if it is a sub-agent and the view does not show it, and each end that this branch lacks."""
        log, tagged = self.session.log, self.session.profile.agents.tagged
        missing = self._briefing and BRIEFING not in log.view.facts
        statements = [Statement(BRIEFING, self._briefing)] if missing else []
        path = log.path
        statements += [
            Statement(CHILD_NOTICE, notice(_with_report(log, child), tagged=tagged), value=child.session)
            for child in log.children
            if child.depth and has_end_to_state(child, path)
        ]
        return tuple(statements)

    def roles(self) -> dict[str, str]:
        """The descriptions of the roles that a source may state, by name; empty where there may be no sub-agents.

        Texts of a project are left out if the source states with the role of the system.
        """
        source = next((each for each in self.session.profile.sources.sources if each.key == _ROLES_SOURCE), None)
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
        record = self._child_record(name)
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
            await self._open_session(
                child, Opening(narrower_limits(self._tree.limits, role.limits), request.model or role.model, request.fork)
            )
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
        timer = asyncio.ensure_future(_as_coroutine(self.session.environment.sleep(seconds)))
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
        record = self._child_record(name)
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
            agent = await self._open_session(child, Opening(narrower_limits(self._tree.limits, role.limits), resume=True))
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

    async def _open_session(self, child: Child, opening: Opening) -> Agent:
        """Open the session of a sub-agent and equip it; a new session that cannot be used is deleted again."""
        self._tree.paths[child.session] = (*self._path, child.nickname)
        parts = open_child(self._parent, child, opening)
        try:
            agent = Agent(self._equip(parts, child.role, child.approver(self._tree, self._tree.paths[child.session])))
        except BaseException:
            await uncancelled(parts.resources.aclose())
            parts.session.close()
            if not opening.resume:
                with suppress(PalimpsestError):
                    remove(self._home.store, child.session)
            raise
        child.agent = agent
        self._known[child.session] = child
        return agent

    async def _start(self, child: Child, parts: tuple[str | Part, ...], *, resumed: bool = False) -> None:
        """Record the input and the start, durably, and run a turn of the sub-agent beside this one."""
        session, agent = self.session, child.agent
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
                self.session.log.append(ended)
            child.ended.set()

    async def _settled(self, children: Sequence[Child]) -> None:
        """Wait until the runs of some sub-agents have ended and are recorded, also if this task is cancelled meanwhile."""
        tasks = [child.task for child in children if child.task is not None and not child.task.done()]
        if tasks:
            await uncancelled(_as_coroutine(asyncio.wait(tasks)))

    def _stop_if_over_budget(self) -> None:
        if self._meter is not None and self._meter.spent_out() is not None:
            for child in self._known.values():
                child.cancel(ChildOutcome("interrupted", OVER_BUDGET))

    def _record_killed(self) -> None:
        """Record an end for each sub-agent that runs by the log: the process that ran it has ended. Its file says what it cost."""
        log = self.session.log
        for record in log.children:
            # Imported sub-agents, which have no depth, were never run here.
            if record.status == RUNNING and record.depth:
                spent = recorded_spending(self._home, record.session)
                cost = (spent.usage, spent.usd, spent.children_usd, spent.children_tokens)
                log.append(ChildEnded(record.session, "killed", KILLED, *cost))

    def _child_record(self, name: str) -> ChildRecord | None:
        records = [record for record in self.session.log.children if record.depth]
        return next((record for record in records if name and name in (record.session, record.nickname)), None)

    def _child(self, name: str) -> Child | None:
        record = self._child_record(name)
        return None if record is None else self._known.get(record.session)

    def _open_child(self, name: str) -> Child:
        if self._child_record(name) is None:
            raise ToolError(f"this agent has started no sub-agent {one_line(name, 80)}")
        child = self._child(name)
        if child is None or child.agent is None:
            raise ToolError(f"{one_line(name, 80)} is not open ({self.state(name).state}); resume it with resume_agent first")
        return child


async def _as_coroutine(waiting: Awaitable[Result]) -> Result:
    return await waiting


FORKED = "forked"
"""The stop reason of the turn that a fork leaves to its base."""


def fork_for_child(parent: Session, store: SessionStore, session: str, opener: EventRef, meta: Mapping[str, str]) -> None:
    """Create the session of a sub-agent that begins with the conversation of its parent as it is now.

    Under a profile with `dialogue_forks` its view has the messages and the closing replies only; the edit that hides the rest is recorded.
    """
    with parent.log.fork(store, session, opener=opener, meta=meta) as log:
        for item in pending_calls(log.view.items):
            call = item.content
            if isinstance(call, ToolCall):
                log.append(ToolReturned(_elsewhere(call, meta.get("nickname", "")), tool=call.tool))
        if log.health.turn is not None:
            log.append(TurnEnded(FORKED))
        if parent.profile.agents.dialogue_forks:
            _keep_dialogue(log)


def _elsewhere(call: ToolCall, nickname: str) -> ToolResult:
    text = f"The conversation was forked here, before this call had a result. It belongs to the other agent; you are now {nickname}."
    return ToolResult(call.call_id, (Text(text),), form=call.form)


def _keep_dialogue(log: Log) -> None:
    items = log.view.items
    kept = tuple(_dialogue(items))
    if len(kept) < len(items):
        fold = Fold(items[0].id, items[-1].id, tuple(Keep(item.id) for item in kept))
        log.append(ViewEdited((fold,), DIALOGUE_FORK, "a sub-agent gets messages and closing replies, without thinking and tool calls"))


def _dialogue(items: Sequence[Item]) -> Iterator[Item]:
    """The items that neither are thinking, a call or a result, nor a reply that led to a call."""
    for place, item in enumerate(items):
        if item.kind in ("thinking", "call", "result"):
            continue
        following = next((each.kind for each in items[place + 1 :] if each.kind not in ("assistant", "thinking")), "")
        if item.kind != "assistant" or following != "call":
            yield item


def open_child(parent: Parts, child: Child, opening: Opening) -> Parts:
    """Open the session of a sub-agent and return its parts, without tools. Raises `ToolError` if it cannot be opened."""
    session, home, root = parent.session, parent.home, parent.toolbox.workspace.root
    meta = {"nickname": child.nickname, "role": child.role.name, "depth": str(child.depth)}
    opener = session.log.place_of(session.log.tip)
    is_forked = False
    try:
        model = _recorded_model(home, child.session) if opening.resume else opening.model
        if opening.fork:
            fork_for_child(session, home.store, child.session, opener, meta)
            is_forked = True
        parts = open_parts(
            session.named_card(model) if model else session.card,
            profile=child.role.profile or session.profile,
            provider=session.environment.provider,
            cwd=root,
            home=home,
            resume=child.session if opening.fork or opening.resume else "",
            limits=narrower_limits(parent.limits, opening.limits),
            opened=SessionOpened(child.session, cwd=str(root), opener=opener, meta=meta),
            adjust=lambda own: _as_around(own, session.environment),
        )
    except PalimpsestError as error:
        if is_forked:
            with suppress(PalimpsestError):
                remove(home.store, child.session)
        raise ToolError(f"the sub-agent cannot be opened: {error.message}") from error
    parts.session.spent_out = lambda: None if session.spent_out is None else session.spent_out()
    return parts


def _as_around(own: Environment, parent: Environment) -> Environment:
    """The environment of a sub-agent with what it shares with its parent."""
    # Each session has a thread of its own; in one of the parent's, all sub-agents would wait for each other.
    offload = own.offload if isinstance(parent.offload, SessionThread) else parent.offload
    waiting = dataclass_replace(own, retries=parent.retries, sleep=parent.sleep, chance=parent.chance)
    return dataclass_replace(waiting, offload=offload, encoder=parent.encoder)


def _recorded_model(home: Home, session: str) -> str:
    with Log.open(home.store, session, home.clock) as log:
        return log.view.model
