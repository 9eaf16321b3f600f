"""Tools for sub-agents (`spawn_agent`, `send_input`, `wait_agent`, `resume_agent`, `close_agent`), and a review by one."""

from contextlib import suppress
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from palimpsest.agent.children import ChildAgents, SpawnRequest
from palimpsest.agent.roles import DEFAULT_ROLE, ChildOutcome, answer, role_listing
from palimpsest.agent.tool import AgentTool, ToolError, ToolOutput, define
from palimpsest.agent.workspace import Workspace
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ContextStated, Statement
from palimpsest.core.ledger import CHILD_NOTICE, has_end_to_state
from palimpsest.sources.progress import review_text
from palimpsest.sources.prompts import mode_text

SPAWN, SEND, WAIT, RESUME, CLOSE = "spawn_agent", "send_input", "wait_agent", "resume_agent", "close_agent"
DELEGATING: Final = frozenset({SPAWN, SEND, RESUME})
"""Tools by which a sub-agent gets work, in which it may change files."""
DEFAULT_WAIT_MS: Final = 30_000
SHORTEST_WAIT_MS: Final = 10_000
LONGEST_WAIT_MS: Final = 3_600_000
LONGEST_MESSAGE: Final = 100_000
"""Characters of a message to a sub-agent."""
MOST_IDS: Final = 64
# Seconds beyond the longest wait after which the loop would end the tool.
_SPARE: Final = 60.0

_Id = Annotated[str, Meta(max_length=128, description="Id or nickname of a sub-agent that you started.")]
_Message = Annotated[str, Meta(max_length=LONGEST_MESSAGE)]


class SpawnArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The task as a message, and how the sub-agent differs from a plain one."""

    message: _Message
    role: Annotated[str, Meta(max_length=64)] = DEFAULT_ROLE
    nickname: Annotated[str, Meta(max_length=40, description="A name of your choice; by default one is chosen.")] = ""
    fork: Annotated[bool, Meta(description="Start from this conversation instead of an empty one.")] = False
    model: Annotated[str, Meta(max_length=200, description="Another model than yours.")] = ""


class SendArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """A message to a sub-agent; with `interrupt` its running turn is ended first."""

    id: _Id
    message: _Message
    interrupt: bool = False


class WaitArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The sub-agents to wait for, and how long, in milliseconds."""

    ids: Annotated[tuple[_Id, ...], Meta(max_length=MOST_IDS)]
    timeout_ms: int = DEFAULT_WAIT_MS


class ChildArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """One sub-agent."""

    id: _Id


def clamped_wait(timeout_ms: int) -> float:
    """Seconds of a wait: from 10 s to 1 h. Raises `ToolError` for 0 or less."""
    if timeout_ms <= 0:
        raise ToolError("timeout_ms must be more than 0")
    return max(SHORTEST_WAIT_MS, min(timeout_ms, LONGEST_WAIT_MS)) / 1_000


def child_tools(children: ChildAgents) -> tuple[AgentTool, ...]:
    """The five tools; none where the agent is as deep as agents may be.

    The description of `spawn_agent` lists the roles, unless the profile states them. Reports follow as statements only; under a profile
    that imitates Codex, `wait_agent` returns them too.
    """
    if not children.may_spawn:
        return ()
    unstated = children.unstated_roles()
    roles = f"\n\nRoles:\n{role_listing(unstated)}" if unstated else ""
    calls = _Calls(children, with_reports=children.session.profile.agents.tagged)
    return (
        define(SpawnArguments, calls.spawn, name=SPAWN, description=f"{_SPAWN}{roles}", kind="reports"),
        define(SendArguments, calls.send, name=SEND, description=_SEND, kind="reports"),
        calls.wait_tool(),
        define(ChildArguments, calls.resume, name=RESUME, description=_RESUME, kind="reports"),
        define(ChildArguments, calls.close, name=CLOSE, description=_CLOSE, kind="reports"),
    )


