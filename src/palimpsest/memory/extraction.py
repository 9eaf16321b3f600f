"""The job that asks a model for notes at the end of a turn, and the application of what it proposes."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from palimpsest.core.events import Event, JobRan, ModelReplied, NoteForgotten, NoteSaved, ToolReturned, TurnEnded
from palimpsest.core.items import ToolCall
from palimpsest.core.plans import JobEnd, JobLimits, JobMoment, JobPlan, JobSituation, JobSteps, path_events
from palimpsest.memory.changes import AcceptedChange, AddNote, Change, Memory, QuotableEvent, RefusedChange, SupersedeNote, judge_change
from palimpsest.memory.evidence import MESSAGE_CHARACTERS as MOST_OF_RESULT
from palimpsest.memory.evidence import sources_of, statements, untrusted_results, written_paths
from palimpsest.memory.extract import MOST_ASKS, OWN_NOTE, Proposed, proposed_changes, target_of
from palimpsest.memory.note import Author, Note
from palimpsest.memory.notebook import Memories, Notebook, NoteEvent
from palimpsest.memory.store import TEAM_FOLDER
from palimpsest.memory.work import MemoryMeter, check_jobs, metered
from palimpsest.stores.memory_config import MemoryConfig


class AppliedChanges(Struct, frozen=True):
    """What became of proposed changes: the events of those that hold, and why others were refused; `saved` counts what changed notes."""

    events: tuple[NoteEvent, ...] = ()
    refused: tuple[str, ...] = ()
    saved: int = 0


def apply_changes(memories: Memories, changes: Iterable[Change], sources: Sequence[QuotableEvent], by: Author) -> AppliedChanges:
    """Apply changes one after the other, each judged by the notes as the one before left them, also if other processes write meanwhile.

    New notes go to the scope of their kind, and a correction to that of the note that it corrects. Notes of the team are left to people.
    Raises `StoreError` if notes cannot be read or written.
    """
    listed = tuple(changes)
    if not listed:
        return AppliedChanges()
    desk = _Desk(memories, tuple(sources), by)
    for change in listed:
        desk.take(change)
    return AppliedChanges(tuple(desk.events), tuple(desk.refused), desk.saved)


class _Desk:
    """The changes of one reply at work."""

    def __init__(self, memories: Memories, sources: tuple[QuotableEvent, ...], by: Author) -> None:
        self.events: list[NoteEvent] = []
        self.refused: list[str] = []
        self.saved = 0
        self._own = (memories.user, memories.project)
        self._memories = memories
        self._sources = sources
        self._by = by
        self._added: set[str] = set()
        # What was forgotten in one scope must not come back in another; the digests of each have a key of their own.
        self._forgotten: Mapping[str, Memory] = {book.scope: msgspec.structs.replace(book.memory(by), notes={}) for book in self._own}

    def take(self, change: Change) -> None:
        """Apply a change, or keep the reason why it is refused."""
        notebook = self._place_of(change)
        if isinstance(notebook, RefusedChange):
            self.refused.append(notebook.reason)
            return
        if isinstance(change, SupersedeNote) and self._memories.place_of(change.note.kind) is not notebook:
            # A correction stays in the scope of what it corrects, and so is of a kind that has its place there.
            kind = notebook.notes().active[change.name].kind
            change = msgspec.structs.replace(change, note=msgspec.structs.replace(change.note, kind=kind))
        before = notebook.notes().active.keys()
        outcome = notebook.change(lambda memory, _: self._judged(change, memory, notebook), self._by)
        if isinstance(outcome, RefusedChange):
            self.refused.append(outcome.reason)
            return
        self.events += outcome
        self.saved += bool(outcome)
        self._added |= {event.name for event in outcome if event.name not in before}

    def _place_of(self, change: Change) -> Notebook | RefusedChange:
        name = target_of(change)
        if isinstance(change, AddNote):
            known = self._noted_by_user(change.evidence)
            place = self._memories.place_of(change.note.kind)
            return place if known is None else RefusedChange(f"the user had it noted already, in {known.name}")
        if name in self._added:
            return RefusedChange(OWN_NOTE)
        holding = next((book for book in self._memories.notebooks if name in book.notes().active), None)
        if holding is None:
            return RefusedChange(f"there is no note {name[:80]!r}")
        return holding if holding in self._own else RefusedChange("notes of the team are changed by people only")

    def _noted_by_user(self, evidence: tuple[str, ...]) -> Note | None:
        """Return the note that the user made of these events with a command; what else is read into them would be the same fact twice."""
        if self._by == "remember" or not evidence:
            return None
        noted = (note for book in self._own for note in book.notes().active.values() if note.by == "remember")
        return next((note for note in noted if set(evidence) <= set(note.evidence)), None)

    def _judged(self, change: Change, memory: Memory, notebook: Notebook) -> AcceptedChange | RefusedChange:
        if isinstance(change, AddNote | SupersedeNote):
            for scope, forgotten in self._forgotten.items():
                if scope != notebook.scope:
                    elsewhere = judge_change(AddNote(change.note, change.evidence, change.quote), self._sources, forgotten)
                    if isinstance(elsewhere, RefusedChange):
                        return elsewhere
        return judge_change(change, self._sources, memory)


NAME: Final = "extract_notes"
# Failures on the same events after which they are skipped.
MOST_FAILURES: Final = 3
# Events that are read at most, the newest: what a request has room for is far less.
_MOST_EVENTS: Final = 5_000
# Authors by whom the conversation itself changes notes: the tools, and commands of the user.
_IN_TURN: Final = frozenset({"remember", "memory_tool"})
# What it costs is bounded by the tokens of a day.
_LIMITS: Final = JobLimits(calls=MOST_ASKS, seconds=120.0)


@dataclass(frozen=True, slots=True)
class ExtractNotes:
    """Extracts notes from the events since its cursor.

    `root` is the project folder, `folder` that of the home's notes, and `granted` are further folders that the agent may work in.
    Nothing is asked if the conversation saved notes itself. What the model proposes has no tools and no paths: the changes are judged
    one by one and written by the engine, in one step with the events and the cursor. `by_files` asks for notes that are plain files
    instead, in `folder`.
    """

    memories: Callable[[], Memories]
    meter: MemoryMeter
    config: MemoryConfig
    root: Path
    folder: Path
    granted: tuple[Path, ...] = ()
    by_files: Callable[[JobSituation, tuple[QuotableEvent, ...]], JobSteps] | None = None
    limits: JobLimits = _LIMITS
    name: str = NAME
    moments: frozenset[JobMoment] = frozenset({"turn_ends"})

    def plan(self, situation: JobSituation) -> JobPlan:
        """Return the steps of an extraction. Raises `OverBudget` if jobs are off."""
        check_jobs(self.config)
        return self._steps(situation)

    def _steps(self, situation: JobSituation) -> JobSteps:
        first = max(situation.job.cursor + 1, situation.tip + 1 - _MOST_EVENTS)
        events = yield from path_events(situation, first, situation.tip)
        if (given_up := self._skipped(events)) is not None:
            return given_up
        turns = _turns_of(events)
        if len(turns) < max(1, self.config.extract_every):
            return None
        unsaved = [event for turn in turns if not self._saved_notes(situation.session, turn) for event in turn]
        if not unsaved:
            return JobEnd(why="the conversation saved notes itself")
        is_untrusted = untrusted_results(events, *map(str, (self.root, *self.granted)))
        if self.by_files is not None:
            read = sources_of(situation.session, unsaved, is_untrusted, results=MOST_OF_RESULT)
            return (yield from self.by_files(situation, read)) if any(source.speaker == "user" for source in read) else None
        sources = sources_of(situation.session, unsaved, is_untrusted)
        if not any(source.speaker == "user" for source in sources):
            return None
        notes = [note for _, note in self.memories().active()]
        proposed = yield from metered(proposed_changes(sources, notes, self.config.model), self.meter)
        return JobEnd(commit=partial(self._apply, proposed))

    def _apply(self, proposed: Proposed) -> JobEnd:
        applied = apply_changes(self.memories(), proposed.changes, proposed.read, "extract")
        return JobEnd(applied.events, _refusals(applied.refused, proposed.left_out))

    def _skipped(self, events: Sequence[Event]) -> JobEnd | None:
        """Return the end of a run that gives up the events on which the job has failed three times; `None` if it goes on."""
        failed = [
            event for event in events if isinstance(event.body, JobRan) and (event.body.job, event.body.status) == (self.name, "failed")
        ]
        if len(failed) < MOST_FAILURES:
            return None
        last = failed[-1]
        why = f"events {events[0].seq} to {last.seq} are skipped after {len(failed)} failures"
        reason = last.body.why if isinstance(last.body, JobRan) else ""
        return JobEnd(why=f"{why}; the last: {reason}", notice=f"{why}; their notes are not extracted", cursor=last.seq)

    def _saved_notes(self, session: str, events: Sequence[Event]) -> bool:
        """Return whether a turn changed notes itself: by a tool of memory, a command, or a tool that wrote into their folders."""
        if self.by_files is None and any(statements(session, events)):
            # The job that notes it may still be at work.
            return True
        turn = {f"{session}:{event.seq}" for event in events}
        calls = {
            part.call_id: part
            for event in events
            if isinstance(event.body, ModelReplied)
            for part in event.body.parts
            if isinstance(part, ToolCall)
        }
        for event in events:
            match event.body:
                case NoteSaved(by=by, evidence=evidence) | NoteForgotten(by=by, evidence=evidence) if by in _IN_TURN:
                    # A note that rests on an earlier turn was saved in that one, and is recorded here because its job ended later.
                    if not evidence or not turn.isdisjoint(evidence):
                        return True
                case ToolReturned(result=result) as returned if result.call_id in calls:
                    if any(self._is_note(path) for path in written_paths(calls[result.call_id], returned, str(self.root))):
                        return True
                case _:
                    continue
        return False

    def _is_note(self, path: str) -> bool:
        return any(Path(path).is_relative_to(folder) for folder in (self.folder, self.root / TEAM_FOLDER))


def _turns_of(events: Sequence[Event]) -> list[list[Event]]:
    """Return the events of each turn that has ended, with what came before it since the turn before; what follows joins the last one."""
    turns: list[list[Event]] = []
    current: list[Event] = []
    for event in events:
        current.append(event)
        if isinstance(event.body, TurnEnded):
            turns.append(current)
            current = []
    if turns:
        turns[-1] += current
    return turns


def _refusals(reasons: Sequence[str], left_out: int) -> str:
    """Return why changes were refused, each reason once with its count; empty if none was."""
    counted = [f"{count} refused: {reason}" for reason, count in Counter(reasons).items()]
    return "; ".join((*counted, *((f"{left_out} beyond the most of one reply",) if left_out else ())))
