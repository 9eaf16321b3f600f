"""Tasks in which commands of the user run at moments of the session: they format, protect, test and tell the model what to know."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from coding_tasks import AUTO, Coder, FromMessage, TaskRun, bash, use
from families import spawn, wait
from git_projects import PYTHON, UNITTEST, Project, new_project
from team_tasks import do_together

from palimpsest.agent.hook_commands import command_hook, configured_hooks
from palimpsest.agent.hooks import Hook
from palimpsest.core.events import HookMoment, HookRan, ToolRefused, TurnEnded
from palimpsest.core.items import text_of
from palimpsest.stores.project import project_hooks, trust_of

pytestmark = pytest.mark.machine

FORMATTER = """\
import json, pathlib, sys

path = pathlib.Path(json.load(sys.stdin)["arguments"]["path"])
before = path.read_text()
after = "".join(line.rstrip() + "\\n" for line in before.splitlines())
if after != before:
    path.write_text(after)
    print(json.dumps({"context": f"{path} was formatted; read it again before you edit it"}))
"""


def hook(project: Project, moment: HookMoment, script: str, name: str, tool: str = "*") -> Hook:
    """A hook that runs a Python script, which lies beside the project."""
    path = project.root.parent / f"{name}.py"
    path.write_text(script)
    return command_hook(moment, f"{PYTHON} {path}", cwd=project.root, name=name, tool=tool)


def hooked(project: Project, *hooks: Hook) -> Coder:
    """A coding agent with hooks of the user."""
    return Coder(project, replace(AUTO, hooks=hooks))


def runs(done: TaskRun) -> list[tuple[str, str, bool, str]]:
    """Name, moment, whether it blocked, and text of each run of a hook; all of them succeeded."""
    found = [body for body in done.bodies if isinstance(body, HookRan)]
    assert [body.failure for body in found] == [""] * len(found)
    return [(body.hook, body.moment, body.blocked, body.text) for body in found]


STACK = "class Stack:\n    def __init__(self):\n        self.items = []\n"
STACK_TEST = """\
import pathlib
import unittest

from stack import Stack


class StackTest(unittest.TestCase):
    def test_the_last_item_comes_first(self):
        stack = Stack()
        stack.push(1)
        stack.push(2)
        self.assertEqual([stack.pop(), stack.pop()], [2, 1])

    def test_no_line_ends_with_a_space(self):
        lines = pathlib.Path("stack.py").read_text().splitlines()
        self.assertEqual([line for line in lines if line != line.rstrip()], [])
"""


def test_a_formatter_changes_the_edited_file_and_the_model_reads_it_again_before_the_next_edit(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"stack.py": STACK, "test_stack.py": STACK_TEST})
    push = "\n    def push(self, item):\n        self.items.append(item)\n"
    pop = "\n    def pop(self):\n        return self.items.pop()\n"
    done = hooked(project, hook(project, "after_tool", FORMATTER, "format", "edit")).do(
        "Stacks need push and pop",
        use("read", path="stack.py"),
        use("edit", path="stack.py", old="= []\n", new=f"= []   \n{push}"),
        lambda seen: use("read", path="stack.py") if '<hook name="format">\nstack.py was formatted' in seen else "Nothing was formatted.",
        use("edit", path="stack.py", old="append(item)\n", new=f"append(item)\n{pop}"),
        bash(UNITTEST),
        "Stacks have both.",
    )
    assert runs(done) == [
        ("format", "after_tool", False, "stack.py was formatted; read it again before you edit it"),
        ("format", "after_tool", False, ""),
    ]
    assert project.files() == {"stack.py": STACK + push + pop, "test_stack.py": STACK_TEST}
    assert project.passes()


MAKE = """\
import pathlib

lines = pathlib.Path("colors.txt").read_text().split()
pathlib.Path("generated").mkdir(exist_ok=True)
pathlib.Path("generated/colors.py").write_text("".join(f"{line.split('=')[0].upper()} = {line.split('=')[1]!r}\\n" for line in lines))
"""
COLORS = {
    "colors.txt": "red=#f00\n",
    "generated/colors.py": "RED = '#f00'\n",
    "make_colors.py": MAKE,
    "test_colors.py": """\
import unittest

from generated import colors


class ColorsTest(unittest.TestCase):
    def test_there_is_a_green(self):
        self.assertEqual((colors.RED, colors.GREEN), ("#f00", "#0f0"))
