"""Tasks through which the session itself changes: results are cleared, it is compacted, steered, interrupted and resumed."""

import asyncio
import re
from pathlib import Path

import pytest
from coding_tasks import Coder, bash, scripted, use
from git_projects import PYTHON, UNITTEST, new_project

from palimpsest.core.events import Event, Interrupted, ToolsOffered, ToolStarted, TurnEnded, UserSaid, ViewEdited
from palimpsest.core.items import Text, ToolCall
from palimpsest.core.log import UNKNOWN_OUTCOME
from palimpsest.providers.scripted import StalledReply

pytestmark = pytest.mark.machine


def test_a_result_that_was_cleared_is_recalled_and_used(tmp_path: Path) -> None:
    start = {"a.txt": "1\n", "b.txt": "2\n", "c.txt": "3\n", "d.txt": "4\n", "facts.txt": "the magic number is 7919\n" + "noise " * 400}
    project = new_project(tmp_path / "project", start)

    def by_id(seen: str) -> ToolCall:
        # The prompt holds the words too.
        return use("recall", id=next(line.split()[0] for line in seen.splitlines() if "7919" in line))

    def with_number(seen: str) -> ToolCall:
        return use("write", path="magic.py", content=f"MAGIC = {re.findall('magic number is ([0-9]+)', seen)[0]}\n")

    done = Coder(project, profile="classroom").do(
        "Read all files, then write the magic number into magic.py",
        use("read", path="facts.txt"),
        *(use("read", path=f"{name}.txt") for name in "abcd"),
        use("recall", words="magic number"),
        by_id,
        with_number,
        "Written.",
    )
    assert [line.split(", ")[1] for line in done.results[5].splitlines()] == ["user", "result"]
    assert re.match(
        r"\[item \d+\.0, result, .*, hidden by edit \d+ of mask_old: results older than the newest 3\]\n     1\tthe magic number",
        done.results[6],
    )
    assert project.files() == {**start, "magic.py": "MAGIC = 7919\n"}
    assert project.passes(f"{PYTHON} -c 'import magic; assert magic.MAGIC == 7919'")


CONVERT = "def miles(kilometres):\n    return kilometres / 1.609\n"
CONVERT_TEST = """\
import unittest

from convert import miles


class ConvertTest(unittest.TestCase):
    def test_a_marathon(self):
        self.assertAlmostEqual(miles(42.195), 26.2188, places=3)
"""


def test_the_model_compacts_in_the_middle_of_a_task_and_goes_on(tmp_path: Path) -> None:
    manual = "\n".join(f"{number}: a line of the manual that is read once and not needed again" for number in range(1_500))
    project = new_project(tmp_path / "project", {"convert.py": CONVERT, "manual.txt": manual, "test_convert.py": CONVERT_TEST})
    coder = Coder(project)
    provider = scripted(
        use("read", path="manual.txt"),
        (use("read", path="convert.py"), use("read", path="test_convert.py")),
        bash(UNITTEST),
        use("compact", focus="the factor in convert.py"),
        # What was read before the compaction may still be edited: the file has not changed.
        use("edit", path="convert.py", old="1.609\n", new="1.609344\n"),
        bash(UNITTEST),
        "The factor was too short.",
    )

    async def run() -> str:
        async with coder.agent(provider) as agent:
            answer = await agent.ask("The test fails; the manual may help")
            assert (answer.text, answer.stop) == ("The factor was too short.", "done")
            return agent.id

    done = coder.checked(asyncio.run(run()), provider)
    sizes = [len(request.body) for request in provider.requests]
    folds = [body for body in done.bodies if isinstance(body, ViewEdited)]
    assert [body.by for body in folds] == ["fold"]
    assert sizes[4] < sizes[3] / 2
    assert b"The test fails; the manual may help" in provider.requests[4].body
    assert done.failing == ("bash",)
    assert project.files() == {
        "convert.py": CONVERT.replace("1.609\n", "1.609344\n"),
        "manual.txt": manual,
        "test_convert.py": CONVERT_TEST,
    }
    assert project.passes()


