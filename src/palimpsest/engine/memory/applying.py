"""Applies proposed changes to the notes: each goes to its scope, is judged by the notes as they are then, and is recorded."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from palimpsest.engine.memory.memories import Memories
from palimpsest.engine.memory.notebook import Notebook, NoteEvent
from palimpsest.memory.changes import (
    AcceptedChange,
    AddNote,
    Change,
    Memory,
    QuotableEvent,
    RefusedChange,
    SupersedeNote,
    judge_change,
)
from palimpsest.memory.extract import OWN_NOTE, target_of
from palimpsest.memory.note import Author, Note


class AppliedChanges(Struct, frozen=True):
    """What became of proposed changes: the events of those that hold, and why the others were refused."""

    events: tuple[NoteEvent, ...] = ()
    refused: tuple[str, ...] = ()


def apply_changes(memories: Memories, changes: Iterable[Change], sources: Sequence[QuotableEvent], by: Author) -> AppliedChanges:
    """Apply changes one after the other, each judged by the notes as the one before left them, also if other processes write meanwhile.

    New notes go to the scope of their kind, and a correction to that of the note that it corrects. Notes of the team are left to people.
    Raises `StoreError` if notes cannot be read or written.
    """
    desk = _Desk(memories, tuple(sources), by)
    for change in changes:
        desk.take(change)
    return AppliedChanges(tuple(desk.events), tuple(desk.refused))


class _Desk:
    """The changes of one reply at work."""

    def __init__(self, memories: Memories, sources: tuple[QuotableEvent, ...], by: Author) -> None:
        self.events: list[NoteEvent] = []
        self.refused: list[str] = []
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
