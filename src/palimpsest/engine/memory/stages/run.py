"""One run of both stages: stage one for the sessions that are due, several at once, then stage two at once if it brought something."""

from collections.abc import Generator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from palimpsest.core.format.texts import counted
from palimpsest.core.policy import Answer, Want
from palimpsest.engine.memory.pipeline.due_sessions import DueSession, due_sessions
from palimpsest.engine.memory.pipeline.metering import RunCost, RunMeter
from palimpsest.engine.memory.pipeline.run import SkipCounts, waiting_of
from palimpsest.engine.memory.pipeline.session_work import SessionResult, watermark_of
from palimpsest.engine.memory.stages.consolidation import Consolidation, drop_lost, stage_two_steps
from palimpsest.engine.memory.stages.places import PhaseUse, StagePlaces
from palimpsest.engine.memory.stages.session_stage import STAGE_ONE, stage_one_steps
from palimpsest.memory.stages.together import together

# Sessions that one run reads side by side.
AT_ONCE: Final = 8


class StagePlan(Struct, frozen=True):
    """What a run would do: the sessions to be read, and why others are not."""

    sessions: tuple[DueSession, ...]
    skipped: SkipCounts


class StageReport(Struct, frozen=True):
    """What a run did."""

    sessions: tuple[SessionResult, ...] = ()
    consolidation: Consolidation = Consolidation("unchanged")
    skipped: SkipCounts = {}
    spent: RunCost = RunCost()

    @property
    def has_failed(self) -> bool:
        """Whether a session or the consolidation failed."""
        return self.consolidation.status == "failed" or any(each.status == "failed" for each in self.sessions)

    @property
    def is_over_budget(self) -> bool:
        """Whether something was left for later because a budget did not allow its requests."""
        return self.consolidation.is_over_budget or any(each.is_over_budget for each in self.sessions)

    @property
    def is_idle(self) -> bool:
        """Whether there was nothing to do."""
        return not self.sessions and self.consolidation.status in ("unchanged", "skipped")


def stage_plan(places: StagePlaces, *, by_model: bool, everything: bool = False, current: str = "") -> StagePlan:
    """Return what a run would do now, without claiming or writing anything: at most as many sessions as the rules allow at a start."""
    found = due_sessions(places.pipeline, current=current, everything=everything)
    rows = {row.key: row for row in places.claims.rows() if row.kind == STAGE_ONE}
    now, counts = places.home.clock.now(), dict[str, int]()
    due: list[DueSession] = []
    for each in found.due:
        waiting = waiting_of(rows.get(places.key_of(each.session)), watermark_of(each, by_model=by_model), now)
        if waiting == "due" and (everything or len(due) < places.rules.sessions):
            due.append(each)
        else:
            kept_for = "later" if waiting == "due" else waiting
            counts[kept_for] = counts.get(kept_for, 0) + 1
    for reason in found.not_due.values():
        counts[reason] = counts.get(reason, 0) + 1
    return StagePlan(tuple(due), counts)


def stage_steps(
    places: StagePlaces, plan: StagePlan, uses: tuple[PhaseUse, PhaseUse] | None, usd: float = 0.0, *, at_once: bool = False
) -> Generator[Want, Answer, StageReport]:
    """Do both stages. A session that fails leaves the others alone, and stage two works with what there is."""
    drop_lost(places)
    one, two = (None, None) if uses is None else uses
    sessions = yield from together([stage_one_steps(places, due, one) for due in plan.sessions], AT_ONCE)
    if two is not None and one is not None and isinstance(one.meter, RunMeter) and isinstance(two.meter, RunMeter):
        # Both stages share the budget of the run.
        two = replace(two, meter=two.meter.with_budget(max(0.0, usd - one.meter.spent.usd)))
    consolidation = yield from stage_two_steps(places, two, at_once=at_once)
    return StageReport(sessions, consolidation, plan.skipped, _spent(one, two))


def _spent(*uses: PhaseUse | None) -> RunCost:
    """Return what both stages have used together."""
    costs = [use.meter.spent for use in uses if use is not None and isinstance(use.meter, RunMeter)]
    read, written = sum(each.read for each in costs), sum(each.written for each in costs)
    return RunCost(sum(each.calls for each in costs), read, written, sum(each.usd for each in costs))


def report_line(report: StageReport) -> str:
    """Return what a run did, in one line."""
    read = [each for each in report.sessions if each.status in ("done", "empty")]
    kept = sum(each.status == "done" for each in read)
    line = f"read {counted(len(read), 'finished session')}, kept {kept:,}"
    two = report.consolidation
    if two.status == "done":
        line += f", made the handbook of {counted(two.memories, 'session')}"
    reasons = [each.reason for each in report.sessions if each.status in ("failed", "skipped")]
    reasons += [two.reason] if two.status in ("failed", "skipped") and two.reason else []
    return f"{line}; {len(reasons)} not done: {reasons[0]}" if reasons else line
