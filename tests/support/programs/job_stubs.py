"""Jobs for tests: a plan that is a plain function, and an agent beside which it runs."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from loops import ECHO

from palimpsest.agent.agent import Agent
from palimpsest.core.events import Event, JobRan, Noticed
from palimpsest.core.log import Log
from palimpsest.core.plans import Answer, Ask, Job, JobLimits, JobMoment, JobOutcome, JobPlan, JobSituation, JobSteps, Want
from palimpsest.providers.scripted import Scripted, ScriptedReply
from palimpsest.stores.home import Home

MODEL = "claude-sonnet-4-5"
ASK = Ask((), "a word, please", purpose="chosen by the job", head=False, tools=False)
NO_LIMITS = JobLimits()
TURN_ENDS: frozenset[JobMoment] = frozenset({"turn_ends"})


@dataclass(frozen=True)
class PlainJob:
    """A job whose plan is a function; it keeps the situations that it got."""

    planned: Callable[[JobSituation], JobPlan]
    name: str = "probe"
    moments: frozenset[JobMoment] = TURN_ENDS
    limits: JobLimits = NO_LIMITS
    situations: list[JobSituation] = field(default_factory=list)

    def plan(self, situation: JobSituation) -> JobPlan:
        self.situations.append(situation)
        return self.planned(situation)


def wanting(*wants: Want, returned: JobOutcome = (), answers: list[Answer] | None = None) -> Callable[[JobSituation], JobSteps]:
    """A plan that yields wants one after the other, keeps the answers, and returns events."""

    def plan(_: JobSituation) -> JobSteps:
        for want in wants:
            answer = yield want
            if answers is not None:
                answers.append(answer)
        return returned

    return plan


def agent_of(*replies: ScriptedReply, jobs: tuple[Job, ...], home: Home | None = None, resume: str = "") -> Agent:
    """An agent with a scripted model, one tool and some jobs."""
    return Agent(MODEL, tools=(ECHO,), provider=Scripted(*replies), jobs=jobs, home=home, resume=resume, profile="none")


def after_turns(*prompts: str, replies: tuple[ScriptedReply, ...] = (), jobs: tuple[Job, ...]) -> Log:
    """The log after some turns, of each of which the jobs have ended before the next begins."""
    home = Home.in_memory()

    async def run() -> str:
        async with agent_of(*(replies or ["ok"] * len(prompts)), jobs=jobs, home=home) as agent:
            for prompt in prompts:
                await agent.ask(prompt)
                await agent.jobs.wait()
            return agent.id

    return home.open(asyncio.run(run()), write=False)


def job_runs(log: Log) -> list[JobRan]:
    """How the runs of jobs ended, without their durations."""
    found = [event.body for event in log.events() if isinstance(event.body, JobRan)]
    return [JobRan(body.job, body.cursor, body.status, body.why) for body in found]


def last(log: Log, kind: type) -> Event:
    """The newest event of a type."""
    return next(event for event in reversed(tuple(log.events())) if isinstance(event.body, kind))


def notices(log: Log) -> list[str]:
    """The lines for the user that a log has."""
    return [event.body.text for event in log.events() if isinstance(event.body, Noticed)]
