"""The recall index in memory with BM25 postings, terms and places, and how it is erased from, joined and stored as bytes."""

import math
import re
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Value
from palimpsest.memory.recall_terms import RecallUnit, fold, has_cjk, stems, words

Entry = TypeVar("Entry")
Number = TypeVar("Number", int, float)
# Type codes of arrays: ends of entries, numbers of units, and impacts.
ENDS, NUMBERS, IMPACTS = "Q", "I", "f"
_NO_BYTES: Final = memoryview(b"")


class Block(Value, frozen=True):
    """Entries of different sizes behind each other: their bytes, and where each of them ends."""

    data: bytes
    ends: bytes


def block_of(entries: Iterable["bytes | array[int] | array[float] | memoryview"]) -> Block:
    """Return entries as one block."""
    ends, data = array(ENDS), bytearray()
    for entry in entries:
        data += memoryview(entry).cast("B")
        ends.append(len(data))
    return Block(bytes(data), ends.tobytes())


class ArrayLists(Generic[Number]):
    """One array of numbers for each term. `packed` are arrays of a snapshot, which stay bytes until something is added to them.

    Raises `ValueError` if the bytes of a snapshot are no such block.
    """

    def __init__(self, code: str, packed: Block | None = None) -> None:
        self._code = code
        self._empty: array[Number] = array(code)
        self._changed: dict[int, array[Number]] = {}
        self._ends: Sequence[int] = () if packed is None else _ends(packed)
        # Typed loosely: the type of its items depends on the type code.
        self._packed: Any = _NO_BYTES if packed is None else memoryview(packed.data)
        self._size = len(self._ends)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, number: int) -> Sequence[Number]:
        changed = self._changed.get(number)
        if changed is not None:
            return changed
        if number >= len(self._ends):
            if number < self._size:
                return self._empty
            raise IndexError(number)
        start = self._ends[number - 1] if number else 0
        found: Sequence[Number] = self._packed[start : self._ends[number]].cast(self._code)
        return found

    def __iter__(self) -> Iterator[Sequence[Number]]:
        return (self[number] for number in range(self._size))

    def grow(self) -> None:
        """Add an empty array."""
        self._size += 1

    def writable(self, number: int) -> "array[Number]":
        """Return an array that can be changed in place."""
        found = self._changed.get(number)
        if found is None:
            found = array(self._code)
            found.frombytes(memoryview(self._buffer(number)).cast("B"))
            self._changed[number] = found
        return found

    def block(self) -> Block:
        """Return all arrays as bytes."""
        return block_of(map(self._buffer, range(self._size)))

    def _buffer(self, number: int) -> "bytes | array[Number] | memoryview":
        found = self._changed.get(number)
        if found is not None:
            return found
        if number >= len(self._ends):
            return b""
        packed: memoryview = self._packed[self._ends[number - 1] if number else 0 : self._ends[number]]
        return packed


class EntryList(Generic[Entry]):
    """Objects in the order of addition; those of a snapshot are decoded when they are asked for.

    Raises `ValueError` if the bytes of a snapshot are no such block.
    """

    def __init__(self, decode: Callable[[memoryview], Entry], packed: Block | None = None) -> None:
        self._decode = decode
        self._ends: Sequence[int] = () if packed is None else _ends(packed)
        self._packed = _NO_BYTES if packed is None else memoryview(packed.data)
        self._first = len(self._ends)
        self._added: list[Entry] = []
        self._changed: dict[int, Entry] = {}

    def __len__(self) -> int:
        return self._first + len(self._added)

    def __getitem__(self, number: int) -> Entry:
        if number >= self._first:
            return self._added[number - self._first]
        if self._changed and number in self._changed:
            return self._changed[number]
        return self._decode(self._packed[self._ends[number - 1] if number else 0 : self._ends[number]])

    def __setitem__(self, number: int, entry: Entry) -> None:
        if number >= self._first:
            self._added[number - self._first] = entry
        else:
            self._changed[number] = entry

    def __iter__(self) -> Iterator[Entry]:
        return (self[number] for number in range(len(self)))

    def append(self, entry: Entry) -> None:
        """Add an object behind the others."""
        self._added.append(entry)

    def block(self, encode: Callable[[Entry], bytes]) -> Block:
        """Return all objects as bytes; those that did not change since the snapshot are not decoded."""
        return block_of(self._bytes(number, encode) for number in range(len(self)))

    def _bytes(self, number: int, encode: Callable[[Entry], bytes]) -> bytes:
        if number < self._first and number not in self._changed:
            return bytes(self._packed[self._ends[number - 1] if number else 0 : self._ends[number]])
        return encode(self[number])


