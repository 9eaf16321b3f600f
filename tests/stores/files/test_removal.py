from pathlib import Path

import pytest

from palimpsest.core.errors import BadInput, Locked
from palimpsest.core.events import SessionOpened
from palimpsest.core.log import Log
from palimpsest.stores.home import forks_of, remove
from palimpsest.stores.in_memory import FixedClock
from palimpsest.stores.sessions import JsonlSessions, ResultFiles


def test_a_session_is_deleted_with_its_checkpoint(tmp_path: Path) -> None:
    store = JsonlSessions(tmp_path)
    Log.create(store, SessionOpened("s"), FixedClock(1, 1)).close()
    remove(store, "s")
    assert (store.sessions(), [path.name for path in tmp_path.glob("s*")]) == ([], [])


def test_a_session_is_deleted_with_the_files_of_its_results_and_no_other(tmp_path: Path) -> None:
    store = JsonlSessions(tmp_path)
    for session in ("s", "s.1"):
        Log.create(store, SessionOpened(session), FixedClock(1, 1)).close()
        ResultFiles.beside(store.path_of(session))("toolu_1.txt", b"output")
    remove(store, "s")
    assert (tmp_path / "s.1.results" / "toolu_1.txt").read_bytes() == b"output"
    assert not (tmp_path / "s.results").exists()
    assert store.sessions() == ["s.1"]


def test_what_crashes_left_beside_a_session_goes_with_it_and_nothing_else(tmp_path: Path) -> None:
    store = JsonlSessions(tmp_path)
    for session in ("s", "s.1"):
        Log.create(store, SessionOpened(session), FixedClock(1, 1)).close()
    mine = ["s.torn-1", "s.damaged-2", "s.checkpoint-new", ".s.jsonl.new-0123456789ab", ".s.checkpoint.new-0123456789ab"]
    others = [".s.1.jsonl.new-0123456789ab", "s.txt", ".s.txt.new-0123456789ab", ".s.jsonl.new-mine"]
    for name in (*mine, *others):
        (tmp_path / name).write_bytes(b"left")
    remove(store, "s")
    left = {path.name for path in tmp_path.iterdir()} - {".locks", "s.1.checkpoint", "s.1.jsonl"}
    assert left == set(others)


def test_a_base_that_a_fork_reads_is_not_deleted(tmp_path: Path) -> None:
    store = JsonlSessions(tmp_path)
    with Log.create(store, SessionOpened("s"), FixedClock(1, 1)) as log:
        log.fork(store, "f1").close()
        log.fork(store, "f2").close()
    assert forks_of(store)["s"] == {"f1", "f2"}
    with pytest.raises(BadInput, match="session s is read by its forks f1, f2"):
        remove(store, "s")
    assert store.sessions() == ["f1", "f2", "s"]
    remove(store, "f1")
    remove(store, "f2")
    remove(store, "s")
    assert store.sessions() == []


def test_a_session_that_is_being_written_is_not_deleted(tmp_path: Path) -> None:
    store = JsonlSessions(tmp_path)
    with Log.create(store, SessionOpened("s"), FixedClock(1, 1)):
        with pytest.raises(Locked):
            remove(store, "s")
        assert store.sessions() == ["s"]
