"""Tasks with sub-agents that do not get through: one reaches its limit, one is refused a call, one is interrupted, one ends early."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from coding_tasks import AUTO, Coder, FromMessage, bash, scripted, use
from families import routed, spawn, stalled, wait
from git_projects import UNITTEST, new_project
from team_tasks import checked_team, do_together

from palimpsest.agent.children import AgentSettings
from palimpsest.agent.decision import Approval
from palimpsest.agent.hook_commands import command_hook
from palimpsest.agent.hooks import Hook
from palimpsest.agent.limits import Limits
from palimpsest.core.events import ChildOpened, HookRan, PermissionAsked, ToolRefused, TurnEnded
from palimpsest.core.items import ToolCall

pytestmark = pytest.mark.machine

PRINTS = {f"{name}.py": f"def run():\n    print('{name} runs')\n" for name in ("alpha", "beta", "gamma")}
PRINTS_TEST = """\
import logging
import unittest

import alpha, beta, gamma


class LoggingTest(unittest.TestCase):
    def test_every_module_logs_what_it_does(self):
        with self.assertLogs(level=logging.INFO) as found:
            for module in (alpha, beta, gamma):
                module.run()
        self.assertEqual([record.getMessage() for record in found.records], ["alpha runs", "beta runs", "gamma runs"])
"""


def logged(name: str) -> ToolCall:
    """The call that rewrites a module."""
    return use("write", path=f"{name}.py", content=f"import logging\n\n\ndef run():\n    logging.info('{name} runs')\n")


def test_a_worker_that_reaches_its_limit_is_resumed_and_finishes_what_it_began(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {**PRINTS, "test_logging.py": PRINTS_TEST})
    limited = replace(AUTO, agents=AgentSettings(limits=Limits(calls=3)))
    done = do_together(
        Coder(project, limited),
        "Log instead of printing",
        spawn("Ada", "Use logging in alpha.py, beta.py and gamma.py", role="worker"),
        wait("Ada"),
        FromMessage(lambda text: use("resume_agent", id="Ada") if "has ended: errored" in text else "It ended in another way."),
        wait("Ada"),
        bash(UNITTEST),
        "All three log.",
        team={
            "Ada": (
                tuple(use("read", path=path) for path in sorted(PRINTS)),
                logged("alpha"),
                logged("beta"),
                use("read", path="gamma.py"),
                logged("gamma"),
                "The three modules log now.",
            )
        },
    )
    assert done.ends == [
        ("Ada", "errored", "It reached its limit of model calls."),
        ("Ada", "completed", "The three modules log now."),
    ]
    assert [body.resumed for body in done.own.bodies if isinstance(body, ChildOpened)] == [False, True]
    assert [body.stop for body in done.members["Ada"].bodies if isinstance(body, TurnEnded)] == ["max_calls", "done"]
    expected = {f"{name}.py": f"import logging\n\n\ndef run():\n    logging.info('{name} runs')\n" for name in ("alpha", "beta", "gamma")}
    assert project.files() == {**expected, "test_logging.py": PRINTS_TEST}
    assert project.passes()


def test_a_user_is_asked_about_the_calls_of_a_worker_by_its_name_and_refuses_one(tmp_path: Path) -> None:
    start = {"deploy.py": "TARGET = 'staging'\n", "version.py": "VERSION = '1.0'\n"}
    project = new_project(tmp_path / "project", start)
    asked: list[str] = []

    async def answer(question: PermissionAsked) -> Approval:
        asked.append(question.question)
        return Approval("no", why="releases are deployed by hand") if "deploy.py" in question.question else Approval("once")

    done = do_together(
        Coder(project, replace(AUTO, mode="ask", allow=()), answer),
        "Release 1.1",
        spawn("Ada", "Set the version to 1.1 and the target to production", role="worker"),
        wait("Ada"),
        "The version is 1.1; you have to deploy it.",
        team={
            "Ada": (
                (use("read", path="deploy.py"), use("read", path="version.py")),
                use("edit", path="version.py", old="1.0", new="1.1"),
                use("edit", path="deploy.py", old="staging", new="production"),
                lambda seen: f"version.py is changed. deploy.py is not: {seen}",
            )
        },
        failing={"Ada": ("edit",)},
    )
    assert asked == ["Sub-agent Ada asks: edit version.py?", "Sub-agent Ada asks: edit deploy.py?"]
    report = "version.py is changed. deploy.py is not: This call was not run: releases are deployed by hand"
    assert done.ends == [("Ada", "completed", report)]
    assert (done.own.kinds(PermissionAsked), len(done.members["Ada"].kinds(PermissionAsked, ToolRefused))) == ([], 3)
    assert project.files() == {**start, "version.py": "VERSION = '1.1'\n"}
    assert project.passes("grep -q 1.1 version.py && grep -q staging deploy.py")


def test_a_worker_that_was_interrupted_with_its_parent_goes_on_in_a_resumed_session(tmp_path: Path) -> None:
    start = {"one.txt": "old\n", "two.txt": "old\n"}
    project = new_project(tmp_path / "project", start)
    coder = Coder(project)
    slow = stalled(use("edit", path="two.txt", old="old", new="new"))
    first = scripted(spawn("Ada", "Write new into one.txt and two.txt", role="worker"), wait("Ada"))
    cut_off = scripted((use("read", path="one.txt"), use("read", path="two.txt")), use("edit", path="one.txt", old="old", new="new"), slow)

    async def interrupted() -> str:
        async with coder.agent(routed(first, {"Ada": cut_off})) as agent:
            turn = asyncio.ensure_future(agent.ask("Renew both files"))
            await slow.reached.wait()
            await agent.interrupt()
            assert (await turn).stop == "interrupted"
            return agent.id

    session = asyncio.run(interrupted())
    assert project.files() == {"one.txt": "new\n", "two.txt": "old\n"}
    second = scripted(use("resume_agent", id="Ada"), wait("Ada"), bash("cmp one.txt two.txt"), "Both are new.")
    finishing = scripted(use("read", path="two.txt"), use("edit", path="two.txt", old="old", new="new"), "two.txt is new as well.")

    async def resumed() -> None:
        async with coder.agent(routed(second, {"Ada": finishing}), session) as agent:
            answer = await agent.ask("Go on")
            assert (answer.text, answer.stop) == ("Both are new.", "done")

    asyncio.run(resumed())
    done = checked_team(coder, session, second, {"Ada": finishing})
    assert done.ends == [
        ("Ada", "interrupted", "The agent that started it was interrupted."),
        ("Ada", "completed", "two.txt is new as well."),
    ]
    assert (first.remaining, cut_off.remaining) == (0, 0)
    assert [body.stop for body in done.members["Ada"].bodies if isinstance(body, TurnEnded)] == ["interrupted", "done"]
    assert project.files() == {"one.txt": "new\n", "two.txt": "new\n"}
    assert project.passes("cmp -s one.txt two.txt")


EVEN = "def is_even(number):\n    return number % 2\n"
EVEN_TEST = """\
import unittest

