"""A file, and those beside a log, are written completely or not at all; until then the earlier file stays."""

import os
import resource
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from palimpsest.core.errors import BadInput, StoreError
from palimpsest.stores.files import coalesced, ensure_writable, is_temporary, write_atomically, write_private
from palimpsest.stores.sessions import JsonlSessions


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """A file system that takes no more than so many bytes of a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    assert write_atomically(tmp_path / "a", [b"one ", b"", b"two"]) == 7
    assert contents(tmp_path) == {"a": b"one two"}


def test_a_writer_that_fails_midway_leaves_nothing(tmp_path: Path) -> None:
    def failing() -> Iterator[bytes]:
        yield b"x" * 1_000_000
        raise BadInput("no more")

    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(BadInput, match="no more"):
        write_atomically(tmp_path / "a", failing(), replace=True)
    assert contents(tmp_path) == {"a": b"old"}


def test_an_error_of_what_is_written_is_not_taken_for_one_of_the_disk(tmp_path: Path) -> None:
    def failing() -> Iterator[bytes]:
        yield b"x"
        raise FileNotFoundError(2, "No such file or directory", "elsewhere")

    with pytest.raises(FileNotFoundError, match="elsewhere"):
        write_atomically(tmp_path / "a", failing())
    assert contents(tmp_path) == {}


def test_a_file_that_comes_while_we_write_is_kept(tmp_path: Path) -> None:
    def slow() -> Iterator[bytes]:
        yield b"ours"
        (tmp_path / "a").write_bytes(b"theirs")

    with pytest.raises(BadInput, match="this file exists"):
        write_atomically(tmp_path / "a", slow())
    assert contents(tmp_path) == {"a": b"theirs"}


def test_a_folder_or_a_missing_folder_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="this is a folder"):
        write_atomically(tmp_path, [b"x"])
    with pytest.raises(StoreError, match="there is no folder"):
        write_atomically(tmp_path / "no" / "a", [b"x"])
    with pytest.raises(StoreError, match="cannot write it"):
        write_atomically(tmp_path, [b"x"], replace=True)


def test_a_file_of_ours_takes_the_place_of_another_unless_it_may_not(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert [write_private(path, b"one", replace=False), write_private(path, b"two", replace=False)] == [True, False]
    assert contents(tmp_path) == {"a": b"one"}
    assert write_private(path, b"three")
    assert contents(tmp_path) == {"a": b"three"}


WRITERS: dict[str, Callable[[Path, bytes], object]] = {
    "for others": lambda path, data: write_atomically(path, [data], replace=True),
    "for others, without a sync": lambda path, data: write_atomically(path, [data], replace=True, sync=False),
    "ours": write_private,
    "ours, without a sync": lambda path, data: write_private(path, data, sync=False),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_the_old_file_and_no_temporary_one(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with room_for(1_000), pytest.raises(StoreError) as error:
        WRITERS[name](path, b"x" * 2_000)
    assert str(error.value) == f"{path}: cannot write it: File too large"
    assert contents(tmp_path) == {"a": b"old"}


def test_a_device_that_is_full_is_called_full() -> None:
    with pytest.raises(StoreError, match="/dev/full: cannot write it: the disk is full; free some space, nothing was lost"):
        write_atomically(Path("/dev/full"), [b"x"])


AS_NOBODY = """
import os, pathlib, sys
from palimpsest.core.errors import StoreError
from palimpsest.stores.files import ensure_writable, write_private, write_atomically
os.geteuid() == 0 and os.seteuid(65534)
path = pathlib.Path(sys.argv[1], "a")
for write in (lambda: write_atomically(path, [b"x"], replace=True), lambda: write_private(path, b"x"), lambda: ensure_writable(path)):
    try:
        write()
    except StoreError as error:
        print(error)
