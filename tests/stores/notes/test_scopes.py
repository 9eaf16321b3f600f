"""The scopes of notes."""

import subprocess
from pathlib import Path

import pytest

from palimpsest.memory.store import project_scope

pytestmark = pytest.mark.machine


def git(folder: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgSign=false", *words],
        check=True,
        capture_output=True,
    )


@pytest.mark.states("ME-17")
def test_two_work_trees_of_one_repository_share_a_scope_and_other_projects_do_not(tmp_path: Path) -> None:
    main, other, plain = tmp_path / "main", tmp_path / "other", tmp_path / "plain"
    for folder, message in ((main, "one"), (other, "two")):
        folder.mkdir()
        git(folder, "init", "-q")
        git(folder, "commit", "-q", "--allow-empty", "-m", message)
    plain.mkdir()
    git(main, "worktree", "add", "-q", str(tmp_path / "tree"))
    git(main, "commit", "-q", "--allow-empty", "-m", "later")
    scopes = [project_scope(folder) for folder in (main, tmp_path / "tree", other, plain)]
    assert scopes[0] == scopes[1]
    assert len(set(scopes)) == 3
    assert all(scope.startswith("project-") and len(scope) == 20 for scope in scopes)
