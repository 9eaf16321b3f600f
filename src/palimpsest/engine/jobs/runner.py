"""The jobs of a session: starts what is due beside turns, records what it brings at safe points, and ends it with the session."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from msgspec.structs import replace as replace_struct

from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events import Failed, JobRan, Noticed, Recalled
from palimpsest.core.policy import Job
from palimpsest.core.projections.jobs import JobState, job_purpose
from palimpsest.core.situation import JobMoment
from palimpsest.engine.calls.moments import idle
from palimpsest.engine.jobs.running import JobResult, committed, job_situation, reason, run_job
from palimpsest.engine.session import Session

# Seconds that jobs get at the end of a session, and then once more to record that they were cancelled.
EXIT_SECONDS: Final = 2.0
_GRACE_SECONDS: Final = 1.0
# Seconds that a cancelled run has for effects that it has begun; shorter than the time in which it is recorded.
_COMMIT_SECONDS: Final = 0.8
# Seconds between two moments `idle`: shorter than the five minutes that a prompt cache lives.
IDLE_SECONDS: Final = 270.0
# The pause of a job after its first failure; it doubles with each failure in a row, up to a day.
_FIRST_PAUSE_MS: Final = 60_000
_LONGEST_PAUSE_MS: Final = 86_400_000
_LEFT: Final = JobResult("cancelled", why="the session went back meanwhile")


@dataclass(frozen=True, slots=True)
class _FinishedRun:
    """A run that ended: its job, the newest event when it started, its start in milliseconds, and its result."""

    job: str
    tip: int
    started: int
    result: JobResult


class Jobs:
    """Runs the jobs of one session in tasks of their own. No turn waits for them, and none of them can break one.

    The user gets one line when a job fails, and none for its next failures in a row. Raises `BadInput` if two jobs have one name.
    """

    def __init__(self, session: Session, jobs: Iterable[Job] = ()) -> None:
        self._session = session
        self.jobs: tuple[Job, ...] = ()
        self.add(jobs)
        self.exit_seconds = EXIT_SECONDS
        self._running: dict[str, asyncio.Task[None]] = {}
        self._held: list[_FinishedRun] = []
        self._idle: asyncio.Task[None] | None = None
        self._pause: asyncio.Task[None] | None = None
        self._is_closed = False

    def add(self, jobs: Iterable[Job]) -> None:
        """Run these jobs too, from the next moment on. Raises `BadInput` if two jobs have one name."""
        self.jobs = distinct_jobs((*self.jobs, *jobs))

    def turn_ended(self) -> None:
        """Record what waited for the end of the turn, and start the jobs that are due now."""
        self._record_held()
        self.start("turn_ends")
        if any("idle" in policy.moments for policy in self._session.profile.policies):
            self._pause = asyncio.ensure_future(self._pass_pause())

    async def pause_ended(self) -> None:
        """End the pause of the user: a policy that runs in it is cancelled, and what it had begun is recorded before this returns."""
        pause, self._pause = self._pause, None
        if pause is not None:
            pause.cancel()
            await asyncio.wait((pause,))

    async def _pass_pause(self) -> None:
        """Run the policies of the moment `idle` once in a pause, shortly before a prompt cache is lost."""
        await self._session.environment.sleep(IDLE_SECONDS)
        try:
            await idle(self._session)
        except PalimpsestError as error:
            # No caller waits for it; the next turn meets the same problem, and says so.
            with suppress(PalimpsestError):
                self._session.log.append(Failed("idle", error.kind, error.message))

    def start(self, moment: JobMoment) -> None:
        """Start the jobs that are due at a moment, each in a task of its own, unless it is running."""
        if self._is_closed:
            return
        if moment == "replied" and any("idle" in job.moments for job in self.jobs):
            self._stop_idling()
            self._idle = asyncio.ensure_future(self._be_idle())
        for job in self.jobs:
            if moment in job.moments and job.name not in self._running and self._is_due(job, moment):
                self._running[job.name] = asyncio.ensure_future(self._run(job, moment))

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until the jobs that run now have ended, for at most some seconds."""
        running = [task for task in self._running.values() if not task.done()]
        if running:
            await asyncio.wait(running, timeout=seconds)

    async def close(self, *, at_once: bool = False) -> None:
        """Start the jobs for the end of a session, give all of them `exit_seconds`, cancel the rest, and start no more.

        With `at_once` nothing is started or awaited before jobs are cancelled.
        """
        if self._is_closed:
            return
        self._stop_idling()
        await self.pause_ended()
        try:
            if not at_once:
                self.start("session_ends")
                await self.wait(self.exit_seconds)
        finally:
            for task in self._running.values():
                task.cancel()
            await self.wait(_GRACE_SECONDS)
            self._record_held()
            self._is_closed = True

    def abandon(self) -> None:
        """Start no more jobs, and record nothing more: the log is about to be closed."""
        self._is_closed = True
        self._stop_idling()
        for task in (*self._running.values(), *(() if self._pause is None else (self._pause,))):
            if not task.get_loop().is_closed():
                task.cancel()

    async def _be_idle(self) -> None:
        """Start jobs every 4.5 minutes after the newest call began, in turns too: a tool may run longer than a prompt cache lives."""
        environment, called = self._session.environment, self._session.derived.cache.value().called
        elapsed = 0.0 if called is None else (environment.clock.now() - called) / 1_000
        wait = min(IDLE_SECONDS, max(0.0, IDLE_SECONDS - elapsed))
        while True:
            await environment.sleep(wait)
            wait = IDLE_SECONDS
            if self._session.log.open_call is None:
                self.start("idle")

    def _stop_idling(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _is_due(self, job: Job, moment: JobMoment) -> bool:
        """Whether a job may start: there is something new or the session is idle, and its pause is over."""
        states = self._session.log.jobs
        state = states.of(job.name)
        if moment != "idle" and not states.lag(job.name):
            return False
        return state.at is None or self._session.environment.clock.now() - state.at >= _pause_ms(job, state)

    async def _run(self, job: Job, moment: JobMoment) -> None:
        """Run a job once, and record how it ended."""
        run = _FinishedRun(job.name, self._session.log.tip, self._session.environment.clock.now(), JobResult("cancelled"))
        try:
            situation = job_situation(self._session, job, moment)
            run = replace(run, tip=situation.tip)
            result = await run_job(self._session, job, situation)
            if result is not None and run.tip in self._session.log.path:
                result = await committed(result, _COMMIT_SECONDS)
            elif result is not None and result.status == "done":
                result = _LEFT
        except asyncio.CancelledError:
            self._finish(replace(run, result=JobResult("cancelled", why="the session ended")))
            raise
        except Exception as error:  # noqa: BLE001 - a job must not break a turn, also if its situation cannot be computed
            result = JobResult("failed", why=reason(error))
        self._finish(None if result is None else replace(run, result=result), job.name)

    def _finish(self, run: _FinishedRun | None, job: str = "") -> None:
        """Record a run, or keep it until the turn has ended if it would change the view."""
        if run is not None and self._must_wait(run):
            # Its job counts as running until then, so that it does not do the same work twice.
            self._held.append(run)
            return
        self._running.pop(job if run is None else run.job, None)
        if run is not None:
            self._record(run)

    def _must_wait(self, run: _FinishedRun) -> bool:
        # During a turn, an item could come between a call and its result.
        changes_view = any(isinstance(body, Recalled) for body in run.result.events)
        return changes_view and (self._session.log.open_call is not None or self._session.log.health.turn is not None)

    def _record_held(self) -> None:
        held, self._held = self._held, []
        for run in held:
            self._finish(run)

    def _record(self, run: _FinishedRun) -> None:
        """Record the events of a run and its end. What cannot be recorded is a failure of the job."""
        if self._is_closed:
            return
        try:
            self._append(run)
        except PalimpsestError as error:
            # A log that takes nothing more, such as on a full disk, says so at the next turn.
            with suppress(PalimpsestError):
                self._append(replace(run, result=JobResult("failed", why=reason(error))))

    def _append(self, run: _FinishedRun) -> None:
        log, result = self._session.log, run.result
        with log.locked():
            state = log.jobs.of(run.job)
            if run.tip not in log.path and result.status == "done":
                # What was done outside of the log is recorded nevertheless.
                result = _LEFT if result.commit is None else replace_struct(_LEFT, events=result.events)
            if result.status == "skipped" and (state.status, state.why) == ("skipped", result.why):
                # Recorded once: a job without a budget would be skipped after every turn.
                return
            nothing_new = log.jobs.newest <= run.tip
            for body in result.events:
                log.append(body)
            # What the job recorded itself is not new to it, unless something else came before it.
            done_to = log.tip if nothing_new else run.tip
            took_ms = max(0, self._session.environment.clock.now() - run.started)
            if result.cursor is not None:
                done_to = result.cursor
            cursor = done_to if result.status == "done" else state.cursor
            log.append(JobRan(run.job, cursor, result.status, result.why, took_ms))
            if result.status == "failed" and not state.failures:
                log.append(Noticed(f"the job {run.job} failed: {result.why}", job_purpose(run.job)))
            elif result.notice:
                log.append(Noticed(f"the job {run.job}: {result.notice}", job_purpose(run.job)))


def distinct_jobs(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """Return the jobs. Raises `BadInput` if two of them have one name."""
    found = tuple(jobs)
    names = [job.name for job in found]
    if len(set(names)) < len(names):
        raise BadInput(f"two jobs have one name: {', '.join(names)}")
    return found


def _pause_ms(job: Job, state: JobState) -> int:
    """The shortest time between the last run of a job and its next, in milliseconds."""
    if not state.failures:
        return job.limits.pause_ms
    # Doubled at most 20 times, because the exponent comes from a file.
    return max(job.limits.pause_ms, min(_LONGEST_PAUSE_MS, _FIRST_PAUSE_MS << min(20, state.failures - 1)))
