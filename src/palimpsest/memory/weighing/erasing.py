"""What else says what a forgotten note said: lines of generated texts, and notes that stand for it among others."""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from palimpsest.core.items import Value
from palimpsest.memory.note import Note
from palimpsest.memory.recall.terms import stems, words
from palimpsest.memory.weighing.duplicates import NEAR, claim_of, overlap
from palimpsest.memory.weighing.proposed_rules import brought_back, cases_of, is_proposed, written_again

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
        return replace(self, terms=self.terms - {term for note in notes for term in _terms(_text(note))})

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
    known = {term for note in kept for term in _terms(_text(note))}
    found = {term for note in listed for term in _terms(_text(note))}
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


def _text(note: Note) -> str:
    person = "" if note.person == "user" else note.person
    return "\n".join((note.about, note.body, note.backstory, person, *(line for _, line in note.other)))


def _claim_terms(note: Note) -> frozenset[str]:
    return frozenset(_terms(f"{note.about}\n{note.body}"))


def _terms(text: str) -> list[str]:
    return stems(words(text))
