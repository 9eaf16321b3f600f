"""The state of the pipeline: its jobs and leases, what waits and why, the folders of notes, and the tokens of the day."""

from datetime import UTC, datetime

from msgspec import Struct

from palimpsest.engine.memory.pipeline.due_sessions import due_sessions
from palimpsest.engine.memory.pipeline.places import PipelinePlaces
from palimpsest.engine.memory.pipeline.run import planned
from palimpsest.engine.memory.pipeline.scope_work import is_dirty
from palimpsest.engine.memory.recall.session_index import unread_sessions
from palimpsest.stores.notes.claims import ClaimRow
from palimpsest.stores.notes.spending import Tokens

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

    `history_problem` says why its files are in no commit of its history; empty if they are.
    """

    scope: str
    notes: int
    quarantine: int
    unreadable: int
    history_problem: str


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
        unread_sessions(places.home.folder, places.home.store),
    )


def _scope(places: PipelinePlaces, scope: str) -> ScopeStatus:
    notebook = places.notebook(scope)
    notes = notebook.notes()
    return ScopeStatus(scope, len(notes.active), len(notes.quarantine), len(notes.problems), notebook.history_problem())


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
