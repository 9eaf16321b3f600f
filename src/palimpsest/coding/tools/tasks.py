"""Tools for tasks in a graph kept in files (`task_create` and three others), for a todo list, and for handing over a plan."""

import asyncio
import fcntl
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Annotated, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct, field
from msgspec import field as json_field
from msgspec.structs import replace

from palimpsest.agent.confined_files import opened_file, opened_folder
from palimpsest.agent.tool import AgentTool, Arguments, ToolError, ToolOutput, bounded, define, one_line
from palimpsest.agent.workspace import Workspace
from palimpsest.core.errors import BadInput
from palimpsest.core.events import Event, TaskChanged
from palimpsest.core.text import lazy_pattern

TaskStatus: TypeAlias = Literal["pending", "in_progress", "completed"]
LARGEST_TASK: Final = 200_000
"""Bytes of one task file."""
MOST_TASKS: Final = 2_000
MOST_BYTES: Final = 20_000_000
"""Bytes of all task files together, which are read before each turn."""
LOCK_SECONDS: Final = 10.0
_POLL: Final = 0.02
_TASK: Final = lazy_pattern(r"task_([0-9]{1,9})\.json")
_OF_TASK: Final = lazy_pattern(r"task_([0-9]{1,9})[._].*")
_LOG: Final = lazy_pattern(r"task_[0-9]{1,9}_[\w-]+\.log")


class Task(Struct, frozen=True):
    """One task. `blocked_by` are the tasks that must be completed before it can start, `blocks` those that wait for it."""

    id: int
    subject: str
    description: str = ""
    status: TaskStatus = "pending"
    blocked_by: tuple[int, ...] = json_field(name="blockedBy", default=())
    blocks: tuple[int, ...] = ()
    owner: str = ""


class Damage(NamedTuple):
    """A task file that cannot be read, and why."""

    name: str
    why: str


class LogName(NamedTuple):
    """A file with the output of a command, and its size in bytes."""

    name: str
    size: int


_tasks = msgspec.json.Decoder(Task)