""",
}
PROTECTOR = """\
import json, sys

path = json.load(sys.stdin)["arguments"]["path"]
if path.startswith("generated/"):
    print(f"{path} is generated: change colors.txt and run make_colors.py", file=sys.stderr)
    sys.exit(2)
"""
GENERATED = "generated/colors.py is generated: change colors.txt and run make_colors.py"


def test_an_edit_of_a_generated_file_is_blocked_and_the_model_changes_its_source_instead(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", COLORS)
    done = hooked(project, hook(project, "before_tool", PROTECTOR, "protect", "edit")).do(
        "Add a green",
        use("read", path="generated/colors.py"),
        use("edit", path="generated/colors.py", old="RED", new="GREEN = '#0f0'\nRED"),
        lambda seen: use("read", path="colors.txt") if GENERATED in seen else "It was not blocked.",
        use("edit", path="colors.txt", old="red=#f00\n", new="red=#f00\ngreen=#0f0\n"),
        bash(f"{PYTHON} make_colors.py && {UNITTEST}"),
        "Green is generated.",
        failing=("edit",),
    )
    assert runs(done) == [("protect", "before_tool", True, GENERATED), ("protect", "before_tool", False, "")]
    assert [(body.tool, body.by, body.why) for body in done.bodies if isinstance(body, ToolRefused)] == [
        ("edit", "hook protect", GENERATED)
    ]
    assert project.files() == {**COLORS, "colors.txt": "red=#f00\ngreen=#0f0\n", "generated/colors.py": "RED = '#f00'\nGREEN = '#0f0'\n"}
    assert project.passes()


def test_a_hook_of_the_user_holds_for_the_edits_of_a_worker_too(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", COLORS)
    done = do_together(
        hooked(project, hook(project, "before_tool", PROTECTOR, "protect", "edit")),
        "Let a worker add a green",
        spawn("Ada", "Add GREEN = '#0f0' to generated/colors.py", role="worker"),
        wait("Ada"),
        bash(UNITTEST),
        "Green is there.",
        team={
            "Ada": (
                (use("read", path="generated/colors.py"), use("read", path="colors.txt")),
                use("edit", path="generated/colors.py", old="RED", new="GREEN = '#0f0'\nRED"),
                use("edit", path="colors.txt", old="red=#f00\n", new="red=#f00\ngreen=#0f0\n"),
                bash(f"{PYTHON} make_colors.py"),
                "generated/colors.py is generated, so I changed colors.txt.",
            )
        },
        failing={"Ada": ("edit",)},
    )
    assert done.ends == [("Ada", "completed", "generated/colors.py is generated, so I changed colors.txt.")]
    assert runs(done.members["Ada"]) == [("protect", "before_tool", True, GENERATED), ("protect", "before_tool", False, "")]
    assert project.files() == {**COLORS, "colors.txt": "red=#f00\ngreen=#0f0\n", "generated/colors.py": "RED = '#f00'\nGREEN = '#0f0'\n"}
    assert project.passes()


NO_PUSH = """\
import json, shlex, sys

if "push" in shlex.split(json.load(sys.stdin)["arguments"]["command"]):
    print("nothing is pushed to main; put the change on a branch called review/...", file=sys.stderr)
    sys.exit(2)
"""


def test_a_push_is_blocked_and_the_change_is_left_on_a_branch_for_review(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"limits.py": "LIMIT = 10\n"})
    project.git("clone", "-q", "--bare", ".", "../remote.git")
    project.git("remote", "add", "origin", "../remote.git")
    done = hooked(project, hook(project, "before_tool", NO_PUSH, "no-push", "bash")).do(
        "Double the limit and push it",
        use("read", path="limits.py"),
        use("edit", path="limits.py", old="10", new="20"),
        bash("git commit -q -a -m 'Double the limit' && git push origin main"),
        lambda seen: (
            bash("git checkout -q -b review/limit && git commit -q -a -m 'Double the limit' && git checkout -q main")
            if "put the change on a branch called review/" in seen
            else "It is pushed."
        ),
        "It is on review/limit, for you to look at.",
        failing=("bash",),
    )
    assert [(name, blocked) for name, _, blocked, _ in runs(done)] == [("no-push", True), ("no-push", False)]
    assert (project.tree("main"), project.tree("review/limit")) == ({"limits.py": "LIMIT = 10\n"}, {"limits.py": "LIMIT = 20\n"})
    remote = Project(tmp_path / "remote.git")
    assert (remote.git("branch", "--format=%(refname:short)"), remote.subjects("main")) == ("main", ["Start"])
    assert (project.status(), project.subjects("main..review/limit")) == ([], ["Double the limit"])
    assert project.passes(f"{PYTHON} -c 'import limits; assert limits.LIMIT == 10'")


ROMAN = "def roman(number):\n    return 'I' * number\n"
ROMAN_TEST = """\
import unittest

