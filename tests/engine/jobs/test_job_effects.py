"""Effects of jobs outside of the log: they happen when the run can no longer be cancelled, and the log says so."""

import asyncio
import threading

import pytest
from job_stubs import ASK, PlainJob, after_turns, agent_of, job_runs, last, notices, wanting

from palimpsest.core.errors import BadInput
from palimpsest.core.events import JobRan, Rewound, Titled, TurnEnded
from palimpsest.core.plans import JobEnd, JobPlan, JobSituation
from palimpsest.providers.scripted import StalledReply
from palimpsest.stores.home import Home


def test_the_effects_of_a_job_happen_once_and_its_events_and_its_reason_are_recorded() -> None:
    done: list[str] = []

    def commit() -> JobEnd:
        done.append("written")
        return JobEnd((Titled("after"),), why="one of two was refused")

    log = after_turns("go", jobs=(PlainJob(lambda _: JobEnd((Titled("before"),), commit=commit)),))
    tip = last(log, TurnEnded).seq
    assert done == ["written"]
    assert [body.title for event in log.events() if isinstance(body := event.body, Titled)] == ["before", "after"]
    assert job_runs(log) == [JobRan("probe", tip + 2, "done", "one of two was refused")]


def test_a_run_for_a_branch_that_was_left_has_no_effects() -> None:
    stalled, home, done = StalledReply("a word", after=1), Home.in_memory(), list[str]()

    def commit() -> JobEnd:
        done.append("written")
        return JobEnd()

    async def run() -> str:
        async with agent_of("ok", stalled, jobs=(PlainJob(wanting(ASK, returned=JobEnd(commit=commit))),), home=home) as agent:
            await agent.ask("go")
            await stalled.reached.wait()
            agent.session.log.append(Rewound(1))
            stalled.released.set()
            await agent.jobs.wait()
            return agent.id

    log = home.open(asyncio.run(run()), write=False)
    assert done == []
    assert job_runs(log) == [JobRan("probe", -1, "cancelled", "the session went back meanwhile")]


def test_effects_that_have_begun_when_the_session_ends_are_recorded() -> None:
    home, begun, released = Home.in_memory(), threading.Event(), threading.Event()

    def commit() -> JobEnd:
        begun.set()
        released.wait(30)
        return JobEnd((Titled("written"),))

    async def run() -> str:
        async with agent_of("ok", jobs=(PlainJob(lambda _: JobEnd(commit=commit)),), home=home) as agent:
            agent.jobs.exit_seconds = 0.0
            await agent.ask("go")
            await asyncio.to_thread(begun.wait, 30)
            asyncio.get_running_loop().call_later(0.05, released.set)
        return agent.id

    log = home.open(asyncio.run(run()), write=False)
    assert last(log, Titled).body == Titled("written")
    assert [body.status for body in job_runs(log)] == ["done"]


def test_effects_that_fail_are_a_failure_of_the_job() -> None:
    def commit() -> JobEnd:
        raise BadInput("the disk is full")

    assert job_runs(after_turns("go", jobs=(PlainJob(lambda _: JobEnd(commit=commit)),))) == [
        JobRan("probe", -1, "failed", "the disk is full")
    ]


def test_a_job_may_be_done_with_earlier_events_only_and_tell_the_user_why() -> None:
    def plan(situation: JobSituation) -> JobPlan:
        return JobEnd(why="gave up", notice="2 events are skipped", cursor=2) if situation.job.cursor < 0 else None

    async def run() -> tuple[list[str], int]:
        async with agent_of("ok", jobs=(PlainJob(plan),)) as agent:
            await agent.ask("go")
            await agent.jobs.wait()
            return notices(agent.session.log), agent.session.log.jobs.of("probe").cursor

    assert asyncio.run(run()) == (["the job probe: 2 events are skipped"], 2)


def test_jobs_can_be_added_to_an_agent_under_names_that_are_free() -> None:
    agent = agent_of(jobs=(PlainJob(lambda _: ()),))
    other = PlainJob(lambda _: (), name="other")
    agent.jobs.add((other,))
    assert [job.name for job in agent.jobs.jobs] == ["probe", "other"]
    with pytest.raises(BadInput, match="two jobs have one name: probe, other, other"):
        agent.jobs.add((other,))
    assert len(agent.jobs.jobs) == 2


def test_input_and_replies_of_a_turn_are_moments_of_their_own() -> None:
    job = PlainJob(lambda _: None, moments=frozenset({"said", "replied"}))
    after_turns("go", jobs=(job,))
    assert [situation.moment for situation in job.situations][:1] == ["said"]
    assert {situation.used > 0 for situation in job.situations} == {True}
