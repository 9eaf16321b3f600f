"""The rules of the task graph: edges, starts, completion and unlocking, as functions over its tasks."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace

from palimpsest.tools.session.task_files import Task, TaskStatus
from palimpsest.tools.tool import ToolError, one_line

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
