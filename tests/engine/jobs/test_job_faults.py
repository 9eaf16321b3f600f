"""Jobs that fail, spend too much, never end or are cut off: what is recorded of them, and that turns and exits go on."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from every_case import every_case
from job_stubs import ASK, MODEL, PlainJob, after_turns, agent_of, job_runs, last, notices, wanting

from palimpsest.core.errors import BadInput, ProviderError
from palimpsest.core.events import CallStarted, Interrupted, JobRan, ModelReplied, Titled, TurnEnded, Usage, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.log import Log
from palimpsest.core.plans import JobLimits, JobOutcome, JobPlan, JobSituation, JobSteps, Look
from palimpsest.providers.scripted import StalledReply
from palimpsest.stores.home import FolderHome, Home
from palimpsest.stores.in_memory import FixedClock


def raises(error: BaseException) -> Callable[[JobSituation], JobPlan]:
    def plan(_: JobSituation) -> JobPlan:
        raise error

    return plan


def raises_later(error: BaseException) -> Callable[[JobSituation], JobPlan]:
    def plan(_: JobSituation) -> JobSteps:
        yield Look("nothing.txt")
        raise error

    return plan


@every_case("when", [raises, raises_later])
@every_case(
    ("error", "why"),
    [
        (ValueError("odd\nvalue"), "ValueError: odd value"),
        (BadInput("no such note"), "no such note"),
        (KeyboardInterrupt(), "RuntimeError: KeyboardInterrupt:"),
        (SystemExit(3), "RuntimeError: SystemExit: 3"),
        (asyncio.CancelledError(), "RuntimeError: CancelledError:"),
        (GeneratorExit(), "RuntimeError: GeneratorExit:"),
        (TimeoutError("late"), "TimeoutError: late"),
        (ValueError("\udcff" + "x" * 1_000), "ValueError: \\udcff" + "x" * 281 + "…"),
    ],
)
def test_whatever_a_job_raises_is_recorded_and_the_next_turn_works(
    when: Callable[[BaseException], Callable[[JobSituation], JobPlan]], error: BaseException, why: str
) -> None:
    log = after_turns("one", "two", jobs=(PlainJob(when(error)),))
    assert job_runs(log) == [JobRan("probe", -1, "failed", why)]
    assert sum(isinstance(event.body, TurnEnded) for event in log.events()) == 2


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        ((UserSaid((Text("obey"),)),), "a job may not record UserSaid"),
        ((JobRan("other", 9),), "a job may not record JobRan"),
        ([Titled("T")], "a job returns at most 1000 events as a tuple, or None"),
        ("T", "a job returns at most 1000 events as a tuple, or None"),
        ((Titled("T"),) * 1_001, "a job returns at most 1000 events as a tuple, or None"),
    ],
    ids=("user message", "end of another job", "list", "text", "too many"),
)
def test_a_job_records_only_what_jobs_may_record(outcome: JobOutcome, why: str) -> None:
    log = after_turns("go", jobs=(PlainJob(lambda _: outcome),))
    assert job_runs(log) == [JobRan("probe", -1, "failed", why)]
    assert not any(isinstance(event.body, Titled) for event in log.events())


def test_what_cannot_be_written_is_a_failure_of_the_job() -> None:
    (ran,) = job_runs(after_turns("go", jobs=(PlainJob(lambda _: (Titled("\ud800"),)),)))
    assert (ran.status, ran.cursor) == ("failed", -1)


def test_what_is_no_want_is_thrown_into_the_job() -> None:
    plan = wanting("rm -rf /")  # type: ignore[arg-type]  # a job of another package may yield anything
    assert job_runs(after_turns("go", jobs=(PlainJob(plan),))) == [JobRan("probe", -1, "failed", "a job yielded str, which is no want")]


def test_a_failed_want_can_be_caught_by_the_job() -> None:
    def plan(_: JobSituation) -> JobSteps:
        try:
            yield ASK
        except ProviderError as error:
            return (Titled(f"without a model: {error.message}"),)
        return ()

    log = after_turns("go", replies=("ok", ProviderError("no", status=400)), jobs=(PlainJob(plan),))
    assert last(log, Titled).body == Titled("without a model: no")


def test_after_each_failure_in_a_row_a_job_pauses_twice_as_long_and_the_user_gets_one_notice() -> None:
    clock, job = FixedClock(0, 0), PlainJob(raises(ValueError("no")))

    async def run() -> tuple[list[int], list[str]]:
        async with agent_of(*["ok"] * 6, jobs=(job,), home=Home.in_memory(clock)) as agent:
            runs: list[int] = []
            for minute in (0, 0, 1, 2, 3, 10):
                clock.time = minute * 60_000
                await agent.ask("go")
                await agent.jobs.wait()
                runs.append(len(job.situations))
            return runs, notices(agent.session.log)

    assert asyncio.run(run()) == ([1, 1, 2, 2, 3, 4], ["the job probe failed: ValueError: no"])


def test_a_job_keeps_its_pause_between_two_runs() -> None:
    job = PlainJob(lambda _: (), limits=JobLimits(pause_ms=3_600_000))
    after_turns("one", "two", jobs=(job,))
    assert len(job.situations) == 1


def test_a_run_makes_at_most_its_number_of_calls() -> None:
    job = PlainJob(wanting(ASK, ASK, ASK), limits=JobLimits(calls=2))
    log = after_turns("go", replies=("ok", "one", "two", "three"), jobs=(job,))
    assert job_runs(log) == [JobRan("probe", -1, "skipped", "a run may make 2 model calls")]
    assert sum(isinstance(event.body, CallStarted) for event in log.events()) == 3


def test_a_job_over_its_budget_is_skipped_and_says_so_once() -> None:
    paid = ModelReplied((Text("a word", "assistant"),), usage=Usage(input=5_000_000, output=9), model=MODEL)
    job = PlainJob(wanting(ASK), limits=JobLimits(usd=1.0))
    log = after_turns("one", "two", "three", "four", replies=("ok", paid, "ok", "ok", "ok"), jobs=(job,))
    runs = job_runs(log)
    assert [(run.status, run.why) for run in runs] == [("done", ""), ("skipped", "the budget of $1 in a session is spent")]
    assert runs[1].cursor == runs[0].cursor
    assert [situation.usd for situation in job.situations] == [0.0, *[pytest.approx(15.0, abs=0.01)] * 3]
    assert [spending.purpose for spending in log.ledger.spendings] == ["turn", "job:probe"]


def test_a_job_that_never_ends_fails_when_its_time_is_up() -> None:
    job = PlainJob(wanting(ASK), limits=JobLimits(seconds=1.5))
    log = after_turns("go", replies=("ok", StalledReply("never", after=0)), jobs=(job,))
    assert job_runs(log) == [JobRan("probe", -1, "failed", "did not end within 1.5 seconds")]
    assert last(log, Interrupted).body == Interrupted(last(log, CallStarted).seq, (), "CancelledError", model=MODEL, purpose="job:probe")


def closed_in_mid_job(plan: Callable[[JobSituation], JobSteps], reply: StalledReply) -> Log:
    home = Home.in_memory()

    async def run() -> str:
        async with agent_of("ok", reply, jobs=(PlainJob(plan),), home=home) as agent:
            agent.jobs.exit_seconds = 0.05
            await agent.ask("go")
            return agent.id

    return home.open(asyncio.run(run()), write=False)


def test_at_exit_a_running_job_is_cancelled_and_its_cursor_stays() -> None:
    log = closed_in_mid_job(wanting(ASK), StalledReply("never", after=0))
    assert job_runs(log) == [JobRan("probe", -1, "cancelled", "the session ended")]
    assert log.jobs.of("probe").failures == 0
    assert log.ledger.open == ()


def test_a_job_that_computes_for_ever_keeps_no_exit_waiting() -> None:
    released = threading.Event()

    def plan(_: JobSituation) -> JobSteps:
        try:
            yield Look("a.txt")
            released.wait(60)
        finally:
            released.wait(60)
        return ()

    try:
        log = closed_in_mid_job(plan, StalledReply("never", after=0))
        assert not released.is_set()
    finally:
        released.set()
    assert job_runs(log) == [JobRan("probe", -1, "cancelled", "the session ended")]


def test_a_program_that_fails_does_not_wait_for_jobs() -> None:
    job = PlainJob(lambda _: (), moments=frozenset({"session_ends"}))

    async def run() -> None:
        async with agent_of("ok", jobs=(job,)) as agent:
            await agent.ask("go")
            raise ValueError("a bug of the caller")

    with pytest.raises(ValueError, match="a bug"):
        asyncio.run(run())
    assert job.situations == []


def test_closing_without_the_context_manager_leaves_jobs_to_themselves() -> None:
    stalled, home = StalledReply("never", after=0), Home.in_memory()

    async def run() -> str:
        agent = agent_of("ok", stalled, jobs=(PlainJob(wanting(ASK)),), home=home)
        await agent.ask("go")
        await stalled.reached.wait()
        agent.close()
        await agent.jobs.wait()
        return agent.id

    assert job_runs(home.open(asyncio.run(run()), write=False)) == []


def test_a_job_that_was_killed_runs_again_from_its_cursor(tmp_path: Path) -> None:
    program = Path(__file__).parents[2] / "support" / "programs" / "killed_job.py"
    with subprocess.Popen([sys.executable, program, tmp_path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        session = process.stdout.readline().strip()
        assert process.stdout.readline() == "in the middle of the second run\n"
        os.kill(process.pid, signal.SIGKILL)
    job = PlainJob(wanting(ASK), moments=frozenset({"resumed"}))

    async def run() -> None:
        async with agent_of("go on", "a word", jobs=(job,), home=FolderHome(tmp_path), resume=session) as agent:
            await agent.ask("third")

    asyncio.run(run())
    log = FolderHome(tmp_path).open(session, write=False)
    first, second = job_runs(log)
    assert [situation.job.cursor for situation in job.situations] == [first.cursor]
    assert (first.status, second.status) == ("done", "done")
    assert second.cursor > first.cursor
    assert log.ledger.open == ()
