"""Background jobs of a session: the runner beside turns, one run within limits, standard jobs, and costs of earlier caches."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from dataclasses import replace as dataclass_replace
from hashlib import sha256
from threading import Thread
from typing import Any, Final, Literal, TypeVar, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palimpsest.agent.calls import answer_want, answered_together, at_moment
from palimpsest.agent.limits import PRICED_APART, price_book
from palimpsest.agent.session import Session, outcome_in_thread
from palimpsest.audit.cache import FIVE_MINUTES_MS
from palimpsest.audit.prices import MOST_PAUSES
from palimpsest.core.errors import BadInput, BudgetSpent, Locked, OverBudget, PalimpsestError, raised_text
from palimpsest.core.events import Failed, JobRan, Noticed, Recalled
from palimpsest.core.ledger import JobState, is_priced_apart, job_purpose
from palimpsest.core.plans import (
    Answer,
    Ask,
    AskTogether,
    CacheAccount,
    Job,
    JobEnd,
    JobEvent,
    JobLimits,
    JobMoment,
    JobOutcome,
    JobPlan,
    JobSituation,
    Want,
    drive,
)
from palimpsest.core.ports import Index, StateSlot
from palimpsest.core.text import counted
from palimpsest.policies.jobs import GiveTitle, KeepAlive
from palimpsest.stores.config import JobsConfig
from palimpsest.stores.home import Home
from palimpsest.wire.models import Tariff

# Older sessions say less about the user of today.
MOST_SESSIONS: Final = 32
# A session of one turn has no pause in which the user could have come back.
_FEWEST_TURNS: Final = 2

_Accounts = dict[str, CacheAccount]
_decoder = msgspec.json.Decoder(_Accounts)


def earlier_caches(slot: StateSlot, session: str = "") -> CacheAccount:
    """Return the pauses in earlier sessions without this one, and the mean of what their caches cost; nothing if there are none."""
    key = _key(session)
    accounts = [account for name, account in _load(slot).items() if name != key]
    if not accounts:
        return CacheAccount()
    return CacheAccount(
        sum(account.paid for account in accounts) / len(accounts),
        sum(account.short for account in accounts) / len(accounts),
        sum(account.long for account in accounts) / len(accounts),
        tuple(pause for account in accounts for pause in account.working)[-MOST_PAUSES:],
        tuple(pause for account in accounts for pause in account.waiting)[-MOST_PAUSES:],
        sum(account.ends for account in accounts),
    )


def remember_cache(slot: StateSlot, session: Session) -> bool:
    """Add a session that is about to end; return whether it was added.

    Only sessions whose profile chooses by pauses and in which the user came back count, and none of a sub-agent. If the user was away for
    more than five minutes, that is a pause after which nothing came.
    """
    log, derived = session.log, session.derived
    chooses = session.profile.cache.lifetime == "auto" or bool(session.profile.jobs)
    account = derived.account.value()
    if not chooses or log.opened.opener is not None or log.health.turns < _FEWEST_TURNS or not account.paid:
        return False
    called = derived.cache.value().called
    away = called is not None and session.environment.clock.now() - called > FIVE_MINUTES_MS
    accounts, key = _load(slot), _key(log.session)
    accounts.pop(key, None)
    accounts[key] = replace(account, ends=int(away))
    return slot.save(msgspec.json.encode(dict(list(accounts.items())[-MOST_SESSIONS:])))


def _load(slot: StateSlot) -> _Accounts:
    """Return what was saved; nothing if it cannot be read, which costs only the habits of the user."""
    try:
        return _decoder.decode(slot.load() or b"{}")
    except msgspec.DecodeError:
        return {}


def _key(session: str) -> str:
    # Not the id itself: a deleted session must not be named anywhere.
    return sha256(session.encode()).hexdigest()[:16]


Result = TypeVar("Result")
_JOB_EVENTS: Final = get_args(JobEvent)
_WANTS: Final = get_args(Want)
# Characters of a recorded reason, and events of one run: a job that returns more has lost its way.
_LONGEST_REASON: Final = 300
_MOST_EVENTS: Final = 1_000
# Seconds that the steps of a cancelled run get to close.
_CLOSE_SECONDS: Final = 0.5


class JobResult(Struct, frozen=True):
    """How a run ended, the events to be recorded, and the reason if it did not end well or has something to say.

    `commit`, `cursor` and `notice` are those of its `JobEnd`.
    """

    status: Literal["done", "failed", "skipped", "cancelled"]
    events: tuple[JobEvent, ...] = ()
    why: str = ""
    commit: Callable[[], JobEnd] | None = None
    cursor: int | None = None
    notice: str = ""


def job_situation(session: Session, job: Job, moment: JobMoment) -> JobSituation:
    """Return the situation of a job that is about to start."""
    log = session.log
    with log.locked():
        states, derived = log.jobs, session.derived
        return JobSituation(
            moment=moment,
            session=log.session,
            now=session.environment.clock.now(),
            tip=log.tip,
            path=log.path,
            job=states.of(job.name),
            has_news=states.lag(job.name) > 0,
            usd=spent_usd(session, job.name),
            view=log.view,
            card=session.card,
            health=log.health,
            ledger=log.ledger,
            cache=derived.cache.value(),
            evidence=derived.evidence.value(),
            used=session.used,
            account=derived.account.value(),
            earlier=session.earlier,
            lifetime=session.lifetime,
            bills=session.bills,
        )


async def run_job(session: Session, job: Job, situation: JobSituation) -> JobResult | None:
    """Run a job once and return how it ended; `None` if there was nothing to do. Whatever the job raises is a result, too.

    If the task is cancelled, the thread in which the job computes is left to itself: what it returns is not used.
    """
    limit = asyncio.timeout(job.limits.seconds)
    try:
        async with limit:
            outcome = await _carried_out(session, job, situation)
            return None if outcome is None else _done(outcome)
    except OverBudget as error:
        # Recorded and told once for a reason, however often the job is due.
        notice = f"it waits: {reason(error)}" if isinstance(error, BudgetSpent) else ""
        return JobResult("skipped", why=reason(error), notice=notice)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return JobResult("failed", why="a model call was cancelled")
    except Exception as error:  # noqa: BLE001 - a job of another package may raise anything, and no turn may break because of it
        if limit.expired():
            return JobResult("failed", why=f"did not end within {job.limits.seconds:g} seconds")
        return JobResult("failed", why=reason(error))


async def committed(result: JobResult, seconds: float) -> JobResult:
    """Have the effects of a run outside of the log, and return its result with the events that say so.

    A cancellation waits for them, for at most some seconds, because what was done must be recorded. Raises what the job raises.
    """
    if result.commit is None:
        return result
    effects = asyncio.ensure_future(in_abandoned_thread(result.commit))
    try:
        await asyncio.shield(effects)
    except asyncio.CancelledError:
        await asyncio.wait((effects,), timeout=seconds)
        if not effects.done():
            raise
    end = effects.result()
    events = (*result.events, *_checked(end.events))
    return replace(result, events=events, why=_line(end.why) or result.why, notice=_line(end.notice) or result.notice)


def spent_usd(session: Session, job: str) -> float | None:
    """US dollars of the calls of a job in this session, by the ledger; `None` if the price of one is not known."""
    purpose = job_purpose(job)
    return price_book(session).usd(each for each in session.log.ledger.spendings if each.purpose == purpose)


def reason(error: BaseException) -> str:
    """Return an error as a reason that can be recorded: one line of bounded length."""
    return _line(error.message if isinstance(error, PalimpsestError) else raised_text(error))


async def in_abandoned_thread(work: Callable[[], Result], /) -> Result:
    """Run a function in a thread and return its result. If the task is cancelled, it ends at once and the thread is left to itself.

    The thread does not keep the process alive either, so that a job which never returns cannot.
    """
    result, failure = await outcome_in_thread(work, "job")
    if isinstance(failure, Exception):
        raise failure
    if failure is not None:
        # Raised in a task, an interrupt or exit of a job would end the whole event loop, and a cancellation only pretend to be one.
        raise RuntimeError(reason(failure)) from failure
    return cast("Result", result)


class _OwnSteps(Generator[Want, Answer, JobOutcome]):
    """The steps of a job, closed in a thread of their own: an abandoned thread may still run them, and their `finally` may hang."""

    def __init__(self, steps: Generator[Want, Answer, JobOutcome]) -> None:
        self._steps = steps
        self._is_over = False

    def send(self, value: Answer, /) -> Want:
        return self._advance(lambda: self._steps.send(value))

    def throw(self, error: Any, _value: Any = None, _trace: Any = None, /) -> Want:
        return self._advance(lambda: self._steps.throw(error))

    def _advance(self, step: Callable[[], Want]) -> Want:
        try:
            return step()
        except BaseException:
            self._is_over = True
            raise

    def close(self) -> None:
        if not self._is_over:
            closing = Thread(target=self._close, daemon=True, name="job")
            closing.start()
            # What the steps give back, such as claims, should not be lost because the process ends.
            closing.join(_CLOSE_SECONDS)

    def _close(self) -> None:
        with suppress(BaseException):
            self._steps.close()


def answers_of(session: Session, job: Job) -> Callable[[Want], Awaitable[Answer]]:
    """Return what answers the wants of one run of a job, within the limits of the job."""
    calls = 0

    async def answer(want: Want) -> Answer:
        nonlocal calls
        if isinstance(want, AskTogether):
            return await answered_together(want, answer)
        if not isinstance(want, _WANTS):
            raise BadInput(f"a job yielded {type(want).__name__}, which is no want", where=job.name)
        if isinstance(want, Ask):
            turns = max(1, min(want.turns, job.limits.calls - calls))
            _check_budget(session, job, calls, want)
            calls += turns
            # The ledger accounts for the calls of a job by their purpose, so the job cannot choose it.
            want = replace(want, purpose=job_purpose(job.name), turns=turns)
        return await answer_want(want, session)

    return answer


async def _carried_out(session: Session, job: Job, situation: JobSituation) -> JobOutcome:
    """Run the plan of a job to its end, answer its wants, and return its outcome."""
    plan = await in_abandoned_thread(lambda: job.plan(situation))
    return await drive(_OwnSteps(plan), answers_of(session, job), in_abandoned_thread) if isinstance(plan, Generator) else plan


def _check_budget(session: Session, job: Job, calls: int, want: Ask) -> None:
    """Raise `OverBudget` if the job may make no more calls, or if a budget in dollars cannot be kept."""
    limits = job.limits
    if calls >= limits.calls:
        raise OverBudget(f"a run may make {counted(limits.calls, 'model call')}", where=job.name)
    if limits.usd is None:
        return
    card = session.named_card(want.model) if want.model else session.card
    advice, spent = "write its prices into cards.toml, or turn the job off", spent_usd(session, job.name)
    # A job asks with the parameters of its session.
    unknown = card.name if Tariff.of(card) is None else PRICED_APART if is_priced_apart(msgspec.json.encode(session.params)) else ""
    if unknown:
        raise OverBudget(f"no price is known for {unknown}, so that ${limits.usd:g} cannot be kept; {advice}", where=job.name)
    if spent is None:
        why = f"it is not known what earlier calls of the job cost, so that ${limits.usd:g} cannot be kept"
        raise OverBudget(f"{why}; {advice}", where=job.name)
    if spent >= limits.usd:
        raise OverBudget(f"the budget of ${limits.usd:g} in a session is spent", where=job.name)


def _done(outcome: object) -> JobResult:
    """Return the result of a run that ended well. Raises `BadInput` if a job returned anything but an outcome."""
    if not isinstance(outcome, JobEnd):
        return JobResult("done", _checked(outcome))
    return JobResult("done", _checked(outcome.events), _line(outcome.why), outcome.commit, outcome.cursor, _line(outcome.notice))


def _line(text: str) -> str:
    line = " ".join(text.encode("utf-8", "backslashreplace").decode().split())
    return line if len(line) <= _LONGEST_REASON else f"{line[: _LONGEST_REASON - 1]}…"


def _checked(outcome: object) -> tuple[JobEvent, ...]:
    """Return the events of an outcome. Raises `BadInput` if a job returned anything else."""
    if not isinstance(outcome, tuple) or len(outcome) > _MOST_EVENTS:
        raise BadInput(f"a job returns at most {_MOST_EVENTS} events as a tuple, or None")
    for body in outcome:
        if not isinstance(body, _JOB_EVENTS):
            raise BadInput(f"a job may not record {type(body).__name__}")
    return outcome


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

    The user gets one line when a job fails, and none for its next failures in a row. `exit_seconds` are given to all of them at the end.
    Raises `BadInput` if two jobs have one name.
    """

    def __init__(self, session: Session, jobs: Iterable[Job] = (), exit_seconds: float = EXIT_SECONDS) -> None:
        self._session = session
        self.jobs = distinct_jobs(jobs)
        self.exit_seconds = exit_seconds
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
            await at_moment(self._session, "idle")
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
            run = dataclass_replace(run, tip=situation.tip)
            result = await run_job(self._session, job, situation)
            if result is not None and run.tip in self._session.log.path:
                result = await committed(result, _COMMIT_SECONDS)
            elif result is not None and result.status == "done":
                result = _LEFT
        except asyncio.CancelledError:
            self._finish(dataclass_replace(run, result=JobResult("cancelled", why="the session ended")))
            raise
        except Exception as error:  # noqa: BLE001 - a job must not break a turn, also if its situation cannot be computed
            result = JobResult("failed", why=reason(error))
        self._finish(None if result is None else dataclass_replace(run, result=result), job.name)

    def _finish(self, run: _FinishedRun | None, job: str = "") -> None:
        """Record a run, or keep it until the turn has ended if it would change the view."""
        if run is not None and self._must_wait(run):
            # Its job counts as running until then, so that it does not do the same work twice.
            self._held.append(run)
            return
        self._running.pop(job if run is None else run.job, None)
        if run is not None:
            self._record_run(run)

    def _must_wait(self, run: _FinishedRun) -> bool:
        # During a turn, an item could come between a call and its result.
        changes_view = any(isinstance(body, Recalled) for body in run.result.events)
        return changes_view and (self._session.log.open_call is not None or self._session.log.health.turn is not None)

    def _record_held(self) -> None:
        held, self._held = self._held, []
        for run in held:
            self._finish(run)

    def _record_run(self, run: _FinishedRun) -> None:
        """Record the events of a run and its end. What cannot be recorded is a failure of the job."""
        if self._is_closed:
            return
        try:
            self._append_run(run)
        except PalimpsestError as error:
            # A log that takes nothing more, such as on a full disk, says so at the next turn.
            with suppress(PalimpsestError):
                self._append_run(dataclass_replace(run, result=JobResult("failed", why=reason(error))))

    def _append_run(self, run: _FinishedRun) -> None:
        log, result = self._session.log, run.result
        with log.locked():
            state = log.jobs.of(run.job)
            if run.tip not in log.path and result.status == "done":
                # What was done outside of the log is recorded nevertheless.
                result = _LEFT if result.commit is None else replace(_LEFT, events=result.events)
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


