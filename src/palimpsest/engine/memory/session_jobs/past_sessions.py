"""The job that keeps the index over past sessions current after turns, so that `recall` does not have to read logs first."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from palimpsest.core.format.texts import counted
from palimpsest.core.policy import JobEnd, JobLimits, JobPlan
from palimpsest.core.situation import JobMoment, JobSituation
from palimpsest.stores.home import AnyHome

NAME: Final = "past_sessions"
# Seconds of reading after one turn: the first index of a large home is made over several turns.
_SECONDS: Final = 60.0
_LIMITS: Final = JobLimits(calls=0, seconds=600.0, pause_ms=30_000)


@dataclass(frozen=True, slots=True)
class IndexPastSessions:
    """Reads logs that are new or changed since into the index over past sessions; that of this session is left for later."""

    home: AnyHome
    folder: Path
    limits: JobLimits = _LIMITS
    name: str = NAME
    moments: frozenset[JobMoment] = frozenset({"turn_ends"})

    def plan(self, situation: JobSituation) -> JobPlan:
        """Refresh the index at once: plans run in threads of their own. `None` if there was nothing to read."""
        from palimpsest.engine.memory.recall.session_index import open_sessions

        with closing(open_sessions(self.folder, self.home.store)) as sessions:
            done = sessions.refresh(_SECONDS, without=frozenset((situation.session,)))
        if not done.read:
            return None
        left = f", {done.left:,} are left" if done.left else ""
        return JobEnd(why=f"read {counted(done.read, 'session')}{left}")
