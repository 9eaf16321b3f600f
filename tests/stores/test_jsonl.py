import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from palimpsest.core.errors import BadInput, Locked, MissingBase, ReadOnly, StoreError
from palimpsest.core.events import SessionOpened, UserSaid, ViewEdited
from palimpsest.core.items import Fold, Put, Text
from palimpsest.core.log import Log
from palimpsest.core.verify import verify
from palimpsest.stores.files import Lock
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs
from palimpsest.stores.log_file import JsonlFile
from palimpsest.stores.sessions import JsonlSessions


def said(text: str) -> UserSaid:
    return UserSaid((Text(text),))


def create(folder: Path, session: str = "s") -> Log:
    return Log.create(JsonlSessions(folder), SessionOpened(session), FixedClock(1, 1))


def test_a_log_is_one_line_per_event_and_only_ever_grows(tmp_path: Path) -> None:
    with create(tmp_path) as log:
        first = (tmp_path / "s.jsonl").read_bytes()
        log.append(said("hello"))
        second = (tmp_path / "s.jsonl").read_bytes()
    assert first.count(b"\n") == 1
    assert second.startswith(first)
    assert second.count(b"\n") == 2


def test_the_files_are_the_owners_alone(tmp_path: Path) -> None:
    create(tmp_path / "sessions").close()
    modes = [oct(path.stat().st_mode & 0o777) for path in (tmp_path / "sessions", tmp_path / "sessions" / "s.jsonl")]
    assert modes == ["0o700", "0o600"]


def test_a_second_writer_gets_the_name_of_the_holder_and_readers_are_free(tmp_path: Path) -> None:
    with create(tmp_path):
        with pytest.raises(Locked, match=f"being written by process {os.getpid()} on .* since "):
            Log.open(JsonlSessions(tmp_path), "s", FixedClock(1, 1), write=True)
        assert Log.open(JsonlSessions(tmp_path), "s", FixedClock(1, 1)).tip == 0
    Log.open(JsonlSessions(tmp_path), "s", FixedClock(1, 1), write=True).close()


def test_a_log_opened_for_reading_takes_no_events(tmp_path: Path) -> None:
    create(tmp_path).close()
    log = Log.open(JsonlSessions(tmp_path), "s", FixedClock(1, 1))
    with pytest.raises(ReadOnly, match="opened for reading"):
        log.append(said("no"))
    assert log.tip == 0


@pytest.mark.parametrize("session", ["../s", "a/b", "", ".hidden", "x" * 129, "a\0b", "名"])
def test_an_id_never_leaves_the_folder(tmp_path: Path, session: str) -> None:
    with pytest.raises(BadInput, match="cannot be the id of a session"):
        JsonlSessions(tmp_path).open(session)


def test_an_id_is_given_once(tmp_path: Path) -> None:
    create(tmp_path).close()
    with pytest.raises(BadInput, match="session s exists already"):
        create(tmp_path)


def test_an_unknown_session_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no session nope"):
        JsonlSessions(tmp_path).open("nope")


