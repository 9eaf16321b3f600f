"""The task graph in real files: its rules, its tools, two processes at once, and crashes."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from workplace import online, say, use, work

from palimpsest.agent.editing import run_policies
from palimpsest.agent.shell import Shell
from palimpsest.agent.tool import ToolError, ToolOutput
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.tools.tasks import Task, TaskFiles, TaskGraph
from palimpsest.coding.tools.toolset import standard_tools
from palimpsest.core.events import TaskChanged
from palimpsest.peers.classroom import classroom
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.files import write_atomically


def replace_file(path: Path, data: bytes) -> None:
    write_atomically(path, (data,), replace=True)


class Project:
    """A project with a task graph, and the tools on it."""

    def __init__(self, root: Path, owner: str = "") -> None:
        self.folder = root / ".tasks"
        self.workspace = Workspace(root, write=replace_file)
        self.graph = TaskGraph(TaskFiles(self.folder, replace_file), owner)
        self.tools = {tool.name: tool for tool in self.graph.tools()}

    def use(self, name: str, **arguments: object) -> ToolOutput:
        return asyncio.run(self.tools[name].run(json.dumps(arguments), self.workspace))

    def update(self, number: int, **arguments: object) -> ToolOutput:
        return self.use("task_update", id=number, **arguments)

    def create(self, *subjects: str) -> None:
        for subject in subjects:
            self.use("task_create", subject=subject)

    def put(self, **fields: object) -> None:
        """Write a task file as a user would."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / f"task_{fields['id']}.json").write_text(json.dumps(fields))

    def task(self, number: int) -> Task:
        return self.graph.files.load()[number]

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}

    def lines(self, **arguments: object) -> list[str]:
        return self.use("task_list", **arguments).text.split("\n")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.states("CL-27")
def test_the_first_task_is_1_and_after_a_restart_with_task_4_the_next_is_5(project: Project) -> None:
    assert project.use("task_create", subject="parse").text.startswith("Task #1 created\n")
    project.put(id=4, subject="old")
    again = Project(project.workspace.root)
    assert again.use("task_create", subject="new").text.startswith("Task #5 created\n")
    (project.folder / "task_5.json").unlink()
    assert again.use("task_create", subject="newer").text.startswith("Task #6 created\n")
    (project.folder / "task_9.json").write_text("{ damaged")
    assert again.use("task_create", subject="newest").text.startswith("Task #10 created\n")


@pytest.mark.states("CL-28")
def test_a_new_task_is_pending_without_edges_and_owner_and_keeps_its_description(project: Project) -> None:
    state = '{"id":1,"subject":"parse","description":"all of it","status":"pending","blockedBy":[],"blocks":[],"owner":""}'
    assert project.use("task_create", subject="parse", description="all of it") == ToolOutput(
        f"Task #1 created\n{state}", events=(TaskChanged("task 1", "created", Raw(state.encode())),)
    )
    assert json.loads((project.folder / "task_1.json").read_bytes()) == json.loads(state)


@pytest.mark.parametrize("arguments", [{"number": 2, "add_blocked_by": [1]}, {"number": 1, "add_blocks": [2]}])
@pytest.mark.states("CL-29")
def test_an_edge_is_written_in_both_tasks_by_one_operation(project: Project, arguments: dict[str, Any]) -> None:
    project.create("a", "b")
    output = project.update(**arguments)
    assert (project.task(1), project.task(2)) == (Task(1, "a", blocks=(2,)), Task(2, "b", blocked_by=(1,)))
    assert sorted((event.task, event.what) for event in output.events if isinstance(event, TaskChanged)) == [
        ("task 1", "edges"),
        ("task 2", "edges"),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"add_blocked_by": [1]}, "task 1 cannot block itself; nothing was changed"),
        ({"add_blocks": [9]}, "there is no task 9; nothing was changed"),
        ({"add_blocked_by": [3]}, "task 3 waits for task 1 already; the edge would close a cycle, and nothing was changed"),
        ({"add_blocked_by": [4, 3]}, "task 3 waits for task 1 already; the edge would close a cycle, and nothing was changed"),
    ],
)
@pytest.mark.states("CL-30")
def test_an_edge_to_itself_to_an_unknown_task_or_in_a_cycle_changes_no_file(
    project: Project, arguments: dict[str, object], said: str
) -> None:
    project.create("a", "b", "c", "d")
    project.update(2, add_blocked_by=[1])
    project.update(3, add_blocked_by=[2])
    before = project.files()
    assert project.update(1, **arguments) == ToolOutput(said, error=True)
    assert project.files() == before


