"""The notes of a project folder: which notebooks there are, where new notes go, and which of them a name means."""

import subprocess
from pathlib import Path

import pytest

from palimpsest.core.errors import BadInput
from palimpsest.memory.changes import AcceptedChange
from palimpsest.memory.note import KINDS, Note
from palimpsest.memory.notebook import Memories, memories_of
from palimpsest.stores.home import Home

pytestmark = pytest.mark.machine

NOTE = Note(
    name="project_tests",
    kind="project",
    about="tests run with make",
    backstory="said on the first day",
    when="2026-05-04T10:00:00Z",
    evidence=("s1:4",),
    trust="stated",
    body="Tests run with make.\n",
)


def memories(home: Path, root: Path) -> Memories:
    found = memories_of(Home.at(home), root)
    assert found is not None
    return found


def git(root: Path, *words: str) -> None:
    command = ("git", "-C", str(root), "-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgSign=false", *words)
    subprocess.run(command, check=True, capture_output=True)


def test_a_home_in_memory_keeps_no_notes(tmp_path: Path) -> None:
    assert memories_of(Home.in_memory(), tmp_path) is None


def test_a_project_without_a_team_folder_has_notes_of_the_user_and_its_own(tmp_path: Path) -> None:
    found = memories(tmp_path / "home", tmp_path)
    assert [each.scope for each in found.notebooks] == ["user", found.project.scope]


def test_a_team_folder_is_a_third_notebook(tmp_path: Path) -> None:
    (tmp_path / ".palimpsest" / "memory").mkdir(parents=True)
    found = memories(tmp_path / "home", tmp_path)
    assert [each.scope for each in found.notebooks] == ["user", found.project.scope, "team"]


def test_a_linked_team_folder_is_none(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".palimpsest").mkdir()
    (tmp_path / ".palimpsest" / "memory").symlink_to(tmp_path / "elsewhere")
    assert memories(tmp_path / "home", tmp_path).team is None


def test_only_what_is_about_the_user_goes_to_all_projects(tmp_path: Path) -> None:
    found = memories(tmp_path / "home", tmp_path)
    assert [found.place_of(kind) is found.user for kind in KINDS] == [True, False, False, False]


def test_a_name_finds_its_note_and_its_notebook(tmp_path: Path) -> None:
    found = memories(tmp_path / "home", tmp_path)
    found.project.apply(AcceptedChange((NOTE,)), "user")
    notebook, note = found.find("project_tests")
    assert (notebook, note.about) == (found.project, "tests run with make")


def test_an_unknown_name_and_an_unknown_scope_are_refused(tmp_path: Path) -> None:
    found = memories(tmp_path / "home", tmp_path)
    with pytest.raises(BadInput, match="there is no note 'project_other'"):
        found.find("project_other")
    with pytest.raises(BadInput, match="a team has notes if the project has a folder"):
        found.of_scope("team")


def test_two_work_trees_share_their_notes_and_another_repository_does_not(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for root, text in ((one, "1"), (other, "2")):
        root.mkdir()
        git(root, "init", "-q")
        git(root, "commit", "-q", "--allow-empty", "-m", text)
    git(one, "worktree", "add", "-q", str(tmp_path / "tree"))
    home = tmp_path / "home"
    memories(home, one).project.apply(AcceptedChange((NOTE,)), "user")
    names = {root: [note.name for _, note in memories(home, tmp_path / root).active()] for root in ("one", "tree", "other")}
    assert names == {"one": ["project_tests"], "tree": ["project_tests"], "other": []}
