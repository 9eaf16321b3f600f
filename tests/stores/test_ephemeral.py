import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.errors import BadLog, ReadOnly, StoreError
from palimpsest.core.ports import Blobs, Clock, LogFile, SessionStore
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemoryFile, MemorySessions

LINE = st.binary(max_size=12).map(lambda data: data.replace(b"\n", b"").replace(b"\0", b"") + b"\n")


def test_the_twins_are_what_the_inside_asks_for() -> None:
    store: SessionStore = MemorySessions()
    lines: LogFile = store.create("one")
    blobs: Blobs = MemoryBlobs()
    clock: Clock = FixedClock(1_000, 5)
    assert (lines.size, blobs.put(b"") in blobs) == (0, True)
    assert [clock.now(), clock.now(), clock.now()] == [1_000, 1_005, 1_010]
    assert [FixedClock(7).now(), FixedClock().now()] == [7, 0]


@given(synced=st.lists(LINE, max_size=4), unsynced=st.lists(LINE, max_size=4), keep=st.integers(0, 60))
def test_a_crash_keeps_what_was_synced_and_the_first_bytes_of_the_rest(synced: list[bytes], unsynced: list[bytes], keep: int) -> None:
    store = MemorySessions()
    lines = store.create("one")
    for line in synced:
        lines.append(line)
    lines.sync()
    for line in unsynced:
        lines.append(line)
    lines.crash(keep)

    left = b"".join(synced) + b"".join(unsynced)[:keep]
    whole = left[: left.rfind(b"\n") + 1]
    assert [size for _, _, size, _ in store.stats()] == [len(left)]
    again = store.open("one", write=True)
    assert (again.read(0, 1000), again.cut, again.size) == (whole, left[len(whole) :], len(whole))
    assert [size for _, _, size, _ in store.stats()] == [len(whole)]


def test_a_reader_fails_after_a_crash_removed_lines_that_it_saw() -> None:
    store = MemorySessions()
    lines = store.create("one")
    lines.append(b"first\n")
    lines.sync()
    lines.append(b"second\n")
    reader = store.open("one")
    lines.crash()
    assert reader.read(0, 6) == b"first\n"
    for ask in (lambda: reader.read(0, 100), lambda: list(reader.chunks())):
        with pytest.raises(BadLog, match="memory:one, byte 6: the log became shorter while it was read; open the session again"):
            ask()


def test_a_crash_ends_the_writer_and_keeps_the_checkpoint_by_default() -> None:
    store = MemorySessions()
    lines = store.create("one")
    lines.save_checkpoint(b"ahead of the log")
    lines.crash()
    with pytest.raises(ReadOnly, match="memory:one: the session was closed"):
        lines.append(b"x\n")
    again = store.open("one", write=True)
    assert again.load_checkpoint() == b"ahead of the log"
    again.crash(checkpoint=False)
    assert store.open("one").load_checkpoint() is None


def test_a_sync_that_fails_makes_the_session_read_only() -> None:
    store = MemorySessions()
    lines = store.create("one")
    lines.append(b"x\n")
    lines.fail("Input/output error")
    with pytest.raises(StoreError, match="memory:one: Input/output error"):
        lines.sync()
    with pytest.raises(ReadOnly, match=r"memory:one: an earlier sync failed \(Input/output error\)"):
        lines.append(b"y\n")
    lines.crash()
    assert store.open("one").size == 0


def test_a_full_disk_takes_no_line_until_there_is_room() -> None:
    lines = MemorySessions().create("one")
    lines.append(b"x\n")
    lines.fail()
    with pytest.raises(StoreError, match="memory:one: No space left on device"):
        lines.append(b"y\n")
    lines.save_checkpoint(b"lost")
    lines.fail("")
    assert (lines.append(b"z\n"), lines.read(0, 9), lines.load_checkpoint()) == (2, b"x\nz\n", None)


def test_each_change_moves_the_time_of_the_file() -> None:
    store = MemorySessions()
    one = store.create("one")
    store.create("two")
    one.append(b"abc\n")
    assert list(store.stats()) == [("one", "memory:one", 4, 3), ("two", "memory:two", 0, 2)]
    store.replace("two", b"z\n")
    one.close()
    store.remove("one")
    assert list(store.stats()) == [("two", "memory:two", 2, 4)]


def chunked(lines: MemoryFile) -> list[tuple[int, bytes]]:
    return list(lines.chunks())


def test_a_small_run_splits_between_lines() -> None:
    lines = MemorySessions(chunk_bytes=5).create("one")
    for line in (b"a\n", b"b\n", b"cccccc\n", b"d\n"):
        lines.append(line)
    assert chunked(lines) == [(0, b"a\nb\ncccccc\n"), (11, b"d\n")]
