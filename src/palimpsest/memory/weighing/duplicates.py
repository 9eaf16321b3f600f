"""Notes that say the same or nearly the same: equal ones are merged, near ones are put under one that stands for them."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from palimpsest.core.items import Value
from palimpsest.memory.note import Note, time_of, trust_rank

Words: TypeAlias = Callable[[str], frozenset[str]]
"""A function that returns the stemmed content words of a text."""

NEAR: Final = 0.6
LEAST_CLUSTER: Final = 3
_SPACES_AND_SIGNS: Final = re.compile(r"[\W_]+")
_NUMBER: Final = re.compile(r"\d+(?:[.,:/-]\d+)*")
# Own words and numbers of each of two statements from which on they are about two things: what it is, and its value.
_LEAST_OWN: Final = 2


class Cluster(Value, frozen=True):
    """Notes that say nearly the same: the newest of the highest trust, and the others in the order of their names."""

    representative: Note
    members: tuple[Note, ...]

    def standing_for_all(self) -> Note:
        """Return the representative with the names and the evidence of all, so that the members can leave."""
        names = dict.fromkeys((*self.representative.stands_for, *(note.name for note in self.members)))
        evidence = dict.fromkeys(each for note in (self.representative, *self.members) for each in note.evidence)
        return replace(self.representative, level="representative", stands_for=tuple(names), evidence=tuple(evidence))


def claim_of(note: Note) -> tuple[str, str, str, str]:
    """Return what a note claims, so that equal claims are equal values: kind, person, attribute and the text without case and signs."""
    return note.kind, _folded(note.person), note.attribute, _folded(note.body)


def merged(notes: Sequence[Note]) -> Note:
    """Return one note for notes of equal claims: the oldest one with all evidence, the earliest beginning and the newest time."""
    first = min(notes, key=lambda note: (time_of(note.when), note.name))
    starts = [note.valid_from for note in notes]
    return replace(
        first,
        evidence=tuple(dict.fromkeys(each for note in notes for each in note.evidence)),
        valid_from="" if "" in starts else min(starts),
        when=max((note.when for note in notes), key=time_of),
        trust="stated" if any(note.trust == "stated" for note in notes) else first.trust,
        intensity=max(note.intensity for note in notes),
        pinned=any(note.pinned for note in notes),
        uses=sum(note.uses for note in notes),
        shown=sum(note.shown for note in notes),
        last_used=max(note.last_used for note in notes),
    )


def near_duplicates(notes: Iterable[Note], words: Words, least: float = NEAR) -> Mapping[str, frozenset[str]]:
    """Return for each active note the names of the active notes of its person and kind whose words overlap by at least this share.

    The share is that of the words of both texts that they have in common.
    """
    active = [note for note in notes if note.status == "active"]
    of_note = {note.name: words(f"{note.about}\n{note.body}") for note in active}
    groups: dict[tuple[str, str], list[str]] = {}
    for note in active:
        groups.setdefault((note.kind, _folded(note.person)), []).append(note.name)
    found: dict[str, set[str]] = {note.name: set() for note in active}
    for names in groups.values():
        for one, other in _pairs_that_share(names, of_note):
            if overlap(of_note[one], of_note[other]) >= least:
                found[one].add(other)
                found[other].add(one)
    return {name: frozenset(others) for name, others in found.items()}


def numbers_of(note: Note) -> frozenset[str]:
    """Return the numbers in a note, dates and addresses among them."""
    return frozenset(_NUMBER.findall(f"{note.about}\n{note.body}"))


def are_of_two_things(one: Note, other: Note, words: Words) -> bool:
    """Return whether two notes of one pattern are about two things, as the ports of two services, so that none can take the other's place.

    By structure: each has two words or numbers of its own. What is said again with another value has one, or adds to the other.
    """
    first, second = (words(_NUMBER.sub(" ", f"{note.about}\n{note.body}")) | numbers_of(note) for note in (one, other))
    return min(len(first - second), len(second - first)) >= _LEAST_OWN


def clusters(notes: Iterable[Note], near: Mapping[str, frozenset[str]], words: Words) -> tuple[Cluster, ...]:
    """Return the connected groups of at least three near duplicates, in the order of their representatives. Pinned notes are in none.

    A note that is about another thing than its representative is no member.
    """
    by_name = {note.name: note for note in notes if note.status == "active" and not note.pinned}
    seen: set[str] = set()
    found: list[Cluster] = []
    for name in sorted(by_name):
        if name in seen:
            continue
        group, waiting = set[str](), [name]
        while waiting:
            each = waiting.pop()
            if each in by_name and each not in group:
                group.add(each)
                waiting.extend(near.get(each, ()))
        seen |= group
        if len(group) >= LEAST_CLUSTER:
            # What was said last stands for what was said before; what the user stated is not represented by anything else.
            ordered = sorted((by_name[each] for each in sorted(group)), key=lambda note: time_of(note.when), reverse=True)
            first, *rest = sorted(ordered, key=lambda note: -trust_rank(note.trust))
            members = sorted((note for note in rest if not are_of_two_things(first, note, words)), key=lambda note: note.name)
            found += [Cluster(first, tuple(members))] if members else []
    return tuple(found)


def overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the share of the words of both sets that they have in common; 0 if both are empty."""
    return len(one & other) / len(one | other) if one or other else 0.0


def _pairs_that_share(names: Sequence[str], of_note: Mapping[str, frozenset[str]]) -> Iterable[tuple[str, str]]:
    """Yield pairs of names whose notes share one of their rarest words: two notes that overlap by a share of s must share one of them."""
    counts: dict[str, int] = {}
    for name in names:
        for word in of_note[name]:
            counts[word] = counts.get(word, 0) + 1
    with_word: dict[str, list[str]] = {}
    yielded: set[tuple[str, str]] = set()
    for name in names:
        rarest = sorted(of_note[name], key=lambda word: (counts[word], word))
        # With an overlap of at least a half, two sets share one of the rarer halves of each plus one word.
        for word in rarest[: len(rarest) // 2 + 1]:
            for other in with_word.setdefault(word, []):
                if (other, name) not in yielded:
                    yielded.add((other, name))
                    yield other, name
            with_word[word].append(name)


def _folded(text: str) -> str:
    return _SPACES_AND_SIGNS.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()
