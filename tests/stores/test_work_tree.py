"""A session sees the text files of its own folder and nothing else."""

from pathlib import Path

from palimpsest.core.policy import Look
from palimpsest.stores.result_files import LARGEST_BYTES, WorkTree


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
