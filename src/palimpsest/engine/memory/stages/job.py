"""Both stages beside a session: a job that begins with its first message, beside the turn."""

from collections.abc import Generator
from typing import Final

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.policy import Answer, Job, JobEnd, JobLimits, JobOutcome, JobPlan, Want
from palimpsest.core.situation import JobMoment, JobSituation
from palimpsest.engine.memory.session_memory import SessionMemory
from palimpsest.memory.stages.folder_agent import MOST_TURNS
from palimpsest.profiles.profile import StageRules

NAME: Final = "pipeline"
_SECONDS: Final = 3_600.0


class RunStages:
    """Reads finished sessions and updates the handbook, once in each process that runs the session."""

    def __init__(self, memory: SessionMemory, rules: StageRules) -> None:
        self._memory = memory
        self._rules = rules
        self._has_run = False
        self.limits = JobLimits(memory.config.run_usd or None, rules.sessions + MOST_TURNS, _SECONDS)
        self.name = NAME
        self.moments: frozenset[JobMoment] = frozenset({"said"})

    def plan(self, situation: JobSituation) -> JobPlan:
        """Return the steps of one run; `None` if this process has run it already."""
        if self._has_run:
            return None
        self._has_run = True
        return self._steps(situation)

    def _steps(self, situation: JobSituation) -> Generator[Want, Answer, JobOutcome]:
        from palimpsest.engine.memory.stages.places import StagePlaces  # SQLite; a start is measured in milliseconds
        from palimpsest.engine.memory.stages.run import report_line, stage_plan, stage_steps

        memory = self._memory
        places = StagePlaces(memory.home, memory.config, self._rules)
        usd = memory.config.run_usd
        uses = places.phases(memory.agent.session.card, memory.home.cards(), usd)
        plan = stage_plan(places, by_model=uses is not None, current=situation.session)
        report = yield from stage_steps(places, plan, uses, usd)
        if report.is_idle:
            return None
        line = report_line(report)
        return JobEnd(why=line, notice=line if report.is_over_budget or report.has_failed else "")


def start_stages(memory: SessionMemory, rules: StageRules) -> Job:
    """Return the job that runs both stages beside the session of this memory."""
    return RunStages(memory, rules)


def stage_notice(memory: SessionMemory, rules: StageRules) -> str:
    """Return what the start of a session says before a model is asked: what may be read, with which models, and for how much."""
    from palimpsest.engine.memory.stages.places import StagePlaces

    usd = memory.config.run_usd
    try:
        uses = StagePlaces(memory.home, memory.config, rules).phases(memory.agent.session.card, memory.home.cards(), usd)
    except PalimpsestError as error:
        return f"memory: finished sessions are not read: {error.message}"
    if uses is None:
        return "memory: finished sessions are read by their logs alone, for memory.run_usd is 0"
    one, two = (use.card.name for use in uses)
    work = f"up to {rules.sessions} finished sessions are read with {one}, and consolidated with {two}"
    return f"memory: {work}, for at most ${usd:g} (memory.run_usd)"
