from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palimpsest.core.errors import BadInput, Locked, ReadOnly, StoreError
from palimpsest.core.ports import SessionStore
from palimpsest.stores.ephemeral import MemorySessions
from palimpsest.stores.jsonl import JsonlSessions

Factory = Callable[[Path], SessionStore]
SHELVES: dict[str, Factory] = {
    "memory": lambda _: MemorySessions(),
    "memory in small runs": lambda _: MemorySessions(run=8),
    "jsonl": lambda folder: JsonlSessions(folder / "sessions"),
}


@pytest.fixture(params=SHELVES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SessionStore:
    return SHELVES[request.param](tmp_path)


def test_a_line_is_found_where_append_said(store: SessionStore) -> None:
    lines = store.create("one")
    starts = [lines.append(line) for line in (b"first\n", b"second\n", b"third\n")]
    lines.sync()
    assert (starts, lines.size) == ([0, 6, 13], 19)
    assert [lines.read(6, 7), lines.read(13, 100), lines.read(19, 5)] == [b"second\n", b"third\n", b""]
    lines.close()


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


def test_a_second_writer_is_told_that_somebody_writes(store: SessionStore) -> None:
    lines = store.create("one")
    with pytest.raises(Locked):
        store.open("one", write=True)
    lines.close()
    store.open("one", write=True).close()


def test_readers_are_free_while_somebody_writes(store: SessionStore) -> None:
    lines = store.create("one")
    lines.append(b"first\n")
    lines.sync()
    first, second = store.open("one"), store.open("one")
    assert (first.read(0, 10), second.read(0, 10)) == (b"first\n", b"first\n")
    for opened in (first, second, lines):
        opened.close()


def test_who_opened_for_reading_cannot_append(store: SessionStore) -> None:
    store.create("one").close()
    reader = store.open("one")
    with pytest.raises(ReadOnly):
        reader.append(b"x\n")
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


def test_the_newest_checkpoint_is_read_back(store: SessionStore) -> None:
    lines = store.create("one")
    assert lines.load_checkpoint() is None
    lines.save_checkpoint(b"old")
    lines.save_checkpoint(b"new")
    lines.close()
    assert store.open("one").load_checkpoint() == b"new"


def test_the_shelf_names_its_sessions(store: SessionStore) -> None:
    assert list(store.sessions()) == []
    for session in ("one", "two"):
        store.create(session).close()
    assert sorted(store.sessions()) == ["one", "two"]


def test_an_unknown_session_cannot_be_opened_and_a_known_one_not_created(store: SessionStore) -> None:
    store.create("one").close()
    with pytest.raises(BadInput):
        store.open("two")
    with pytest.raises(BadInput):
        store.create("one")
