"""Tasks in which a turn goes wrong: files and conversation go back together, what the user did stays, and another try succeeds."""

from dataclasses import replace
from pathlib import Path

import pytest
from coding_tasks import AUTO, Coder, bash, use
from families import spawn, wait
from git_projects import UNITTEST, new_project
from team_tasks import do_together, roles_of

from palimpsest.agent.hook_commands import command_hook
from palimpsest.coding.file_undo import FileRewinding, RewindPlan
from palimpsest.core.errors import BadInput
from palimpsest.core.events import HookRan, Rewound, TurnStarted, UserSaid
from palimpsest.core.items import Text, text_of

pytestmark = pytest.mark.machine

BILL = "def total(items):\n    subtotal = sum(items)\n    return subtotal\n"
REPORT = "from bill import total\n\n\ndef report(items):\n    return f'{total(items)} in total'\n"
BILLING = {
    "bill.py": BILL,
    "report.py": REPORT,
    "test_bill.py": """\
import unittest

import bill
from report import report


class BillTest(unittest.TestCase):
    def test_the_amount(self):
        self.assertEqual(bill.amount([1, 2]), 3)

    def test_the_words_stay(self):
        self.assertEqual(report([1, 2]), "3 in total")
""",
}
RENAMED = {
    **BILLING,
    "bill.py": BILL.replace("def total", "def amount"),
    "report.py": "from bill import amount\n\n\ndef report(items):\n    return f'{amount(items)} in total'\n",
}


def last_turn(coder: Coder, session: str) -> int:
    """The event before the newest turn of the path."""
    with coder.home.open(session, write=False) as log:
        return [event.seq for event in log.events() if isinstance(event.body, TurnStarted)][-1] - 1


def rewind(coder: Coder, session: str, to: int | None, *, partial: bool = False) -> RewindPlan:
    """Bring files and conversation to an event, or take the last rewind back, as `pal rewind` does."""
    assert coder.home.folder is not None
    with coder.home.open(session) as log:
        rewinding = FileRewinding(log, coder.home.folder)
        plan = rewinding.plan_undo() if to is None else rewinding.plan(to)
        rewinding.carry_out(plan, partial=partial, why="it went wrong")
    return plan


def prompts(coder: Coder, session: str) -> list[str]:
    """The words of the user that the model sees."""
    with coder.home.open(session, write=False) as log:
        return [text_of(item.content) for item in log.view.items if item.kind == "user"]


