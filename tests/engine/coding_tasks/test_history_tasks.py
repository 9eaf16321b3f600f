"""Tasks on the history of a repository: conflicts, bisection, reverting, picking, rebasing, stashing."""

import re
from pathlib import Path

import pytest
from coding_tasks import bash, do, use
from git_projects import PYTHON, UNITTEST, Project, new_project

from palimpsest.core.items import ToolCall

pytestmark = pytest.mark.machine

LIMITS_TEST = """\
import unittest

import limits


class LimitsTest(unittest.TestCase):
    def test_both_limits_were_raised(self):
        self.assertEqual((limits.FILES, limits.LINES), (200, 5000))
"""


def test_a_merge_conflict_is_resolved_with_the_changes_of_both_sides(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"limits.py": "FILES = 100\nLINES = 2000\n", "test_limits.py": LIMITS_TEST})
    project.git("switch", "-q", "-c", "longer")
    project.commit("Raise the limit of lines", {"limits.py": "FILES = 100\nLINES = 5000\n"})
    project.git("switch", "-q", "main")
    project.commit("Raise the limit of files", {"limits.py": "FILES = 200\nLINES = 2000\n"})
    done = do(
        project,
        "Merge the branch longer",
        bash("git merge longer"),
        use("read", path="limits.py"),
        use("write", path="limits.py", content="FILES = 200\nLINES = 5000\n"),
        bash(f"{UNITTEST} && git add limits.py && git commit -q --no-edit"),
        "Merged.",
        failing=("bash",),
    )
    assert "CONFLICT (content): Merge conflict in limits.py" in done.results[0]
    assert done.results[1].splitlines()[0] == "     1\t<<<<<<< HEAD"
    assert project.tree() == {"limits.py": "FILES = 200\nLINES = 5000\n", "test_limits.py": LIMITS_TEST}
    assert project.git("log", "-1", "--format=%s").startswith("Merge branch 'longer'")
    assert (len(project.git("log", "-1", "--format=%P").split()), project.status(), project.passes()) == (2, [], True)


def regressed(tmp_path: Path) -> tuple[Project, str]:
    """Twelve commits, of which the eighth breaks the addition."""
    project = new_project(tmp_path / "project", {"add.py": "def add(a, b):\n    return a + b\n", "note.txt": "0\n"})
    bad = ""
    for number in range(1, 12):
        broken = {"add.py": "def add(a, b):\n    return a + b if a else 0\n"} if number == 8 else {}
        commit = project.commit(f"Step {number}", {"note.txt": f"{number}\n", **broken})
        bad = commit if number == 8 else bad
    return project, bad


def test_a_regression_is_found_by_git_bisect_run_and_the_bad_commit_is_reverted(tmp_path: Path) -> None:
    project, bad = regressed(tmp_path)
    first = project.git("rev-list", "--max-parents=0", "HEAD")
    check = f"{PYTHON} -c 'from add import add; assert add(0, 2) == 2'"

    def fix(seen: str) -> ToolCall:
        found = re.findall("^([0-9a-f]{40}) is the first bad commit", seen, re.MULTILINE)[0]
        return bash(f"git bisect reset && git show --format= {found} -- add.py && git checkout {found}~1 -- add.py")

    done = do(
        project,
        "add(0, 2) is wrong since some commit; find it and take its change back",
        bash(f"git bisect start HEAD {first}"),
        bash(f"git bisect run {check}"),
        fix,
        bash("git commit -q -m 'Add zero again'"),
        "Step 8 was it.",
    )
    assert f"{bad} is the first bad commit" in done.results[1]
    assert "+    return a + b if a else 0" in done.results[2]
    assert project.tree() == {"add.py": "def add(a, b):\n    return a + b\n", "note.txt": "11\n"}
    assert project.subjects()[:2] == ["Add zero again", "Step 11"]
    assert (project.git("branch", "--show-current"), project.status(), project.passes(check)) == ("main", [], True)


def test_a_commit_is_reverted_and_those_after_it_stay(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"a.txt": "one\n", "b.txt": "one\n"})
    project.commit("Double a", {"a.txt": "one\none\n"})
    project.commit("Double b", {"b.txt": "one\none\n"})
    do(
        project,
        "Take `Double a` back",
        bash("git log --format='%H %s'"),
        lambda seen: bash(f"git revert --no-edit {next(line.split()[0] for line in seen.splitlines() if 'Double a' in line)}"),
        "Reverted.",
    )
    assert project.tree() == {"a.txt": "one\n", "b.txt": "one\none\n"}
    assert project.subjects() == ['Revert "Double a"', "Double b", "Double a", "Start"]
    assert project.passes("test $(wc -l < a.txt) = 1")


