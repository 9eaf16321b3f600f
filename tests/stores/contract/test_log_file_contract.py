"""The contract of a log file, beyond the laws in `palimpsest.testing`: appending, reading, locking and closing."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_kinds import StoreKind

from palimpsest.core.errors import BadLog, ReadOnly, StoreError
from palimpsest.core.ports import LogFile, SessionStore


def joined(file: LogFile, start: int = 0, stop: int | None = None) -> bytes:
    return b"".join(data for _, data in file.chunks(start, stop))


LINE = st.binary(max_size=12).map(lambda data: data.replace(b"\n", b"").replace(b"\0", b"") + b"\n")


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=st.lists(LINE, min_size=1, max_size=8), data=st.data())
def test_chunks_are_whole_lines_from_any_line_to_any_line(store: SessionStore, written: list[bytes], data: st.DataObject) -> None:
    lines = store.create(f"s{len(store.sessions())}")
    starts = [*(lines.append(line) for line in written), sum(map(len, written))]
    lines.sync()
    first = data.draw(st.integers(0, len(written)))
    last = data.draw(st.integers(first, len(written)))
    chunks = list(lines.chunks(starts[first], starts[last]))
    assert b"".join(chunk for _, chunk in chunks) == b"".join(written[first:last])
    assert all(chunk.endswith(b"\n") for _, chunk in chunks)
    assert [start for start, _ in chunks] == [starts[first] + sum(len(chunk) for _, chunk in chunks[:n]) for n in range(len(chunks))]
    assert b"".join(chunk for _, chunk in lines.chunks()) == b"".join(written)
    lines.close()


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=st.lists(LINE, max_size=8), start=st.integers(0, 120), length=st.integers(0, 120))
def test_any_split_gives_the_same_bytes_as_one_read(store: SessionStore, written: list[bytes], start: int, length: int) -> None:
    lines = store.create(f"s{len(store.sessions())}", b"".join(written))
    whole = b"".join(written)
    assert lines.read(start, length) == joined(lines, start, start + length) == whole[start : start + length]
    lines.close()


@pytest.mark.parametrize("size", [1_048_575, 1_048_576, 3_000_000])
def test_a_line_larger_than_a_chunk_comes_in_one_piece(store: SessionStore, size: int) -> None:
    large = b"x" * size + b"\n"
    lines = store.create("one", b"before\n")
    assert [lines.append(large), lines.append(b"after\n")] == [7, size + 8]
    assert next(data for start, data in lines.chunks(7) if start == 7).startswith(large)
    assert joined(lines) == b"before\n" + large + b"after\n"
    lines.close()
    assert joined(store.open("one")) == b"before\n" + large + b"after\n"


def test_what_is_synced_and_closed_is_read_by_the_next(store: SessionStore) -> None:
    lines = store.create("one")
    lines.append(b"first\n")
    lines.sync()
    lines.close()
    again = store.open("one", write=True)
    assert again.append(b"second\n") == 6
    again.sync()
    again.close()
    reader = store.open("one")
    assert (reader.read(0, 100), reader.size) == (b"first\nsecond\n", 13)
    reader.close()


def test_who_opened_for_reading_cannot_write(store: SessionStore) -> None:
    store.create("one").close()
    reader = store.open("one")
    with pytest.raises(ReadOnly, match="opened for reading"):
        reader.append(b"x\n")
    with pytest.raises(ReadOnly, match="opened for reading"):
        reader.rewrite(b"x\n")
    reader.save_checkpoint(b"not mine")
    reader.sync()
    assert reader.load_checkpoint() is None
    reader.close()


def test_a_reader_sees_what_was_there_when_it_came(store: SessionStore) -> None:
    lines = store.create("one")
    lines.append(b"first\n")
    reader = store.open("one")
    lines.append(b"second\n")
    assert (reader.size, reader.read(0, 100), list(reader.chunks())) == (6, b"first\n", [(0, b"first\n")])
    assert store.open("one").size == 13
    lines.close()


def test_who_has_closed_cannot_append(store: SessionStore) -> None:
    lines = store.create("one")
    lines.close()
    with pytest.raises(StoreError):
        lines.append(b"x\n")
    assert store.open("one").size == 0


@pytest.mark.parametrize("write", [True, False])
def test_after_closing_sizes_are_known_and_lines_are_out_of_reach(store: SessionStore, write: bool) -> None:
    store.create("one", b"first\n").close()
    lines = store.open("one", write=write)
    lines.close()
    lines.close()
    lines.sync()
    lines.save_checkpoint(b"too late")
    assert (lines.size, lines.torn) == (6, 0)
    for ask in (lambda: lines.read(0, 1), lambda: list(lines.chunks()), lambda: lines.append(b"x\n"), lambda: lines.rewrite(b"")):
        with pytest.raises(StoreError):
            ask()
    again = store.open("one")
    assert (again.read(0, 100), again.load_checkpoint()) == (b"first\n", None)


def test_a_torn_end_is_seen_by_no_reader_and_cut_off_by_the_next_writer(kind: StoreKind) -> None:
    kind.store.create("one", b"first\n").close()
    kind.tear("one", b"second\nhalf a li")
    reader = kind.store.open("one")
    assert (reader.size, reader.torn, joined(reader)) == (13, 9, b"first\nsecond\n")
    writer = kind.store.open("one", write=True)
    assert (writer.size, writer.torn, writer.append(b"third\n")) == (13, 0, 13)
    writer.close()
    assert joined(kind.store.open("one")) == b"first\nsecond\nthird\n"


@pytest.mark.parametrize("torn", [b"\0" * 5_000, b"\0" * 5_000 + b"\n", b"half\0\0\n\0", b"x", b"\0\n\0\n"])
def test_zeros_at_the_end_are_no_lines(kind: StoreKind, torn: bytes) -> None:
    kind.store.create("one", b"first\n").close()
    kind.tear("one", torn)
    reader = kind.store.open("one")
    assert (reader.size, reader.torn) == (6, len(torn))
    kind.store.open("one", write=True).close()
    assert (kind.store.stat("one").size, joined(kind.store.open("one"))) == (6, b"first\n")


def test_a_log_of_which_only_a_torn_line_is_left_is_empty(kind: StoreKind) -> None:
    kind.store.create("one").close()
    kind.tear("one", b"half a li")
    reader = kind.store.open("one")
    assert (reader.size, reader.torn, reader.read(0, 9), list(reader.chunks())) == (0, 9, b"", [])


def test_a_log_that_became_shorter_is_an_error_and_not_a_short_answer(kind: StoreKind) -> None:
    kind.store.create("one", b"first\nsecond\n").close()
    reader = kind.store.open("one")
    kind.write_over("one", b"first\n")
    assert reader.read(0, 6) == b"first\n"
    for ask in (lambda: reader.read(0, 13), lambda: list(reader.chunks())):
        with pytest.raises(BadLog, match="became shorter while it was read; open the session again"):
            ask()


def test_the_newest_checkpoint_is_read_back(store: SessionStore) -> None:
    lines = store.create("one")
    assert lines.load_checkpoint() is None
    lines.save_checkpoint(b"old")
    lines.save_checkpoint(b"new")
    lines.close()
    assert store.open("one").load_checkpoint() == b"new"


def test_a_checkpoint_is_one_of_its_log_alone(store: SessionStore) -> None:
    for session in ("one", "one.1", "two"):
        store.create(session).close()
    writer = store.open("one", write=True)
    writer.save_checkpoint(b"\0\xff\n of one")
    assert [store.open(session).load_checkpoint() for session in ("one", "one.1", "two")] == [b"\0\xff\n of one", None, None]
    writer.save_checkpoint(b"")
    assert store.open("one").load_checkpoint() == b""
    writer.close()


def test_other_lines_take_the_place_of_all_of_them_in_one_step(store: SessionStore) -> None:
    writer = store.create("one", b"damaged\nlines\n")
    writer.save_checkpoint(b"of the old lines")
    reader = store.open("one")
    assert writer.rewrite(b"mended\n") != ""
    assert (writer.size, writer.read(0, 100), writer.load_checkpoint(), writer.append(b"on\n")) == (7, b"mended\n", None, 7)
    assert reader.read(0, 100) == b"damaged\nlines\n"
    with pytest.raises(BadLog, match="was replaced while it was read"):
        reader.refresh()
    writer.sync()
    writer.close()
    again = store.open("one", write=True)
    assert (joined(again), again.load_checkpoint()) == (b"mended\non\n", None)
    again.close()
