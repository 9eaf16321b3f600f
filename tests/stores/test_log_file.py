"""A log file on a failing disk: files beside it are written completely or not at all."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from palimpsest.core.errors import StoreError
from palimpsest.stores.jsonl import JsonlSessions


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """A file system that takes no more than so many bytes of a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


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
