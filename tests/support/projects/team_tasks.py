"""Coding tasks that agents do together: a script for the agent of the user and one for each sub-agent; all their logs are checked."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from coding_tasks import MODEL, Coder, Step, TaskRun, scripted
from families import routed

from palimpsest.core.events import ChildEnded, ChildOpened
from palimpsest.providers.scripted import Scripted

NO_FAILURES: Mapping[str, tuple[str, ...]] = {}
# Seconds after which a tree of agents that waits for something that never comes fails the test.
_LONGEST = 120.0


@dataclass(frozen=True)
class TeamRun:
    """What the agent of the user and its sub-agents recorded, and the scripts that they followed; both by nickname."""

    own: TaskRun
    members: Mapping[str, TaskRun]
    scripts: Mapping[str, Scripted]

    @property
    def failing(self) -> dict[str, tuple[str, ...]]:
        """The tools of the calls that failed, of each sub-agent that has some; those of the agent of the user have an empty name."""
        return {name: run.failing for name, run in {"": self.own, **self.members}.items() if run.failing}

    @property
    def ends(self) -> list[tuple[str, str, str]]:
        """Nickname, status and report of the sub-agents that the agent of the user started, in the order of their ends."""
        return ends_of(self.own)

    def requests(self, nickname: str) -> str:
        """All requests of a sub-agent, one a line."""
        return "\n".join(request.body.decode() for request in self.scripts[nickname].requests)


def ends_of(run: TaskRun) -> list[tuple[str, str, str]]:
    """Nickname, status and report of the sub-agents of a session, in the order of their ends."""
    names = {body.session: body.nickname for body in run.bodies if isinstance(body, ChildOpened)}
    return [(names[body.session], body.status, body.text) for body in run.bodies if isinstance(body, ChildEnded)]


def roles_of(run: TaskRun) -> list[tuple[str, str, int]]:
    """Nickname, role and depth of each start of a sub-agent, in order."""
    return [(body.nickname, body.role, body.depth) for body in run.bodies if isinstance(body, ChildOpened)]


def do_together(
    coder: Coder,
    prompts: str | tuple[str, ...],
    *steps: Step,
    team: Mapping[str, tuple[Step, ...]],
    failing: Mapping[str, tuple[str, ...]] = NO_FAILURES,
    resume: str = "",
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> TeamRun:
    """Let an agent do a task with the sub-agents of a team, one turn a prompt; `meanwhile` runs beside the last one.

    The last step is the text that the last turn ends with. `failing` are the tools of the calls that must fail, as `TeamRun` has them.
    """
    own, scripts = scripted(*steps, model=MODEL), {name: scripted(*replies, model=MODEL) for name, replies in team.items()}
    *earlier, last = (prompts,) if isinstance(prompts, str) else prompts

    async def run() -> str:
        async with asyncio.timeout(_LONGEST), coder.agent(routed(own, scripts), resume) as agent:
            for prompt in earlier:
                assert (await agent.ask(prompt)).stop == "done"
            turn = asyncio.ensure_future(agent.ask(last))
            if meanwhile is not None:
                await meanwhile()
            answer = await turn
            assert (answer.stop, answer.text) == ("done", steps[-1])
            return agent.id

    done = checked_team(coder, asyncio.run(run()), own, scripts)
    assert done.failing == failing, (done.failing, {name: run.results for name, run in {"": done.own, **done.members}.items()})
    return done


def checked_team(coder: Coder, session: str, own: Scripted, scripts: Mapping[str, Scripted]) -> TeamRun:
    """The runs of a session and of all sub-agents below it, whose logs are whole and whose scripts were used up."""
    done = coder.checked(session, own)
    members = _members(coder, done, scripts)
    assert sorted(members) == sorted(scripts)
    return TeamRun(done, members, scripts)


def _members(coder: Coder, parent: TaskRun, scripts: Mapping[str, Scripted]) -> dict[str, TaskRun]:
    found: dict[str, TaskRun] = {}
    for body in parent.bodies:
        if isinstance(body, ChildOpened) and body.nickname not in found:
            member = coder.checked(body.session, scripts[body.nickname])
            found |= {body.nickname: member} | _members(coder, member, scripts)
    return found
