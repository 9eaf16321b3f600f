"""The tools `task_create`, `task_update`, `task_list` and `task_get`: a graph of tasks in files that survives compactions and sessions."""

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import IO, Annotated, Final, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from palimpsest.core.events import TaskChanged
from palimpsest.tools.session.task_files import Task, TaskFiles
from palimpsest.tools.session.task_graph import GROUPS, TaskGroup, Tasks, TaskUpdate, grouped, task_line, updated
from palimpsest.tools.tool import AgentTool, Arguments, ToolError, ToolOutput, bounded, define
from palimpsest.tools.workspace import Workspace

MOST_LINES: Final = 200
"""Tasks in one list."""
STATED_LINES: Final = 20
"""Tasks that are stated again after a fold."""
OUTPUT_LINES: Final = 2_000
OUTPUT_BYTES: Final = 50_000


class TaskCreation(Struct, frozen=True, forbid_unknown_fields=True):
    """`subject` is one line; `description` holds what another agent needs to do the task."""

    subject: Annotated[str, Meta(min_length=1, max_length=500)]
    description: Annotated[str, Meta(max_length=20_000)] = ""


class TaskFilter(Struct, frozen=True, forbid_unknown_fields=True):
    """Restricts the list to one group, to one owner, or to both."""

    filter: Literal["", "ready", "running", "blocked", "completed"] = ""
    owner: str = ""


class TaskQuestion(Struct, frozen=True, forbid_unknown_fields=True):
    """With `output`, the name of one of its output files, the content of that file is returned."""

    id: int
    output: str = ""


