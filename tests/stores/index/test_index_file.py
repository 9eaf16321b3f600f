import errno
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_logs import found, log_of, said, write

from palimpsest.core.errors import Locked, StoreError
from palimpsest.core.events import Body, SessionOpened, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.ports import Hit, RefreshReport
from palimpsest.stores.in_memory import MemoryFile, MemorySessions
from palimpsest.stores.index import SqliteIndex
from palimpsest.stores.sessions import JsonlSessions


def test_the_index_is_kept_and_only_its_owner_may_read_it(store: MemorySessions, tmp_path: Path) -> None:
    write(store, "one", "word")
    path = tmp_path / "home" / "index.sqlite"
    with SqliteIndex(path, store) as index:
        index.refresh()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    with SqliteIndex(path, store) as index:
        assert (found(index, "word"), index.refresh()) == ([("one", 1)], RefreshReport())


@pytest.mark.parametrize("spoil", ["text", "empty", "old", "new", "torn"])
def test_a_damaged_file_or_one_of_another_version_is_rebuilt(store: MemorySessions, tmp_path: Path, spoil: str) -> None:
    write(store, "one", "word " * 5_000)
    path = tmp_path / "index.sqlite"
    with SqliteIndex(path, store) as index:
        index.refresh()
    if spoil in ("old", "new"):
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE leftover(x)")
        connection.execute(f"PRAGMA user_version = {0 if spoil == 'old' else 99}")
        connection.close()
    else:
        data = path.read_bytes()
        path.write_bytes({"text": b"no database at all" * 100, "empty": b"", "torn": data[:4096] + b"\xa5" * (len(data) - 4096)}[spoil])
    with SqliteIndex(path, store) as index:
        assert [row.id for row in index.list()] == ["one"]
        index.refresh()
        assert (found(index, "word"), index.note) == ([("one", 1)], "")


