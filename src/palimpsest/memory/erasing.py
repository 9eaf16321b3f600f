"""Rewrites the files of a scope without what a forgotten note said, and finds other texts that repeat it."""

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from palimpsest.core.errors import StoreError
from palimpsest.core.events import Body, NoteForgotten, NoteSaved, SessionOpened
from palimpsest.core.items import Value
from palimpsest.core.log import Log
from palimpsest.core.ports import Clock
from palimpsest.memory.index_text import NEAR, claim_of, overlap
from palimpsest.memory.note import Note
from palimpsest.memory.recall_terms import stems, words
from palimpsest.memory.store import LOG, NOTES, PAST, QUARANTINE, SUMMARY_FILE, TOMBSTONES, NoteFolder, tombstone_lines
from palimpsest.memory.weigh import brought_back, cases_of, is_proposed, written_again
from palimpsest.stores.files import bounded_text, read_regular, store_errors, sync_folder, write_private
from palimpsest.stores.sessions import JsonlSessions

_GENERATED: Final = ("rollouts", "skills")
_LARGEST_FILE: Final = 1024 * 1024
_MOST_FILES: Final = 10_000
_bodies = msgspec.json.Decoder(Body)
Rewrite = Callable[[str, str], str | None]
"""Returns the text of a file, given its name and its text, without what is forgotten; `None` if the file is to be deleted."""


class PendingForget(Value, frozen=True):
    """Notes that are being forgotten: their names with the names that stand for them afterwards, and the line of the tombstone."""

    names: Mapping[str, str]
    tombstone: str


_pending = msgspec.json.Decoder(PendingForget)


