"""Notes that a person adds or edits with a command."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.memory.changes import AcceptedChange, Draft, Memory, RefusedChange
from palimpsest.memory.index_text import claim_of
from palimpsest.memory.note import LONGEST_ABOUT, UNTOLD, Note, NoteKind, check_note, decode_note, name_of, time_of
from palimpsest.memory.notebook import Memories, Notebook, NoteEvent
from palimpsest.memory.shown import holds_at
from palimpsest.memory.weigh import begins_later, supersede

Place: TypeAlias = Literal["active", "quarantine", "past"]
# Events that a note names as its evidence; older ones are in its past versions.
MOST_EVIDENCE: Final = 8
# How much of a name must agree for it to be suggested.
_LIKENESS: Final = 0.6


class NewNote(Struct, frozen=True, kw_only=True):
    """What a person wants to have noted. `replaces` names the note that it corrects; an empty `about` is the first line of the text."""

    kind: NoteKind
    text: str
    about: str = ""
    person: str = "user"
    relationship: str = "self"
    backstory: str = ""
    attribute: str = ""
    valid_from: str = ""
    valid_to: str = ""
    replaces: str = ""
    intensity: float = 0.0


class LocatedNote(Struct, frozen=True):
    """A note with its notebook, and whether it is active, in quarantine or past."""

    notebook: Notebook
    note: Note
    place: Place


def locate(memories: Memories, name: str, scope: str = "", places: tuple[Place, ...] = ("active", "quarantine", "past")) -> LocatedNote:
    """Return the note of a name, active ones first, or the past version `name@rev`.

    Raises `BadInput` if there is none, with the nearest name.
    """
    notebooks = (memories.of_scope(scope),) if scope else memories.notebooks
    known = {notebook.scope: notebook.notes() for notebook in notebooks}
    for place in places:
        for notebook in notebooks:
            notes = known[notebook.scope]
            held: Mapping[str, Note] = {"active": notes.active, "quarantine": notes.quarantine, "past": notes.past}[place]
            versions = [note for key, note in held.items() if name in (key, note.name)]
            if versions:
                return LocatedNote(notebook, max(versions, key=lambda note: note.rev), place)
    names = {note.name for notes in known.values() for held in (notes.active, notes.quarantine, notes.past) for note in held.values()}
    raise BadInput(f"there is no note {name[:80]!r}; {_advice(name, names, places)}", where=scope or "memory")


def add_note(notebook: Notebook, given: NewNote, now: str) -> tuple[NoteEvent, ...] | RefusedChange:
    """Save a note of trust `stated`, whose evidence is the event that records it. Returns what was recorded, or why it was refused.

    A note about the same attribute of the same person is corrected by it, as is the one that `replaces` names. An equal one is confirmed.
    """

    def propose(memory: Memory, event: str) -> AcceptedChange | RefusedChange:
        note = check_note(_new_note(given, memory, event, now))
        same = next((each for each in memory.notes.values() if claim_of(each) == claim_of(note)), None)
        if same is not None and same.name != given.replaces:
            evidence = (*same.evidence, event)[-MOST_EVIDENCE:]
            return AcceptedChange((replace(same, evidence=evidence, when=now, trust="stated", rev=same.rev + 1),), reason="confirmed")
        replaced = given.replaces or same_attribute(memory, note, now)
        if not replaced:
            return AcceptedChange((note,), reason="added")
        if replaced not in memory.notes:
            return RefusedChange(f"there is no note {replaced[:80]!r}")
        if begins_later(note):
            # Until then the old one holds.
            ending = replace(memory.notes[replaced], valid_to=note.valid_from, rev=memory.notes[replaced].rev + 1)
            return AcceptedChange((note, check_note(ending)), reason="corrected")
        winner, loser = supersede(note, memory.notes[replaced])
        return AcceptedChange((winner,), (loser,), "corrected")

    return notebook.change(propose, "user")


def _new_note(given: NewNote, memory: Memory, event: str, now: str) -> Note:
    text = given.text.strip()
    about = " ".join(given.about.split()) or first_line(text)
    return Note(
        name=name_of(given.kind, given.attribute or about, frozenset(memory.notes)),
        kind=given.kind,
        about=about,
        body=f"{text}\n",
        backstory=" ".join(given.backstory.split()) or UNTOLD["command"],
        person=given.person,
        relationship=given.relationship,
        attribute=given.attribute,
        valid_from=given.valid_from,
        valid_to=given.valid_to,
        intensity=given.intensity,
        when=now,
        evidence=(event,),
        trust="stated",
    )


def edit_note(notebook: Notebook, old: Note, text: str, now: str) -> tuple[NoteEvent, ...] | RefusedChange:
    """Replace a note by its edited file; the old version is kept as a past one.

    Returns what was recorded, or why it was refused. Raises `BadInput` if the file is no valid note.
    """

    def propose(memory: Memory, event: str) -> AcceptedChange | RefusedChange:
        if memory.notes.get(old.name) != old:
            return RefusedChange(f"the note {old.name} was changed by another process meanwhile")
        edited = decode_note(text, f"{old.name}.md")
        if edited.name != old.name:
            return RefusedChange(f"the name of a note cannot be edited, and it states {edited.name[:80]!r}; add a new note instead")
        evidence = (*edited.evidence[-MOST_EVIDENCE + 1 :], event)
        chain = (*(link for link in old.supersedes if link.partition("@")[0] != old.name), old.revision)
        new = replace(edited, status="active", trust="stated", by="user", when=now, evidence=evidence, supersedes=chain, rev=old.rev + 1)
        past = replace(old, status="superseded", superseded_by=new.revision)
        return AcceptedChange((check_note(new),), (past,), "edited by the user")

    return notebook.change(propose, "user")


def first_line(text: str) -> str:
    """Return the first line of a text that is not empty, cut to the length of an `about`, without the marks of a heading."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "").lstrip("# ").strip()
    return line if len(line) <= LONGEST_ABOUT else f"{line[: LONGEST_ABOUT - 1]}…"


def same_attribute(memory: Memory, draft: Draft | Note, now: str) -> str:
    """Return the name of the active note with another value of the same attribute of the same person; empty if there is none.

    Of several that of `now` counts, before what holds earlier or later.
    """
    if not draft.attribute or draft.policy != "single":
        return ""
    person, text = draft.person.casefold(), draft.body.strip()
    same = (note for note in memory.notes.values() if note.attribute == draft.attribute and note.policy == "single")
    found = [note for note in same if note.person.casefold() == person and note.body.strip() != text]
    found.sort(key=lambda note: not holds_at(time_of(now), note.valid_from, note.valid_to))
    return found[0].name if found else ""


def _advice(name: str, names: set[str], places: tuple[Place, ...]) -> str:
    from difflib import get_close_matches  # only an error needs it

    near = get_close_matches(name[:80], sorted(names), 1, _LIKENESS)
    command = "pal memory list --quarantine" if places == ("quarantine",) else "pal memory list"
    return f"did you mean {near[0]}?" if near and near[0] != name else f"`{command}` lists them"