def test_a_rebuild_forgets_the_words_of_a_redacted_log(store: MemorySessions, tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    write(store, "one", " ".join(f"hunter2secret{number:05}" for number in range(5_000)), "word")
    steps: list[tuple[int, int]] = []
    with SqliteIndex(path, store) as index:
        index.refresh()
    before = path.read_bytes()
    assert b"hunter2secret" in before
    write(store, "one", "redacted", "word")
    with SqliteIndex(path, store) as index:
        report = index.rebuild(lambda done, total: steps.append((done, total)))
        assert (found(index, "hunter2secret*"), found(index, "word")) == ([], [("one", 2)])
    size = store.open("one").size
    # Some builds of SQLite blank what they free; a file that shrank holds nothing freed in any build.
    assert path.stat().st_size < len(before) // 2
    assert (report, b"hunter2secret" in path.read_bytes()) == (RefreshReport(read=1, bytes=size), False)
    assert all(total == size for _, total in steps)


def test_an_index_full_of_dead_units_is_rebuilt_automatically(store: MemorySessions, tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    store.replace("big", log_of(UserSaid((Text("a"),) * 1000) for _ in range(11)))
    write(store, "one", "word")
    with SqliteIndex(path, store) as index:
        index.refresh()
        store.remove("big")
        index.refresh()
        assert found(index, "word") == [("one", 1)]
    connection = sqlite3.connect(path)
    assert dict(connection.execute("SELECT name, value FROM counts")) == {"next": 2, "dead": 0}
    connection.close()


def test_a_home_that_cannot_be_written_has_its_index_in_memory(store: MemorySessions, tmp_path: Path) -> None:
    write(store, "one", "word")
    (tmp_path / "home").write_text("a file, not a folder")
    path = tmp_path / "home" / "index.sqlite"
    with SqliteIndex(path, store) as index:
        assert [row.id for row in index.list()] == ["one"]
        assert found(index, "word") == [("one", 1)]
        assert index.note == f"{path} cannot be written (there is a file): the index is kept in memory and built again each time"


def test_an_index_that_becomes_read_only_goes_on_in_memory(store: MemorySessions, index: SqliteIndex, tmp_path: Path) -> None:
    write(store, "one", "word")
    index.refresh()
    index._database.connection.execute("PRAGMA query_only = 1")  # root can write files of any mode
    write(store, "two", "word")
    index.refresh()
    assert found(index, "word") == [("two", 1), ("one", 1)]
    assert index.note == (
        f"{tmp_path / 'index.sqlite'} cannot be written (attempt to write a readonly database): "
        "the index is kept in memory and copied from the file each time"
    )


def test_a_read_only_index_is_copied_and_only_new_logs_are_read(store: MemorySessions, tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    write(store, "one", "word")
    with SqliteIndex(path, store) as index:
        index.refresh()
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE sessions SET title = 'only in the file'")
    write(store, "two", "word")

    with SqliteIndex(path, store) as index:
        index._database.connection.execute("PRAGMA query_only = 1")  # root can write files of any mode
        assert {row.id: row.title for row in index.list()} == {"one": "only in the file", "two": "word"}
        assert index.note.endswith(": the index is kept in memory and copied from the file each time")


def test_an_index_on_a_full_disk_goes_on_in_memory(store: MemorySessions, index: SqliteIndex, tmp_path: Path) -> None:
    write(store, "one", "word")
    index.refresh()
    index._database.connection.execute("PRAGMA max_page_count = 1")  # no page can be added, as on a full disk
    write(store, "two", "word", *(f"more{number}" * 40 for number in range(200)))
    index.refresh()
    assert found(index, "word") == [("two", 1), ("one", 1)]
    assert index.note == (
        f"{tmp_path / 'index.sqlite'} cannot be written (database or disk is full): "
        "the index is kept in memory and copied from the file each time"
    )


def test_an_index_whose_side_files_find_no_room_is_copied_into_memory(store: MemorySessions, tmp_path: Path) -> None:
    write(store, "one", "word")
    with SqliteIndex(tmp_path / "index.sqlite", store) as index:
        index.refresh()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, hard))
    try:
        with SqliteIndex(tmp_path / "index.sqlite", store) as index:
            assert ([row.id for row in index.list()], found(index, "word")) == (["one"], [("one", 1)])
            assert index.note.endswith("(disk I/O error): the index is kept in memory and copied from the file each time")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_an_index_that_another_process_writes_is_one_clear_error(store: MemorySessions, index: SqliteIndex, tmp_path: Path) -> None:
    write(store, "one", "word")
    index.refresh()
    other = sqlite3.connect(tmp_path / "index.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    write(store, "two", "word")
    with pytest.raises(Locked) as error:
        index.refresh()
    assert str(error.value) == f"{tmp_path / 'index.sqlite'}: another process is writing the index; try again in a moment"
    assert (found(index, "word"), [row.id for row in index.list()]) == ([("one", 1)], ["one"])
    other.close()
    index.refresh()
    assert found(index, "word") == [("two", 1), ("one", 1)]


def test_two_indexes_on_one_file_do_not_index_twice(store: MemorySessions, index: SqliteIndex, tmp_path: Path) -> None:
    write(store, "one", "word")
    with SqliteIndex(tmp_path / "index.sqlite", store) as other:
        index.refresh()
        assert other.refresh() == RefreshReport()
        assert found(other, "word") == [("one", 1)]


def test_a_hit_whose_log_is_gone_has_an_empty_snippet(store: MemorySessions, index: SqliteIndex) -> None:
    write(store, "one", "word")
    index.refresh()
    store.remove("one")
    assert index.search("word") == [Hit("one", 1, "1.0", "user", 1, "")]


STEP = st.tuples(
    st.sampled_from(["append", "replace", "remove", "refresh"]), st.sampled_from("ab"), st.sampled_from(["red", "blue", "red blue"])
)


@settings(max_examples=30, deadline=None)
@given(st.lists(STEP, max_size=12))
def test_an_index_that_was_refreshed_now_and_then_finds_what_a_new_one_finds(steps: list[tuple[str, str, str]]) -> None:
    store = MemorySessions()
    logs: dict[str, list[Body]] = {}
    with (
        TemporaryDirectory() as folder,
        SqliteIndex(f"{folder}/old.sqlite", store) as index,
        SqliteIndex(f"{folder}/new.sqlite", store) as fresh,
    ):
        for what, session, text in steps:
            if what == "refresh":
                index.refresh()
            elif what == "remove":
                if logs.pop(session, None):
                    store.remove(session)
            else:
                old = logs.get(session, [SessionOpened(session)]) if what == "append" else [SessionOpened(session, text)]
                logs[session] = [*old, *said(text)]
                store.replace(session, log_of(logs[session]))
        index.refresh()
        fresh.refresh()
        for query in ("red", "blue", "red -blue"):
            assert sorted(found(index, query)) == sorted(found(fresh, query))
        assert index.list() == fresh.list()


class ScratchedLines(MemoryFile):
    """A log on a disk that fails after the first run of lines."""

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        yield next(super().chunks(start, stop))
        raise OSError(errno.EIO, "Input/output error")


class DamagedSessions(MemorySessions):
    """A store with one scratched log and one that cannot be opened."""

    def open(self, session: str, *, write: bool = False) -> MemoryFile:
        lines = super().open(session, write=write)
        if session == "locked-away":
            raise StoreError("cannot open it: permission denied", where=lines.name)
        return ScratchedLines(self, self._files[session], write=write) if session == "scratched" else lines


def test_logs_that_cannot_be_read_are_reported_and_stop_nothing(tmp_path: Path) -> None:
    store = DamagedSessions(chunk_bytes=100)
    write(store, "locked-away", "word")
    write(store, "scratched", "word", "x" * 100, "word")
    write(store, "well", "word")
    with SqliteIndex(tmp_path / "index.sqlite", store) as index:
        report = index.refresh()
        assert report.skipped == (
            ("memory:locked-away", "cannot open it: permission denied"),
            ("memory:scratched", "[Errno 5] Input/output error"),
        )
        assert found(index, "word") == [("well", 1), ("scratched", 1)]
        assert (index.stats_changed(), index.refresh(), index.faults()) == (False, RefreshReport(), list(report.skipped))
        assert [row.id for row in index.list()] == ["well", "scratched"]


def test_a_jsonl_store_is_indexed_the_same_way(tmp_path: Path) -> None:
    store = JsonlSessions(tmp_path / "sessions")
    lines = store.create("one")
    lines.append(log_of((SessionOpened("one"), *said("a needle"))))
    with SqliteIndex(tmp_path / "index.sqlite", store) as index:
        assert [(row.id, row.path) for row in index.list()] == [("one", str(tmp_path / "sessions" / "one.jsonl"))]
        lines.append(log_of(said("another needle"), seq=2))
        index.refresh()
        assert [(hit.seq, hit.snippet) for hit in index.search("needle")] == [(2, "another [needle]"), (1, "a [needle]")]
    lines.close()