def test_a_careless_rename_is_taken_back_with_its_turn_and_the_second_try_is_right(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", BILLING)
    coder = Coder(project)
    wrong = coder.do(
        "Rename total to amount",
        bash("sed -i s/total/amount/g bill.py report.py"),
        bash(UNITTEST),
        "It is renamed, but a test fails.",
        failing=("bash",),
    )
    assert project.files()["report.py"] == REPORT.replace("total", "amount")
    to = last_turn(coder, wrong.session)
    plan = rewind(coder, wrong.session, to)
    assert [file.path for file in plan.files] == ["bill.py", "report.py"]
    assert (project.files(), project.status(), prompts(coder, wrong.session)) == (BILLING, [], [])
    done = coder.do(
        "Rename the function total to amount, and nothing else",
        (use("read", path="bill.py"), use("read", path="report.py")),
        use("edit", path="bill.py", old="def total", new="def amount"),
        (
            use("edit", path="report.py", old="import total", new="import amount"),
            use("edit", path="report.py", old="{total(items)}", new="{amount(items)}"),
        ),
        bash(UNITTEST),
        "The function is called amount.",
        resume=wrong.session,
    )
    assert done.kinds(Rewound) == [Rewound(to, files=True, why="it went wrong")]
    assert prompts(coder, done.session) == ["Rename the function total to amount, and nothing else"]
    assert project.files() == RENAMED
    assert project.passes()


def test_what_the_user_changed_after_the_wrong_turn_survives_its_undo_in_the_same_file_and_in_another(tmp_path: Path) -> None:
    guide = "# Guide\n\nOne.\n\nTwo.\n\nThree.\n"
    start = {"app.py": "LIMIT = 10\n\n\ndef allowed(count):\n    return count <= LIMIT\n", "guide.md": guide}
    project = new_project(tmp_path / "project", start)
    coder = Coder(project)
    wrong = coder.do(
        "Set the limit to 20, in the guide too",
        (use("read", path="app.py"), use("read", path="guide.md")),
        (
            use("edit", path="app.py", old="LIMIT = 10", new="LIMIT = 200"),
            use("edit", path="guide.md", old="One.\n", new="One. The limit is 200.\n"),
        ),
        "The limit is 200.",
    )
    project.put(
        {"guide.md": guide.replace("One.\n", "One. The limit is 200.\n").replace("Three.", "Three, by hand."), "mine.txt": "mine\n"}
    )
    plan = rewind(coder, wrong.session, last_turn(coder, wrong.session))
    assert [file.path for file in plan.files] == ["app.py", "guide.md"]
    by_hand = guide.replace("Three.", "Three, by hand.")
    assert project.files() == {**start, "guide.md": by_hand, "mine.txt": "mine\n"}
    done = coder.do(
        "Set the limit to twenty, in the guide too",
        (use("read", path="app.py"), use("read", path="guide.md")),
        (
            use("edit", path="app.py", old="LIMIT = 10", new="LIMIT = 20"),
            use("edit", path="guide.md", old="One.\n", new="One. The limit is 20.\n"),
        ),
        "The limit is 20.",
        resume=wrong.session,
    )
    assert [body.parts for body in done.bodies if isinstance(body, UserSaid)] == [(Text("Set the limit to twenty, in the guide too"),)]
    assert project.files() == {
        "app.py": start["app.py"].replace("10", "20"),
        "guide.md": by_hand.replace("One.\n", "One. The limit is 20.\n"),
        "mine.txt": "mine\n",
    }
    assert project.passes("grep -q 'LIMIT = 20$' app.py && grep -q 'limit is 20\\.' guide.md && grep -q 'by hand' guide.md")


def test_a_line_that_the_user_mended_by_hand_is_a_conflict_and_the_other_files_go_back_alone(tmp_path: Path) -> None:
    start = {"a.py": "A = 1\n", "b.py": "B = 1\n"}
    project = new_project(tmp_path / "project", start)
    coder = Coder(project)
    wrong = coder.do(
        "Double A and B",
        (use("read", path="a.py"), use("read", path="b.py")),
        (use("edit", path="a.py", old="1", new="11"), use("edit", path="b.py", old="1", new="11")),
        "They are 11.",
    )
    project.put({"a.py": "A = 2\n"})
    to = last_turn(coder, wrong.session)
    with pytest.raises(BadInput, match=r"nothing was changed, because of a\.py; --partial restores the other files"):
        rewind(coder, wrong.session, to)
    assert project.files() == {"a.py": "A = 2\n", "b.py": "B = 11\n"}
    plan = rewind(coder, wrong.session, to, partial=True)
    assert [conflict.path for conflict in plan.conflicts] == ["a.py"]
    assert project.files() == {"a.py": "A = 2\n", "b.py": "B = 1\n"}
    done = coder.do(
        "I have doubled A myself; double B",
        use("read", path="b.py"),
        use("edit", path="b.py", old="1", new="2"),
        "B is 2.",
        resume=wrong.session,
    )
    assert done.kinds(Rewound) == [Rewound(to, files=True, why="it went wrong")]
    assert project.files() == {"a.py": "A = 2\n", "b.py": "B = 2\n"}
    assert project.passes("grep -q 'A = 2' a.py && grep -q 'B = 2' b.py")


def test_the_files_that_two_workers_changed_go_back_with_the_turn_of_their_parent_and_two_others_do_it_right(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", BILLING)
    coder = Coder(project)
    wrong = do_together(
        coder,
        "Let two workers rename total to amount",
        (spawn("Ada", "Rename it in bill.py", role="worker"), spawn("Bob", "Rename it in report.py", role="worker")),
        wait("Ada"),
        wait("Bob"),
        "Both have renamed it.",
        team={
            "Ada": (bash("sed -i s/total/amount/g bill.py"), "bill.py is done."),
            "Bob": (bash("sed -i s/total/amount/g report.py"), use("write", path="TODO", content="run the tests\n"), "report.py is done."),
        },
    )
    assert len(project.status()) == 3
    plan = rewind(coder, wrong.own.session, last_turn(coder, wrong.own.session))
    assert [file.path for file in plan.files] == ["TODO", "bill.py", "report.py"]
    assert (project.files(), project.status()) == (BILLING, [])
    done = do_together(
        coder,
        "Let two workers rename the function total to amount, and nothing else",
        (spawn("Cleo", "Rename it in bill.py", role="worker"), spawn("Dan", "Rename it in report.py", role="worker")),
        wait("Cleo"),
        wait("Dan"),
        bash(UNITTEST),
        "The function is renamed.",
        team={
            "Cleo": (bash("sed -i 's/def total/def amount/' bill.py"), "bill.py is right."),
            "Dan": (bash("sed -i 's/import total/import amount/; s/total(items)/amount(items)/' report.py"), "report.py is right."),
        },
        resume=wrong.own.session,
    )
    # The conversation knows the second two only.
    assert roles_of(done.own) == [("Cleo", "worker", 1), ("Dan", "worker", 1)]
    assert sorted(done.ends) == [("Cleo", "completed", "bill.py is right."), ("Dan", "completed", "report.py is right.")]
    shown = "\n".join(text_of(item.content) for item in done.own.items)
    assert [name for name in ("Ada", "Bob", "Cleo", "Dan") if name in shown] == ["Cleo", "Dan"]
    assert len(done.own.kinds(Rewound)) == 1
    assert project.files() == RENAMED
    assert project.passes()


SORTER = "sort -o names.txt names.txt"


def test_what_a_hook_made_of_the_files_goes_back_with_the_turn_that_it_ran_in(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"names.txt": "Cleo\nAda\n"})
    sorting = command_hook("turn_end", SORTER, cwd=project.root)
    coder = Coder(project, replace(AUTO, hooks=(sorting,)))
    wrong = coder.do("Add Bob behind Ada", bash("echo Bob | tee -a names.txt"), "Bob is behind Ada.")
    assert project.files() == {"names.txt": "Ada\nBob\nCleo\n"}
    assert [(body.hook, body.moment, body.exit) for body in wrong.bodies if isinstance(body, HookRan)] == [("sort", "turn_end", 0)]
    rewind(coder, wrong.session, last_turn(coder, wrong.session))
    assert project.files() == {"names.txt": "Cleo\nAda\n"}
    done = Coder(project).do("Add Bob, the names are not sorted", bash("echo Bob | tee -a names.txt"), "Added.", resume=wrong.session)
    assert (done.kinds(HookRan), len(done.kinds(Rewound))) == ([], 1)
    assert project.files() == {"names.txt": "Cleo\nAda\nBob\n"}
    assert project.passes("test $(wc -l < names.txt) = 3")


def test_notes_that_were_never_committed_come_back_after_a_clean_up_that_went_too_far(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {".gitignore": "*.log\n", "app.py": "print('hi')\n"})
    untracked = {"notes/ideas.md": "an idea\n", "run.sh*": "echo hi\n", "trace.tmp": "t\n"}
    project.put(untracked)
    coder = Coder(project)
    wrong = coder.do("Remove what is temporary", bash("git clean -q -f -d ."), "The folder is clean.")
    assert project.files() == {".gitignore": "*.log\n", "app.py": "print('hi')\n"}
    rewind(coder, wrong.session, last_turn(coder, wrong.session))
    assert project.files() == {".gitignore": "*.log\n", "app.py": "print('hi')\n", **untracked}
    done = coder.do(
        "Remove files that end with .tmp only",
        use("glob", pattern="**/*.tmp"),
        lambda seen: bash(f"rm {seen.split()[0]}"),
        "trace.tmp is gone.",
        resume=wrong.session,
    )
    assert len(done.kinds(Rewound)) == 1
    assert project.files() == {
        ".gitignore": "*.log\n",
        "app.py": "print('hi')\n",
        "notes/ideas.md": "an idea\n",
        "run.sh*": "echo hi\n",
    }
    assert project.passes("test -x run.sh && test ! -e trace.tmp")


def test_a_user_who_went_back_too_far_takes_the_rewind_back_and_the_task_goes_on_from_there(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", BILLING)
    coder = Coder(project)
    first = coder.do(
        "Rename total to amount in bill.py",
        use("read", path="bill.py"),
        use("edit", path="bill.py", old="def total", new="def amount"),
        "bill.py is done.",
    )
    before = project.files()
    rewind(coder, first.session, last_turn(coder, first.session))
    assert (project.files(), prompts(coder, first.session)) == (BILLING, [])
    rewind(coder, first.session, None)
    assert (project.files(), prompts(coder, first.session)) == (before, ["Rename total to amount in bill.py"])
    done = coder.do(
        "Now report.py",
        use("read", path="report.py"),
        (
            use("edit", path="report.py", old="import total", new="import amount"),
            use("edit", path="report.py", old="{total(items)}", new="{amount(items)}"),
        ),
        bash(UNITTEST),
        "report.py is done as well.",
        resume=first.session,
    )
    assert prompts(coder, done.session) == ["Rename total to amount in bill.py", "Now report.py"]
    assert [body.files for body in done.bodies if isinstance(body, Rewound)] == [True]
    assert project.files() == RENAMED
    assert project.passes()
