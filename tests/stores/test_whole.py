from collections.abc import Iterator
from pathlib import Path

import pytest

from palimpsest.core.errors import BadInput, StoreError
from palimpsest.stores.whole import gathered, write_whole


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    assert write_whole(tmp_path / "a", [b"one ", b"", b"two"]) == 7
    assert (tmp_path / "a").read_bytes() == b"one two"


def test_a_writer_that_fails_midway_leaves_nothing(tmp_path: Path) -> None:
    def failing() -> Iterator[bytes]:
        yield b"x" * 1_000_000
        raise BadInput("no more")

    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(BadInput, match="no more"):
        write_whole(tmp_path / "a", failing(), replace=True)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"old")]


def test_a_file_that_comes_while_we_write_is_kept(tmp_path: Path) -> None:
    def slow() -> Iterator[bytes]:
        yield b"ours"
        (tmp_path / "a").write_bytes(b"theirs")

    with pytest.raises(BadInput, match="there already"):
        write_whole(tmp_path / "a", slow())
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"theirs")]


def test_a_folder_or_a_missing_folder_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="this is a folder"):
        write_whole(tmp_path, [b"x"])
    with pytest.raises(StoreError, match="does not exist"):
        write_whole(tmp_path / "no" / "a", [b"x"])
    with pytest.raises(StoreError, match="cannot write it"):
        write_whole(tmp_path, [b"x"], replace=True)


def test_gathering_keeps_the_bytes_in_pieces_of_some_size() -> None:
    pieces = list(gathered([b"ab"] * 300_000))
    assert b"".join(pieces) == b"ab" * 300_000
    assert [len(piece) for piece in pieces] == [262_144, 262_144, 75_712]