def test_a_user_steers_a_running_task_and_the_rest_follows_the_new_wish(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"a.txt": "cat\n", "b.txt": "cat\n"})
    coder = Coder(project)
    stalled = StalledReply("thinking about it", after=1)
    wishes: list[bool] = []
    provider = scripted(
        (use("read", path="a.txt"), use("read", path="b.txt")),
        use("edit", path="a.txt", old="cat", new="dog"),
        stalled,
        use("edit", path="b.txt", old="cat", new="bird"),
        "a is a dog, b is a bird.",
    )

    async def run() -> str:
        async with coder.agent(provider) as agent:
            turn = asyncio.ensure_future(agent.ask("Make both files say dog"))
            await stalled.reached.wait()
            agent.say("No: b should say bird")
            stalled.released.set()
            assert (await turn).stop == "done"
            wishes.extend(b"No: b should say bird" in request.body for request in provider.requests)
            return agent.id

    done = coder.checked(asyncio.run(run()), provider)
    assert wishes == [False, False, False, True, True]
    assert [(body.parts, body.steering) for body in done.bodies if isinstance(body, UserSaid)] == [
        ((Text("Make both files say dog"),), False),
        ((Text("No: b should say bird"),), True),
    ]
    assert project.files() == {"a.txt": "dog\n", "b.txt": "bird\n"}
    assert project.passes("grep -q bird b.txt")


def test_a_task_is_interrupted_in_a_command_and_a_resumed_session_finishes_it(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"one.txt": "1\n", "two.txt": "1\n"})
    coder = Coder(project)
    first = scripted(
        (use("read", path="one.txt"), use("read", path="two.txt")),
        use("edit", path="one.txt", old="1", new="2"),
        (bash("tail -f one.txt"), use("edit", path="two.txt", old="1", new="2")),
    )

    async def interrupted() -> str:
        async with coder.agent(first) as agent:
            async for piece in agent.run("Write 2 into both files"):
                if isinstance(piece, Event) and isinstance(piece.body, ToolStarted) and piece.body.tool == "bash":
                    break
            await agent.interrupt()
            return agent.id

    session = asyncio.run(interrupted())
    assert project.files()["two.txt"] == "1\n"
    second = scripted(use("read", path="two.txt"), use("edit", path="two.txt", old="1", new="2"), "Both say 2.")

    async def resumed() -> None:
        async with coder.agent(second, session) as agent:
            answer = await agent.ask()
            assert (answer.text, answer.stop) == ("Both say 2.", "done")

    asyncio.run(resumed())
    done = coder.checked(session, first, second)
    assert done.results[3:5] == [UNKNOWN_OUTCOME, "Interrupted by the user before this tool was run."]
    assert [body.stop for body in done.bodies if isinstance(body, TurnEnded)] == ["interrupted", "done"]
    # The tools are the same before and after, so they are offered once.
    assert [len(body.names) for body in done.bodies if isinstance(body, ToolsOffered)] == [24]
    assert project.files() == {"one.txt": "2\n", "two.txt": "2\n"}
    assert project.passes("cmp -s one.txt two.txt")


def test_a_reply_that_is_cut_off_by_the_user_is_kept_and_the_next_prompt_finishes_the_task(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"list.txt": "b\na\n"})
    coder = Coder(project)
    stalled = StalledReply("I will sort the file in reverse, beginning with", after=2)
    provider = scripted(
        use("read", path="list.txt"),
        stalled,
        use("write", path="list.txt", content="a\nb\n"),
        "Sorted.",
    )

    async def run() -> str:
        async with coder.agent(provider) as agent:
            turn = asyncio.ensure_future(agent.ask("Sort the file"))
            await stalled.reached.wait()
            await agent.interrupt()
            assert (await turn).stop == "interrupted"
            assert (await agent.ask("Not in reverse!")).stop == "done"
            return agent.id

    done = coder.checked(asyncio.run(run()), provider)
    assert [body.parts for body in done.bodies if isinstance(body, Interrupted)] == [
        (Text("I will sort the file in reverse, beginning with", "assistant"),)
    ]
    assert project.files() == {"list.txt": "a\nb\n"}
    assert project.passes("sort -c list.txt")
