"""Tasks with several steps that a list, a graph of tasks, a skill or instructions of the project guide; and work in the background."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from coding_tasks import Coder, bash, do, scripted, use
from git_projects import PYTHON, UNITTEST, new_project

from palimpsest.coding.settings import CodingSettings
from palimpsest.coding.tools.tasks import TodoItem
from palimpsest.core.events import ProcessEnded, ProcessStarted, TaskChanged
from palimpsest.core.items import ToolCall

pytestmark = pytest.mark.machine

STEPS = ("write the module", "write its test", "commit")


def todo(done: int) -> ToolCall:
    statuses = ["completed"] * done + ["in_progress"] * (done < len(STEPS)) + ["pending"] * (len(STEPS) - done - 1)
    items = zip(STEPS, statuses, strict=True)
    return use("todo", items=[{"id": str(place), "text": text, "status": status} for place, (text, status) in enumerate(items)])


EVEN = "def even(number):\n    return number % 2 == 0\n"
EVEN_TEST = """\
import unittest

from even import even


class EvenTest(unittest.TestCase):
    def test_even(self):
        self.assertEqual([even(number) for number in (1, 2)], [False, True])
"""


def test_a_todo_list_guides_a_task_of_three_steps(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"README.md": "# numbers\n"})
    done = do(
        project,
        "Add a module that says whether a number is even",
        (todo(0), use("write", path="even.py", content=EVEN)),
        (todo(1), use("write", path="test_even.py", content=EVEN_TEST), bash(UNITTEST)),
        (todo(2), bash("git add -A && git commit -q -m 'Add even'"), todo(3)),
        "All steps are done.",
    )
    assert done.results[0] == "[>] write the module\n[ ] write its test\n[ ] commit\n0/3 done"
    assert done.results[-1] == "[x] write the module\n[x] write its test\n[x] commit\n3/3 done"
    lists = [json.loads(bytes(body.state)) for body in done.bodies if isinstance(body, TaskChanged)]
    assert [[item["status"] for item in items].count("completed") for items in lists] == [0, 1, 2, 3]
    assert TodoItem(**lists[-1][2]) == TodoItem("2", "commit", "completed")
    assert project.tree() == {"README.md": "# numbers\n", "even.py": EVEN, "test_even.py": EVEN_TEST}
    assert (project.status(), project.passes()) == ([], True)


def test_a_graph_of_tasks_with_dependencies_is_worked_off_in_two_sessions(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {".gitignore": ".tasks/\n"})
    coder = Coder(project)
    first = coder.do(
        "Plan the parser and the printer, and do the parser",
        (use("task_create", subject="parser"), use("task_create", subject="printer")),
        use("task_update", id=2, add_blocked_by=[1]),
        use("task_update", id=2, status="in_progress"),
        use("task_update", id=1, status="in_progress"),
        use("write", path="parse.py", content="def parse(text):\n    return text.split(',')\n"),
        bash(f"{PYTHON} -c 'import parse; print(parse.parse(\"a,b\"))'", task=1),
        use("task_update", id=1, status="completed"),
        "The parser is done.",
        failing=("task_update",),
    )
    assert first.results[3] == "task 2 cannot be in_progress: it is blocked by 1"
    assert first.results[6] == "The output is in task_1_1.log (11 bytes); `task_get` shows it"
    assert first.results[7].splitlines()[-1] == "unlocked: 2"
    second = coder.do(
        "Go on with what is ready",
        (use("task_list", filter="ready"), use("task_get", id=1, output="task_1_1.log")),
        lambda seen: use("task_update", id=int(seen.split()[2]), status="in_progress"),
        use("write", path="show.py", content="def show(parts):\n    return ','.join(parts)\n"),
        use("task_update", id=2, status="completed"),
        use("task_list"),
        "The printer is done.",
    )
    assert second.results[:2] == ["[ ] 2 printer", "['a', 'b']"]
    assert second.results[-1].splitlines()[-1].startswith("[x] 2 printer (owner ")
    assert project.files() == {
        ".gitignore": ".tasks/\n",
        "parse.py": "def parse(text):\n    return text.split(',')\n",
        "show.py": "def show(parts):\n    return ','.join(parts)\n",
    }
    assert project.passes(f'{PYTHON} -c \'import parse, show; assert show.show(parse.parse("a,b")) == "a,b"\'')


SKILL = """\
---
name: new-module
description: How a module is added to this project
---
Copy `template.py` of this skill, and put the name of the module in the place of NAME.
"""


def test_a_skill_of_the_project_says_how_a_module_is_added(tmp_path: Path) -> None:
    template = '"""The module NAME."""\n\nVERSION = 1\n'
    start = {".agents/skills/new-module/SKILL.md": SKILL, ".agents/skills/new-module/template.py": template}
    project = new_project(tmp_path / "project", start)
    done = do(
        project,
        "Add the module colours",
        use("skill", name="new-module"),
        use("skill", name="new-module", file="template.py"),
        lambda seen: use("write", path="colours.py", content=seen.replace("NAME", "colours")),
        "Added.",
    )
    assert done.results[0] == (
        f"# Skill new-module\nFolder: {project.root}/.agents/skills/new-module\n\n"
        "Copy `template.py` of this skill, and put the name of the module in the place of NAME.\n\n"
        "Files, to be read with `file`:\ntemplate.py"
    )
    assert project.files() == {**start, "colours.py": template.replace("NAME", "colours")}
    assert project.passes(f"{PYTHON} -c 'import colours; assert colours.__doc__ == \"The module colours.\"'")


def test_every_skill_that_is_listed_in_a_subfolder_can_be_loaded_there(tmp_path: Path) -> None:
    nameless = "---\ndescription: How files are named\n---\nUse dashes.\n"
    start = {".agents/skills/new-module/SKILL.md": SKILL, ".claude/skills/naming/SKILL.md": nameless, "web/a.py": "A = 1\n"}
    project = new_project(tmp_path / "project", start)
    coder = Coder(project, folder="web")
    provider = scripted(
        (use("skill", name="new-module"), use("skill", name="naming")),
        use("write", path="a-b.txt", content="dashes\n"),
        "Named by the skill.",
    )

    async def run() -> str:
        async with coder.agent(provider) as agent:
            assert (await agent.ask("Add a file with two words in its name")).stop == "done"
            return agent.id

    done = coder.checked(asyncio.run(run()), provider)
    listed = provider.requests[0].body.decode()
    assert [name in listed for name in ("How a module is added to this project", "How files are named")] == [True, True]
    assert ([text.splitlines()[0] for text in done.results[:2]], done.failing) == (["# Skill new-module", "# Skill naming"], ())
    assert project.files() == {**start, "web/a-b.txt": "dashes\n"}
    assert project.passes("grep -q dashes web/a-b.txt")


def test_instructions_of_a_folder_come_with_the_first_file_that_is_read_there(tmp_path: Path) -> None:
    start = {
        "api/AGENTS.md": "Every function here ends with `_v2`.\n",
        "api/get.py": "def get_v2():\n    return 1\n",
        "top.py": "TOP = 1\n",
    }
    project = new_project(tmp_path / "project", start)
    put = "def put_v2():\n    return 2\n"
    done = do(
        project,
        "Add api/put.py like get.py",
        (use("read", path="top.py"), use("read", path="api/get.py")),
        lambda seen: use("write", path="api/put.py", content=put if "ends with `_v2`" in seen else "def put():\n    return 2\n"),
        use("read", path="api/put.py"),
        "Added.",
    )
    assert ["_v2`" in text for text in done.results] == [False, True, False, False]
    assert project.files() == {**start, "api/put.py": put}
    assert project.passes(f"{PYTHON} -c 'from api.put import put_v2; assert put_v2() == 2'")


SERVER = """\
import http.server
import sys
import threading

