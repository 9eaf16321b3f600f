"""Lists that a snapshot holds as one block of bytes: an entry is read when it is asked for, and becomes an object when it is changed."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

from palimpsest.core.items import Value

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
