"""The job that notes at once what the user asks to remember, without a model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from palimpsest.core.events import Event
from palimpsest.core.items import seq_of
from palimpsest.core.policy import JobEnd, JobLimits, JobPlan, JobSteps, path_events
from palimpsest.core.situation import JobMoment, JobSituation

if TYPE_CHECKING:
    from palimpsest.engine.memory.memories import Memories
    from palimpsest.memory.evidence.stated import UserStatement

NAME: Final = "remember"
# A word that such a message has in its first characters; `memory.evidence.stated` reads its form.
COMMANDS: Final = ("remember", "记住", "記住")
_BEGINNING: Final = 80
_LIMITS: Final = JobLimits(calls=0, seconds=30.0)


@dataclass(frozen=True, slots=True)
class NoteStatements:
    """Notes messages of the form `remember: …` or 记住：…, in the words of the user, also if jobs that ask a model are off."""

    memories: "Callable[[], Memories]"
    limits: JobLimits = _LIMITS
    name: str = NAME
    moments: frozenset[JobMoment] = frozenset({"said", "session_ends"})

    def plan(self, situation: JobSituation) -> JobPlan:
        """Return the steps if a message since the cursor begins with a command; `None` if there is nothing to note."""
        # Of the others nothing is read, so that a long session costs no more than a short one.
        begun = [seq_of(each.id) for each in situation.evidence.user_messages if _may_be_command(each.opening)]
        new = [seq for seq in begun if seq > situation.job.cursor]
        return self._steps(situation, new) if new else None

    def _steps(self, situation: JobSituation, messages: Sequence[int]) -> JobSteps:
        from palimpsest.memory.evidence.stated import statements  # most sessions have no such message

        events: list[Event] = []
        for seq in messages:
            events += yield from path_events(situation, seq, seq)
        found = tuple(statements(situation.session, events))
        return JobEnd(commit=partial(self._noted, found)) if found else None

    def _noted(self, found: "Sequence[UserStatement]") -> JobEnd:
        from palimpsest.engine.memory.session_jobs.applying import apply_changes

        sources = tuple(each.source for each in found)
        applied = apply_changes(self.memories(), (each.change() for each in found), sources, "remember")
        why = "; ".join(applied.refused)
        return JobEnd(applied.events, why, notice=f"not noted: {why}" if why else "")


def _may_be_command(opening: str) -> bool:
    beginning = opening.lstrip()[:_BEGINNING].lower()
    return any(command in beginning for command in COMMANDS)