ANSWER = b"old"


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, *words):
        pass


def start():
    server = http.server.HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server


if __name__ == "__main__":
    start()
    # One write for each line, also where Python does not buffer.
    sys.stdout.write("listens\\n")
    sys.stdout.flush()
    open("ready", "w").close()
    while not threading.Event().wait(0.05):
        sys.stdout.write("alive\\n")
        sys.stdout.flush()
"""
SERVER_TEST = """\
import unittest
import urllib.request

import server


class ServerTest(unittest.TestCase):
    def test_the_server_answers_new(self):
        running = server.start()
        with urllib.request.urlopen(f"http://127.0.0.1:{running.server_port}", timeout=5) as answer:
            self.assertEqual(answer.read(), b"new")
        running.shutdown()
        running.server_close()
"""


def test_a_server_runs_in_the_background_is_polled_as_often_as_needed_and_ended(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {".gitignore": "ready\n", "server.py": SERVER, "test_server.py": SERVER_TEST})
    os.mkfifo(project.root / "ready")
    polls = [use("bash_output", id="p1") for _ in range(5)]
    # Landlock lets no program listen.
    done = Coder(project, CodingSettings(mode="auto", allow=("bash",), sandbox="off")).do(
        "Start the server, see that it runs, end it, and let it answer new",
        bash(f"{PYTHON} server.py", background=True),
        bash("read line < ready; true"),
        *polls,
        use("kill", id="p1"),
        (use("bash_output", id="p1"), use("read", path="server.py")),
        use("edit", path="server.py", old='b"old"', new='b"new"'),
        bash(UNITTEST),
        "It answers new.",
    )
    assert (done.results[0], done.results[2].splitlines()[0]) == ("Runs in the background with id p1", "listens")
    # A machine that does other work may let none of its lines come within the moment that a poll waits.
    assert [text.splitlines()[-1] for text in done.results[3:7]] == ["[still running]"] * 4
    assert done.results[7] == "p1 has ended with exit code -15"
    assert [body.process for body in done.bodies if isinstance(body, ProcessStarted)] == ["p1"]
    assert [(body.process, body.why) for body in done.bodies if isinstance(body, ProcessEnded)] == [("p1", "killed by the model")]
    assert project.files() == {".gitignore": "ready\n", "server.py": SERVER.replace('b"old"', 'b"new"'), "test_server.py": SERVER_TEST}
    assert project.passes()