class NoteRemoval:
    """Removes notes from the files of a scope that is held. Every step can be done again."""

    def __init__(self, folder: NoteFolder, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    def begin(self, pending: PendingForget) -> None:
        """State what is to be forgotten: from now on no reader sees it, and a later process completes the removal."""
        write_private(self._folder.journal, msgspec.json.encode(pending))
        self.bury(pending)

    def pending(self) -> PendingForget | None:
        """Return a removal that was begun and not completed."""
        try:
            return _pending.decode(read_regular(self._folder.journal))
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise StoreError(f"cannot read what is being forgotten: {error}", where=str(self._folder.journal)) from error

    def bury(self, pending: PendingForget) -> None:
        """Keep the tombstone, once."""
        known, line = tombstone_lines(self._folder.state), pending.tombstone.encode()
        if line not in known:
            write_private(self._folder.state / TOMBSTONES, b"".join(each + b"\n" for each in (*known, line)))

    def clean_files(self, rewrite: Rewrite) -> None:
        """Rewrite the summaries and skills of a scope."""
        rewrite_generated(self._folder.state, rewrite)

    def delete_index(self, file: Path) -> None:
        """Delete a database of recall with its side files."""
        for path in file.parent.glob(f"{file.name}*"):
            with store_errors(path, "delete"):
                path.unlink(missing_ok=True)

    def delete_notes(self, names: Mapping[str, str]) -> None:
        """Delete all versions of notes, and temporary files that a crash has left."""
        for place in (NOTES, QUARANTINE, PAST):
            folder = self._folder.path_of(place, "x").parent
            with store_errors(folder, "delete"):
                for path in folder.iterdir():
                    is_version = path.suffix == ".md" and path.stem.partition("@")[0] in names
                    if is_version or ".new-" in path.name:
                        path.unlink(missing_ok=True)
                sync_folder(folder)

    def rewrite_log(self, names: Mapping[str, str], forgotten: Callable[[str], NoteForgotten]) -> None:
        """Replace names of notes in the log of the scope, and drop reasons and digests of their events; numbers of events stay.

        The log states at its end that each was forgotten.
        """
        store = JsonlSessions(self._folder.state)
        if not store.path_of(LOG).exists():
            return
        with Log.open(store, LOG, self._clock) as log:
            events = [(event.at, event.body) for event in log.events()]
        place = self._folder.state / ".rewriting"
        with store_errors(place, "delete"):
            shutil.rmtree(place, ignore_errors=True)
        bodies = [(at, _renamed(body, names)) for at, body in events[1:]]
        stated = {body.name for _, body in bodies if isinstance(body, NoteForgotten) and body.how == "forgotten"}
        with Log.create(JsonlSessions(place), SessionOpened(LOG), self._clock) as new:
            for at, body in bodies:
                new.append(body, at=at, foreign=True)
            for name in dict.fromkeys(names.values()):
                if name not in stated:
                    new.append(forgotten(name))
        with store_errors(place, "replace the log with"):
            # A checkpoint is only valid for the file it was made of.
            for path in self._folder.state.glob(f"{LOG}.*"):
                if path.name != f"{LOG}.jsonl":
                    path.unlink(missing_ok=True)
            (place / f"{LOG}.jsonl").replace(self._folder.state / f"{LOG}.jsonl")
            sync_folder(self._folder.state)
            shutil.rmtree(place, ignore_errors=True)

    def end(self) -> None:
        """Close the removal."""
        if not self._folder.is_shared:
            remove_old_history(self._folder.folder)
        for path in (*self._folder.state.glob(".*.new-*"), self._folder.journal):
            with store_errors(path, "delete"):
                path.unlink(missing_ok=True)
        with suppress(OSError):
            sync_folder(self._folder.state)


def remove_old_history(folder: Path) -> None:
    """Remove the git history that an earlier version kept of a folder of notes in the home: it has what was forgotten since."""
    place = folder / ".git"
    if place.is_dir() and not place.is_symlink():
        with store_errors(place, "delete the history in"):
            shutil.rmtree(place)


def generated_files(folder: Path) -> Iterator[Path]:
    """Yield the generated files of the folder of a scope: the summary, those of sessions, and skills; links are not followed."""
    summary = folder / SUMMARY_FILE
    if summary.is_file() and not summary.is_symlink():
        yield summary
    left = _MOST_FILES
    for name in _GENERATED:
        for place, _, files in os.walk(folder / name):
            for file in sorted(files)[:left]:
                left -= 1
                yield Path(place) / file


def _renamed(body: Body, names: Mapping[str, str]) -> Body:
    """Return an event without the names; that of a forgotten note keeps what happened, when and by which evidence."""
    if isinstance(body, NoteSaved | NoteForgotten) and body.name in names:
        bare = msgspec.structs.replace(body, name=names[body.name], reason="")
        return msgspec.structs.replace(bare, digest="") if isinstance(bare, NoteSaved) else bare
    pattern = re.compile("|".join(rf"(?<![a-z0-9_]){re.escape(name)}(?![a-z0-9_])" for name in names))
    text = msgspec.json.encode(body).decode()
    return _bodies.decode(pattern.sub(lambda match: names[match[0]], text)) if pattern.search(text) else body


def rewrite_generated(folder: Path, rewrite: Rewrite) -> None:
    """Rewrite the generated files of a scope, given by its folder. Raises `StoreError` if a file cannot be replaced."""
    for path in generated_files(folder):
        text = text_of_file(path)
        new = None if text is None else rewrite(path.name, text)
        with store_errors(path, "delete"):
            if new is None:
                path.unlink(missing_ok=True)
            elif new != text:
                write_private(path, new.encode())


def text_of_file(path: Path) -> str | None:
    """Return the text of a regular file; `None` if it is a link, too large or no text, so that nothing can be found in it."""
    text = bounded_text(path, _LARGEST_FILE)
    return None if text is None else text.replace("\r\n", "\n")


# A rule or representative that fewer notes support is no longer one.
LEAST_SUPPORTS: Final = 2
_HEADING: Final = "#"


class Erasure(Value, frozen=True):
    """What must not be left: the names of notes, and the words that only they contain."""

    names: frozenset[str]
    terms: frozenset[str]

    def is_in(self, text: str) -> bool:
        """Return whether a text names one of the notes or contains one of their words."""
        return any(name in text for name in self.names) or not self.terms.isdisjoint(_terms(text))

    def is_repeated_in(self, text: str) -> bool:
        """Return whether a text names one of the notes or contains half of their words: one word alone may be there for another reason."""
        found = self.terms.intersection(_terms(text))
        return any(name in text for name in self.names) or (bool(found) and len(found) * 2 >= len(self.terms))

    def without_words_of(self, notes: Iterable[Note]) -> "Erasure":
        """Return the same without the words that these notes contain, which are no trace there."""
        return replace(self, terms=self.terms - {term for note in notes for term in _terms(_all_said_by(note))})

    def removed_from(self, text: str, kept_lines: frozenset[str] = frozenset(), *, only_repeated: bool = False) -> str:
        """Return a text without the lines that say something of the notes; a heading becomes `[forgotten]`.

        With `only_repeated` a line with a few of their words stays.
        """
        lines = []
        is_trace = self.is_repeated_in if only_repeated else self.is_in
        for line in text.split("\n"):
            if line in kept_lines or not is_trace(line):
                lines.append(line)
            elif line.startswith(_HEADING):
                lines.append(f"{line.partition(' ')[0]} [forgotten]")
        return "\n".join(lines)


class Rewritten(Value, frozen=True):
    """A note that stood for forgotten ones, as it is after that; `None` if too little is left of it: then its `cases` hold again."""

    old: Note
    new: Note | None
    cases: tuple[Note, ...] = ()


def erasure_of(gone: Iterable[Note], kept: Iterable[Note]) -> Erasure:
    """Return what must not be left of notes: words that other notes contain too are no trace of them."""
    listed = list(gone)
    known = {term for note in kept for term in _terms(_all_said_by(note))}
    found = {term for note in listed for term in _terms(_all_said_by(note))}
    return Erasure(frozenset(note.name for note in listed), frozenset(found - known))


def said_by(name: str, notes: Iterable[Note]) -> frozenset[str]:
    """Return the names of all notes that say what the note of this name says: to forget it is to forget them.

    These are notes of the same claim, those that a representative stands for, and past versions of the same fact: those that it replaced,
    one after the other, and those of the same attribute or nearly the same words about the same person.
    """
    listed = list(notes)
    own = [note for note in listed if note.name == name]
    claims, persons = {claim_of(note) for note in own}, {note.person.casefold() for note in own}
    attributes = {note.attribute for note in own} - {""}
    found = {name, *(each for note in own if note.level == "representative" for each in note.stands_for)}
    for note in listed:
        is_past = note.status != "active" and note.person.casefold() in persons
        is_near = any(overlap(_claim_terms(note), _claim_terms(each)) >= NEAR for each in own) if is_past else False
        if claim_of(note) in claims or (is_past and (note.attribute in attributes or is_near)):
            found.add(note.name)
    found |= _replaced_by(found, listed)
    # A note that stands for others is rewritten instead, unless it is the one that was asked for.
    return frozenset(found - {note.name for note in listed if note.name != name and name in note.stands_for})


def without_supports(gone: frozenset[str], active: Iterable[Note], past: Iterable[Note] = ()) -> tuple[Rewritten, ...]:
    """Return the rules and representatives that lose a support: rewritten without it, or dropped if fewer than two are left.

    The supports of a rule whose place it took are `past` versions, which hold again if it is dropped.
    """
    by_name = {note.name: note for note in active}
    listed, before = list(by_name.values()), list(past)
    lost = [note for note in (*listed, *before) if note.name in gone]
    found = []
    for note in listed:
        if note.name in gone or not gone.intersection(note.stands_for):
            continue
        rest = tuple(each for each in note.stands_for if each not in gone)
        supports = [each for each in cases_of(note, by_name, before) if each.name in rest]
        if is_proposed(note) and len(supports) >= LEAST_SUPPORTS:
            # Its text is made of its supports alone, so that it can be made again of those that are left.
            found.append(Rewritten(note, written_again(note, supports)))
            continue
        erasure = erasure_of(lost, supports)
        new = _without_lines(note, rest, erasure, lost, supports)
        if erasure.is_in(f"{new.about}\n{new.backstory}") and note.by == "consolidate" and len(supports) >= LEAST_SUPPORTS:
            # A rule that was put together from its supports is put together again from those that are left.
            new = written_again(note, supports)
        is_left = len(rest) >= LEAST_SUPPORTS and new.body.strip() and not erasure.is_in(f"{new.about}\n{new.body}\n{new.backstory}")
        cases = () if is_left else tuple(brought_back(each) for each in supports if each.status != "active")
        found.append(Rewritten(note, new if is_left else None, cases))
    return tuple(found)


def _without_lines(note: Note, rest: tuple[str, ...], erasure: Erasure, lost: list[Note], supports: list[Note]) -> Note:
    """Return a note without the lines that say what was forgotten, and without the events that only lost supports had."""
    only_lost = {each for one in lost for each in one.evidence} - {each for one in supports for each in one.evidence}
    evidence = tuple(each for each in note.evidence if each not in only_lost) or note.evidence
    return replace(note, stands_for=rest, body=erasure.removed_from(note.body), evidence=evidence, rev=note.rev + 1)


def without_links(note: Note, gone: frozenset[str]) -> Note:
    """Return a note whose links do not name the notes that are gone."""
    supersedes = tuple(each for each in note.supersedes if each.partition("@")[0] not in gone)
    by = "" if note.superseded_by.partition("@")[0] in gone else note.superseded_by
    return replace(note, supersedes=supersedes, superseded_by=by, stands_for=tuple(each for each in note.stands_for if each not in gone))


def _replaced_by(names: set[str], notes: list[Note]) -> set[str]:
    """Return the names of past notes that lead to one of these names over links; undone corrections may form circles."""
    replaced: dict[str, set[str]] = {}
    for note in notes:
        replaced.setdefault(note.superseded_by.partition("@")[0], set()).add(note.name)
        replaced.setdefault(note.name, set()).update(link.partition("@")[0] for link in note.supersedes)
    active = {note.name for note in notes if note.status == "active"}
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        more = replaced.get(waiting.pop(), set()) - found - names - active - {""}
        found |= more
        waiting += more
    return found


def _all_said_by(note: Note) -> str:
    person = "" if note.person == "user" else note.person
    return "\n".join((note.about, note.body, note.backstory, person, *(line for _, line in note.other)))


def _claim_terms(note: Note) -> frozenset[str]:
    return frozenset(_terms(f"{note.about}\n{note.body}"))


def _terms(text: str) -> list[str]:
    return stems(words(text))