"""


def test_a_folder_without_permission_is_one_clear_line() -> None:
    ran = subprocess.run([sys.executable, "-c", AS_NOBODY, "/usr"], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["/usr/a: cannot write it: permission denied"] * 3


def test_a_file_for_others_is_written_where_a_link_leads(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for each in (folder, elsewhere):
        each.mkdir()
    (elsewhere / "kept").write_bytes(b"old")
    (folder / "link").symlink_to(elsewhere / "kept")
    write_atomically(folder / "link", [b"new"], replace=True)
    assert (folder / "link").is_symlink()
    assert (contents(folder), contents(elsewhere)) == ({"link": b"new"}, {"kept": b"new"})


def test_a_file_of_ours_is_never_written_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    assert not write_private(tmp_path / "link", b"new", replace=False)
    assert contents(tmp_path) == {"link": b"old", "theirs": b"old"}
    assert write_private(tmp_path / "link", b"new")
    assert (contents(tmp_path), (tmp_path / "link").is_symlink()) == ({"link": b"new", "theirs": b"old"}, False)


def test_a_link_that_leads_nowhere_counts_as_a_file_that_stands_there(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "gone")
    with pytest.raises(BadInput, match="this file exists"):
        write_atomically(link, [b"x"])
    assert not write_private(link, b"x", replace=False)
    assert not (tmp_path / "gone").exists()
    write_atomically(link, [b"x"], replace=True)
    assert (tmp_path / "gone").read_bytes() == b"x"


def test_permissions_are_those_that_were_asked_for_or_that_the_old_file_had(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "new", [b"x"])
        write_atomically(tmp_path / "asked", [b"x"], mode=0o600)
        write_private(tmp_path / "ours", b"x")
        (tmp_path / "old").write_bytes(b"x")
        (tmp_path / "old").chmod(0o664)
        write_atomically(tmp_path / "old", [b"y"], replace=True)
    finally:
        os.umask(before)
    assert {path.name: oct(mode_of(path)) for path in tmp_path.iterdir()} == {
        "new": "0o640",
        "asked": "0o600",
        "ours": "0o600",
        "old": "0o664",
    }


@pytest.mark.parametrize("name", ["x" * 255, "名" * 85, "x" * 254 + "."])
def test_a_name_as_long_as_a_file_system_takes_can_be_written(tmp_path: Path, name: str) -> None:
    ensure_writable(tmp_path / name)
    write_atomically(tmp_path / name, [b"x"])
    assert contents(tmp_path) == {name: b"x"}


def test_a_name_that_is_too_long_is_refused_before_and_when_it_is_written(tmp_path: Path) -> None:
    for write in (ensure_writable, lambda path: write_atomically(path, [b"x"]), lambda path: write_private(path, b"x")):
        with pytest.raises(StoreError, match="cannot write it: File name too long"):
            write(tmp_path / ("x" * 300))
    assert contents(tmp_path) == {}


KILLED = """
import os, sys
from pathlib import Path
from palimpsest.stores.files import write_private
sys.addaudithook(lambda event, _: os._exit(9) if event == "os.rename" else None)
write_private(Path(sys.argv[1]), b"new")
"""


def test_what_a_crash_leaves_says_which_file_it_was_to_be(tmp_path: Path) -> None:
    path = tmp_path / "s.checkpoint"
    path.write_bytes(b"old")
    assert subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False).returncode == 9
    (left,) = (each.name for each in tmp_path.iterdir() if each != path)
    assert path.read_bytes() == b"old"
    assert (is_temporary(left, "s.checkpoint"), is_temporary(left, "s"), is_temporary("s.checkpoint", "s.checkpoint")) == (
        True,
        False,
        False,
    )


def test_gathering_keeps_the_bytes_in_pieces_of_some_size() -> None:
    pieces = list(coalesced([b"ab"] * 300_000))
    assert b"".join(pieces) == b"ab" * 300_000
    assert [len(piece) for piece in pieces] == [262_144, 262_144, 75_712]


def test_a_torn_end_that_cannot_be_set_aside_stays_and_the_log_is_free_again(tmp_path: Path) -> None:
    store = JsonlSessions(tmp_path)
    store.create("one", b"first\n").close()
    torn = b"x" * 2_000
    with (tmp_path / "one.jsonl").open("ab") as file:
        file.write(torn)
    with room_for(1_000), pytest.raises(StoreError, match=r"one\.torn-1: cannot write it: File too large"):
        store.open("one", write=True)
    assert contents(tmp_path) == {"one.jsonl": b"first\n" + torn}
    store.open("one", write=True).close()
    assert contents(tmp_path) == {"one.jsonl": b"first\n", "one.torn-1": torn}


def test_what_was_set_aside_earlier_is_never_written_over(tmp_path: Path) -> None:
    store = JsonlSessions(tmp_path)
    store.create("one", b"first\n").close()
    for torn in (b"half", b"another half"):
        with (tmp_path / "one.jsonl").open("ab") as file:
            file.write(torn)
        store.open("one", write=True).close()
    assert contents(tmp_path) == {"one.jsonl": b"first\n", "one.torn-1": b"half", "one.torn-2": b"another half"}


def test_a_rewrite_that_does_not_fit_leaves_the_log_and_no_copy(tmp_path: Path) -> None:
    writer = JsonlSessions(tmp_path).create("one", b"first\n")
    with room_for(1_000), pytest.raises(StoreError, match=r"one\.jsonl: cannot write it: File too large"):
        writer.rewrite(b"x" * 2_000 + b"\n")
    assert (contents(tmp_path), writer.append(b"second\n")) == ({"one.jsonl": b"first\n"}, 6)
    writer.close()


def test_each_rewrite_keeps_what_was_there_before(tmp_path: Path) -> None:
    writer = JsonlSessions(tmp_path).create("one", b"first\n")
    copies = [writer.rewrite(b"second\n"), writer.rewrite(b"third\n")]
    writer.close()
    assert copies == [str(tmp_path / "one.damaged-1"), str(tmp_path / "one.damaged-2")]
    assert contents(tmp_path) == {"one.jsonl": b"third\n", "one.damaged-1": b"first\n", "one.damaged-2": b"second\n"}


def test_a_checkpoint_that_does_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    writer = JsonlSessions(tmp_path).create("one", b"first\n")
    writer.save_checkpoint(b"old")
    with room_for(1_000):
        writer.save_checkpoint(b"x" * 2_000)
    assert (writer.load_checkpoint(), contents(tmp_path)) == (b"old", {"one.jsonl": b"first\n", "one.checkpoint": b"old"})
    writer.close()
    writer.save_checkpoint(b"too late, for another writer may hold the log")
    assert contents(tmp_path) == {"one.jsonl": b"first\n", "one.checkpoint": b"old"}


def test_a_link_in_the_place_of_a_checkpoint_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_bytes(b"theirs")
    writer = JsonlSessions(tmp_path).create("one", b"first\n")
    (tmp_path / "one.checkpoint").symlink_to(tmp_path / "theirs")
    writer.save_checkpoint(b"ours")
    writer.close()
    assert contents(tmp_path) == {"one.jsonl": b"first\n", "one.checkpoint": b"ours", "theirs": b"theirs"}
