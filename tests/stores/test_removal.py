from pathlib import Path

import pytest

from palimpsest.core.errors import BadInput, Locked
from palimpsest.core.events import SessionOpened
from palimpsest.core.log import Log
from palimpsest.stores.ephemeral import FixedClock
from palimpsest.stores.jsonl import JsonlShelf
from palimpsest.stores.removal import forks_of, remove
from palimpsest.stores.result_files import ResultFiles


def test_a_session_is_deleted_with_its_checkpoint(tmp_path: Path) -> None:
    shelf = JsonlShelf(tmp_path)
    Log.create(shelf, SessionOpened("s"), FixedClock(1, 1)).close()
    remove(shelf, "s")
    assert (shelf.sessions(), [path.name for path in tmp_path.glob("s*")]) == ([], [])


def test_a_session_is_deleted_with_the_files_of_its_results_and_no_other(tmp_path: Path) -> None:
    shelf = JsonlShelf(tmp_path)
    for session in ("s", "s.1"):
        Log.create(shelf, SessionOpened(session), FixedClock(1, 1)).close()
        ResultFiles.beside(shelf.path_of(session))("toolu_1.txt", b"output")
    remove(shelf, "s")
    assert (tmp_path / "s.1.results" / "toolu_1.txt").read_bytes() == b"output"
    assert not (tmp_path / "s.results").exists()
    assert shelf.sessions() == ["s.1"]


def test_a_base_that_a_fork_reads_is_not_deleted(tmp_path: Path) -> None:
    shelf = JsonlShelf(tmp_path)
    with Log.create(shelf, SessionOpened("s"), FixedClock(1, 1)) as log:
        log.fork(shelf, "f1").close()
        log.fork(shelf, "f2").close()
    assert forks_of(shelf, "s") == ("f1", "f2")
    with pytest.raises(BadInput, match="session s is read by its forks f1, f2"):
        remove(shelf, "s")
    assert shelf.sessions() == ["f1", "f2", "s"]
    remove(shelf, "f1")
    remove(shelf, "f2")
    remove(shelf, "s")
    assert shelf.sessions() == []


def test_a_session_that_is_being_written_is_not_deleted(tmp_path: Path) -> None:
    shelf = JsonlShelf(tmp_path)
    with Log.create(shelf, SessionOpened("s"), FixedClock(1, 1)):
        with pytest.raises(Locked):
            remove(shelf, "s")
        assert shelf.sessions() == ["s"]
