"""The lines of a patch by file, as git wrote it."""

from pathlib import Path

import pytest
from git_projects import Project

from pal.terminal.painting import DiffLine, patch_files

pytestmark = pytest.mark.machine


def patch_of(folder: Path, before: dict[str, bytes], after: dict[str, bytes]) -> str:
    """What git says about the difference of two states of some files."""

    git = Project(folder).git
    git("init", "-q")
    for name, data in before.items():
        (folder / name).write_bytes(data)
    git("add", "-A")
    git("commit", "-qm", "before", "--allow-empty")
    for name in before:
        (folder / name).unlink()
    for name, data in after.items():
        (folder / name).write_bytes(data)
    git("add", "-A")
    return git("diff", "--cached", "--no-renames")


def test_changed_created_deleted_and_binary_files_have_their_lines_with_numbers(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(1, 31)]
    changed = [*lines[:2], "three", *lines[3:27], "-- a comment", *lines[28:]]
    before = {"a b.txt": "\n".join(lines).encode() + b"\n", "gone.txt": b"one\ntwo", "picture": b"\0\1"}
    after = {"a b.txt": "\n".join(changed).encode() + b"\n", "new.txt": b"form\x0cfeed\n", "picture": b"\0\2"}
    found = patch_files(patch_of(tmp_path, before, after))
    assert {path: len(lines) for path, lines in found.items()} == {"a b.txt": 15, "gone.txt": 2, "new.txt": 1, "picture": 0}
    assert found["gone.txt"] == (DiffLine("removed", "one", 1), DiffLine("removed", "two", 2))
    assert found["new.txt"] == (DiffLine("added", "form\x0cfeed", 1),)
    assert [line for line in found["a b.txt"] if line.kind != "same"] == [
        DiffLine("removed", "line 3", 3),
        DiffLine("added", "three", 3),
        DiffLine("gap"),
        DiffLine("removed", "line 28", 28),
        DiffLine("added", "-- a comment", 28),
    ]
    assert found["a b.txt"][-1] == DiffLine("same", "line 30", 30)
    assert patch_files("") == {}
