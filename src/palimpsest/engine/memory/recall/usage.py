"""Counts how notes are used: a background job reads what was recalled and what replies cite, and adds it to the counts of each note."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from palimpsest.core.events import Event, ModelReplied, Recalled
from palimpsest.core.items import Text
from palimpsest.core.policy import JobEnd, JobLimits, JobPlan, JobSteps, path_events
from palimpsest.core.situation import JobMoment, JobSituation
from palimpsest.engine.memory.session_memory import SessionMemory

_LIMITS: Final = JobLimits(calls=0, seconds=30.0)


@dataclass(frozen=True, slots=True)
class CountUses:
    """Adds to `shown` of each note that a prompt recalled, and to `uses` of each that a reply cites, once a reply.

    The counts are kept beside the notes and written into their files by consolidation only, so that reading a note does not change it.
    """

    memory: SessionMemory
    limits: JobLimits = _LIMITS
    name: str = "note_uses"
    moments: frozenset[JobMoment] = frozenset({"turn_ends", "session_ends"})

    def plan(self, situation: JobSituation) -> JobPlan:
        """Return steps that read the events since the last run; `None` if there are no notes."""
        return self._steps(situation) if self.memory.has_notes() else None

    def _steps(self, situation: JobSituation) -> JobSteps:
        events = yield from path_events(situation, situation.job.cursor + 1, situation.tip)
        found = [event for event in events if isinstance(event.body, Recalled | ModelReplied)]
        if not found:
            return ()
        return JobEnd(commit=lambda: self._count(found))

    def _count(self, events: Iterable[Event]) -> JobEnd:
        from palimpsest.engine.memory.recall.note_index import note_index  # noqa: PLC0415 - a start is measured in milliseconds
        from palimpsest.memory.showing.citations import cited_notes  # noqa: PLC0415 - the same
        from palimpsest.stores.notes.recall_index import NoteUse  # noqa: PLC0415 - the same

        index = note_index(self.memory)
        if index is None:
            return JobEnd()
        index.refresh()
        shown: dict[str, int] = {}
        cited: dict[str, list[str]] = {}
        for event in events:
            match event.body:
                case Recalled(notes=notes):
                    for name in notes:
                        shown[name] = shown.get(name, 0) + 1
                case ModelReplied(parts=parts, purpose="turn"):
                    text = "\n".join(part.text for part in parts if isinstance(part, Text))
                    for name in cited_notes(text, index.entries):
                        cited.setdefault(name, []).append(_iso(event.at))
                case _:
                    pass
        added = {name: NoteUse(len(cited.get(name, ())), shown.get(name, 0), max(cited.get(name, [""]))) for name in {*shown, *cited}}
        index.add_usage(added)
        index.save()
        return JobEnd()


def _iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
