"""The pipeline over finished sessions: one run of both phases, its estimated cost, its status, and its job beside a session."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from msgspec import Raw, Struct
from msgspec.structs import replace

from palimpsest.agent.calls import (
    answered_together,
    as_spoken_by,
    offered_tools,
    schema_refused,
    side_request_view,
    whole_reply,
    with_reply_limit,
)
from palimpsest.agent.session import in_thread
from palimpsest.core.errors import BadInput, NoModel, PalimpsestError, ProviderError
from palimpsest.core.events import Usage
from palimpsest.core.items import text_of
from palimpsest.core.plans import (
    Answer,
    Ask,
    AskTogether,
    Job,
    JobEnd,
    JobLimits,
    JobMoment,
    JobOutcome,
    JobPlan,
    JobSituation,
    Want,
    drive,
    run_steps,
)
from palimpsest.core.ports import Provider
from palimpsest.core.text import counted
from palimpsest.core.tokens import FAMILY_FACTORS, estimate, family_of
from palimpsest.core.view import View
from palimpsest.memory.consolidation import ScopeResult, drop_lost, is_dirty, lost_sessions, scope_steps
from palimpsest.memory.evidence import line_of_source
from palimpsest.memory.extract import (
    PHASE_ONE_MOST_WRITTEN as MOST_OF_SESSION,
)
from palimpsest.memory.extract import (
    PHASE_TWO_MOST_READ as MOST_READ,
)
from palimpsest.memory.extract import (
    PHASE_TWO_MOST_WRITTEN as MOST_WRITTEN,
)
from palimpsest.memory.extract import (
    session_schema,
)
from palimpsest.memory.phase_one import Announce, ModelUse, SessionResult, session_steps, watermark_of
from palimpsest.memory.session_index import unread_sessions
from palimpsest.memory.session_memory import SessionMemory
from palimpsest.memory.summaries import input_limit, read_session
from palimpsest.memory.work import DueSession, MemoryMeter, PipelinePlaces, due_sessions, session_events
from palimpsest.memory.work_store import ClaimRow, Tokens
from palimpsest.wire.encode import encode
from palimpsest.wire.models import ModelCard, Tariff, recorded_card
from palimpsest.wire.request import NULL, Params, resolved_params

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
    meter = MemoryMeter(card, places.spending, places.home.clock, usd=budget, day=day)
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


_HOUR_MS = 3_600_000


class JobStatus(Struct, frozen=True):
    """One job. Times are milliseconds since 1970, 0 if there is none; `next_at` is when it can be tried again."""

    kind: str
    key: str
    status: str
    lease_until: int
    retries_left: int
    next_at: int
    succeeded_at: int
    error: str


class ScopeStatus(Struct, frozen=True):
    """A folder of notes: active ones, those that wait in quarantine for a person, files that are no notes and so in no index.

    `history_problem` is empty, and there for scripts that read what version 0.2 printed.
    """

    scope: str
    notes: int
    quarantine: int
    unreadable: int
    history_problem: str = ""


class PipelineStatus(Struct, frozen=True):
    """The state of the pipeline of a home. `backlog` are sessions that a run would read now; `skipped` counts reasons of the others.

    `unindexed` are sessions that the index of recall does not have as they are now.

    `changed` are scopes that wait for a consolidation. `next_at` is when something that waits for time becomes due, 0 if nothing does.
    """

    jobs: tuple[JobStatus, ...]
    backlog: int
    skipped: dict[str, int]
    changed: tuple[str, ...]
    summaries: int
    last_error: str
    next_at: int
    day: str
    used: Tokens
    most: Tokens
    is_on: bool
    scopes: tuple[ScopeStatus, ...]
    unindexed: int


def pipeline_status(places: PipelinePlaces) -> PipelineStatus:
    """Return the state of the pipeline; nothing is claimed or written."""
    config, now = places.config, places.home.clock.now()
    plan = planned(places, by_model=config.jobs == "auto" and config.run_usd > 0)
    rows = places.claims.rows()
    jobs = tuple(_job(places, row) for row in rows)
    failed = sorted((row for row in rows if row.error), key=lambda row: row.finished_at)
    day = datetime.fromtimestamp(now / 1000, UTC).strftime("%Y-%m-%d")
    times = [job.next_at for job in jobs if job.next_at > now] + _idle_times(places)
    return PipelineStatus(
        jobs,
        len(plan.sessions),
        plan.skipped,
        tuple(scope for scope in places.scopes() if is_dirty(places, scope)),
        len(places.rows.all()),
        failed[-1].error if failed else "",
        min(times, default=0),
        day,
        places.spending.used(day),
        Tokens(config.day_tokens_read, config.day_tokens_written),
        config.use and config.jobs == "auto",
        tuple(_scope(places, scope) for scope in places.scopes()),
        unread_sessions(places.home.local_folder, places.home.store),
    )


def _scope(places: PipelinePlaces, scope: str) -> ScopeStatus:
    notes = places.notebook(scope).notes()
    return ScopeStatus(scope, len(notes.active), len(notes.quarantine), len(notes.problems))


def _job(places: PipelinePlaces, row: ClaimRow) -> JobStatus:
    waits = row.watermark > row.success_watermark
    cooldown = row.succeeded_at + int(places.config.cooldown_hours * _HOUR_MS) if row.kind == "scope" and row.succeeded_at and waits else 0
    next_at = max(row.retry_at, cooldown) if row.status != "running" else row.lease_until
    return JobStatus(row.kind, row.key, row.status, row.lease_until, row.retries_left, next_at, row.succeeded_at, row.error)


def _idle_times(places: PipelinePlaces) -> list[int]:
    """When sessions that are fresh now will count as finished."""
    found = due_sessions(places)
    fresh = {session for session, reason in found.not_due.items() if reason == "fresh"}
    if not fresh:
        return []
    idle = int(places.config.idle_hours * _HOUR_MS)
    return [each.updated + idle for each in due_sessions(places, everything=True).due if each.session in fresh]


# Tokens of the prompt beside the session: instructions and the list of notes.
_PROMPT_TOKENS = 2_000


class RunEstimate(Struct, frozen=True):
    """What a run will use at most: requests, tokens, and US dollars by the prices of its model, if they are known."""

    calls: int = 0
    read: int = 0
    written: int = 0
    usd: float | None = 0.0


class DirectAnswers:
    """Answers `Ask` with one model, or with that of its name; other wants are refused. `tell` gets lines for the user."""

    def __init__(
        self,
        card: ModelCard,
        provider: Provider,
        tell: Callable[[str], None],
        others: Mapping[str, tuple[ModelCard, Provider]] | None = None,
    ) -> None:
        self._default = (card, provider)
        self._others = others or {}
        self._tell = tell

    async def __call__(self, want: Want) -> Answer:
        """Return the reply to a request. Raises `BadInput` for another want, and the `PalimpsestError` of a failed call."""
        if isinstance(want, AskTogether):
            return await answered_together(want, self)
        if not isinstance(want, Ask):
            raise BadInput(f"the pipeline asks models only, not {type(want).__name__}", where="memory")
        card, provider = self._others.get(want.model, self._default)
        view, tools = side_request_view(View(), want, card), offered_tools(want)
        params = replace(Params(parallel=False), effort=want.effort, schema=Raw(want.schema.encode()) if want.schema else NULL)
        shown = "\n".join((want.prompt, *(text_of(item.content) for item in want.items)))
        limited = as_spoken_by(provider, with_reply_limit(params, card, estimate(shown), want.reply))
        try:
            return await whole_reply(provider, encode(view, card, tools, resolved_params(limited, card)))
        except ProviderError as error:
            if not want.schema or not error.refuses_form:
                raise
            self._tell(f"{error.message}; {schema_refused(card.name)}")
        return await whole_reply(provider, encode(view, card, tools, resolved_params(replace(limited, schema=NULL), card)))


def estimated(places: PipelinePlaces, plan: RunPlan, card: ModelCard) -> RunEstimate:
    """Return what a plan will use at most. Sessions that cannot be read cost nothing."""
    factor, limit = FAMILY_FACTORS[family_of(card.name)], input_limit(card.window)
    read = calls = 0
    for due in plan.sessions:
        try:
            reading = read_session(due.session, session_events(places, due.session), places.forgotten_events())
        except PalimpsestError:
            continue
        if reading.first:
            shown = estimate("\n".join(map(line_of_source, reading.sources)))
            read += int((min(limit, shown + _PROMPT_TOKENS) + estimate(session_schema())) * factor)
            calls += 1
    written = calls * MOST_OF_SESSION
    scopes = {places.scope_of(due.cwd) for due in plan.sessions} | set(plan.scopes)
    read += int(len(scopes) * MOST_READ * factor)
    written += len(scopes) * MOST_WRITTEN
    tariff = Tariff.of(card)
    usd = None if tariff is None else tariff.bill(Usage(input=read, output=written)).total
    return RunEstimate(calls + len(scopes), read, written, usd)


NAME: Final = "pipeline"
# Requests of one scope: wordings, skills and the summary.
_CALLS_A_SCOPE: Final = 3
_SECONDS: Final = 900.0


class ReadFinishedSessions:
    """Reads at most `memory.sessions_per_start` finished sessions, and consolidates what they changed, once in a session."""

    def __init__(self, memory: SessionMemory) -> None:
        self._memory = memory
        self._has_run = False
        config = memory.config
        calls = config.sessions_per_start + _CALLS_A_SCOPE * (config.sessions_per_start + 2)
        self.limits = JobLimits(config.run_usd or None, calls, _SECONDS)
        self.name = NAME
        self.moments: frozenset[JobMoment] = frozenset({"turn_ends", "resumed"})

    def plan(self, situation: JobSituation) -> JobPlan:
        """Return the steps of one run; `None` if this session has run it already."""
        if self._has_run:
            return None
        self._has_run = True
        return self._steps(situation)

    def _steps(self, situation: JobSituation) -> Generator[Want, Answer, JobOutcome]:
        from palimpsest.memory.work import PipelinePlaces  # SQLite; a start is measured in milliseconds

        memory = self._memory
        places = PipelinePlaces(memory.home, memory.config)
        card = recorded_card(memory.config.model or situation.card.name, memory.home.cards())
        report = yield from background_steps(places, model_use(places, card), situation.session)
        is_idle = not report.sessions and all(each.status == "unchanged" for each in report.scopes)
        return None if is_idle else JobEnd(why=report_line(report))


def start_pipeline(memory: SessionMemory) -> Job:
    """Return the job that runs the pipeline beside the session of this memory."""
    return ReadFinishedSessions(memory)