@pytest.mark.states("CL-31")
def test_completing_one_blocker_leaves_a_task_blocked_and_completing_all_unlocks_it(project: Project) -> None:
    for number in (2, 3):
        project.put(id=number, subject=f"t{number}")
    project.put(id=4, subject="t4", blockedBy=[2, 3])
    project.update(2, status="completed")
    assert project.task(4).blocked_by == (3,)
    project.update(3, status="completed")
    assert project.task(4) == Task(4, "t4")


@pytest.mark.states("CL-32")
def test_an_update_names_the_tasks_that_it_unlocked(project: Project) -> None:
    for number in (2, 3):
        project.put(id=number, subject=f"t{number}")
    for number in (4, 5):
        project.put(id=number, subject=f"t{number}", blockedBy=[2, 3])
    assert "unlocked" not in project.update(2, status="completed").text
    assert project.update(3, status="completed").text.split("\n")[-1] == "unlocked: 4, 5"


@pytest.mark.states("CL-33")
def test_every_task_is_in_exactly_one_group(project: Project) -> None:
    project.create("a", "b", "c", "d")
    project.update(1, status="in_progress", owner="ann")
    project.update(2, add_blocked_by=[1])
    project.update(3, status="completed")
    assert project.lines() == ["[ ] 4 d", "[>] 1 a (owner ann)", "[-] 2 b, blocked by 1", "[x] 3 c"]
    groups = {group: project.lines(filter=group) for group in ("ready", "running", "blocked", "completed")}
    assert groups == {
        "ready": ["[ ] 4 d"],
        "running": ["[>] 1 a (owner ann)"],
        "blocked": ["[-] 2 b, blocked by 1"],
        "completed": ["[x] 3 c"],
    }
    assert project.lines(owner="ann") == ["[>] 1 a (owner ann)"]


@pytest.mark.states("CL-34")
def test_of_a_diamond_the_last_task_is_ready_only_after_both_sides(project: Project) -> None:
    project.create("A", "C", "D", "E")
    project.update(1, add_blocks=[2, 3])
    project.update(4, add_blocked_by=[2, 3])
    assert project.lines(filter="ready") == ["[ ] 1 A"]
    assert project.update(1, status="completed").text.endswith("\nunlocked: 2, 3")
    assert project.lines(filter="ready") == ["[ ] 2 C", "[ ] 3 D"]
    assert "unlocked" not in project.update(2, status="completed").text
    assert project.update(3, status="completed").text.endswith("\nunlocked: 4")


@pytest.mark.states("CL-35")
def test_a_blocked_task_cannot_be_started_and_the_error_names_the_blockers(project: Project) -> None:
    project.create("a", "b", "c")
    project.update(3, add_blocked_by=[1, 2])
    before = project.files()
    assert project.update(3, status="in_progress") == ToolOutput("task 3 cannot be in_progress: it is blocked by 1, 2", error=True)
    assert project.update(3, status="completed") == ToolOutput("task 3 cannot be completed: it is blocked by 1, 2", error=True)
    assert project.files() == before


def test_a_completed_task_is_final_unless_it_is_reopened(project: Project) -> None:
    project.create("a")
    project.update(1, status="completed")
    assert project.update(1, status="pending") == ToolOutput("task 1 is completed; set `reopen` to take that back", error=True)
    project.update(1, reopen=True)
    assert project.task(1) == Task(1, "a")
    assert project.update(7, status="pending") == ToolOutput("there is no task 7", error=True)


