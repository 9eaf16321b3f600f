"""One run of a job: drives its plan in threads that can be abandoned, within its limits, and returns how it ended."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from threading import Thread
from typing import Any, Final, Literal, TypeVar, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from palimpsest.core.errors import BadInput, BudgetSpent, OverBudget, PalimpsestError, raised_text
from palimpsest.core.format.texts import counted
from palimpsest.core.policy import Answer, Ask, AskTogether, Job, JobEnd, JobEvent, JobOutcome, Want, drive
from palimpsest.core.projections.jobs import job_purpose
from palimpsest.core.situation import JobMoment, JobSituation
from palimpsest.engine.calls.plans import answer_want, answered_together
from palimpsest.engine.loop.limits import price_book
from palimpsest.engine.session import Session
from palimpsest.wire.models.prices import Tariff

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
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[Result | None, BaseException | None]] = loop.create_future()

    def report(result: Result | None, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((result, error))

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
            failure = error
        # The loop may be closed when an abandoned thread ends.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(report, result, failure)

    Thread(target=run, daemon=True, name="job").start()
    result, failure = await ended
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
    if Tariff.of(card) is None:
        raise OverBudget(f"no price is known for {card.name}, so that ${limits.usd:g} cannot be kept; {advice}", where=job.name)
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