class TaskFiles(Struct):
    """The tasks of a folder. `write` replaces the content of a file atomically, so that a crash leaves each file whole.

    The folder lies in one of the `roots`, by default in the one above it, and no link on the way there is followed: a command may put one
    in its place at any time.
    Reading needs no lock; changes are made within `locked`, so that two processes cannot both change what they read.
    """

    folder: Path
    write: Callable[[Path, bytes], None]
    roots: tuple[Path, ...] = ()
    highest: int = 0
    damaged: list[Damage] = field(default_factory=list)

    def load(self) -> dict[int, Task]:
        """All tasks by id. Files that cannot be read are listed in `damaged` and skipped; they are never changed."""
        self.damaged.clear()
        found: dict[int, Task] = {}
        room = MOST_BYTES
        for path in sorted(self._listed()):
            match = _TASK.fullmatch(path.name)
            if match is None:
                continue
            if len(found) >= MOST_TASKS:
                self.damaged.append(Damage(path.name, f"only {MOST_TASKS:,} tasks are read"))
                continue
            if room <= 0:
                self.damaged.append(Damage(path.name, f"only {MOST_BYTES:,} bytes of tasks are read"))
                continue
            try:
                data = self._content(path)
                room -= len(data)
                found[int(match[1])] = _task(data, int(match[1]))
            except (OSError, ValueError, RecursionError) as error:
                self.damaged.append(Damage(path.name, one_line(str(error))))
        return found

    def _listed(self) -> list[Path]:
        try:
            with self._opened() as folder:
                return [self.folder / name for name in os.listdir(folder)]  # noqa: PTH208  # of a descriptor
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ToolError(f"the tasks cannot be listed: {error.strerror or error}", where=str(self.folder)) from error

    def _opened(self, *, create: bool = False) -> AbstractContextManager[int]:
        return opened_folder(self._roots, self.folder, create=create)

    @property
    def _roots(self) -> tuple[Path, ...]:
        return self.roots or (self.folder.parent,)

    def next_id(self) -> int:
        """The number of a new task: one above every number that a file of the folder ever had in this session, damaged ones included."""
        numbers = [int(match[1]) for path in self._listed() if (match := _OF_TASK.fullmatch(path.name)) is not None]
        self.highest = max((self.highest, *numbers)) + 1
        return self.highest

    def save(self, task: Task) -> None:
        """Replace the file of a task; fields that a user added to it stay.

        Raises `ToolError` if it would be too large, `StoreError` if it cannot be written.
        """
        path = self.folder / f"task_{task.id}.json"
        try:
            fields = {**msgspec.json.decode(self._content(path), type=dict[str, object]), **msgspec.to_builtins(task)}
        except FileNotFoundError:
            fields = msgspec.to_builtins(task)
        data = msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n"
        if len(data) > LARGEST_TASK:
            raise ToolError(f"task {task.id} would have {len(data):,} bytes; at most {LARGEST_TASK:,} are kept")
        self.write(path, data)

    def _content(self, path: Path) -> bytes:
        """The bytes of a task file. Raises `OSError` if it cannot be read, `ValueError` if it is too large or no regular file."""
        if path.is_symlink():
            # A link could make the next change replace a file of another folder.
            raise ValueError("it is a symbolic link")
        with opened_file(self._roots, path) as file:
            data = file.read(LARGEST_TASK + 1)
        if len(data) > LARGEST_TASK:
            raise ValueError(f"it has more than {LARGEST_TASK:,} bytes")
        return data

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the folder, which is created if it is missing. Raises `ToolError` after `LOCK_SECONDS`."""
        try:
            with self._opened(create=True) as folder:
                handle = os.open(".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        except OSError as error:
            raise ToolError(f"the tasks cannot be locked: {error.strerror or error}", where=str(self.folder)) from error
        try:
            _lock(handle)
            yield
        finally:
            os.close(handle)

    def add_log(self, task: int, text: str) -> LogName:
        """Store the output of a command of a task in a new log file."""
        number = 1
        with self.locked():
            while (path := self.folder / f"task_{task}_{number}.log").exists():
                number += 1
            data = text.encode("utf-8", "replace")
            self.write(path, data)
        return LogName(path.name, len(data))

    @contextmanager
    def opened_log(self, name: str) -> Iterator[IO[bytes]]:
        """One of the log files, to be read. Raises `ToolError` if it cannot be, such as a link that took its place."""
        try:
            with opened_file(self._roots, self.folder / name) as file:
                yield file
        except OSError as error:
            raise ToolError(f"{name} cannot be read: {error.strerror or error}", where=name) from error

    def logs(self, task: int) -> tuple[LogName, ...]:
        """The log files of a task, by name."""
        paths = [path for path in self._listed() if path.name.startswith(f"task_{task}_") and _LOG.fullmatch(path.name)]
        return tuple(LogName(path.name, path.stat().st_size) for path in sorted(paths) if path.is_file() and not path.is_symlink())


def _task(data: bytes, number: int) -> Task:
    task = _tasks.decode(data)
    if task.id != number:
        raise ValueError(f"it holds task {task.id}")
    return task


def _lock(handle: int) -> None:
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= end:
                raise ToolError(f"another process has held the lock of the tasks for {LOCK_SECONDS:.0f} s; try again later") from error
            time.sleep(_POLL)
        else:
            return


TaskGroup: TypeAlias = Literal["ready", "running", "blocked", "completed"]
GROUPS: Final[tuple[TaskGroup, ...]] = ("ready", "running", "blocked", "completed")
Tasks: TypeAlias = Mapping[int, Task]
_MARKS: Final[dict[TaskGroup, str]] = {"ready": "[ ]", "running": "[>]", "blocked": "[-]", "completed": "[x]"}
_LONGEST_SUBJECT: Final = 200


class TaskUpdate(Struct, frozen=True, forbid_unknown_fields=True):
    """A change of one task. `add_blocked_by` and `add_blocks` are ids of other tasks; `reopen` takes back that it is completed."""

    id: int
    status: TaskStatus | None = None
    owner: Annotated[str, Meta(max_length=200)] | None = None
    add_blocked_by: tuple[int, ...] = ()
    add_blocks: tuple[int, ...] = ()
    reopen: bool = False


class UpdatedTasks(NamedTuple):
    """The graph after a change, and the tasks that the change made ready."""

    tasks: dict[int, Task]
    unlocked: tuple[int, ...] = ()


def open_blockers(task: Task, tasks: Tasks) -> tuple[int, ...]:
    """The tasks that a task still waits for. Unknown ids count: a user may have removed their files by mistake."""
    return tuple(number for number in task.blocked_by if number not in tasks or tasks[number].status != "completed")


def group_of(task: Task, tasks: Tasks) -> TaskGroup:
    """The one group that a task belongs to."""
    match task.status:
        case "completed":
            return "completed"
        case "in_progress":
            return "running"
        case "pending":
            return "blocked" if open_blockers(task, tasks) else "ready"


def with_both_directions(tasks: Tasks) -> dict[int, Task]:
    """The graph with each edge in both of its tasks, and without the edges of completed blockers.

    A user may have edited one file of two, and a crash may have come between two writes.
    """
    edges = {(blocker, task.id) for task in tasks.values() for blocker in task.blocked_by}
    edges |= {(task.id, blocked) for task in tasks.values() for blocked in task.blocks}
    blocked_by: dict[int, list[int]] = defaultdict(list)
    blocks: dict[int, list[int]] = defaultdict(list)
    for blocker, blocked in sorted(edges):
        if blocker not in tasks or tasks[blocker].status != "completed":
            blocked_by[blocked].append(blocker)
            blocks[blocker].append(blocked)
    return {number: replace(task, blocked_by=tuple(blocked_by[number]), blocks=tuple(blocks[number])) for number, task in tasks.items()}


def updated(tasks: Tasks, update: TaskUpdate, default_owner: str = "") -> UpdatedTasks:
    """The graph after one change. Raises `ToolError` if a rule forbids it; nothing is changed then.

    `default_owner` becomes the owner of a task that is started without one.
    """
    if update.id not in tasks:
        raise ToolError(f"there is no task {update.id}")
    ready_before = {number for number, task in tasks.items() if group_of(task, tasks) == "ready"}
    graph = with_both_directions(tasks)
    for blocker in update.add_blocked_by:
        _check_edge(graph, blocker, update.id)
        graph = _with_edge(graph, blocker, update.id)
    for blocked in update.add_blocks:
        _check_edge(graph, update.id, blocked)
        graph = _with_edge(graph, update.id, blocked)
    task = graph[update.id]
    status = _new_status(task, graph, update, default_owner)
    owner = task.owner if update.owner is None else update.owner
    if status == "in_progress" and not owner:
        owner = default_owner
    graph[update.id] = replace(task, status=status, owner=owner)
    graph = with_both_directions(graph)
    ready = [number for number, each in graph.items() if group_of(each, graph) == "ready" and number not in ready_before]
    return UpdatedTasks(graph, tuple(sorted(number for number in ready if number != update.id)))


def _check_edge(graph: Tasks, blocker: int, blocked: int) -> None:
    for number in (blocker, blocked):
        if number not in graph:
            raise ToolError(f"there is no task {number}; nothing was changed")
    if blocker == blocked:
        raise ToolError(f"task {blocker} cannot block itself; nothing was changed")
    seen, waiting = {blocker}, [blocker]
    while waiting:
        for number in graph[waiting.pop()].blocked_by:
            if number == blocked:
                raise ToolError(f"task {blocker} waits for task {blocked} already; the edge would close a cycle, and nothing was changed")
            if number in graph and number not in seen:
                seen.add(number)
                waiting.append(number)


def _with_edge(graph: Tasks, blocker: int, blocked: int) -> dict[int, Task]:
    waiting = graph[blocked]
    return with_both_directions({**graph, blocked: replace(waiting, blocked_by=(*waiting.blocked_by, blocker))})


def _new_status(task: Task, graph: Tasks, update: TaskUpdate, default_owner: str) -> TaskStatus:
    """The status after a change. Raises `ToolError` if the task may not go there."""
    wanted = update.status
    if task.status == "completed":
        if wanted in (None, "completed") and not update.reopen:
            return "completed"
        if not update.reopen:
            raise ToolError(f"task {task.id} is completed; set `reopen` to take that back")
        wanted = wanted or "pending"
    blockers = open_blockers(task, graph)
    if wanted is None or wanted == "pending":
        return wanted or task.status
    if blockers and task.status != "in_progress":
        raise ToolError(f"task {task.id} cannot be {wanted}: it is blocked by {_listed(blockers)}")
    if wanted == "in_progress" and task.status == "in_progress":
        taker = update.owner or default_owner
        if not taker or taker != task.owner:
            raise ToolError(f"task {task.id} is in progress already, taken by {one_line(task.owner, 80) or 'an agent without a name'}")
    return wanted


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def task_line(task: Task, tasks: Tasks) -> str:
    """A task in one line: mark, id, subject, owner and what it waits for."""
    blockers = open_blockers(task, tasks) if task.status != "completed" else ()
    owner = f" (owner {one_line(task.owner, 80)})" if task.owner else ""
    waits = f", blocked by {_listed(blockers)}" if blockers else ""
    return f"{_MARKS[group_of(task, tasks)]} {task.id} {one_line(task.subject, _LONGEST_SUBJECT)}{owner}{waits}"


def grouped(tasks: Tasks) -> dict[TaskGroup, list[Task]]:
    """The tasks by group, each group by id; every task is in exactly one."""
    groups: dict[TaskGroup, list[Task]] = {group: [] for group in GROUPS}
    for _, task in sorted(tasks.items()):
        groups[group_of(task, tasks)].append(task)
    return groups


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


TodoStatus: TypeAlias = Literal["pending", "in_progress", "completed"]
TODOS: Final = "todos"
"""The name of the list in `TaskChanged.task`."""
MOST_ITEMS: Final = 100
LONGEST_TEXT: Final = 500
"""Characters of one item; a result has at most `MOST_ITEMS` lines of that length."""
_TODO_MARKS: Final[dict[TodoStatus, str]] = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


class TodoItem(Struct, frozen=True, forbid_unknown_fields=True):
    """One step. `id` is free: it only has to be unique in the list."""

    id: str
    text: str
    status: TodoStatus = "pending"


class TodoArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole new list."""

    items: tuple[TodoItem, ...]


