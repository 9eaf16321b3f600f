"""Jobs beside turns: when they start, what they get, what they record, and that no turn waits for them."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from job_stubs import ASK, MODEL, PlainJob, after_turns, agent_of, job_runs, last, wanting
from loops import PROFILE
from workplace import work

from palimpsest.agent.agent import Agent
from palimpsest.agent.limits import Limits, TurnMeter
from palimpsest.core.errors import BadInput
from palimpsest.core.events import Body, CallStarted, Event, JobRan, ModelReplied, Recalled, Rewound, Titled, TurnEnded, Usage
from palimpsest.core.items import Text
from palimpsest.core.ledger import JobState
from palimpsest.core.log import Log
from palimpsest.core.plans import Answer, EventSpan, JobPlan, JobSituation, JobSteps, Look, Moment, Plan, Situation, Want, path_events
from palimpsest.providers.scripted import Scripted, StalledReply
from palimpsest.stores.home import FolderHome, Home


def untimed(body: Body) -> Body:
    return JobRan(body.job, body.cursor, body.status, body.why) if isinstance(body, JobRan) else body


def test_a_job_runs_after_the_turn_and_its_events_are_recorded_before_its_end() -> None:
    log = after_turns("go", jobs=(PlainJob(lambda _: (Titled("T", by="probe"),)),))
    tip = last(log, TurnEnded).seq
    assert [untimed(event.body) for event in log.events() if event.seq > tip] == [Titled("T", by="probe"), JobRan("probe", tip + 1)]


def test_a_job_gets_the_events_since_its_cursor_and_no_event_twice() -> None:
    seen: list[int] = []

    def plan(situation: JobSituation) -> JobSteps:
        seen.extend(event.seq for event in (yield from path_events(situation, situation.job.cursor + 1, situation.tip)))
        return ()

    log = after_turns("one", "two", jobs=(PlainJob(plan),))
    assert seen == list(range(log.tip))
    assert isinstance(log.event(log.tip).body, JobRan)


def test_after_a_rewind_a_job_gets_only_the_events_of_the_path() -> None:
    seen: list[list[int]] = []

    def plan(situation: JobSituation) -> JobSteps:
        seen.append([event.seq for event in (yield from path_events(situation, situation.job.cursor + 1, situation.tip))])
        return ()

    async def run() -> tuple[int, int]:
        async with agent_of("one", "two", jobs=(PlainJob(plan),)) as agent:
            await agent.ask("first")
            await agent.jobs.wait()
            back = agent.session.log.append(Rewound(2)).seq
            await agent.ask("second")
            await agent.jobs.wait()
            return back, agent.session.log.tip

    back, tip = asyncio.run(run())
    assert seen == [list(range(back - 1)), [0, 1, 2, *range(back, tip)]]


def test_without_news_a_job_does_not_run_again() -> None:
    job = PlainJob(lambda _: (), moments=frozenset({"turn_ends", "session_ends"}))
    log = after_turns("go", jobs=(job,))
    assert [situation.moment for situation in job.situations] == ["turn_ends"]
    assert len(job_runs(log)) == 1


def test_a_plan_without_anything_to_do_records_nothing() -> None:
    job = PlainJob(lambda _: None)
    assert job_runs(after_turns("one", "two", jobs=(job,))) == []
    assert len(job.situations) == 2


def test_the_end_of_the_session_is_a_moment_of_its_own() -> None:
    job = PlainJob(lambda _: (), moments=frozenset({"session_ends"}))
    log = after_turns("go", jobs=(job,))
    assert [situation.moment for situation in job.situations] == ["session_ends"]
    assert job_runs(log) == [JobRan("probe", last(log, TurnEnded).seq)]


def test_a_job_calls_a_model_and_ends_while_the_call_of_a_turn_is_open(tmp_path: Path) -> None:
    job = PlainJob(wanting(ASK), moments=frozenset({"resumed"}))

    async def run() -> str:
        async with agent_of("one", jobs=(), home=FolderHome(tmp_path)) as agent:
            await agent.ask("first")
        turn, side = StalledReply("a long answer", after=1), StalledReply("a word", after=1)
        provider = Scripted(*[lambda request: side if b"a word, please" in request.body else turn] * 2)
        async with Agent(MODEL, provider=provider, jobs=(job,), home=FolderHome(tmp_path), resume=agent.id, profile="none") as resumed:
            answer = asyncio.ensure_future(resumed.ask("second"))
            await turn.reached.wait()
            await side.reached.wait()
            side.released.set()
            await resumed.jobs.wait()
            assert resumed.session.log.open_call is not None
            turn.released.set()
            assert (await answer).text == "a long answer"
            return resumed.id

    log = FolderHome(tmp_path).open(asyncio.run(run()), write=False)
    kinds = [(type(event.body).__name__, getattr(event.body, "purpose", "")) for event in log.events()]
    beside = [kind for kind in kinds if kind[0] in ("CallStarted", "ModelReplied", "JobRan")][2:]
    assert sorted(beside[:2]) == [("CallStarted", "job:probe"), ("CallStarted", "turn")]
    assert beside[2:] == [("ModelReplied", "job:probe"), ("JobRan", ""), ("ModelReplied", "turn")]


def test_the_turn_does_not_wait_for_a_job_and_one_job_never_runs_twice_at_once() -> None:
    stalled, job = StalledReply("a word", after=1), PlainJob(wanting(ASK))

    async def run() -> tuple[str, str, int]:
        async with agent_of("one", stalled, "two", jobs=(job,)) as agent:
            first = await agent.ask("first")
            await stalled.reached.wait()
            second = await agent.ask("second")
            started = len(job.situations)
            stalled.released.set()
            return first.text, second.text, started

    assert asyncio.run(run()) == ("one", "two", 1)


def test_what_would_change_the_view_is_recorded_after_the_turn() -> None:
    recalled = Recalled("q", ("n",), parts=(Text("a note"),))
    turn, released, home = StalledReply("second answer", after=1), threading.Event(), Home.in_memory()

    def plan(situation: JobSituation) -> JobPlan:
        if situation.job.cursor >= 0:
            return None
        released.wait(30)
        return (recalled,)

    async def run() -> tuple[bool, str]:
        async with agent_of("one", turn, jobs=(PlainJob(plan),), home=home) as agent:
            await agent.ask("first")
            second = asyncio.ensure_future(agent.ask("second"))
            await turn.reached.wait()
            released.set()
            await agent.jobs.wait()
            during = recalled in [event.body for event in agent.session.log.events()]
            turn.released.set()
            await second
            return during, agent.id

    during, session = asyncio.run(run())
    log = home.open(session, write=False)
    assert during is False
    assert last(log, Recalled).seq == last(log, TurnEnded).seq + 1
    assert [body.status for body in job_runs(log)] == ["done"]


def test_a_result_for_a_branch_that_was_left_is_not_used() -> None:
    stalled, home = StalledReply("a word", after=1), Home.in_memory()

    async def run() -> str:
        async with agent_of("ok", stalled, jobs=(PlainJob(wanting(ASK, returned=(Titled("T"),))),), home=home) as agent:
            await agent.ask("go")
            await stalled.reached.wait()
            agent.session.log.append(Rewound(1))
            stalled.released.set()
            await agent.jobs.wait()
            return agent.id

    log = home.open(asyncio.run(run()), write=False)
    assert job_runs(log) == [JobRan("probe", -1, "cancelled", "the session went back meanwhile")]
    assert not any(isinstance(event.body, Titled) for event in log.events())


def test_policies_of_the_moment_idle_run_once_in_a_pause_and_a_new_prompt_ends_the_pause() -> None:
    slept: list[float] = []

    class Away:
        name, moments, shrinks, runs = "away", frozenset[Moment]({"idle"}), False, 0

        def plan(self, situation: Situation) -> Plan:
            self.runs += 1
            asyncio.run_coroutine_threadsafe(ran.put(self.runs), loop)
            return ()

    async def run() -> list[str]:
        woken = asyncio.Event()

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            await woken.wait()

        async with Agent(
            "claude-sonnet-4-5", provider=Scripted("1", "2", "3"), profile=replace(PROFILE, policies=(away,)), jobs=()
        ) as agent:
            agent.session.environment = replace(agent.session.environment, sleep=sleep)
            answers = [(await agent.ask("one")).text, (await agent.ask("two")).text]
            assert away.runs == 0
            woken.set()
            await ran.get()
            return [*answers, (await agent.ask("three")).text]

    away, ran = Away(), asyncio.Queue[int]()
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        assert runner.run(run()) == ["1", "2", "3"]
    assert away.runs == 1
    assert slept[:2] == [270.0, 270.0]


def test_an_idle_session_starts_jobs_again_and_again_until_the_next_turn() -> None:
    job, slept = PlainJob(lambda _: (), moments=frozenset({"idle"})), list[float]()

    async def run() -> list[JobState]:
        three = asyncio.Event()
        async with agent_of("one", "two", jobs=(job,)) as agent:

            async def sleep(seconds: float) -> None:
                await agent.jobs.wait()
                slept.append(seconds)
                if len(slept) > 3:
                    three.set()
                    await asyncio.Event().wait()

            agent.session.environment = replace(agent.session.environment, sleep=sleep)
            await agent.ask("first")
            await three.wait()
            before = agent.session.log.jobs.of("probe")
            await agent.ask("second")
            return [before, agent.session.log.jobs.of("probe")]

    before, after = asyncio.run(run())
    assert (before.repeats, after.repeats, len(job.situations)) == (3, 0, 3)
    assert slept[1:3] == [270.0] * 2
    # Counted from the beginning of the call, from which on the cache lives.
    assert 0 < slept[0] <= 270.0


def test_two_jobs_of_one_name_are_refused() -> None:
    with pytest.raises(BadInput, match="two jobs have one name: probe, probe"):
        agent_of(jobs=(PlainJob(lambda _: ()), PlainJob(lambda _: ())))


def test_the_jobs_of_a_profile_run_unless_others_are_given() -> None:
    job = PlainJob(lambda _: ())
    profile = replace(PROFILE, jobs=(job,))
    assert Agent(MODEL, profile=profile).jobs.jobs == (job,)
    assert Agent(MODEL, profile=profile, jobs=()).jobs.jobs == ()


def test_wants_of_every_kind_are_answered() -> None:
    answers: list[Answer] = []
    wants: tuple[Want, ...] = (Look("missing.txt"), EventSpan(0, 0), ASK)
    after_turns("go", replies=("ok", "word"), jobs=(PlainJob(wanting(*wants, answers=answers)),))
    assert [type(answer).__name__ for answer in answers] == ["NoneType", "tuple", "ModelReplied"]


def test_what_a_job_spends_beside_a_turn_does_not_count_against_the_limit_of_the_turn() -> None:
    session, spent = work(PROFILE), []
    meter = TurnMeter(session, Limits(usd=10.0))
    for purpose in ("job:probe", "summary"):
        started = session.log.append(CallStarted(MODEL, "anthropic", purpose=purpose))
        session.log.append(ModelReplied((), call=started.seq, usage=Usage(1_000_000, output=800_000), model=MODEL, purpose=purpose))
        spent.append((meter.spent().usd, meter.reached()))
    assert spent == [(0.0, None), (15.0, "max_usd")]


def test_a_log_with_the_records_of_jobs_is_projected_alike_when_it_is_opened_again(tmp_path: Path) -> None:
    job = PlainJob(lambda _: (Titled("T"),))

    async def run() -> tuple[str, object]:
        async with agent_of("one", "two", jobs=(job,), home=FolderHome(tmp_path)) as agent:
            for prompt in ("first", "second"):
                await agent.ask(prompt)
                await agent.jobs.wait()
            return agent.id, agent.session.log.jobs

    session, live = asyncio.run(run())
    with Log.open(FolderHome(tmp_path).store, session, FolderHome(tmp_path).clock, whole=True) as log:
        assert log.jobs == live


def test_a_follower_gets_the_events_of_jobs_after_a_turn_once_and_in_order() -> None:
    async def follow() -> tuple[list[int], list[int], list[int], int]:
        async with agent_of("one", "two", "three", jobs=(PlainJob(lambda _: (Titled("T", by="probe"),)),)) as agent:
            assert agent.unseen() == ()
            first = [piece.seq async for piece in agent.run("go") if isinstance(piece, Event)]
            await agent.jobs.wait()
            asked = [event.seq for event in agent.unseen()]
            assert agent.unseen() == ()
            second = [piece.seq async for piece in agent.run("on") if isinstance(piece, Event)]
            await agent.jobs.wait()
            third = [piece.seq async for piece in agent.run("on") if isinstance(piece, Event)]
            return first, asked, [*second, *third], agent.session.log.tip

    first, asked, rest, tip = asyncio.run(follow())
    assert len(asked) == 2
    # The job of the third turn has not run yet when its events are counted.
    assert [*first, *asked, *rest] == list(range(first[0], tip + 1))