class TaskGraph(Struct, frozen=True):
    """The tasks of a project, and the four tools on them; `owner` names this agent when it starts a task without naming an owner."""

    files: TaskFiles
    owner: str = ""

    def tools(self) -> tuple[AgentTool, ...]:
        """The four tools."""
        return (
            _tool(
                TaskCreation,
                self.create,
                "task_create",
                "Add a task to the task graph of the project. Tasks are kept in files: they outlive compactions and sessions, and other "
                "agents see them. Use it for work with several parts that depend on each other; for the steps of one part use `todo`.",
            ),
            _tool(
                TaskUpdate,
                self.update,
                "task_update",
                "Change a task: its status (pending, in_progress, completed), its owner, or what it depends on. `add_blocked_by` names "
                "tasks that must be completed first, `add_blocks` tasks that wait for this one. A blocked task cannot be started. "
                "Completing a task unlocks those that waited for it; the result names them.",
            ),
            _tool(
                TaskFilter,
                self.listed,
                "task_list",
                "List the tasks, one line each: [ ] ready to start, [>] in progress, [-] blocked, [x] completed.",
            ),
            _tool(
                TaskQuestion,
                self.get,
                "task_get",
                f"Show one task with the names of its output files, or the end of one of these files (at most {OUTPUT_LINES:,} lines and "
                f"{OUTPUT_BYTES // 1000} kB).",
            ),
        )

    def create(self, creation: TaskCreation) -> ToolOutput:
        """Add a pending task without edges and owner."""
        with self.files.locked():
            task = Task(self.files.next_id(), creation.subject, creation.description)
            self.files.save(task)
        return ToolOutput(f"Task #{task.id} created\n{_json(task)}", events=(_event(task, "created"),))

    def update(self, update: TaskUpdate) -> ToolOutput:
        """Change a task and the tasks that its change touches, under the lock of the folder."""
        with self.files.locked():
            before = self.files.load()
            after, unlocked = updated(before, update, self.owner)
            # The named task first: if the next write fails, readers ignore the edges of a completed task.
            numbers = sorted((number for number in after if after[number] != before[number]), key=lambda each: (each != update.id, each))
            for number in numbers:
                self.files.save(after[number])
        names = ", ".join(map(str, unlocked))
        text = f"Task #{update.id}{' updated' if numbers else ' is unchanged'}\n{_json(after[update.id])}"
        events = tuple(_event(after[number], _what(before[number], after[number])) for number in numbers)
        return ToolOutput(f"{text}\nunlocked: {names}" if unlocked else text, events=events)

    def listed(self, wanted: TaskFilter) -> ToolOutput:
        """The tasks by group, and the files that could not be read."""
        tasks = self.files.load()
        groups: Mapping[TaskGroup, list[Task]] = grouped(tasks)
        chosen = [task for group in GROUPS if wanted.filter in ("", group) for task in groups[group]]
        lines = [task_line(task, tasks) for task in chosen if wanted.owner in ("", task.owner)]
        more = [f"[{len(lines) - MOST_LINES:,} more tasks; use `filter` or `owner`]"] if len(lines) > MOST_LINES else []
        damaged = [f"[{name} cannot be read: {why}]" for name, why in self.files.damaged[:MOST_LINES]]
        return ToolOutput("\n".join((*lines[:MOST_LINES], *more, *damaged)) or "there are no tasks")

    def get(self, question: TaskQuestion) -> ToolOutput:
        """One task, or the end of the output of one of its commands."""
        task = self.files.load().get(question.id)
        if task is None:
            why = next((each.why for each in self.files.damaged if each.name == f"task_{question.id}.json"), "")
            raise ToolError(f"task {question.id} cannot be read: {why}" if why else f"there is no task {question.id}")
        logs = self.files.logs(task.id)
        if question.output:
            if question.output not in {log.name for log in logs}:
                names = ", ".join(log.name for log in logs) or "none"
                raise ToolError(f"task {task.id} has no output file of that name; it has {names}")
            with self.files.opened_log(question.output) as file:
                return ToolOutput(_end_of(file))
        files = [f"output: {log.name} ({log.size:,} bytes)" for log in logs[-MOST_LINES:]]
        return ToolOutput("\n".join((_json(task), *files)))

    def keep_output(self, task: int, text: str) -> str:
        """Store what a command of a task printed, and return a line with its name and size; without such a task, what it printed."""
        if task not in self.files.load():
            return f"{bounded(text, OUTPUT_BYTES)}\n[there is no task {task}, so the output was not kept in a file]"
        log = self.files.add_log(task, text)
        return f"The output is in {log.name} ({log.size:,} bytes); `task_get` shows it"

    def open_lines(self, tasks: Tasks | None = None) -> tuple[str, ...]:
        """The running and the ready tasks, at most `STATED_LINES` lines: what a new epoch states again."""
        known = self.files.load() if tasks is None else tasks
        groups = grouped(known)
        lines = [task_line(task, known) for task in (*groups["running"], *groups["ready"])]
        if len(lines) <= STATED_LINES:
            return tuple(lines)
        return (*lines[: STATED_LINES - 1], f"[{len(lines) - STATED_LINES + 1:,} more; `task_list` shows them]")


def _tool(arguments: type[Arguments], run: Callable[[Arguments], ToolOutput], name: str, description: str) -> AgentTool:
    async def in_thread(decoded: Arguments, _: Workspace) -> ToolOutput:
        return await asyncio.to_thread(run, decoded)

    return define(arguments, in_thread, name=name, description=description, kind="reports")


def _json(task: Task) -> str:
    return msgspec.json.encode(task).decode()


def _event(task: Task, what: str) -> TaskChanged:
    return TaskChanged(f"task {task.id}", what, Raw(msgspec.json.encode(task)))


def _what(before: Task, after: Task) -> str:
    changes: list[str] = [after.status] if before.status != after.status else []
    changes += ["owner"] if before.owner != after.owner else []
    changes += ["edges"] if (before.blocked_by, before.blocks) != (after.blocked_by, after.blocks) else []
    return ", ".join(changes)


def _end_of(file: IO[bytes]) -> str:
    """The end of an output file within the limits of one read."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - OUTPUT_BYTES))
    data = file.read(OUTPUT_BYTES)
    kept = b"\n".join(data.rstrip(b"\n").split(b"\n")[-OUTPUT_LINES:])
    left_out = size - len(data) + len(data.rstrip(b"\n")) - len(kept)
    return (f"[{left_out:,} bytes before this are left out]\n" if left_out else "") + kept.decode("utf-8", "replace")
