"""Requests of a replay that only keep the cache alive: when the job of a profile makes them, and what answers them."""

from collections.abc import AsyncIterator, Callable, Generator
from typing import Final

from palimpsest.audit.pricing.pauses import KEEP_ALIVE
from palimpsest.core.errors import NoModel, OverBudget
from palimpsest.core.events import JobRan, ModelReplied, Usage
from palimpsest.core.events.deltas import Delta
from palimpsest.core.items import Text
from palimpsest.core.policy import drive
from palimpsest.core.ports import Sendable
from palimpsest.core.projections.jobs import job_purpose
from palimpsest.engine.jobs.running import answers_of, job_situation
from palimpsest.engine.session import Session
from palimpsest.lab.simulation.simulated_requests import SimulatedRequest
from palimpsest.policies.jobs.keep_alive import KeepAlive
from palimpsest.stores.ephemeral import FixedClock

KEEP_ALIVE_PURPOSE: Final = job_purpose(KEEP_ALIVE)
# Tokens of a reply that says nothing.
SHORT_REPLY: Final = 16


async def pause_until(session: Session, at: int | None, clock: FixedClock) -> None:
    """Let the job of a session that keeps its cache alive run until a time in milliseconds; until it rests if there is none.

    The latter is the end of a recording: the replay assumes that the session was left open, which is the dearer case.
    """
    job = next((job for job in session.profile.jobs if isinstance(job, KeepAlive)), None)
    now = session.derived.cache.value().called
    while job is not None and now is not None:
        now += job.interval_ms
        if (at is not None and now >= at) or not session.derived.cache.value().longest(now):
            return
        clock.time = now
        plan = job.plan(job_situation(session, job, "idle"))
        if isinstance(plan, Generator):
            try:
                await drive(plan, answers_of(session, job))
            except OverBudget:
                return
            session.log.append(JobRan(job.name, session.log.tip, "done"))


class KeepAliveProvider:
    """Answers the requests that only keep the cache of a model alive with one word; `bill` returns their usage."""

    def __init__(self, model: str, bill: Callable[[SimulatedRequest], Usage]) -> None:
        self._model = model
        self._bill = bill

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        """Yield the reply."""
        if not isinstance(request, SimulatedRequest):
            raise NoModel("a replay bills only its own simulated requests")
        yield ModelReplied((Text("ok", "assistant"),), usage=self._bill(request), model=self._model)
