"""Counts how notes and summaries of sessions are used: a background job reads what was recalled and what replies cite."""

from collections.abc import Iterable, Iterator, Sequence
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
    """Adds to `shown` of each note that a prompt recalled, and to `uses` of each note or summary of a session that a reply cites.

    A reply that cites one several times counts once.

    The counts are kept beside the notes and written into their files by consolidation only, so that reading a note does not change it.
    """

    memory: SessionMemory
    limits: JobLimits = _LIMITS
    name: str = "note_uses"
    moments: frozenset[JobMoment] = frozenset({"turn_ends", "session_ends"})

    def plan(self, situation: JobSituation) -> JobPlan:
        """Return steps that read the events since the last run; `None` if there are no notes and no summaries."""
        return self._steps(situation) if self.memory.has_notes() or self.memory.has_summaries() else None

    def _steps(self, situation: JobSituation) -> JobSteps:
        events = yield from path_events(situation, situation.job.cursor + 1, situation.tip)
        found = [event for event in events if isinstance(event.body, Recalled | ModelReplied)]
        if not found:
            return ()
        return JobEnd(commit=lambda: self._count(found))

    def _count(self, events: Sequence[Event]) -> JobEnd:
        self._count_notes(events)
        if self.memory.has_summaries():
            self._count_summaries(events)
        return JobEnd()

    def _count_summaries(self, events: Iterable[Event]) -> None:
        from palimpsest.memory.showing.citations import cited_summaries  # noqa: PLC0415 - a start is measured in milliseconds
        from palimpsest.stores.notes.jobs_database import JobsDatabase  # noqa: PLC0415 - as above
        from palimpsest.stores.notes.rollouts import RolloutRows  # noqa: PLC0415 - as above

        folder = self.memory.home.folder
        rows = None if folder is None else RolloutRows(JobsDatabase(folder / "memory"))
        scopes = {notebook.scope for notebook in self.memory.memories.notebooks}
        stems = {} if rows is None else {row.session: row.stem for row in rows.all() if row.scope in scopes}
        for at, text in _replies(events):
            if rows is not None and (sessions := cited_summaries(text, stems)):
                rows.count_use(sorted(sessions), at)

    def _count_notes(self, events: Iterable[Event]) -> None:
        from palimpsest.engine.memory.recall.note_index import note_index  # noqa: PLC0415 - as above
        from palimpsest.memory.showing.citations import cited_notes  # noqa: PLC0415 - as above
        from palimpsest.stores.notes.recall_index import NoteUse  # noqa: PLC0415 - as above

        index = note_index(self.memory)
        if index is None:
            return
        index.refresh()
        shown: dict[str, int] = {}
        cited: dict[str, list[str]] = {}
        for event in events:
            for name in event.body.notes if isinstance(event.body, Recalled) else ():
                shown[name] = shown.get(name, 0) + 1
        for at, text in _replies(events):
            for name in cited_notes(text, index.entries):
                cited.setdefault(name, []).append(_iso(at))
        added = {name: NoteUse(len(cited.get(name, ())), shown.get(name, 0), max(cited.get(name, [""]))) for name in {*shown, *cited}}
        index.add_usage(added)
        index.save()


def _replies(events: Iterable[Event]) -> Iterator[tuple[int, str]]:
    """Yield the time and the text of each reply of a turn."""
    for event in events:
        match event.body:
            case ModelReplied(parts=parts, purpose="turn"):
                yield event.at, "\n".join(part.text for part in parts if isinstance(part, Text))
            case _:
                continue


def _iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
