"""Tool results are written once, completely or not at all, inside their folder; a session reads the text files of its own folder only."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.errors import StoreError
from palimpsest.core.plans import Look
from palimpsest.stores.sessions import LARGEST_BYTES, MemoryResultFiles, ResultFiles, WorkTree, plain_name


def test_a_result_becomes_a_file_of_its_owner_alone(tmp_path: Path) -> None:
    keep = ResultFiles(tmp_path / "s" / "tool-results")
    path = Path(keep("toolu_1.txt", b"output"))
    assert path == tmp_path / "s" / "tool-results" / "toolu_1.txt"
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"output", 0o600)
    assert [each.name for each in path.parent.iterdir()] == ["toolu_1.txt"]


def test_a_file_is_never_rewritten_and_other_content_gets_a_name_of_its_own(tmp_path: Path) -> None:
    keep = ResultFiles(tmp_path)
    first = keep("a.txt", b"one")
    changed = Path(first).stat().st_mtime_ns
    assert keep("a.txt", b"one") == first
    other = keep("a.txt", b"two")
    assert other != first
    assert keep("a.txt", b"two") == other
    assert (Path(first).read_bytes(), Path(other).read_bytes()) == (b"one", b"two")
    assert Path(first).stat().st_mtime_ns == changed
    assert Path(other).suffix == ".txt"


@given(st.text(min_size=1, max_size=300))
def test_a_name_stays_in_its_folder_and_two_names_stay_two(name: str) -> None:
    plain = plain_name(name)
    assert Path(plain).name == plain
    assert plain not in {".", ".."}
    assert len(plain) <= 200
    assert plain_name(f"{name}!") != plain


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "..", ".", "a/b.txt", "a\\b", "", "con\0trol", ".hidden", "x" * 500])
def test_a_name_cannot_lead_out_of_the_folder(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    path = Path(ResultFiles(folder)(name, b"x"))
    assert path.resolve().parent == folder.resolve()
    assert path.read_bytes() == b"x"


def test_what_the_system_refuses_is_a_store_error_that_names_the_path(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(StoreError, match=r"taken.*cannot write it: there is a file where a folder should be"):
        ResultFiles(tmp_path / "taken")("a.txt", b"x")


def test_the_twin_in_memory_gives_the_same_names(tmp_path: Path) -> None:
    disk, memory = ResultFiles(tmp_path), MemoryResultFiles(str(tmp_path))
    for name, data in (("a.txt", b"one"), ("a.txt", b"two"), ("../b.json", b"{}"), ("a.txt", b"one")):
        assert disk(name, data) == memory(name, data)


def test_a_file_shows_as_it_is_now(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    file = tmp_path / "src" / "a.py"
    file.write_text("x = 1\n")
    look = WorkTree(str(tmp_path))
    assert look(Look("src/a.py")) == look(Look(str(file))) == "x = 1\n"
    file.write_text("x = 2\n")
    assert look(Look("src/a.py")) == "x = 2\n"


def test_what_lies_outside_is_not_there_whatever_leads_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "secret").write_text("key")
    (folder / "link").symlink_to(tmp_path / "secret")
    look = WorkTree(str(folder))
    assert [look(Look(name)) for name in ("../secret", str(tmp_path / "secret"), "link", "\0", "gone")] == [None] * 5


def test_large_files_folders_and_what_is_no_text_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "large").write_text("x" * (LARGEST_BYTES + 1))
    (tmp_path / "picture").write_bytes(b"\x89PNG\xff")
    (tmp_path / "folder").mkdir()
    look = WorkTree(str(tmp_path))
    assert [look(Look(name)) for name in ("large", "picture", "folder")] == [None] * 3


def test_without_a_folder_there_is_nothing_and_facts_are_not_files(tmp_path: Path) -> None:
    (tmp_path / "plan").write_text("go")
    assert WorkTree("")(Look("/etc/hostname")) is None
    assert WorkTree(str(tmp_path / "gone"))(Look("plan")) is None
    assert WorkTree(str(tmp_path))(Look("plan", "fact")) is None
