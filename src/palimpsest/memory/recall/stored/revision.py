"""Changes of an index beside adding: units are erased with their words, and those of another index are taken over without reading texts."""

from bisect import bisect_left
from collections.abc import Iterable

from palimpsest.core.errors import BadInput
from palimpsest.memory.recall.index import RecallIndex, file_name, term_character, terms_of_character
from palimpsest.memory.recall.terms import fold
from palimpsest.memory.recall.units import RecallUnit


def erase(index: RecallIndex, ids: Iterable[str]) -> None:
    """Remove units with every word that only they had; ids that are not known are ignored.

    Their numbers stay taken by empty units that are never returned. What a snapshot of the index holds afterwards has no byte of them.
    """
    dead: set[int] = set()
    changed = False
    for each in ids:
        number = index.numbers.pop(each, None)
        if number is not None:
            changed = True
            dead |= _erase_terms(index, number)
            _erase_unit(index, number)
    if dead:
        for word in [word for word, term in index.vocabulary.items() if term in dead]:
            del index.vocabulary[word]
    if changed:
        used = set(index.speaker_of)
        for name in [name for name, speaker in index.speakers.items() if speaker not in used]:
            del index.speakers[name], index.speaker_patterns[name]


def _erase_terms(index: RecallIndex, number: int) -> set[int]:
    """Remove a unit from the postings and return the terms that no unit has any more."""
    dead: set[int] = set()
    sequence, session = index.sequences[number], index.sessions[number]
    others = [member for member in index.members[session] if member != number]
    for character in set(sequence):
        elsewhere = any(character in index.sequences[member] for member in others)
        for term in terms_of_character(character, len(index.postings)):
            postings = index.postings[term]
            place = bisect_left(postings, number)
            if place == len(postings) or postings[place] != number:
                continue
            del index.postings.writable(term)[place]
            del index.impacts.writable(term)[place]
            if not elsewhere:
                index.session_counts[term] = max(0, index.session_counts[term] - 1)
            if not index.postings[term]:
                dead.add(term)
    return dead


def _erase_unit(index: RecallIndex, number: int) -> None:
    unit = index.units[number]
    for path in unit.paths:
        name = file_name(path)
        numbers = index.files.get(name, set())
        numbers.discard(number)
        if not numbers:
            index.files.pop(name, None)
    if not unit.session:
        # The place of a note has its name.
        index.session_numbers.pop(f"n {unit.id}", None)
    index.units[number] = RecallUnit("", "", session=unit.session, position=unit.position)
    index.sequences[number] = ""
    index.lengths[number] = index.asks[number] = index.with_number[number] = 0.0
    index.months[number] = 0
    index.speaker_of[number] = -1
    index.hidden.add(number)


def erased_share(index: RecallIndex) -> float:
    """Return the share of the units that were erased, from 0 to 1; a large one is worth building the index again."""
    return 1 - len(index.numbers) / len(index) if len(index) else 0.0


def absorb(index: RecallIndex, other: RecallIndex) -> None:
    """Add the units of another index to this one, without reading their texts. Sessions and ids of both must differ.

    Raises `BadInput` if an id is in both.
    """
    taken = next((each for each in other.numbers if each in index.numbers), None)
    if taken is not None:
        raise BadInput("a unit with this id is in the index already", where=taken)
    first, first_session = len(index), len(index.members)
    table = _take_terms(index, other, first, first_session)
    for number in range(len(other)):
        unit = other.units[number]
        index.units.append(unit)
        index.sequences.append(other.sequences[number].translate(table))
        index.sessions.append(other.sessions[number] + first_session)
        for ours, theirs in ((index.previous, other.previous), (index.following, other.following)):
            ours.append(theirs[number] + first if theirs[number] >= 0 else -1)
        index.speaker_of.append(index.speaker(fold(unit.who).strip()))
    index.numbers.update((each, number + first) for each, number in other.numbers.items())
    index.hidden.update(number + first for number in other.hidden)
    for key, session in other.session_numbers.items():
        index.session_numbers[key] = session + first_session
    for members in other.members:
        index.members.grow()
        index.members.writable(len(index.members) - 1).extend(number + first for number in members)
    for column in ("places", "log_places", "lengths", "asks", "with_number", "months"):
        getattr(index, column).extend(getattr(other, column))
    for name, numbers in other.files.items():
        index.files.setdefault(name, set()).update(number + first for number in numbers)
    index.has_roles = index.has_roles or other.has_roles


def _take_terms(index: RecallIndex, other: RecallIndex, first: int, first_session: int) -> dict[int, str]:
    """Add the postings of another index, and return the table that writes its sequences in the terms of this one."""
    table: dict[int, str] = {}
    for word, theirs in other.vocabulary.items():
        ours = index.term(word)
        table[ord(term_character(theirs))] = term_character(ours)
        index.postings.writable(ours).extend([number + first for number in other.postings[theirs]])
        index.impacts.writable(ours).extend(other.impacts[theirs])
        index.session_counts[ours] += other.session_counts[theirs]
        index.last_sessions[ours] = other.last_sessions[theirs] + first_session
    return table