def test_a_write_that_fails_half_way_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    log = create(tmp_path)
    log.append(said("kept"))
    before = (tmp_path / "s.jsonl").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, hard))
    try:
        with pytest.raises(StoreError, match="cannot write to it"):
            log.append(said("x" * 1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "s.jsonl").read_bytes() == before
    assert log.tip == 1
    log.append(said("after"))
    log.close()
    assert verify(JsonlSessions(tmp_path), "s", MemoryBlobs()).events == 3


def test_a_session_that_cannot_be_created_leaves_neither_log_nor_lock(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (10, 100):
        # No byte beyond the limit can be written, as on a full disk: first the lock fails, then the log.
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            with pytest.raises(StoreError):
                JsonlSessions(tmp_path).create("s", b"x" * 200)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_full_disk_is_called_a_full_disk(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock")
    lock.acquire()
    lines = JsonlFile(Path("/dev/full"), lock=lock)
    with pytest.raises(StoreError, match="/dev/full: cannot write to it: the disk is full; free some space, nothing was lost"):
        lines.append(b"{}\n")
    lines.close()


def test_a_failed_sync_makes_the_session_read_only(tmp_path: Path) -> None:
    log = create(tmp_path)
    log.append(said("written"))
    lines = log.reader.lines
    assert isinstance(lines, JsonlFile)
    os.close(lines._file)
    with pytest.raises(StoreError, match=r"did not confirm the last events .*; the session is read-only now"):
        log.sync()
    with pytest.raises(ReadOnly, match="takes no more events since the disk failed"):
        log.append(said("more"))
    lines._file = -1
    lines.close()


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    program = (
        "import os, sys, pathlib\n"
        "from palimpsest.core.errors import StoreError\n"
        "from palimpsest.core.events import SessionOpened\n"
        "from palimpsest.core.log import Log\n"
        "from palimpsest.stores.in_memory import FixedClock\n"
        "from palimpsest.stores.sessions import JsonlSessions\n"
        "os.geteuid() == 0 and os.seteuid(65534)\n"
        "try:\n"
        "    Log.create(JsonlSessions(pathlib.Path('/usr/palimpsest-test')), SessionOpened('s'), FixedClock())\n"
        "except StoreError as error:\n"
        "    print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "/usr/palimpsest-test/s.jsonl: cannot create it: permission denied\n"


def test_a_fork_is_one_short_line_that_names_its_base(tmp_path: Path) -> None:
    store = JsonlSessions(tmp_path)
    with create(tmp_path) as log:
        log.append(said("hello"))
        fork = log.fork(store, "f")
        fork.close()
    assert (tmp_path / "f.jsonl").stat().st_size < 4096
    assert Log.open(store, "f", FixedClock(1, 1)).view.ids == ("1.0",)


def test_a_fork_without_its_base_says_which_session_is_missing(tmp_path: Path) -> None:
    store = JsonlSessions(tmp_path)
    with create(tmp_path) as log:
        log.append(said("hello"))
        log.fork(store, "f").close()
    (tmp_path / "s.jsonl").rename(tmp_path / "elsewhere")
    with pytest.raises(MissingBase, match="the base of the fork, session s, does not exist"):
        Log.open(store, "f", FixedClock(1, 1))
    assert [finding.kind for finding in verify(store, "f", MemoryBlobs()).findings] == ["base"]


def test_a_fork_of_another_session_of_the_same_name_is_refused(tmp_path: Path) -> None:
    store = JsonlSessions(tmp_path)
    with create(tmp_path) as log:
        log.append(said("hello"))
        log.fork(store, "f").close()
    (tmp_path / "s.jsonl").unlink()
    with create(tmp_path) as log:
        log.append(said("another writer"))
    with pytest.raises(MissingBase, match="session s is not the base of this fork: event 1 differs"):
        Log.open(store, "f", FixedClock(1, 1))


def test_resuming_reads_the_checkpoint_and_the_tail_and_not_the_history(tmp_path: Path) -> None:
    with create(tmp_path) as log:
        for number in range(600):
            log.append(said(f"message {number} " + "x" * 200))
    path = tmp_path / "s.jsonl"
    with Log.open(JsonlSessions(tmp_path), "s", FixedClock(1, 1), write=True) as log:
        folded = log.view.items
        log.append(ViewEdited((Fold(folded[0].id, folded[-3].id, (Put("summary", Text("so far")),)),), by="test"))
    data = bytearray(path.read_bytes())
    middle = data.index(b"message 300")
    data[middle : middle + 7] = b"\xff" * 7
    path.write_bytes(data)
    assert Log.open(JsonlSessions(tmp_path), "s", FixedClock(1, 1)).view.ids == ("601.0.0", "599.0", "600.0")
