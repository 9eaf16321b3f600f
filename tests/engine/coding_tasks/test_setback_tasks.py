"""Tasks in which something is refused or fails first, and the model finds another way."""

from dataclasses import replace
from pathlib import Path

import pytest
from coding_tasks import AUTO, Coder, bash, do, use
from git_projects import PYTHON, new_project

from palimpsest.agent.decision import Approval
from palimpsest.core.events import PermissionAsked, ToolRefused
from palimpsest.core.items import ToolCall

pytestmark = pytest.mark.machine


def test_an_edit_of_a_file_that_a_command_changed_is_refused_until_it_is_read_again(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"names.txt": "ada\ngrace\n"})
    done = do(
        project,
        "Write the names in capitals and add Alan",
        use("read", path="names.txt"),
        bash(r"printf 'ADA\nGRACE\n' | tee names.txt"),
        use("edit", path="names.txt", old="grace\n", new="grace\nalan\n"),
        use("read", path="names.txt"),
        use("edit", path="names.txt", old="GRACE\n", new="GRACE\nALAN\n"),
        "Done.",
        failing=("edit",),
    )
    assert done.results[2:4] == [
        "names.txt has changed since it was read; read it again before changing it",
        "     1\tADA\n     2\tGRACE",
    ]
    assert project.files() == {"names.txt": "ADA\nGRACE\nALAN\n"}
    assert project.passes("test $(wc -l < names.txt) = 3")


def test_a_patch_of_which_one_part_does_not_fit_changes_nothing_and_is_corrected(tmp_path: Path) -> None:
    start = {"a.py": "A = 1\n", "b.py": "B = 1\nC = 1\n"}
    project = new_project(tmp_path / "project", start)
    before: list[dict[str, str]] = []

    def patch(old: str) -> str:
        return (
            f"*** Begin Patch\n*** Update File: a.py\n@@\n-A = 1\n+A = 2\n*** Update File: b.py\n@@\n-{old}\n+B = 2\n C = 1\n*** End Patch"
        )

    def look_and_read(_: str) -> ToolCall:
        before.append(project.files())
        return use("read", path="b.py")

    done = do(
        project,
        "Raise A and B",
        (use("read", path="a.py"), use("read", path="b.py")),
        use("apply_patch", patch=patch("B = 0")),
        look_and_read,
        use("apply_patch", patch=patch("B = 1")),
        "Raised.",
        failing=("apply_patch",),
    )
    assert done.results[2] == "a hunk does not fit b.py: 'B = 0' was not found; read the file again"
    assert before == [start]
    assert project.files() == {"a.py": "A = 2\n", "b.py": "B = 2\nC = 1\n"}
    assert project.passes(f"{PYTHON} -c 'import a, b; assert a.A == b.B == 2'")


def test_a_text_that_occurs_twice_is_made_unique_by_the_lines_around_it(tmp_path: Path) -> None:
    source = "def low():\n    return 0\n\n\ndef high():\n    return 0\n"
    project = new_project(tmp_path / "project", {"levels.py": source})
    done = do(
        project,
        "high should return 9",
        use("read", path="levels.py"),
        use("edit", path="levels.py", old="    return 0\n", new="    return 9\n"),
        use("edit", path="levels.py", old="def high():\n    return 0\n", new="def high():\n    return 9\n"),
        "Changed.",
        failing=("edit",),
    )
    assert done.results[1] == "`old` occurs 2 times in levels.py; add lines around it until it is unique, or set `all`"
    assert project.files() == {"levels.py": "def low():\n    return 0\n\n\ndef high():\n    return 9\n"}
    assert project.passes(f"{PYTHON} -c 'import levels; assert (levels.low(), levels.high()) == (0, 9)'")


