"""An index as bytes and back, so that another process need not read the texts again."""

import sys
from array import array
from collections.abc import Sequence
from typing import Final

import msgspec

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Value
from palimpsest.memory.recall.index import RecallIndex, speaker_pattern
from palimpsest.memory.recall.packed import IMPACTS, NUMBERS, ArrayLists, Block, EntryList
from palimpsest.memory.recall.units import RecallUnit

# Grows with the meaning of what is stored: other stems or impacts need another number. Arrays are stored as the machine has them.
FORMAT: Final = f"recall 1 {sys.byteorder} {array(NUMBERS).itemsize}{array('q').itemsize}"
_INTEGERS: Final = ("session_counts", "last_sessions", "sessions", "previous", "following", "places", "months", "speaker_of")
_REALS: Final = ("log_places", "lengths", "asks", "with_number")


class _Snapshot(Value, frozen=True, array_like=True):
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


_decoder = msgspec.msgpack.Decoder(_Snapshot)
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
        _Snapshot(
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


def _index(found: _Snapshot) -> RecallIndex:
    index = RecallIndex()
    index.units = EntryList(_units.decode, found.units)
    index.numbers = {name: number for number, name in enumerate(found.ids) if name}
    terms = array("q")
    terms.frombytes(found.terms)
    index.vocabulary = dict(zip(found.words, terms, strict=True))
    index.postings = ArrayLists(NUMBERS, found.postings)
    index.impacts = ArrayLists(IMPACTS, found.impacts)
    index.sequences = EntryList(_text, found.sequences)
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


def _check_sizes(index: RecallIndex, found: _Snapshot) -> None:
    """Raise `ValueError` if the parts of a snapshot do not belong together."""
    by_unit: tuple[Sequence[object] | EntryList[str], ...] = (
        *(index.sequences, index.sessions, index.previous, index.following, index.places, index.months),
        *(index.speaker_of, index.log_places, index.lengths, index.asks, index.with_number, found.ids),
    )
    by_term = (index.impacts, index.session_counts, index.last_sessions)
    if any(len(each) != len(index) for each in by_unit) or any(len(each) != len(index.postings) for each in by_term):
        raise ValueError("its parts differ in size")


def _text(packed: memoryview) -> str:
    return str(packed, "utf-8")
