from collections.abc import Iterator
from pathlib import Path

import pytest
from index_logs import end_of, found, log_of, said, write

from palimpsest.core.errors import StoreError
from palimpsest.core.events import SessionOpened
from palimpsest.core.ports import RefreshReport
from palimpsest.stores.in_memory import MemoryFile, MemorySessions
from palimpsest.stores.index import SqliteIndex


class LockableSessions(MemorySessions):
    """A store whose logs cannot be opened while they are shut."""

    def __init__(self) -> None:
        super().__init__()
        self.shut: set[str] = set()

    def open(self, session: str, *, write: bool = False) -> MemoryFile:
        if session in self.shut:
            raise StoreError("cannot open it: permission denied", where=session)
        return super().open(session, write=write)


@pytest.fixture
def store() -> LockableSessions:
    return LockableSessions()


@pytest.fixture
def index(store: LockableSessions, tmp_path: Path) -> Iterator[SqliteIndex]:
    with SqliteIndex(tmp_path / "index.sqlite", store) as index:
        yield index


def test_what_was_unreadable_is_known_until_it_is_mended(store: LockableSessions, index: SqliteIndex, tmp_path: Path) -> None:
    whole = log_of((SessionOpened("one"), *said("first")))
    store.replace("one", whole + b"garbage\n")
    index.refresh()
    store.open("one", write=True).append(log_of(said("second"), seq=2) + b"more garbage\n")
    index.refresh()
    why = f"2 lines are no event; the first at byte {len(whole)}"
    with SqliteIndex(tmp_path / "index.sqlite", store) as later:
        assert (later.refresh(), later.faults()) == (RefreshReport(), [("memory:one", why)])
    store.replace("one", whole)
    index.refresh()
    assert index.faults() == []


def test_lines_that_do_not_continue_what_was_read_before_are_a_fault(store: LockableSessions, index: SqliteIndex) -> None:
    write(store, "one", "word")
    index.refresh()
    at = store.stat("one").size
    store.open("one", write=True).append(log_of(said("another"), seq=2, prev="0" * 64))
    index.refresh()
    why = f"event 2 does not continue the chain: it or the event before was changed; see `pal verify` (byte {at})"
    assert index.faults() == [("memory:one", why)]


@pytest.mark.parametrize("known", [False, True])
def test_a_log_that_cannot_be_opened_is_read_once_it_can_be(store: LockableSessions, index: SqliteIndex, *, known: bool) -> None:
    write(store, "one", "word")
    if known:
        index.refresh()
        store.open("one", write=True).append(log_of(said("word"), seq=2, prev=end_of(store, "one")))
    store.shut.add("one")
    assert index.refresh().skipped == (("memory:one", "cannot open it: permission denied"),)
    assert (index.stats_changed(), index.refresh()) == (False, RefreshReport())
    assert index.faults() == [("memory:one", "cannot open it: permission denied")]
    assert [row.id for row in index.list()] == (["one"] if known else [])
    store.shut.clear()
    assert index.refresh().read == 1
    assert (index.faults(), found(index, "word")) == ([], [("one", 2), ("one", 1)] if known else [("one", 1)])
