"""The scopes of notes."""

import os
import subprocess
from pathlib import Path

import pytest
from pal_runs import Pal

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


def test_notes_are_not_missing_and_go_nowhere_else_while_git_does_not_answer(tmp_path: Path) -> None:
    project, tools, pal = tmp_path / "project", tmp_path / "tools", Pal(tmp_path / "home")
    for folder in (project, tools):
        folder.mkdir()
    git(project, "init", "-q")
    git(project, "commit", "-q", "--allow-empty", "-m", "one")
    add = ("memory", "add", "deploys run on Mondays", "--kind", "project", "--cwd", str(project))
    assert pal(*add).exit_code == 0
    (tools / "git").write_text("#!/bin/sh\nkill -9 $$\n")
    (tools / "git").chmod(0o755)
    stopped = {"PATH": f"{tools}:{os.environ['PATH']}"}
    listed, added = pal("memory", "list", "--cwd", str(project), **stopped), pal(*add, **stopped)
    why = f"pal: {project}: git rev-list failed: it took more than 10 seconds\n"
    assert (listed.exit_code, listed.stdout, listed.stderr) == (added.exit_code, added.stdout, added.stderr) == (2, "", why)
    assert "deploys run on Mondays" in pal("memory", "list", "--cwd", str(project)).stdout