# The index of a large home takes long only the first time; later runs read what is new.
_INDEX_LIMITS: Final = JobLimits(calls=0, seconds=600.0, pause_ms=30_000)


@dataclass(frozen=True, slots=True)
class UpdateIndex:
    """Brings the search index up to date after a turn, so that the next search does not have to."""

    open_index: Callable[[], Index]
    limits: JobLimits = _INDEX_LIMITS
    name: str = "index"
    moments: frozenset[JobMoment] = frozenset({"turn_ends"})

    def plan(self, situation: JobSituation) -> JobPlan:
        """Refresh the index at once: plans run in threads of their own. `None` if another process does so already."""
        try:
            with closing(self.open_index()) as index:
                index.refresh()
        except Locked:
            return None
        return ()


def standard_jobs(config: JobsConfig, home: Home) -> tuple[Job, ...]:
    """Return the jobs that are turned on."""
    jobs: list[Job] = []
    if config.titles == "auto":
        title = GiveTitle(config.model)
        jobs.append(dataclass_replace(title, limits=_with_budget(title.limits, config)))
    if config.index == "auto" and home.local_folder is not None:
        jobs.append(UpdateIndex(home.index))
    if config.keep_alive:
        alive = KeepAlive(config.keep_alive_most, interval_ms=int(IDLE_SECONDS * 1_000))
        jobs.append(dataclass_replace(alive, limits=_with_budget(alive.limits, config)))
    return tuple(jobs)


def _with_budget(limits: JobLimits, config: JobsConfig) -> JobLimits:
    return limits if config.max_usd is None else JobLimits(config.max_usd, limits.calls, limits.seconds, limits.pause_ms)
