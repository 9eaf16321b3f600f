import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_format import Tiny, user, written

from palimpsest.exchange.finding import FoundSources, find_sources
from palimpsest.exchange.transcript import ReadProblem, TranscriptSource


def names(found: FoundSources) -> list[str]:
    return [source.session for source in found.sources]


def problems(found: FoundSources, below: Path) -> dict[str, str]:
    return {os.path.relpath(bad.where, below): bad.why for bad in found.skipped}


def test_a_file_and_all_files_below_a_folder_are_found_in_the_order_of_their_paths(tmp_path: Path) -> None:
    for name in ("z", "a", "m"):
        (tmp_path / name).mkdir()
        written(tmp_path / name / f"{name}.tiny", user("u", "hello"))

    assert names(find_sources((Tiny(),), [tmp_path])) == ["a", "m", "z"]
    assert names(find_sources((Tiny(),), [tmp_path / "z" / "z.tiny", tmp_path / "a"])) == ["a", "z"]
    assert names(find_sources((Tiny(),), [tmp_path / "m", tmp_path])) == ["a", "m", "z"]


def test_what_is_in_the_way_is_one_line_each_and_the_rest_is_found(tmp_path: Path) -> None:
    written(tmp_path / "good.tiny", user("u", "hello"))
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "unknown.jsonl").write_bytes(b"garbage\n")
    (tmp_path / "half.jsonl").write_bytes(b'{"type":"us')
    (tmp_path / "data.jsonl").write_bytes(b'{"of":"somebody else"}\n')
    (tmp_path / "long.jsonl").write_bytes(b'{"of":"' + b"x" * 100_000 + b'"}\n')
    (tmp_path / "document.traj").write_bytes(b'{\n  "of": 3\n}\n')
    (tmp_path / "notes.txt").write_bytes(b"nobody's business")
    (tmp_path / "nowhere.jsonl").symlink_to("gone")
    (tmp_path / "itself").symlink_to("itself")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "up").symlink_to("..")
    os.mkfifo(tmp_path / "pipe.jsonl")

    found = find_sources((Tiny(),), [tmp_path])

    assert names(found) == ["good"]
    assert problems(found, tmp_path) == {
        "below/up": f"a link that leads back to {tmp_path}",
        "empty.jsonl": "it is empty",
        "half.jsonl": "not a session of a known program",
        "itself": "too many levels of symbolic links",
        "nowhere.jsonl": "a link that leads nowhere",
        "pipe.jsonl": "a pipe, not a file",
        "unknown.jsonl": "not a session of a known program",
    }


def test_every_other_file_is_listed_with_what_it_is_when_one_asks(tmp_path: Path) -> None:
    written(tmp_path / "good.tiny", user("u", "hello"))
    (tmp_path / "data.jsonl").write_bytes(b'{"of":"another program"}\n')
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "notes.md").write_bytes(b"# Notes")
    (tmp_path / "more" / "empty.txt").touch()
    (tmp_path / "more" / "picture.png").write_bytes(b"\x89PNG\x00")
    sqlite3.connect(tmp_path / "state.db").executescript("CREATE TABLE a (b); VACUUM").close()
    (tmp_path / "one.traj-2.json").write_bytes(b'{"of": 3}')

    found = find_sources((Tiny(),), [tmp_path], explain=True)

    assert problems(found, tmp_path) == {"one.traj-2.json": "not a session of a known program"}
    assert {os.path.relpath(other.where, tmp_path): other.why for other in found.ignored} == {
        "data.jsonl": "JSON of no known program",
        "more/empty.txt": "it is empty",
        "more/notes.md": "text of no known program",
        "more/picture.png": "binary data",
        "state.db": "a database without sessions of a known program",
    }
    assert find_sources((Tiny(),), [tmp_path]).ignored == ()


_FINDING = """
import sys
from pathlib import Path
from palimpsest.exchange.finding import find_sources
from tiny_format import Tiny
found = find_sources((Tiny(),), [Path(sys.argv[1])])
print([source.session for source in found.sources], sorted((Path(bad.where).name, bad.why) for bad in found.skipped))
"""


def test_what_may_not_be_read_is_one_line_each(tmp_path: Path) -> None:
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("nothing is forbidden to root, and there is no setpriv here to take that right away")
    closed, file = tmp_path / "closed", tmp_path / "file.jsonl"
    closed.mkdir()
    closed.chmod(0)
    file.write_bytes(b"{}\n")
    file.chmod(0)
    written(tmp_path / "good.tiny", user("u", "hello"))
    without = ("--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-dac_override,-dac_read_search")
    prefix = ("setpriv", *without) if os.geteuid() == 0 else ()
    tests = Path(__file__).parents[2]
    folders = (tests.parent / "src", *(tests / "support").iterdir())
    support = {**os.environ, "PYTHONPATH": os.pathsep.join(str(folder) for folder in folders)}
    ran = subprocess.run([*prefix, sys.executable, "-c", _FINDING, str(tmp_path)], capture_output=True, text=True, check=True, env=support)
    closed.chmod(0o700)

    assert ran.stdout == "['good'] [('closed', 'permission denied'), ('file.jsonl', 'permission denied')]\n"


def test_a_link_to_a_folder_elsewhere_is_followed_once(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    written(elsewhere / "a.tiny", user("u", "hello"))
    projects = tmp_path / "projects"
    projects.mkdir()
    (projects / "one").symlink_to(elsewhere)
    (projects / "two").symlink_to(elsewhere)

    found = find_sources((Tiny(),), [projects])

    assert [source.path for source in found.sources] == [str(projects / "one" / "a.tiny")]
    assert problems(found, projects) == {"two": f"a link that leads back to {elsewhere}"}


def test_what_was_named_and_is_no_session_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"hello")
    (tmp_path / "b.jsonl").write_bytes(b'{"of":"somebody else"}\n')
    os.mkfifo(tmp_path / "pipe")

    found = find_sources((Tiny(),), [tmp_path / "a.txt", tmp_path / "b.jsonl", tmp_path / "pipe", tmp_path / "gone"])

    assert problems(found, tmp_path) == {
        "a.txt": "not a session of a known program",
        "b.jsonl": "not a session of a known program",
        "gone": "it does not exist",
        "pipe": "a pipe, not a file",
    }


class _Other(Tiny):
    """Knows the same files, and raises for all others."""

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        yield ReadProblem(str(path / "a.tiny"), "this is none of mine")
        yield from super().sources(path)
        raise ValueError("what is this")


def test_a_file_that_two_formats_know_is_taken_by_the_first_and_a_format_that_fails_is_one_problem(tmp_path: Path) -> None:
    written(tmp_path / "a.tiny", user("u", "hello"))

    found = find_sources((Tiny(), _Other("other")), [tmp_path])

    assert [(source.format, source.session) for source in found.sources] == [("tiny", "a")]
    assert problems(found, tmp_path) == {".": "other failed on it: ValueError: what is this"}


def test_thousands_of_files_are_found_in_one_go(tmp_path: Path) -> None:
    for number in range(2_000):
        (tmp_path / f"{number:04}.tiny").write_bytes(b"{}\n")

    assert names(find_sources((Tiny(),), [tmp_path])) == [f"{number:04}" for number in range(2_000)]