def test_a_fix_is_picked_onto_a_release_branch_whose_lines_differ(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"tax.py": "RATE = 7\n\n\ndef tax(price):\n    return price * RATE\n"})
    project.git("branch", "release")
    project.commit("Raise the rate", {"tax.py": "RATE = 8\n\n\ndef tax(price):\n    return price * RATE\n"})
    fix = project.commit("Take the rate in percent", {"tax.py": "RATE = 8\n\n\ndef tax(price):\n    return price * RATE / 100\n"})
    do(
        project,
        f"Bring {fix[:8]} to the release branch",
        bash("git switch -q release"),
        bash(f"git cherry-pick -x {fix}"),
        bash(f"{PYTHON} -c 'from tax import tax; assert tax(200) == 14'"),
        "Picked.",
    )
    expected = {"tax.py": "RATE = 7\n\n\ndef tax(price):\n    return price * RATE / 100\n"}
    assert (project.tree("release"), project.files()) == (expected, expected)
    assert project.subjects("release") == ["Take the rate in percent", "Start"]
    assert project.git("log", "-1", "--format=%b", "release") == f"(cherry picked from commit {fix})"
    assert project.passes(f"{PYTHON} -c 'from tax import tax; assert tax(200) == 14'")


def test_a_branch_is_rebased_and_the_conflict_of_one_commit_is_resolved(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"list.txt": "apples\n", "other.txt": "x\n"})
    project.git("switch", "-q", "-c", "pears")
    project.commit("Add pears", {"list.txt": "apples\npears\n"})
    project.commit("Change the other file", {"other.txt": "y\n"})
    project.git("switch", "-q", "main")
    project.commit("Add plums", {"list.txt": "apples\nplums\n"})
    done = do(
        project,
        "Rebase pears onto main",
        bash("git switch -q pears && git rebase main"),
        use("read", path="list.txt"),
        use("write", path="list.txt", content="apples\nplums\npears\n"),
        bash("git add list.txt && git rebase --continue"),
        "Rebased.",
        failing=("bash",),
    )
    assert "could not apply" in done.results[0]
    assert project.tree("pears") == {"list.txt": "apples\nplums\npears\n", "other.txt": "y\n"}
    assert project.subjects("pears") == ["Change the other file", "Add pears", "Add plums", "Start"]
    assert (project.git("branch", "--show-current"), project.status()) == ("pears", [])
    assert project.passes("test $(sort -u list.txt | wc -l) = 3")


def test_unfinished_work_is_stashed_for_a_quick_fix_and_comes_back(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"app.py": "NAME = 'ap'\n\n\nSIZE = 1\n", "draft.py": "D = 1\n"})
    project.put({"app.py": "NAME = 'ap'\n\n\nSIZE = 2\n", "draft.py": "D = 2\n", "idea.md": "later\n"})
    do(
        project,
        "Fix the name in a commit of its own; my work must stay as it is",
        bash("git stash push -q --include-untracked"),
        use("read", path="app.py"),
        use("edit", path="app.py", old="'ap'", new="'app'"),
        bash("git commit -q -a -m 'Fix the name' && git stash pop"),
        "Fixed; your work is back.",
    )
    assert project.tree() == {"app.py": "NAME = 'app'\n\n\nSIZE = 1\n", "draft.py": "D = 1\n"}
    assert project.files() == {"app.py": "NAME = 'app'\n\n\nSIZE = 2\n", "draft.py": "D = 2\n", "idea.md": "later\n"}
    assert (project.git("stash", "list"), project.subjects()) == ("", ["Fix the name", "Start"])
    assert project.passes(f"{PYTHON} -c 'import app; assert (app.NAME, app.SIZE) == (\"app\", 2)'")


def test_a_file_that_was_deleted_long_ago_is_brought_back_from_history(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"keep.txt": "k\n", "recipe.txt": "flour\nwater\n"})
    project.commit("Clean up", {"recipe.txt": None})
    project.commit("Go on", {"keep.txt": "kept\n"})
    done = do(
        project,
        "Where is recipe.txt? Bring it back.",
        bash("git log --diff-filter=D --format=%H -- recipe.txt"),
        lambda seen: bash(f"git checkout -q {seen.split()[0]}~1 -- recipe.txt"),
        use("read", path="recipe.txt"),
        bash("git commit -q -m 'Bring the recipe back'"),
        "It is back.",
    )
    assert done.results[2] == "     1\tflour\n     2\twater"
    assert project.tree() == {"keep.txt": "kept\n", "recipe.txt": "flour\nwater\n"}
    assert project.subjects() == ["Bring the recipe back", "Go on", "Clean up", "Start"]
    assert project.passes("grep -q water recipe.txt")


def test_one_large_change_becomes_two_commits(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"api.py": "A = 1\n", "docs.md": "A is 1\n"})
    project.put({"api.py": "A = 2\n", "docs.md": "A is 2\n", "test_api.py": "import api\nassert api.A == 2\n"})
    do(
        project,
        "Commit code and documentation separately",
        bash("git status --porcelain"),
        bash("git add api.py test_api.py && git commit -q -m 'Raise A'"),
        bash("git add docs.md && git commit -q -m 'Document A'"),
        "Two commits.",
    )
    assert project.tree("HEAD~1") == {"api.py": "A = 2\n", "docs.md": "A is 1\n", "test_api.py": "import api\nassert api.A == 2\n"}
    assert project.tree() == {"api.py": "A = 2\n", "docs.md": "A is 2\n", "test_api.py": "import api\nassert api.A == 2\n"}
    assert (project.subjects(), project.status()) == (["Document A", "Raise A", "Start"], [])
    assert project.passes(f"{PYTHON} test_api.py")
