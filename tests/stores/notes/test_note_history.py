"""The git history of a folder of notes."""

import os
import subprocess
from pathlib import Path

import pytest

from palimpsest.memory.history import NoteHistory

pytestmark = pytest.mark.machine


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True, errors="replace").stdout


def folder_with_a_note(path: Path) -> Path:
    (path / "notes").mkdir(parents=True)
    (path / "quarantine").mkdir()
    (path / "notes" / "user_a.md").write_text("tabs\n")
    (path / "quarantine" / "project_b.md").write_text("held\n")
    for local in (".key", "memory.jsonl", "memory.checkpoint", "index.sqlite", "tombstones.jsonl"):
        (path / local).write_text("local\n")
    return path


def test_each_change_is_a_commit_of_the_notes_alone_with_a_fixed_author(tmp_path: Path) -> None:
    folder = folder_with_a_note(tmp_path / "memory")
    history = NoteHistory(folder)
    history.commit("saved user_a by extract: added\nin two lines")
    (folder / "notes" / "user_a.md").write_text("spaces\n")
    history.commit("saved user_a by user")
    assert history.problem == ""
    assert git(folder, "log", "--format=%an <%ae> %s").splitlines() == [
        "palimpsest <notes@palimpsest.invalid> saved user_a by user",
        "palimpsest <notes@palimpsest.invalid> saved user_a by extract: added in two lines",
    ]
    assert git(folder, "ls-files").splitlines() == ["notes/user_a.md"]
    assert git(folder, "show", "HEAD~1:notes/user_a.md") == "tabs\n"


def test_hooks_and_settings_of_the_user_have_no_part_in_it(tmp_path: Path) -> None:
    folder = folder_with_a_note(tmp_path / "memory")
    history = NoteHistory(folder)
    history.commit("one")
    hook = folder / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    hook.chmod(0o755)
    history.commit("two")
    assert (history.problem, (tmp_path / "ran").exists()) == ("", False)
    assert git(folder, "log", "--format=%s").splitlines() == ["two", "one"]


@pytest.mark.states("ME-09")
def test_a_restart_leaves_one_commit_and_no_object_of_what_was_there_before(tmp_path: Path) -> None:
    folder = folder_with_a_note(tmp_path / "memory")
    history = NoteHistory(folder)
    history.commit("saved user_a")
    (folder / "notes" / "user_a.md").unlink()
    (folder / "notes" / "user_b.md").write_text("tea\n")
    history.commit("saved user_b")
    history.restart("a note was forgotten")
    assert git(folder, "log", "--format=%s").splitlines() == ["a note was forgotten"]
    objects = git(folder, "cat-file", "--batch", "--batch-all-objects", "--unordered")
    assert ("tabs" in objects, "user_a" in objects, "tea" in objects) == (False, False, True)


def test_without_git_there_is_no_history_and_it_is_said(tmp_path: Path) -> None:
    folder = folder_with_a_note(tmp_path / "memory")
    history = NoteHistory(folder, search_path=str(tmp_path))
    history.commit("one")
    assert history.problem == "there is no git, so the notes have no history"
    assert not (folder / ".git").exists()


def test_a_git_that_fails_is_a_problem_and_no_error(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    program.chmod(0o755)
    history = NoteHistory(folder_with_a_note(tmp_path / "memory"), search_path=str(program.parent))
    history.commit("one")
    assert history.problem.endswith("git init failed: broken")


def test_a_link_in_place_of_the_repository_is_not_followed(tmp_path: Path) -> None:
    folder = folder_with_a_note(tmp_path / "memory")
    (tmp_path / "elsewhere").mkdir()
    (folder / ".git").symlink_to(tmp_path / "elsewhere")
    history = NoteHistory(folder)
    history.commit("one")
    history.restart("two")
    assert history.problem.endswith("is not a folder, so the notes have no history")
    assert os.listdir(tmp_path / "elsewhere") == []  # noqa: PTH208 - names are compared


def test_the_lock_of_a_killed_process_does_not_end_the_history(tmp_path: Path) -> None:
    folder = folder_with_a_note(tmp_path / "memory")
    history = NoteHistory(folder)
    history.commit("one")
    (folder / ".git" / "index.lock").touch()
    history.commit("held by a process that runs")
    assert "index.lock" in history.problem
    os.utime(folder / ".git" / "index.lock", (0, 0))
    history.commit("two")
    assert (history.problem, git(folder, "log", "--format=%s").splitlines()) == ("", ["two", "one"])


def test_what_is_wrong_with_a_history_is_found_without_writing(tmp_path: Path) -> None:
    folder = folder_with_a_note(tmp_path / "memory")
    history = NoteHistory(folder)
    assert NoteHistory(tmp_path / "none").found_problem() == ""
    assert history.found_problem() == "no change is in the history yet"
    assert not (folder / ".git").exists()
    history.commit("one")
    assert history.found_problem() == ""
    (folder / "notes" / "user_b.md").write_text("by hand")
    (folder / "SUMMARY.md").write_text("generated")
    before = git(folder, "log", "--format=%H")
    assert history.found_problem() == "1 changed notes are in no commit yet"
    assert git(folder, "log", "--format=%H") == before
    assert NoteHistory(folder, search_path=str(tmp_path)).found_problem() == "there is no git, so the notes have no history"
