"""One run of the pipeline: phase one for the sessions that are due, then phase two for every scope that has changed."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from palimpsest.core.errors import NoModel
from palimpsest.core.format.texts import counted
from palimpsest.core.policy import Answer, Want, drive, run_steps
from palimpsest.engine.environment import in_thread
from palimpsest.engine.memory.pipeline.due_sessions import DueSession, due_sessions
from palimpsest.engine.memory.pipeline.metering import RunMeter
from palimpsest.engine.memory.pipeline.places import PipelinePlaces
from palimpsest.engine.memory.pipeline.scope_files import drop_lost, lost_sessions
from palimpsest.engine.memory.pipeline.scope_work import ScopeResult, is_dirty, scope_steps
from palimpsest.engine.memory.pipeline.session_work import Announce, ModelUse, SessionResult, session_steps, watermark_of
from palimpsest.stores.notes.claims import ClaimRow
from palimpsest.stores.notes.spending import Tokens
from palimpsest.wire.models.cards import ModelCard

AnswerWant: TypeAlias = Callable[[Want], Awaitable[Answer]]
SkipCounts: TypeAlias = dict[str, int]
# What an unfinished session waits for, in the order in which it is decided.
Waiting: TypeAlias = Literal["due", "running", "retry_later", "retries_used_up"]
_NO_MODEL: Final = "no model may be asked in this run"


class RunPlan(Struct, frozen=True):
    """What a run would do: the sessions to be read, why others are not, and the scopes that have changed already."""

    sessions: tuple[DueSession, ...]
    skipped: SkipCounts
    scopes: tuple[str, ...]


class RunReport(Struct, frozen=True):
    """What a run did."""

    sessions: tuple[SessionResult, ...] = ()
    scopes: tuple[ScopeResult, ...] = ()
    skipped: SkipCounts = {}

    @property
    def has_failed(self) -> bool:
        """Whether a session or a scope failed."""
        return "failed" in {*(each.status for each in self.sessions), *(each.status for each in self.scopes)}

    @property
    def is_over_budget(self) -> bool:
        """Whether a session or a scope was left for later because a budget did not allow its requests."""
        return any(each.is_over_budget for each in self.sessions) or any(each.is_over_budget for each in self.scopes)


def no_announcement(step: str, subject: str) -> None:
    """Do nothing: a run that shows no progress."""


def planned(places: PipelinePlaces, *, by_model: bool, everything: bool = False, most: int | None = None, current: str = "") -> RunPlan:
    """Return what a run would do now, without claiming or writing anything."""
    found = due_sessions(places, current=current, everything=everything)
    rows = {row.key: row for row in places.claims.rows() if row.kind == "session"}
    now = places.home.clock.now()
    counts: SkipCounts = {}
    due: list[DueSession] = []
    for each in found.due:
        waiting = waiting_of(rows.get(each.session), watermark_of(each, by_model=by_model), now)
        if waiting == "due" and (most is None or len(due) < most):
            due.append(each)
        else:
            _count(counts, "later" if waiting == "due" else waiting)
    for reason in found.not_due.values():
        _count(counts, reason)
    lost = lost_sessions(places).scopes
    scopes = tuple(scope for scope in places.scopes() if scope in lost or is_dirty(places, scope))
    return RunPlan(tuple(due), counts, scopes)


def run_without_model(places: PipelinePlaces, plan: RunPlan, announce: Announce = no_announcement, *, at_once: bool = False) -> RunReport:
    """Run the pipeline by structure alone; nothing is asked and nothing waits."""

    def answer(_: Want) -> Answer:
        raise NoModel(_NO_MODEL, where="memory")

    sessions = tuple(run_steps(session_steps(places, due, None, announce), answer) for due in plan.sessions)
    scopes = tuple(
        run_steps(scope_steps(places, scope, None, announce, at_once=at_once), answer) for scope in _touched(places, plan, sessions)
    )
    return RunReport(sessions, scopes, plan.skipped)


async def run_with_model(
    places: PipelinePlaces, plan: RunPlan, use: ModelUse, answer: AnswerWant, announce: Announce = no_announcement, *, at_once: bool = False
) -> RunReport:
    """Run the pipeline with a model: several sessions at once, then one scope after the other. A cancelled run leaves no claim behind."""
    slots = asyncio.Semaphore(places.config.parallel)

    async def one(due: DueSession) -> SessionResult:
        async with slots:
            return await drive(session_steps(places, due, use, announce), answer, in_thread)

    sessions = tuple(await _all_of([one(due) for due in plan.sessions]))
    scopes = [
        await drive(scope_steps(places, scope, use, announce, at_once=at_once), answer, in_thread)
        for scope in _touched(places, plan, sessions)
    ]
    return RunReport(sessions, tuple(scopes), plan.skipped)


def background_steps(places: PipelinePlaces, use: ModelUse | None, current: str) -> Generator[Want, Answer, RunReport]:
    """Run the pipeline for a few sessions, one after the other, beside a session whose driver answers the wants."""
    for scope in lost_sessions(places).scopes:
        places.claims.enqueue("scope", scope)
    drop_lost(places)
    plan = planned(places, by_model=use is not None, most=places.config.sessions_per_start, current=current)
    sessions: tuple[SessionResult, ...] = ()
    for due in plan.sessions:
        sessions = (*sessions, (yield from session_steps(places, due, use, no_announcement)))
    scopes: tuple[ScopeResult, ...] = ()
    for scope in _enqueued(places):
        scopes = (*scopes, (yield from scope_steps(places, scope, use, no_announcement)))
    return RunReport(sessions, scopes, plan.skipped)


def model_use(places: PipelinePlaces, card: ModelCard, usd: float | None = None) -> ModelUse | None:
    """Return the use of a model within the budgets of the settings; `None` if they allow no dollar. `usd` replaces the budget of a run."""
    config = places.config
    budget = config.run_usd if usd is None else usd
    if budget <= 0:
        return None
    day = Tokens(config.day_tokens_read, config.day_tokens_written)
    meter = RunMeter(card, places.spending, places.home.clock, usd=budget, day=day)
    return ModelUse(config.model, card.window, meter)


def report_line(report: RunReport) -> str:
    """Return what a run did, in one line."""
    done = [each for each in report.sessions if each.status in ("done", "empty")]
    scopes = [each for each in report.scopes if each.status == "done"]
    failed = [each.reason for each in report.sessions if each.status == "failed"]
    failed += [each.reason for each in report.scopes if each.status == "failed"]
    saved = sum(each.saved for each in done)
    line = f"read {counted(len(done), 'session')}, {counted(saved, 'note')}, consolidated {counted(len(scopes), 'scope')}"
    return f"{line}; {len(failed)} failed: {failed[0]}" if failed else line


async def _all_of(work: list[Awaitable[SessionResult]]) -> list[SessionResult]:
    """Wait for all; the first error or a cancellation ends the others in order, so that each gives its claim back."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _touched(places: PipelinePlaces, plan: RunPlan, sessions: tuple[SessionResult, ...]) -> tuple[str, ...]:
    """The scopes that were changed before the run or by it; whether there is something to do is decided when they are claimed."""
    return tuple(sorted({*(each.scope for each in sessions if each.scope), *plan.scopes, *places.scopes()}))


def _enqueued(places: PipelinePlaces) -> tuple[str, ...]:
    """The scopes for which a session that was read, or one that was deleted, left something; notes of a session that goes on wait."""
    return tuple(row.key for row in places.claims.rows() if row.kind == "scope" and row.watermark > row.success_watermark)


def waiting_of(row: ClaimRow | None, watermark: int, now: int) -> Waiting | Literal["up_to_date"]:
    """What claiming a job would come to; the claim itself decides."""
    if row is None:
        return "due"
    if row.success_watermark >= watermark:
        return "up_to_date"
    if row.status == "running" and row.lease_until > now:
        return "running"
    is_newer = watermark > row.watermark
    if not is_newer and row.retry_at > now:
        return "retry_later"
    return "retries_used_up" if not is_newer and row.retries_left <= 0 else "due"


def _count(counts: SkipCounts, reason: str) -> None:
    counts[reason] = counts.get(reason, 0) + 1