from even import is_even


class EvenTest(unittest.TestCase):
    def test_two_is_and_three_is_not(self):
        self.assertEqual([is_even(2), is_even(3)], [True, False])
"""


def test_a_worker_that_thinks_it_is_done_is_sent_on_by_a_hook_of_the_user_until_the_tests_pass(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"even.py": EVEN, "test_even.py": EVEN_TEST})
    tests = command_hook("turn_end", f"{UNITTEST} 2> /dev/null || {{ echo 'the tests fail' >&2; exit 2; }}", cwd=project.root, name="tests")
    done = do_together(
        Coder(project, replace(AUTO, hooks=(tests,))),
        "Let a worker repair is_even",
        spawn("Ada", "Repair is_even in even.py", role="worker"),
        wait("Ada"),
        "Ada has repaired it.",
        team={
            "Ada": (
                use("read", path="even.py"),
                "It looks right.",
                FromMessage(
                    lambda text: (
                        use("edit", path="even.py", old="number % 2", new="number % 2 == 0") if "the tests fail" in text else "It is right."
                    )
                ),
                "Now it is right.",
            )
        },
    )
    ran = [(body.moment, body.blocked, body.failure) for body in done.members["Ada"].bodies if isinstance(body, HookRan)]
    assert ran == [("turn_end", True, ""), ("turn_end", False, "")]
    assert done.ends == [("Ada", "completed", "Now it is right.")]
    assert [body.blocked for body in done.own.bodies if isinstance(body, HookRan)] == [False]
    assert project.files() == {"even.py": EVEN.replace("% 2", "% 2 == 0"), "test_even.py": EVEN_TEST}
    assert project.passes()


def test_a_hook_knows_for_which_agent_it_runs(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"colors.txt": "red=#f00\n"})
    seen: list[tuple[str, str]] = []
    watching = Hook("before_tool", lambda call: seen.append((call.agent, call.role)), name="watch")
    done = do_together(
        Coder(project, replace(AUTO, hooks=(watching,))),
        "Let a worker look",
        spawn("Ada", "Look at colors.txt", role="worker"),
        wait("Ada"),
        use("read", path="colors.txt"),
        "Red is #f00.",
        team={"Ada": (use("read", path="colors.txt"), "It says red.")},
    )
    assert done.ends == [("Ada", "completed", "It says red.")]
    assert sorted(set(seen)) == [("", ""), ("Ada", "worker")]
