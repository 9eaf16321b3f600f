"""Counts how notes and summaries of sessions are used: a background job reads what was recalled and what replies cite."""

from collections.abc import Iterable, Iterator, Sequence

from palimpsest.agent.note_citations import cited_notes, cited_summaries
from palimpsest.core.events import Event, ModelReplied, Recalled
from palimpsest.core.items import Text
from palimpsest.core.plans import JobEnd, JobPlan, JobSituation, JobSteps, path_events
from palimpsest.memory.evidence import iso_time
from palimpsest.memory.note_index import note_index
from palimpsest.memory.recall_store import NoteUse
from palimpsest.memory.session_memory import SessionMemory
from palimpsest.memory.work_store import JobsDatabase, RolloutRows, StageRows


def count_uses(memory: SessionMemory, situation: JobSituation) -> JobPlan:
    """Return steps that count what prompts recalled and replies cited since the last run; `None` without notes and summaries."""
    return _steps(memory, situation) if memory.has_notes() or memory.has_summaries() else None


def _steps(memory: SessionMemory, situation: JobSituation) -> JobSteps:
    events = yield from path_events(situation, situation.job.cursor + 1, situation.tip)
    found = [event for event in events if isinstance(event.body, Recalled | ModelReplied)]
    return JobEnd(commit=lambda: _counted(memory, found)) if found else ()


def _counted(memory: SessionMemory, events: Sequence[Event]) -> JobEnd:
    _count_notes(memory, events)
    if memory.has_summaries():
        _count_summaries(memory, events)
    return JobEnd()


def _count_notes(memory: SessionMemory, events: Iterable[Event]) -> None:
    index = note_index(memory)
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
            cited.setdefault(name, []).append(iso_time(at))
    added = {name: NoteUse(len(cited.get(name, ())), shown.get(name, 0), max(cited.get(name, [""]))) for name in {*shown, *cited}}
    if added:
        index.add_usage(added)
    index.save()


def _count_summaries(memory: SessionMemory, events: Iterable[Event]) -> None:
    if memory.home.local_folder is None:
        return
    database = JobsDatabase(memory.home.local_folder / "memory")
    rows, stages = RolloutRows(database), StageRows(database, memory.session.profile.notes.root)
    kept = {str(row[0]): str(row[5]) for row in stages.all()}
    for at, text in _replies(events):
        if sessions := cited_summaries(text, kept):
            stages.count_use(sorted(sessions), at)
    scopes = {notebook.scope for notebook in memory.memories.notebooks}
    stems = {row.session: row.stem for row in rows.all() if row.scope in scopes}
    for at, text in _replies(events):
        if sessions := cited_summaries(text, stems):
            rows.count_use(sorted(sessions), at)


def _replies(events: Iterable[Event]) -> Iterator[tuple[int, str]]:
    """Yield the time and the text of each reply of a turn."""
    for event in events:
        match event.body:
            case ModelReplied(parts=parts, purpose="turn"):
                yield event.at, "\n".join(part.text for part in parts if isinstance(part, Text))
            case _:
                continue