from roman import roman


class RomanTest(unittest.TestCase):
    def test_ones(self):
        self.assertEqual(roman(3), "III")

    def test_fives(self):
        self.assertEqual(roman(6), "VI")

    def test_fours(self):
        self.assertEqual(roman(4), "IV")
"""
RUN_TESTS = f"""\
import json, re, subprocess, sys

done = subprocess.run({UNITTEST!r}, shell=True, capture_output=True, text=True)
failing = re.findall(r"(?:FAIL|ERROR): (\\w+)", done.stderr)
print(json.dumps({{"block": "these tests fail: " + ", ".join(failing)}} if done.returncode else {{"notice": "all tests pass"}}))
"""


def test_a_turn_does_not_end_before_the_tests_are_green(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"roman.py": ROMAN, "test_roman.py": ROMAN_TEST})
    fives = "    return 'V' * (number // 5) + 'I' * (number % 5)\n"
    fours = "    return ('V' * (number // 5) + 'I' * (number % 5)).replace('IIII', 'IV')\n"
    done = hooked(project, hook(project, "turn_end", RUN_TESTS, "tests")).do(
        "Finish roman.py",
        use("read", path="roman.py"),
        "It looks fine to me.",
        FromMessage(
            lambda text: (
                use("edit", path="roman.py", old=ROMAN.splitlines(keepends=True)[1], new=fives) if "test_fives" in text else "No idea."
            )
        ),
        "Now it is finished.",
        FromMessage(
            lambda text: (
                use("edit", path="roman.py", old=fives, new=fours) if "test_fours" in text and "test_fives" not in text else "No idea."
            )
        ),
        "Fours and fives are right.",
    )
    assert runs(done) == [
        ("tests", "turn_end", True, "these tests fail: test_fives, test_fours"),
        ("tests", "turn_end", True, "these tests fail: test_fours"),
        ("tests", "turn_end", False, ""),
    ]
    assert [body.notice for body in done.bodies if isinstance(body, HookRan)] == ["", "", "all tests pass"]
    assert done.kinds(TurnEnded) == [TurnEnded("done")]
    assert project.files() == {"roman.py": "def roman(number):\n" + fours, "test_roman.py": ROMAN_TEST}
    assert project.passes()


TICKETS = """\
import json, pathlib, re, sys

folder = pathlib.Path(sys.argv[0]).parent / "tickets"
for number in re.findall(r"T-\\d+", json.load(sys.stdin)["prompt"]):
    print(f"{number}: {(folder / number).read_text()}")
"""
TRIAL_TEST = """\
import unittest

from trial import DAYS


class TrialTest(unittest.TestCase):
    def test_the_trial_has_whole_weeks(self):
        self.assertEqual(DAYS % 7, 0)
"""


def test_the_text_of_a_ticket_is_added_to_the_prompt_that_names_it(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"test_trial.py": TRIAL_TEST, "trial.py": "DAYS = 10\n"})
    (tmp_path / "tickets").mkdir()
    (tmp_path / "tickets/T-17").write_text("The trial should last 14 days.")
    (tmp_path / "tickets/T-18").write_text("The trial should last 700 days.")
    done = hooked(project, hook(project, "user_prompt", TICKETS, "tickets")).do(
        "Do T-17",
        FromMessage(lambda text: bash(f"sed -i 's/10/{re.findall('T-17: The trial should last ([0-9]+) days', text)[0]}/' trial.py")),
        bash(UNITTEST),
        "The trial lasts 14 days.",
    )
    assert runs(done) == [("tickets", "user_prompt", False, "T-17: The trial should last 14 days.")]
    stated = [text_of(item.content) for item in done.items if item.source == "hook:tickets"]
    assert stated == ["<system-reminder>\nThe hook tickets (user_prompt) says:\nT-17: The trial should last 14 days.\n</system-reminder>"]
    assert project.files() == {"test_trial.py": TRIAL_TEST, "trial.py": "DAYS = 14\n"}
    assert project.passes()


BRANCH_RULES = """\
import json, subprocess, sys

