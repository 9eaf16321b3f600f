"""Notes that contradict each other: how it is found by structure, and which of the two holds."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from palimpsest.core.items import Value
from palimpsest.memory.note import Note, time_of
from palimpsest.memory.weighing.duplicates import Words, are_of_two_things, claim_of, near_duplicates, numbers_of

Reason: TypeAlias = Literal["corrected", "stated", "newer"]
NEAR_CONFLICT: Final = 0.5


class Settled(Value, frozen=True):
    """A conflict in which one note holds: the winner supersedes the loser, whose validity ends where the winner's begins."""

    winner: Note
    loser: Note
    reason: Reason


class Contested(Value, frozen=True):
    """A conflict that the notes themselves do not settle: both stay, and are shown together with their dates."""

    one: Note
    other: Note


Conflict: TypeAlias = Settled | Contested


class _Pair(NamedTuple):
    one: Note
    other: Note


def conflicts(notes: Iterable[Note], words: Words, corrections: frozenset[str] = frozenset()) -> tuple[Conflict, ...]:
    """Return the conflicts between active notes, each settled or contested. `corrections` are names of notes by which the user corrected.

    Two notes conflict if they give one attribute of one person, of which there is one value at a time, different values for overlapping
    times; or if they say nearly the same of one thing with other numbers. Notes about different persons never conflict.
    """
    active = sorted((note for note in notes if note.status == "active"), key=lambda note: note.name)
    return tuple(_settled(pair, corrections) for pair in _conflicting(active, words))


def supersede(winner: Note, loser: Note) -> tuple[Note, Note]:
    """Return both notes with their links: the winner names what it supersedes, and the loser by what and until when it held."""
    links = tuple(dict.fromkeys((*winner.supersedes, loser.revision)))
    until = winner.valid_from or winner.when
    ended = replace(loser, status="superseded", superseded_by=f"{winner.name}@{winner.rev + 1}", valid_to=loser.valid_to or until)
    return replace(winner, supersedes=links, rev=winner.rev + 1), ended


def begins_later(note: Note) -> bool:
    """Return whether a note states what holds only some time after it was said."""
    return bool(note.valid_from) and time_of(note.valid_from) > time_of(note.when)


def chain_of(note: Note, versions: Mapping[str, Note]) -> tuple[Note, ...]:
    """Return a note and what it superseded, newest first; `versions` are all notes by `name@rev`. Each version appears once."""
    found: dict[str, Note] = {}
    waiting = [note]
    while waiting:
        each = waiting.pop(0)
        if each.revision not in found:
            found[each.revision] = each
            waiting += [versions[name] for name in each.supersedes if name in versions]
    return tuple(sorted(found.values(), key=lambda each: (time_of(each.when), each.rev), reverse=True))


def _conflicting(active: list[Note], words: Words) -> Iterator[_Pair]:
    by_attribute: dict[tuple[str, str], list[Note]] = {}
    for note in active:
        if note.attribute and note.policy != "set":
            by_attribute.setdefault((note.person.casefold(), note.attribute), []).append(note)
    seen: set[tuple[str, str]] = set()
    for group in by_attribute.values():
        for place, one in enumerate(group):
            for other in group[place + 1 :]:
                if claim_of(one)[3] != claim_of(other)[3] and _overlaps(one, other):
                    seen.add((one.name, other.name))
                    yield _Pair(one, other)
    by_name = {note.name: note for note in active}
    for name, others in near_duplicates(active, words, NEAR_CONFLICT).items():
        for other_name in sorted(others):
            one, other = by_name[name], by_name[other_name]
            is_new = name < other_name and (name, other_name) not in seen
            differs = one.attribute == other.attribute and numbers_of(one) != numbers_of(other) and _overlaps(one, other)
            if is_new and differs and one.policy != "set" and not are_of_two_things(one, other, words):
                yield _Pair(one, other)


def _settled(pair: _Pair, corrections: frozenset[str]) -> Conflict:
    one, other = pair
    by_correction = (one.name in corrections) - (other.name in corrections)
    by_trust = (one.trust == "stated") - (other.trust == "stated")
    by_time = _compare(one, other)
    rules: tuple[tuple[int, Reason], ...] = ((by_correction, "corrected"), (by_trust, "stated"), (by_time, "newer"))
    for difference, reason in rules:
        if difference:
            winner, loser = (one, other) if difference > 0 else (other, one)
            return Settled(winner, loser, reason)
    return Contested(one, other)


def _compare(one: Note, other: Note) -> int:
    first, second = time_of(one.when), time_of(other.when)
    return (first > second) - (first < second)


def _overlaps(one: Note, other: Note) -> bool:
    """Whether there is a time at which both hold; an open end holds always."""
    ends_before = bool(one.valid_to and other.valid_from and time_of(one.valid_to) <= time_of(other.valid_from))
    starts_after = bool(other.valid_to and one.valid_from and time_of(other.valid_to) <= time_of(one.valid_from))
    return not ends_before and not starts_after
