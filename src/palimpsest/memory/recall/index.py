"""The index in memory: postings with BM25 impacts, the terms of each unit in order, and the place of each unit in its session."""

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, MutableSequence, Sequence
from typing import Any, Final

from palimpsest.core.errors import BadInput
from palimpsest.memory.recall.packed import IMPACTS, NUMBERS, ArrayLists, EntryList
from palimpsest.memory.recall.terms import fold, has_cjk, stems, words
from palimpsest.memory.recall.units import RecallUnit

# BM25: k1, b and the pivot length in terms, for units of up to 60 words and for longer ones. The pivots are constants and not averages over
# the index, so that the impact of a posting is known when a unit is added, and never changes.
SHORT_WORDS: Final = 60
SHORT: Final = (0.9, 0.4, 12.0)
LONG: Final = (1.2, 0.75, 120.0)
# No impact reaches k1 + 1.
HIGHEST_IMPACT: Final = 1 + max(SHORT[0], LONG[0])
# Places in a session and lengths in terms beyond these count as these: the weights were fitted on short units in short sessions.
LAST_PLACE, LONGEST = 31, 63
# A term is one character of a string. Surrogates are left out, and terms beyond the range of characters share the first ones.
_SURROGATES, _SURROGATES_END, _CHARACTERS = 0xD800, 0xE000, 0x110000
_DIGIT: Final = re.compile(r"\d")
_DATE: Final = re.compile(r"\s*(\d{4})-(\d{1,2})(?:-(\d{1,2}))?")
_QUESTION_MARKS: Final = ("?", "？")
_CLOSING: Final = " \t\r\n\"'”’)）」』"


def _no_entry(packed: memoryview) -> Any:
    raise IndexError(len(packed))