_items = msgspec.json.Decoder(tuple[TodoItem, ...])


def todo_tool() -> AgentTool:
    """The tool. It keeps no state: every accepted list is a `TaskChanged` of `TODOS`, and `todo_list` reads it back."""
    return define(
        TodoArguments,
        _todo,
        name="todo",
        description=(
            "Keep a list of the steps of your work, and update it when a step starts or ends. Each call replaces the whole list. An item "
            "has an id, a text and a status: pending, in_progress or completed. At most one item is in progress. For work with "
            "dependencies, or that outlives this session, use the task tools."
        ),
        kind="reports",
    )


async def _todo(arguments: TodoArguments, _: Workspace) -> ToolOutput:
    items = arguments.items
    if len(items) > MOST_ITEMS:
        raise ToolError(f"the list has {len(items)} items; at most {MOST_ITEMS} are kept")
    if sum(item.status == "in_progress" for item in items) > 1:
        raise ToolError("Only one task can be in_progress")
    if len({item.id for item in items}) < len(items):
        raise ToolError("two items have the same id; give each its own")
    too_long = next((item for item in items if len(item.text) > LONGEST_TEXT), None)
    if too_long is not None:
        raise ToolError(f"item {one_line(too_long.id, 40)} has {len(too_long.text):,} characters; at most {LONGEST_TEXT} are kept")
    state = Raw(msgspec.json.encode(items))
    return ToolOutput(rendered(items), events=(TaskChanged(TODOS, "replaced", state),))