TAKER = """
import sys
from pathlib import Path
from palimpsest.stores.files import write_atomically
from palimpsest.coding.tools.tasks import TaskFiles
from palimpsest.coding.tools.tasks import TaskUpdate
from palimpsest.coding.tools.tasks import TaskGraph
from palimpsest.agent.tool import ToolError

graph = TaskGraph(TaskFiles(Path(sys.argv[1]), lambda path, data: write_atomically(path, (data,), replace=True)), sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
try:
    graph.update(TaskUpdate(1, "in_progress"))
    print("taken")
except ToolError as error:
    print(error.message)
"""


@pytest.mark.states("CL-36")
def test_of_several_processes_that_take_one_task_exactly_one_succeeds(project: Project) -> None:
    project.create("a")
    takers = [
        subprocess.Popen(
            [sys.executable, "-c", TAKER, str(project.folder), f"agent{number}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for number in range(4)
    ]
    for taker in takers:
        assert taker.stdout is not None
        assert taker.stdout.readline() == "ready\n"
    for taker in takers:
        assert taker.stdin is not None
        taker.stdin.write("go\n")
        taker.stdin.flush()
    said = [taker.communicate()[0].strip() for taker in takers]
    winner = said.index("taken")
    assert project.task(1) == Task(1, "a", status="in_progress", owner=f"agent{winner}")
    refused = f"task 1 is in progress already, taken by agent{winner}"
    assert sorted(said) == sorted(["taken", refused, refused, refused])


def test_taking_a_task_again_is_allowed_to_the_agent_that_has_it(tmp_path: Path) -> None:
    project = Project(tmp_path, "me")
    project.create("a")
    assert project.update(1, status="in_progress").text.startswith("Task #1 updated")
    assert project.update(1, status="in_progress").text.startswith("Task #1 is unchanged")
    assert project.update(1, status="in_progress", owner="you").error
    assert project.task(1).owner == "me"


DYING = """
import os, sys
from pathlib import Path
from palimpsest.stores.files import write_atomically
from palimpsest.coding.tools.tasks import TaskFiles
from palimpsest.coding.tools.tasks import TaskUpdate
from palimpsest.coding.tools.tasks import TaskGraph

left = int(sys.argv[2])

def write(path, data):
    global left
    if not left:
        path.with_name(f".{path.name}.half").write_bytes(data[: len(data) // 2])
        os._exit(9)
    left -= 1
    write_atomically(path, (data,), replace=True)

TaskGraph(TaskFiles(Path(sys.argv[1]), write)).update(TaskUpdate(1, "completed"))
"""


@pytest.mark.parametrize("writes", [0, 1, 2])
@pytest.mark.states("CL-37")
def test_a_crash_between_two_writes_leaves_every_file_whole_and_the_graph_right(project: Project, writes: int) -> None:
    project.create("a", "b", "c")
    project.update(1, add_blocks=[2, 3])
    ended = subprocess.run([sys.executable, "-c", DYING, str(project.folder), str(writes)], check=False)
    assert ended.returncode == 9
    assert project.graph.files.load().keys() == {1, 2, 3}
    assert project.graph.files.damaged == []
    if writes:
        assert project.lines() == ["[ ] 2 b", "[ ] 3 c", "[x] 1 a"]
    else:
        assert project.lines() == ["[ ] 1 a", "[-] 2 b, blocked by 1", "[-] 3 c, blocked by 1"]
    project.update(2, owner="ann")
    assert project.task(3).blocked_by == (() if writes else (1,))


@pytest.mark.states("CL-38")
def test_files_edited_by_hand_are_read_as_they_are_and_damaged_ones_are_reported_and_kept(project: Project) -> None:
    project.put(id=1, subject="by hand", status="in_progress", note="mine")
    project.put(id=2, subject="waits", blockedBy=[1, 8])
    (project.folder / "task_3.json").write_text("{ not json")
    (project.folder / "task_4.json").write_text('{"id": 5, "subject": "wrong number"}')
    (project.folder / "task_6.json").symlink_to(project.workspace.root / "elsewhere.json")
    damaged = [
        "[task_3.json cannot be read: JSON is malformed: object keys must be strings (byte 2)]",
        "[task_4.json cannot be read: it holds task 5]",
        "[task_6.json cannot be read: it is a symbolic link]",
    ]
    assert project.lines() == ["[>] 1 by hand", "[-] 2 waits, blocked by 1, 8", *damaged]
    assert project.use("task_get", id=4) == ToolOutput("task 4 cannot be read: it holds task 5", error=True)
    project.update(1, owner="ann")
    assert json.loads((project.folder / "task_1.json").read_bytes())["note"] == "mine"
    assert (project.folder / "task_3.json").read_text() == "{ not json"


@pytest.mark.states("CL-39")
def test_the_output_of_a_command_is_in_a_log_file_and_only_its_name_and_size_are_returned(project: Project) -> None:
    project.create("a")

    async def run(**arguments: object) -> ToolOutput:
        tools = standard_tools(Shell(project.workspace.root), hides=lambda _: False, tasks=project.graph)
        bash = tools.get("bash")
        assert bash is not None
        return await bash.run(json.dumps(arguments), project.workspace)

    output = asyncio.run(run(command="echo one; echo two; exit 3", task=1))
    assert output == ToolOutput("The output is in task_1_1.log (21 bytes); `task_get` shows it", error=True, exit=3)
    assert (project.folder / "task_1_1.log").read_text() == "one\ntwo\n[exit code 3]"
    assert project.use("task_get", id=1).text.split("\n")[-1] == "output: task_1_1.log (21 bytes)"
    assert project.use("task_get", id=1, output="task_1_1.log") == ToolOutput("one\ntwo\n[exit code 3]")
    assert project.use("task_get", id=1, output="../secret") == ToolOutput(
        "task 1 has no output file of that name; it has task_1_1.log", error=True
    )
    assert asyncio.run(run(command="echo three", task=7)).text == "three\n\n[there is no task 7, so the output was not kept in a file]"


def test_an_output_is_not_read_through_a_link_that_takes_its_place_after_it_was_listed(project: Project, tmp_path: Path) -> None:
    project.create("a")
    (tmp_path / "secret").write_text("secret")
    (project.folder / "task_1_1.log").symlink_to(tmp_path / "secret")
    with pytest.raises(ToolError, match=r"task_1_1\.log cannot be read"), project.graph.files.opened_log("task_1_1.log"):
        pass


def test_an_output_is_read_from_its_end_within_bounds(project: Project) -> None:
    project.create("a")
    project.graph.keep_output(1, "".join(f"line {number:>6}\n" for number in range(10_000)))
    lines = project.use("task_get", id=1, output="task_1_1.log").text.split("\n")
    assert (lines[0], len(lines), lines[-1]) == ("[96,000 bytes before this are left out]", 2_001, "line   9999")


@pytest.mark.states("CL-40")
def test_the_graph_answers_its_three_questions_after_two_compactions_as_before(project: Project) -> None:
    project.create("a", "b", "c")
    project.update(2, add_blocked_by=[1])
    project.update(3, status="completed")
    before = project.lines()
    session = work(classroom({}))
    for number in range(2):
        say(session, "go on")
        use(session, f"c{number}", "task_list", "{}", "\n".join(before))
        assert online(session, run_policies(session, "asked"), Scripted("short")).folded
    assert Project(project.workspace.root).lines() == before == ["[ ] 1 a", "[-] 2 b, blocked by 1", "[x] 3 c"]
    assert project.graph.open_lines() == ("[ ] 1 a",)


def test_at_most_twenty_lines_are_stated_again(project: Project) -> None:
    project.create(*(f"t{number}" for number in range(1, 23)))
    assert project.graph.open_lines()[-2:] == ("[ ] 19 t19", "[3 more; `task_list` shows them]")
