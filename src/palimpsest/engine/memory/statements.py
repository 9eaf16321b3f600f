"""The job that notes at once what the user asks to remember, without a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from palimpsest.core.events import Event
from palimpsest.core.items import seq_of
from palimpsest.core.policy import JobEnd, JobLimits, JobPlan, JobSteps, path_events
from palimpsest.core.situation import JobMoment, JobSituation
from palimpsest.engine.memory.applying import apply_changes
from palimpsest.engine.memory.memories import Memories
from palimpsest.memory.evidence.stated import UserStatement, begins_command, statements

NAME: Final = "remember"
_LIMITS: Final = JobLimits(calls=0, seconds=30.0)


@dataclass(frozen=True, slots=True)
class NoteStatements:
    """Notes messages that begin with `remember` or 记住, in the words of the user, also if jobs that ask a model are off."""

    memories: Memories
    limits: JobLimits = _LIMITS
    name: str = NAME
    moments: frozenset[JobMoment] = frozenset({"said", "turn_ends", "session_ends"})

    def plan(self, situation: JobSituation) -> JobPlan:
        """Return the steps; they end without a record if there is nothing to note."""
        return self._steps(situation)

    def _steps(self, situation: JobSituation) -> JobSteps:
        # Only messages that begin like a command are read, so that a long session costs no more than a short one.
        begun = [seq_of(message.id) for message in situation.evidence.user_messages if begins_command(message.opening)]
        events: list[Event] = []
        for seq in begun:
            if seq > situation.job.cursor:
                events += yield from path_events(situation, seq, seq)
        found = tuple(statements(situation.session, events))
        return JobEnd(commit=partial(self._noted, found)) if found else None

    def _noted(self, found: Sequence[UserStatement]) -> JobEnd:
        sources = tuple(each.source for each in found)
        applied = apply_changes(self.memories, (each.change() for each in found), sources, "remember")
        names = ", ".join(dict.fromkeys(event.name for event in applied.events))
        why = "; ".join(applied.refused)
        return JobEnd(applied.events, why, notice=f"not noted: {why}" if why else f"noted as {names}" if names else "")