def rendered(items: Iterable[TodoItem]) -> str:
    """The list as the model reads it: one line for each item in the given order, and how many are done."""
    listed = tuple(items)
    lines = [f"{_TODO_MARKS[item.status]} {one_line(item.text, LONGEST_TEXT)}" for item in listed]
    return "\n".join((*lines, f"{sum(item.status == 'completed' for item in listed)}/{len(listed)} done"))


def todo_list(events: Iterable[Event]) -> tuple[TodoItem, ...]:
    """The list after some events of a session, in order: the newest state that was recorded; empty if there is none."""
    newest: tuple[TodoItem, ...] = ()
    for event in events:
        if isinstance(event.body, TaskChanged) and event.body.task == TODOS:
            try:
                newest = _items.decode(event.body.state)
            except msgspec.DecodeError:
                # Other programs keep their lists under the same name, in a form of their own.
                continue
    return newest


EXIT_PLAN_MODE: Final = "exit_plan_mode"


class ExitPlanModeArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """`plan` is the whole plan as Markdown."""

    plan: str


def plan_tool(keep: Callable[[str], str], is_planning: Callable[[], bool]) -> AgentTool:
    """Return the tool. `keep` writes a plan to its file and returns the path; outside of plan mode the call is refused."""

    async def hand_over(arguments: ExitPlanModeArguments, _: Workspace) -> ToolOutput:
        if not is_planning():
            raise BadInput("plan mode is not on, so there is no plan to hand over; go on with the work")
        if not arguments.plan.strip():
            raise BadInput("the plan is empty; give the whole plan")
        path = keep(arguments.plan)
        return ToolOutput(f"The plan is kept in {path}. End your turn now: the user reads it, may change it, and decides.")

    return define(
        ExitPlanModeArguments,
        hand_over,
        name=EXIT_PLAN_MODE,
        description=(
            "Only in plan mode: hand over the finished plan. It is kept in a file, shown to the user, who may change it, and stated again "
            "after a compaction. Plan mode ends when the user ends it."
        ),
        kind="reports",
    )