class _Calls:
    """Runs the calls of the tools on the sub-agents of one agent."""

    def __init__(self, children: ChildAgents, *, with_reports: bool) -> None:
        self._children = children
        self._with_reports = with_reports

    def wait_tool(self) -> AgentTool:
        """The tool `wait_agent`; it has a time limit of its own, since it may wait longer than other tools run."""
        tool = define(WaitArguments, self.wait, name=WAIT, description=_WAIT, kind="reports", polls=True)
        return AgentTool(tool.declaration, tool.parallel, tool.run, tool.polls, LONGEST_WAIT_MS / 1_000 + _SPARE)

    async def spawn(self, given: SpawnArguments, _: Workspace) -> ToolOutput:
        child = await self._children.spawn(SpawnRequest(given.message, given.role, given.nickname, given.fork, given.model))
        return ToolOutput(answer({"id": child.session, "nickname": child.nickname, "role": child.role.name}))

    async def send(self, given: SendArguments, _: Workspace) -> ToolOutput:
        child = await self._children.send(given.id, given.message, interrupt=given.interrupt)
        return ToolOutput(answer({"id": child.session, "status": child.state}))

    async def wait(self, given: WaitArguments, _: Workspace) -> ToolOutput:
        seconds = clamped_wait(given.timeout_ms)
        if not given.ids:
            raise ToolError("ids is empty; name the sub-agents to wait for")
        in_time = await self._children.wait(given.ids, seconds)
        states = {name: self._children.state(name) for name in given.ids}
        return ToolOutput(answer({"status": {name: self._shown(state) for name, state in states.items()}, "timed_out": not in_time}))

    async def resume(self, given: ChildArguments, _: Workspace) -> ToolOutput:
        child = await self._children.resume(given.id)
        return ToolOutput(answer({"id": child.session, "nickname": child.nickname, "status": child.state}))

    async def close(self, given: ChildArguments, _: Workspace) -> ToolOutput:
        before = await self._children.close_child(given.id)
        return ToolOutput(answer({"id": given.id, "status_before": self._shown(before)}))

    def _shown(self, state: ChildOutcome) -> Any:  # a word, or an object with the report
        return {state.state: state.text} if self._with_reports and state.text else state.state


_SPAWN: Final = (
    "Start a sub-agent: another agent that works beside you in this project, on a task that you describe in `message`. It begins without "
    "your conversation, so say all that it needs: the goal, the files, what to hand back; or set `fork`. The call returns at once with "
    "an id. Use it for work that can be done apart: a search through many files, several independent changes. Do not give two of them "
    "the same files to change, and do not do their work meanwhile. Wait with wait_agent before you finish: those that still run are "
    "stopped then. They may do what you may, and the user is asked about their calls as about yours."
)
_SEND: Final = (
    "Give a sub-agent that is open a message: further input while it works, or the next task after it has completed one. "
    "With `interrupt` it stops what it is doing first."
)
_WAIT: Final = (
    "Wait until the first of some sub-agents has ended, then learn the state of each. `timeout_ms` is 30 s by default and between 10 s and "
    "1 h. Reports follow as statements, each once. Call it again for the rest."
)
_RESUME: Final = (
    "Open a sub-agent again that was interrupted, failed, was killed or closed; it goes on where it stopped. One that had completed its "
    "task waits for send_input."
)
_CLOSE: Final = "End a sub-agent and all that it started, and free its place. Close those that have completed and that you need no more."


UNCOMMITTED: Final = "the changes in this project that are not committed yet"
_ROLE: Final = "explorer"
# Seconds between two looks at whether it has ended; it may take as long as its limits allow.
_REVIEW_WAIT: Final = 60.0


async def review(children: ChildAgents, what: str = "") -> str:
    """Have the work reviewed by a sub-agent of its own, state the findings to the agent, and return them.

    Raises `BadInput` if there can be no sub-agent, or if it did not complete.
    """
    asked = what.strip() or UNCOMMITTED
    try:
        child = await children.spawn(SpawnRequest(f"{mode_text('review')}\n\nReview {asked}.", _ROLE))
    except ToolError as error:
        raise BadInput(error.message) from error
    while not await children.wait([child.session], _REVIEW_WAIT):
        pass
    outcome = children.state(child.session)
    with suppress(ToolError):
        await children.close_child(child.session)
    if outcome.state != "completed":
        raise BadInput(f"the review did not complete: {outcome.state}. {outcome.text}".strip())
    log = children.session.log
    if any(record.session == child.session and has_end_to_state(record, log.path) for record in log.children):
        # In the place of the notice that every sub-agent has ended.
        log.append(ContextStated((Statement(CHILD_NOTICE, review_text(asked, outcome.text), value=child.session),)))
    return outcome.text
