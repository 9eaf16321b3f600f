"""Bounds on the files of other programs: what they are, how long their lines are, and what compressed ones unpack to."""

import io
import json
import os
import socket
from pathlib import Path

import pytest
from every_case import every_case
from hypothesis import example, given
from hypothesis import strategies as st

from palimpsest.core.errors import BadInput
from palimpsest.exchange.codex.reader import rollout_lines
from palimpsest.exchange.files import (
    ReadLimits,
    UnpackingReader,
    decoded,
    document_in,
    object_on,
    open_regular,
    read_regular,
    reading_limits,
    whole_lines,
)
from palimpsest.exchange.finding import find_sources
from palimpsest.exchange.formats import FORMATS
from palimpsest.exchange.transcript import ReadProblem, milliseconds

SMALL = ReadLimits(file=1_000, line=100, unpacked=64 * 1024 * 1024, ratio=10)


def special_files(folder: Path) -> list[Path]:
    """A pipe, a socket and a link to a device, each named like a transcript."""
    pipe, link, place = folder / "pipe.jsonl", folder / "device.jsonl", folder / "socket.jsonl"
    os.mkfifo(pipe)
    link.symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
    return [link, pipe, place]


def test_pipes_sockets_and_devices_are_named_and_never_waited_for(tmp_path: Path) -> None:
    device, pipe, place = special_files(tmp_path)
    found = find_sources(FORMATS, [tmp_path])
    kinds = {device: "a device", pipe: "a pipe", place: "a socket"}
    skipped = tuple(ReadProblem(str(path), f"{kind}, not a file") for path, kind in kinds.items())
    assert (found.sources, found.skipped) == ((), skipped)
    for path in (device, pipe):
        with pytest.raises(OSError, match="it is not a regular file"):
            open_regular(path)


def test_a_link_is_followed_only_where_the_user_named_it(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    assert read_regular(tmp_path / "link") == b"x"
    with pytest.raises(OSError, match="symbolic link"):
        read_regular(tmp_path / "link", follow=False)


def test_a_file_that_is_too_long_is_not_read_whole(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(["x" * 2_000]))
    assert document_in(tmp_path / "a.json") == ["x" * 2_000]
    with reading_limits(SMALL), pytest.raises(OSError, match="it has more than 1,000 bytes"):
        document_in(tmp_path / "a.json")


@pytest.mark.parametrize("filler", [101, 5_000, 3_000_000])
def test_a_line_that_is_too_long_is_a_problem_and_the_lines_after_it_are_read(tmp_path: Path, filler: int) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"n":1}}\n{{"n":"{"x" * filler}"}}\n{{"n":3}}\n')
    with reading_limits(SMALL):
        lines = list(whole_lines(path))
    assert [object_on(line, path) for line in lines if line.number != 2] == [{"n": 1}, {"n": 3}]
    assert isinstance(object_on(lines[1], path), ReadProblem)
    assert [(line.number, line.start, line.stop) for line in lines] == [(1, 0, 8), (2, 8, 17 + filler), (3, 17 + filler, 25 + filler)]
    assert max(len(line.data) for line in lines) <= 401


def test_a_rollout_with_a_line_of_many_blocks_is_read_around_it(tmp_path: Path) -> None:
    path, filler = tmp_path / "a.jsonl", 3_000_000
    path.write_text(f'{{"n":1}}\n{{"n":"{"x" * filler}"}}\n{{"n":3}}\n')
    with reading_limits(SMALL):
        lines = [(line.number, line.stop, decoded(line.data)) for line in rollout_lines(path)]
    assert lines == [(0, 7, {"n": 1}), (1, 16 + filler, None), (2, 24 + filler, {"n": 3})]


@every_case(("levels", "is_read"), [(50, True), (200, True), (201, False), (900, False), (100_000, False)])
@every_case("pair", [("[", "]"), ('{"a":', "}")])
def test_a_value_that_is_nested_too_deep_is_none(levels: int, is_read: bool, pair: tuple[str, str]) -> None:
    assert (decoded((pair[0] * levels + "1" + pair[1] * levels).encode()) is not None) is is_read
    assert decoded(b'["' + b"]" * 500 + b'"]') == ["]" * 500]


def unpacking(tmp_path: Path, packed: int, unpacked: int) -> int:
    """Read a file of some bytes that unpacks to others, and return how many were read."""
    path = tmp_path / "a.zst"
    path.write_bytes(b"x" * packed)
    reader = UnpackingReader(io.BytesIO(bytes(unpacked)), path.open("rb"), path)
    try:
        return sum(len(block) for block in iter(lambda: reader.read(1 << 20), b""))
    finally:
        reader.close()


@given(st.binary(max_size=6), st.sampled_from([b'"%b"', b'{"a": ["%b"]}', b'{"%b": 1}', b'{"a": 1} %b', b'"\\n%b"']))
@example(b"\xff", b'"%b"')
def test_bytes_that_are_not_utf_8_are_no_value_but_lone_surrogates_are(inner: bytes, form: bytes) -> None:
    assert decoded(b'{"\xed\xa0\x80": 1}') == {"?": 1}
    data = form % inner
    assert decoded(data) is None or data.decode(errors="surrogatepass")


def test_a_compressed_file_may_unpack_to_so_many_times_its_size_and_to_so_many_bytes(tmp_path: Path) -> None:
    mebibyte = 1 << 20
    assert unpacking(tmp_path, 10, 16 * mebibyte) == 16 * mebibyte
    assert unpacking(tmp_path, mebibyte, 20 * mebibyte) == 20 * mebibyte
    with pytest.raises(BadInput, match=r"its 10 bytes unpack to more than 200 times as many; --most-ratio raises this limit"):
        unpacking(tmp_path, 10, 17 * mebibyte)
    with reading_limits(SMALL), pytest.raises(BadInput, match="--most-ratio"):
        unpacking(tmp_path, mebibyte, 20 * mebibyte)
    limits = ReadLimits(unpacked=18 * mebibyte, ratio=1_000_000_000)
    with reading_limits(limits), pytest.raises(BadInput, match=r"it unpacks to more than 18,874,368 bytes; --most-unpacked"):
        unpacking(tmp_path, mebibyte, 20 * mebibyte)


@pytest.mark.parametrize(
    ("stamp", "at"),
    [
        ("1969-12-31T23:59:59Z", 0),
        ("0001-01-01T00:00:00Z", 0),
        ("9999-12-31T23:59:59Z", 253_402_300_799_000),
        (253_402_300_800_000, 0),
        (10**30, 0),
        (-5, 0),
        ("2031-01-01T00:00:00Z", 1_924_992_000_000),
    ],
)
def test_a_time_outside_of_the_years_1970_to_9999_is_none(stamp: object, at: int) -> None:
    assert milliseconds(stamp) == at