class RecallIndex:
    """Units that can be recalled, with what ranking needs precomputed, in the order of each session.

    Lists are indexed by unit number, in order of addition. `previous` and `following` are -1 where a session begins or ends; `postings`,
    `impacts`, `session_counts` and `last_sessions` are indexed by term. `stored/` makes bytes of it and erases units.
    """

    def __init__(self, units: Iterable[RecallUnit] = ()) -> None:
        self.units: EntryList[RecallUnit] = EntryList(_no_entry)
        self.numbers: dict[str, int] = {}
        self.vocabulary: dict[str, int] = {}
        self.postings: ArrayLists[int] = ArrayLists(NUMBERS)
        self.impacts: ArrayLists[float] = ArrayLists(IMPACTS)
        self.session_counts: MutableSequence[int] = []
        self.sequences: EntryList[str] = EntryList(_no_entry)
        self.sessions: MutableSequence[int] = []
        self.members: ArrayLists[int] = ArrayLists(NUMBERS)
        self.previous: MutableSequence[int] = []
        self.following: MutableSequence[int] = []
        self.places: MutableSequence[int] = []
        self.log_places: MutableSequence[float] = []
        self.lengths: MutableSequence[float] = []
        self.asks: MutableSequence[float] = []
        self.with_number: MutableSequence[float] = []
        self.months: MutableSequence[int] = []
        self.speakers: dict[str, int] = {}
        self.speaker_of: MutableSequence[int] = []
        self.files: dict[str, set[int]] = {}
        self.has_roles = False
        self.hidden: set[int] = set()
        self.last_sessions: MutableSequence[int] = []
        self.speaker_patterns: dict[str, re.Pattern[str]] = {}
        self.session_numbers: dict[str, int] = {}
        for unit in units:
            self.add(unit)

    def __len__(self) -> int:
        return len(self.units)

    def add(self, unit: RecallUnit) -> int:
        """Add a unit and return its number. Raises `BadInput` if its id is known; cost: one pass over its text."""
        if unit.id in self.numbers:
            raise BadInput("a unit with this id is in the index already", where=unit.id)
        number = len(self.units)
        self.numbers[unit.id] = number
        self.units.append(unit)
        found = words(unit.text)
        size, found = len(found), stems(found)
        self._add_place(number, unit)
        self._add_postings(number, found, size)
        self.lengths.append(math.log1p(min(len(found), LONGEST)))
        self.asks.append(float(unit.text.rstrip(_CLOSING).endswith(_QUESTION_MARKS)))
        self.with_number.append(float(_DIGIT.search(unit.text) is not None))
        self.has_roles = self.has_roles or bool(unit.role)
        for path in unit.paths:
            self.files.setdefault(file_name(path), set()).add(number)
        date = _DATE.match(unit.date)
        self.months.append(int(date[2]) if date else 0)
        self.speaker_of.append(self.speaker(fold(unit.who).strip()))
        return number

    def _add_postings(self, number: int, found: list[str], size: int) -> None:
        k1, b, pivot = SHORT if size <= SHORT_WORDS else LONG
        norm = k1 * (1 - b + b * len(found) / pivot)
        ids = [self.term(term) for term in found]
        session = self.sessions[number]
        for term, count in Counter(ids).items():
            if self.last_sessions[term] != session:
                self.last_sessions[term] = session
                self.session_counts[term] += 1
            self.postings.writable(term).append(number)
            self.impacts.writable(term).append(count * (k1 + 1) / (count + norm))
        self.sequences.append("".join(map(term_character, ids)))

    def term(self, term: str) -> int:
        """Return the number of a term, a new one if it is not known."""
        known = self.vocabulary.setdefault(term, len(self.postings))
        if known == len(self.postings):
            self.postings.grow()
            self.impacts.grow()
            self.session_counts.append(0)
            self.last_sessions.append(-1)
        return known

    def _add_place(self, number: int, unit: RecallUnit) -> None:
        # Notes have no session: each is alone.
        key = f"s {unit.session}" if unit.session else f"n {unit.id}"
        session = self.session_numbers.setdefault(key, len(self.members))
        if session == len(self.members):
            self.members.grow()
        members = self.members.writable(session)
        before = members[-1] if members else -1
        if before >= 0:
            self.following[before] = number
        self.sessions.append(session)
        self.places.append(len(members))
        self.log_places.append(math.log1p(min(len(members), LAST_PLACE)))
        self.previous.append(before)
        self.following.append(-1)
        members.append(number)

    def hide(self, ids: Iterable[str]) -> None:
        """Never return these units again: superseded, retracted or forgotten. Unknown ids are ignored.

        The words of hidden units stay in memory until the index is built again.
        """
        self.hidden.update(self.numbers[each] for each in ids if each in self.numbers)

    def with_previous(self, number: int) -> str:
        """Return the text of a unit behind that of the unit before it: what its vector is made of."""
        before = self.previous[number]
        return f"{self.units[before].text} {self.units[number].text}" if before >= 0 else self.units[number].text

    def idf(self, term: int) -> float:
        """Return the inverse document frequency of a term."""
        count = len(self.postings[term])
        return math.log1p((len(self.units) - count + 0.5) / (count + 0.5))

    def session_idf(self, term: int) -> float:
        """Return the inverse frequency of a term among sessions; a session that was interrupted by another counts again."""
        sessions = len(self.members)
        count = min(self.session_counts[term], sessions)
        return math.log1p((sessions - count + 0.5) / (count + 0.5))

    def units_with(self, term: int, sessions: Sequence[int]) -> list[int]:
        """Return how many units of each session have a term."""
        postings, all_members, end = self.postings[term], self.members, len(self.postings[term])
        character = term_character(term)
        counts: list[int] = []
        for session in sessions:
            members = all_members[session]
            size = len(members)
            first, last = members[0], members[size - 1]
            if last - first + 1 == size:
                start = bisect_left(postings, first)
                counts.append(bisect_right(postings, last, start, min(start + size, end)) - start)
            else:
                counts.append(sum(character in self.sequences[member] for member in members))
        return counts

    def speakers_named(self, folded: str) -> list[str]:
        """Return the names of speakers that occur in a folded query: as words, or within a text that has no spaces between words."""
        return [name for name, pattern in self.speaker_patterns.items() if pattern.search(folded)]

    def without_speakers(self, folded: str) -> str:
        """Return a folded query without the names of speakers."""
        for name in sorted(self.speakers_named(folded), key=len, reverse=True):
            folded = self.speaker_patterns[name].sub(" ", folded)
        return folded

    def speaker(self, name: str) -> int:
        """Return the number of a speaker; -1 for none."""
        if not name:
            return -1
        if name not in self.speakers:
            self.speakers[name] = 1 + max(self.speakers.values(), default=-1)
            self.speaker_patterns[name] = speaker_pattern(name)
        return self.speakers[name]


def speaker_pattern(name: str) -> re.Pattern[str]:
    """Return the pattern that finds the name of a speaker in a folded query."""
    return re.compile(re.escape(name) if has_cjk(name) else rf"(?<!\w){re.escape(name)}(?!\w)")


def term_character(term: int) -> str:
    """Return the character that stands for a term in `RecallIndex.sequences`."""
    code = term % (_CHARACTERS - (_SURROGATES_END - _SURROGATES))
    return chr(code if code < _SURROGATES else code + _SURROGATES_END - _SURROGATES)


def terms_of_character(character: str, terms: int) -> range:
    """Return the terms, of so many, that a character of `RecallIndex.sequences` stands for."""
    code = ord(character)
    first = code if code < _SURROGATES else code - (_SURROGATES_END - _SURROGATES)
    return range(first, terms, _CHARACTERS - (_SURROGATES_END - _SURROGATES))


def file_name(path: str) -> str:
    """Return the last part of a path, folded: queries name files with and without their folders."""
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2].lower()