def test_a_command_that_a_rule_denies_is_not_run_and_the_work_is_done_another_way(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"keep.txt": "keep\n", "old.txt": "old\n"})
    done = Coder(project, replace(AUTO, deny=("bash(rm:*)",))).do(
        "Remove old.txt",
        bash("rm old.txt"),
        bash("cd . && /bin/rm -f old.txt"),
        use("read", path="old.txt"),
        use("apply_patch", patch="*** Begin Patch\n*** Delete File: old.txt\n*** End Patch"),
        "Removed by a patch.",
        failing=("bash", "bash"),
    )
    assert done.results[0] == "This call was not run: the rule `deny bash(rm:*)` denies this command"
    assert [(body.tool, body.by) for body in done.bodies if isinstance(body, ToolRefused)] == [("bash", "rule deny bash(rm:*)")] * 2
    assert project.files() == {"keep.txt": "keep\n"}
    assert project.status() == [" D old.txt"]
    assert project.passes("test ! -e old.txt")


def test_a_user_who_is_asked_refuses_one_file_and_allows_another(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {".envrc": "export A=1\n", "settings.sh": "A=1\n"})
    asked: list[str] = []

    async def answer(question: PermissionAsked) -> Approval:
        asked.append(question.question)
        return Approval("no", why="the user keeps .envrc by hand") if ".envrc" in question.question else Approval("once")

    done = Coder(project, replace(AUTO, mode="ask"), answer).do(
        "Set A to 2",
        (use("read", path=".envrc"), use("read", path="settings.sh")),
        use("edit", path=".envrc", old="A=1", new="A=2"),
        use("edit", path="settings.sh", old="A=1", new="A=2"),
        "Changed settings.sh; .envrc is yours.",
        failing=("edit",),
    )
    assert asked == ["edit .envrc? (other programs run or obey .envrc)", "edit settings.sh?"]
    assert done.results[2] == "This call was not run: the user keeps .envrc by hand"
    assert project.files() == {".envrc": "export A=1\n", "settings.sh": "A=2\n"}
    assert project.passes("grep -q A=2 settings.sh")


def test_a_command_that_takes_too_long_is_ended_and_a_narrower_one_does_the_work(tmp_path: Path) -> None:
    forever = "import time\n\n\ndef test():\n    while True:\n        time.sleep(0.1)\n\n\ntest()\n"
    project = new_project(tmp_path / "project", {"fast.py": "assert 1 + 1 == 3\n", "slow.py": forever})
    done = do(
        project,
        "Run the tests and fix what fails",
        bash(f"{PYTHON} slow.py; {PYTHON} fast.py", timeout=1),
        bash(f"{PYTHON} fast.py"),
        use("read", path="fast.py"),
        use("edit", path="fast.py", old="== 3", new="== 2"),
        bash(f"{PYTHON} fast.py"),
        "fast.py is fixed; slow.py never ends.",
        failing=("bash", "bash"),
    )
    assert (done.results[0], done.returned[0].exit) == ("[ended after 1 s: the time limit]", 124)
    assert project.files() == {"fast.py": "assert 1 + 1 == 2\n", "slow.py": forever}
    assert project.passes(f"{PYTHON} fast.py")


def test_calls_with_wrong_arguments_and_unknown_tools_are_answered_and_corrected(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"a.txt": "a\n"})
    done = do(
        project,
        "Put a b into b.txt",
        (use("create_file", path="b.txt"), use("write", path="b.txt"), use("write", path="../b.txt", content="b\n")),
        use("write", path="b.txt", content="b\n"),
        "Created.",
        failing=("create_file", "write", "write"),
    )
    assert done.results[0].startswith("There is no tool 'create_file'. The tools are: apply_patch, bash, bash_output, ")
    assert done.results[1] == (
        "The arguments of write are not valid: Object missing required field `content`. Call it again with arguments that match its schema."
    )
    assert done.results[2].startswith("This call was not run: the path leads out of the project folder ")
    assert done.results[3] == "Created b.txt (1 lines)"
    assert project.files() == {"a.txt": "a\n", "b.txt": "b\n"}
    assert not (tmp_path / "b.txt").exists()
    assert project.passes("grep -q b b.txt")