branch = subprocess.run(["git", "branch", "--show-current"], capture_output=True, text=True).stdout.strip()
print(f"On {branch} each changelog line begins with [{branch.split('/')[-1]}].")
"""
WORKLOG = """\
import json, pathlib, sys

call = json.load(sys.stdin)
with (pathlib.Path(sys.argv[0]).parent / "worklog").open("a") as file:
    print(call["stop"], file=file)
"""


def test_a_session_starts_with_the_rules_of_its_branch_and_a_resumed_one_with_those_of_the_next(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"CHANGES": "Changes:\n"})
    project.git("checkout", "-q", "-b", "work/parser")
    coder = hooked(project, hook(project, "session_start", BRANCH_RULES, "rules"), hook(project, "session_end", WORKLOG, "worklog"))

    def prefix(text: str) -> str:
        return text.rpartition("begins with ")[2].partition(".")[0]

    first = coder.do(
        "Note the faster parser",
        FromMessage(lambda text: bash(f"echo '{prefix(text)} Faster' | tee -a CHANGES")),
        "Noted.",
    )
    project.git("commit", "-q", "-a", "-m", "Note it")
    project.git("checkout", "-q", "-b", "work/writer")
    done = coder.do(
        "And the faster writer",
        FromMessage(lambda text: bash(f"echo '{prefix(text)} Faster' | tee -a CHANGES")),
        "Noted, too.",
        resume=first.session,
    )
    rules = ("On work/parser each changelog line begins with [parser].", "On work/writer each changelog line begins with [writer].")
    assert runs(done) == [
        ("rules", "session_start", False, rules[0]),
        ("worklog", "session_end", False, ""),
        ("rules", "session_start", False, rules[1]),
        ("worklog", "session_end", False, ""),
    ]
    assert [prefix(text_of(item.content)) for item in done.items if item.source == "hook:rules"] == ["[parser]", "[writer]"]
    assert (tmp_path / "worklog").read_text() == "done\ndone\n"
    assert project.files() == {"CHANGES": "Changes:\n[parser] Faster\n[writer] Faster\n"}
    assert project.passes("test $(grep -c Faster CHANGES) = 2")


def project_coder(project: Project) -> tuple[Coder, tuple[str, ...]]:
    """A coding agent with the trusted hooks of the project, as `pal` makes it, and the notices about the others."""
    coder = Coder(project)
    trust = trust_of(coder.home, project.root)
    found = configured_hooks((), project_hooks(project.root), trust, cwd=project.root, environment=os.environ)
    return Coder(project, replace(AUTO, hooks=found.hooks)), found.notices


def test_the_hook_of_a_project_formats_only_after_the_user_trusted_it_and_not_after_it_was_changed(tmp_path: Path) -> None:
    config = f'[[hooks]]\nmoment = "after_tool"\ntool = "write"\nname = "format"\ncommand = "{PYTHON} format.py"\n'
    start = {".palimpsest/config.toml": config, "format.py": FORMATTER}
    project = new_project(tmp_path / "project", start)
    notice = "hooks of the project do not run, because you have not trusted them: format; `pal trust` shows them"

    def write(name: str) -> TaskRun:
        coder, notices = project_coder(project)
        found.append(notices)
        return coder.do(f"Write {name}", use("write", path=name, content=f"{name}   \n"), f"{name} is there.")

    found: list[tuple[str, ...]] = []
    untrusted = write("first.txt")
    trust = trust_of(Coder(project).home, project.root)
    for each in project_hooks(project.root):
        trust.add(each.command)
    trusted = write("second.txt")
    project.put({".palimpsest/config.toml": config.replace("format.py", "format.py --all")})
    changed = write("third.txt")
    assert found == [(notice,), (), (notice,)]
    ran = ("format", "after_tool", False, "second.txt was formatted; read it again before you edit it")
    assert (runs(untrusted), runs(trusted), runs(changed)) == ([], [ran], [])
    assert project.files() == {
        ".palimpsest/config.toml": config.replace("format.py", "format.py --all"),
        "first.txt": "first.txt   \n",
        "format.py": FORMATTER,
        "second.txt": "second.txt\n",
        "third.txt": "third.txt   \n",
    }
    assert project.passes("! grep -q ' $' second.txt")
