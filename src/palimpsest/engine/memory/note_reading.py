"""The notes of a scope as values: decoded and checked files, with what is wrong with the others."""

from collections.abc import Iterator, Mapping
from functools import lru_cache

from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Value
from palimpsest.core.ports import Clock
from palimpsest.memory.note import BY_HAND, TEAMMATE, WISHES, Note, check_note, time_of
from palimpsest.memory.note_file import decode_note, from_claude
from palimpsest.memory.reading import iso_time
from palimpsest.stores.notes.folder import NoteFiles, digest_of

# A note of which only the short form is there was written by a person at a time that no event states.
_NO_TIME, _BY_HAND = "1970-01-01T00:00:00Z", f"{BY_HAND}:0"


class Notes(Value, frozen=True):
    """The notes of a scope: active and quarantined ones by name, past versions by `name@rev`, and the files that are no notes."""

    active: Mapping[str, Note]
    past: Mapping[str, Note]
    quarantine: Mapping[str, Note]
    problems: tuple[tuple[str, str], ...] = ()

    def all(self) -> Iterator[Note]:
        """Yield every version of every note."""
        yield from (*self.active.values(), *self.past.values(), *self.quarantine.values())


def notes_of(files: NoteFiles, clock: Clock, *, accepted: Mapping[str, str] | None = None) -> Notes:
    """Return the notes of files.

    With `accepted` they are those of a shared folder, which come with a repository: data about the project, and no wishes of this user.
    What such a file says about who the user is or what the user wants is held back until the user accepts it: then `accepted` has the
    digest of the file.
    """
    problems = list(files.problems)
    active, past, quarantine = (
        dict(_notes(texts, place, clock, problems))
        for place, texts in (("notes", files.active), ("past", files.past), ("quarantine", files.quarantine))
    )
    # A crash between the two files of a correction leaves both; the one that names the other holds.
    replaced = {link for note in active.values() for link in note.supersedes}
    shown = {name: note for name, note in active.items() if note.status == "active" and note.revision not in replaced}
    left = (note for name, note in active.items() if name not in shown)
    past = {**{note.revision: replace(note, status="superseded") if note.status == "active" else note for note in left}, **past}
    # A crash between the two files of a promotion leaves both.
    held = {name: note for name, note in quarantine.items() if name not in active}
    if accepted is not None:
        shown = {name: _of_repository(note, clock) for name, note in shown.items()}
        waiting = {name for name, note in shown.items() if note.kind in WISHES and accepted.get(name) != digest_of(files.active[name])}
        held |= {name: replace(shown[name], trust="quarantined") for name in waiting}
        shown = {name: note for name, note in shown.items() if name not in waiting}
        # A file may say of itself that it is past: no model gets a wish of it either.
        past = {
            key: replace(_of_repository(note, clock), **({"trust": "quarantined"} if note.kind in WISHES else {}))
            for key, note in past.items()
        }
    return Notes(shown, past, held, tuple(problems))


def as_saved(note: Note, *, is_shared: bool) -> Note:
    """Return a note as its file states it: a shared file calls its author the user, as every note does that a person wrote."""
    if not is_shared:
        return note
    whose = ("user", "self") if (note.person, note.relationship) == TEAMMATE else (note.person, note.relationship)
    return replace(
        note, person=whose[0], relationship=whose[1], trust="stated" if note.trust in ("repository", "quarantined") else note.trust
    )


def iso_now(clock: Clock) -> str:
    """Return the time now as notes state it."""
    return iso_time(clock.now())


def _of_repository(note: Note, clock: Clock) -> Note:
    """Return a note as one of the repository: what the file says about its own trust, rank, author and use here does not count.

    Nor is it from the future, so that it would be the newest for good.
    """
    now = iso_now(clock)
    note = replace(
        note,
        when=now if time_of(note.when) > time_of(now) else note.when,
        pinned=False,
        uses=0,
        shown=0,
        last_used="",
        intensity=0.0,
        by="import",
        trust="repository",
    )
    return replace(note, person=TEAMMATE[0], relationship=TEAMMATE[1]) if note.person.strip().casefold() == "user" else note


def _notes(files: Mapping[str, str], place: str, clock: Clock, problems: list[tuple[str, str]]) -> Iterator[tuple[str, Note]]:
    for name, text in files.items():
        found = _decoded(text, name, place)
        if isinstance(found, str):
            problems.append((f"{place}/{name}.md", found))
        else:
            yield name, replace(found, when=iso_now(clock)) if found.when == _NO_TIME else found


@lru_cache(maxsize=4_096)
def _decoded(text: str, name: str, place: str) -> Note | str:
    """Return the note of a file, or what is wrong with it. Reading the notes again costs only what was changed since."""
    where = f"{place}/{name}.md"
    try:
        note = decode_note(text, where)
    except BadInput as error:
        try:
            # A person writes a note as Claude Code's documentation shows it; what we need beside is added.
            note = from_claude(text, name, when=_NO_TIME, evidence=_BY_HAND)
        except BadInput:
            return error.message
    if note.name != name.partition("@")[0]:
        return f"the file states another name, {note.name[:80]!r}"
    try:
        return note if place == "past" else check_note(note)
    except BadInput as error:
        return error.message
