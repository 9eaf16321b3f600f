"""The pipeline beside a session: a job that reads a few finished sessions after the first turn, and ends with the session."""

from collections.abc import Generator
from typing import Final

from palimpsest.core.policy import Answer, Job, JobEnd, JobLimits, JobOutcome, JobPlan, Want
from palimpsest.core.situation import JobMoment, JobSituation
from palimpsest.engine.memory.session_memory import SessionMemory
from palimpsest.wire.models.cards import recorded_card

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
        from palimpsest.engine.memory.pipeline.places import PipelinePlaces  # SQLite; a start is measured in milliseconds
        from palimpsest.engine.memory.pipeline.run import background_steps, model_use, report_line

        memory = self._memory
        places = PipelinePlaces(memory.home, memory.config)
        card = recorded_card(memory.config.model or situation.card.name, memory.home.cards())
        report = yield from background_steps(places, model_use(places, card), situation.session)
        is_idle = not report.sessions and all(each.status == "unchanged" for each in report.scopes)
        return None if is_idle else JobEnd(why=report_line(report))


def start_pipeline(memory: SessionMemory) -> Job:
    """Return the job that runs the pipeline beside the session of this memory."""
    return ReadFinishedSessions(memory)