def _ends(packed: Block) -> Sequence[int]:
    """Return the ends of the entries. Raises `ValueError` if they do not lie within the bytes in ascending order."""
    ends = array(ENDS)
    ends.frombytes(packed.ends)
    if ends and ends[-1] != len(packed.data):
        raise ValueError("a block of the index ends at another place than its entries")
    return ends


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
    return slashed(path).rstrip("/").rpartition("/")[2].lower()


def slashed(path: str) -> str:
    """Return a path with slashes between its folders."""
    return path.replace("\\", "/")


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


# Grows with the meaning of what is stored: other stems or impacts need another number. Arrays are stored as the machine has them.
FORMAT: Final = f"recall 1 {sys.byteorder} {array(NUMBERS).itemsize}{array('q').itemsize}"
_INTEGERS: Final = ("session_counts", "last_sessions", "sessions", "previous", "following", "places", "months", "speaker_of")
_REALS: Final = ("log_places", "lengths", "asks", "with_number")


class _IndexSnapshot(Value, frozen=True, array_like=True):
    format: str
    units: Block
    ids: list[str]
    words: list[str]
    terms: bytes
    postings: Block
    impacts: Block
    sequences: Block
    members: Block
    columns: dict[str, bytes]
    speakers: dict[str, int]
    files: dict[str, list[int]]
    has_roles: bool
    hidden: list[int]
    session_numbers: dict[str, int]


_decoder = msgspec.msgpack.Decoder(_IndexSnapshot)
_units = msgspec.msgpack.Decoder(RecallUnit)
_encode = msgspec.msgpack.Encoder().encode


def encode_index(index: RecallIndex) -> bytes:
    """Return an index as bytes, for `decode_index` of the same version on a machine of this kind."""
    ids = [""] * len(index)
    for name, number in index.numbers.items():
        ids[number] = name
    columns = {name: array("q", getattr(index, name)).tobytes() for name in _INTEGERS}
    columns |= {name: array("d", getattr(index, name)).tobytes() for name in _REALS}
    return _encode(
        _IndexSnapshot(
            FORMAT,
            index.units.block(_encode),
            ids,
            list(index.vocabulary),
            array("q", index.vocabulary.values()).tobytes(),
            index.postings.block(),
            index.impacts.block(),
            index.sequences.block(str.encode),
            index.members.block(),
            columns,
            index.speakers,
            {name: sorted(numbers) for name, numbers in index.files.items()},
            index.has_roles,
            sorted(index.hidden),
            index.session_numbers,
        )
    )


def decode_index(data: bytes) -> RecallIndex:
    """Return the index of a snapshot. Raises `BadInput` if the bytes are damaged, or of another version or kind of machine."""
    try:
        found = _decoder.decode(data)
        if found.format != FORMAT:
            raise BadInput("the snapshot of the index is of another version; it is built again", where="memory")
        return _index(found)
    except (msgspec.DecodeError, ValueError, UnicodeError) as error:
        raise BadInput(f"the snapshot of the index is damaged: {error}", where="memory") from error


def _index(found: _IndexSnapshot) -> RecallIndex:
    index = RecallIndex()
    index.units = EntryList(_units.decode, found.units)
    index.numbers = {name: number for number, name in enumerate(found.ids) if name}
    terms = array("q")
    terms.frombytes(found.terms)
    index.vocabulary = dict(zip(found.words, terms, strict=True))
    index.postings = ArrayLists(NUMBERS, found.postings)
    index.impacts = ArrayLists(IMPACTS, found.impacts)
    index.sequences = EntryList(_unpacked_text, found.sequences)
    index.members = ArrayLists(NUMBERS, found.members)
    for name in _INTEGERS:
        integers = array("q")
        integers.frombytes(found.columns.get(name, b""))
        setattr(index, name, integers)
    for name in _REALS:
        reals = array("d")
        reals.frombytes(found.columns.get(name, b""))
        setattr(index, name, reals)
    index.speakers = found.speakers
    index.speaker_patterns = {name: speaker_pattern(name) for name in found.speakers}
    index.files = {name: set(numbers) for name, numbers in found.files.items()}
    index.has_roles = found.has_roles
    index.hidden = set(found.hidden)
    index.session_numbers = found.session_numbers
    _check_sizes(index, found)
    return index


def _check_sizes(index: RecallIndex, found: _IndexSnapshot) -> None:
    """Raise `ValueError` if the parts of a snapshot do not belong together."""
    by_unit: tuple[Sequence[object] | EntryList[str], ...] = (
        *(index.sequences, index.sessions, index.previous, index.following, index.places, index.months),
        *(index.speaker_of, index.log_places, index.lengths, index.asks, index.with_number, found.ids),
    )
    by_term = (index.impacts, index.session_counts, index.last_sessions)
    if any(len(each) != len(index) for each in by_unit) or any(len(each) != len(index.postings) for each in by_term):
        raise ValueError("its parts differ in size")


def _unpacked_text(packed: memoryview) -> str:
    return str(packed, "utf-8")
