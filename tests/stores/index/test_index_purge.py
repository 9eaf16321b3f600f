import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from index_logs import found, log_of, said, write

from palimpsest.core.errors import Locked
from palimpsest.core.events import SessionOpened
from palimpsest.stores.in_memory import MemorySessions
from palimpsest.stores.index import SqliteIndex

SECRETS = " ".join(f"wombat{number}secret" for number in range(3_000))


@pytest.fixture
def store() -> MemorySessions:
    return MemorySessions()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.sqlite"


@pytest.fixture
def index(store: MemorySessions, path: Path) -> Iterator[SqliteIndex]:
    with SqliteIndex(path, store) as index:
        yield index


def bytes_of(path: Path) -> bytes:
    """All that is on the disk, the file beside it too."""
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob(f"{path.name}*")))


def test_a_forgotten_session_leaves_no_word_in_the_file(store: MemorySessions, index: SqliteIndex, path: Path) -> None:
    write(store, "one", SECRETS, "Ünïque 超时 İstanbul ǅ ﬁn")
    write(store, "two", "wombats are here", "keep this")
    index.refresh()
    write(store, "three", "wombat1secret once more, and keep that")
    index.refresh()
    assert b"ombat" in bytes_of(path)
    for session in ("one", "three"):
        store.remove(session)
        index.forget(session)
    left = bytes_of(path)
    assert [word for word in (b"secret", b"que", "超".encode(), b"stanbul", b"once") if word in left] == []
    assert (found(index, "secret"), found(index, "wombats"), found(index, "keep")) == ([], [("two", 1)], [("two", 2)])
    assert [row.id for row in index.list()] == ["two"]


def test_a_word_that_was_cut_within_a_letter_goes_too(store: MemorySessions, index: SqliteIndex, path: Path) -> None:
    write(store, "one", "a" + "щ" * 20_000)
    write(store, "two", "keep this")
    index.refresh()
    assert "щщщ".encode() in bytes_of(path)
    store.remove("one")
    index.forget("one")
    assert "щ".encode() not in bytes_of(path)
    assert (found(index, "keep"), [row.id for row in index.list()]) == ([("two", 1)], ["two"])


def test_words_of_redacted_and_vanished_logs_go_with_a_purge(store: MemorySessions, index: SqliteIndex, path: Path) -> None:
    log = log_of((SessionOpened("one"), *said("hunter2", "word")))
    store.replace("one", log)
    write(store, "two", "wombat")
    index.refresh()
    store.replace("one", log.replace(b"hunter2", b"hidden!"))
    store.remove("two")
    index.refresh()
    assert (b"hunter2" in bytes_of(path), index.purge(), index.purge()) == (True, True, False)
    assert (b"hunter2" in bytes_of(path), b"wombat" in bytes_of(path)) == (False, False)
    assert (found(index, "hidden"), found(index, "word")) == ([("one", 1)], [("one", 2)])


def test_a_file_of_another_version_is_emptied_to_the_last_byte(store: MemorySessions, path: Path) -> None:
    write(store, "one", SECRETS)
    with SqliteIndex(path, store) as index:
        index.refresh()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    store.remove("one")
    with SqliteIndex(path, store) as index:
        assert (b"wombat" in bytes_of(path), index.list()) == (False, [])


def test_a_purge_reports_a_reader_that_holds_old_words(store: MemorySessions, index: SqliteIndex, path: Path) -> None:
    write(store, "one", SECRETS)
    index.refresh()
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM units").fetchone()
    store.remove("one")
    with pytest.raises(Locked, match="the deleted words leave its file when that one ends"):
        index.forget("one")
    reader.close()
    index.close()
    assert b"wombat" not in bytes_of(path)


def test_a_redaction_of_equal_length_is_noticed_also_when_the_log_has_grown(store: MemorySessions, index: SqliteIndex) -> None:
    log = log_of((SessionOpened("one"), *said("x" * 600, "secret", "y" * 600)))
    store.replace("one", log)
    index.refresh()
    store.replace("one", log.replace(b"secret", b"hidden") + log_of(said("more"), seq=4))
    index.refresh()
    assert (found(index, "secret"), found(index, "hidden"), found(index, "more")) == ([], [("one", 2)], [("one", 4)])
