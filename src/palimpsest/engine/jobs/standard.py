"""The jobs that come with the engine, as the settings want them, and the one of them that touches the disk."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

from palimpsest.core.errors import Locked
from palimpsest.core.policy import Job, JobLimits, JobPlan
from palimpsest.core.ports import Index
from palimpsest.core.situation import JobMoment, JobSituation
from palimpsest.engine.jobs.runner import IDLE_SECONDS
from palimpsest.policies.jobs.titles import GiveTitle
from palimpsest.stores.config.schema import JobsConfig
from palimpsest.stores.home import AnyHome

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


def standard_jobs(config: JobsConfig, home: AnyHome) -> tuple[Job, ...]:
    """Return the jobs that are turned on."""
    jobs: list[Job] = []
    if config.titles == "auto":
        title = GiveTitle(config.model)
        jobs.append(replace(title, limits=_with_budget(title.limits, config)))
    if config.index == "auto" and home.folder is not None:
        jobs.append(UpdateIndex(home.index))
    if config.keep_alive:
        from palimpsest.policies.jobs.keep_alive import KeepAlive  # off by default, and a start is measured in milliseconds

        alive = KeepAlive(config.keep_alive_most, interval_ms=int(IDLE_SECONDS * 1_000))
        jobs.append(replace(alive, limits=_with_budget(alive.limits, config)))
    return tuple(jobs)


def _with_budget(limits: JobLimits, config: JobsConfig) -> JobLimits:
    return limits if config.max_usd is None else JobLimits(config.max_usd, limits.calls, limits.seconds, limits.pause_ms)
