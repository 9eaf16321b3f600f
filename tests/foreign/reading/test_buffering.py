import pytest

from palimpsest.core.errors import StoreError
from palimpsest.stores.buffered import BufferedStore
from palimpsest.stores.in_memory import MemoryFile, MemorySessions

LARGE = b"x" * 300_000 + b"\n"


class FullShelf(MemorySessions):
    """A disk that has room for first lines only."""

    def create(self, session: str, first: bytes = b"") -> MemoryFile:
        lines = super().create(session, first)
        lines.fail("the disk is full")
        return lines


def kept(store: MemorySessions) -> bytes:
    return b"".join(chunk for _, chunk in store.open("one").chunks())


def test_lines_are_written_before_reading_and_syncing() -> None:
    store = MemorySessions()
    lines = BufferedStore(store).create("one", b"first\n")
    assert (lines.append(b"second\n"), lines.append(b"third\n"), lines.size) == (6, 13, 19)
    assert kept(store) == b"first\n"
    assert lines.read(6, 7) == b"second\n"
    assert kept(store) == b"first\nsecond\nthird\n"
    lines.append(b"fourth\n")
    lines.sync()
    assert kept(store) == b"first\nsecond\nthird\nfourth\n"
    lines.append(b"fifth\n")
    assert list(lines.chunks(26)) == [(26, b"fifth\n")]


def test_enough_lines_are_written_at_once() -> None:
    store = MemorySessions()
    lines = BufferedStore(store).create("one")
    lines.append(b"small\n")
    lines.append(LARGE)
    assert kept(store) == b"small\n" + LARGE


def test_a_checkpoint_is_never_ahead_of_the_lines() -> None:
    store = MemorySessions()
    lines = BufferedStore(store).create("one")
    lines.append(b"small\n")
    lines.save_checkpoint(b"here")
    assert (kept(store), lines.load_checkpoint()) == (b"small\n", b"here")


def test_after_a_disk_refused_nothing_more_is_taken() -> None:
    store = FullShelf()
    lines = BufferedStore(store).create("one", b"first\n")
    with pytest.raises(StoreError):
        lines.append(LARGE)
    for attempt in (lambda: lines.append(b"small\n"), lines.sync, lambda: lines.save_checkpoint(b"here")):
        with pytest.raises(StoreError, match="the disk is full"):
            attempt()
    lines.close()
    assert kept(store) == b"first\n"
