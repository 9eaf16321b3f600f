"""The plan that an editor shows: the todo list of a session, and the tasks of the project that it changed."""

import msgspec
from acp.schema import AgentPlanUpdate, PlanEntry

from palimpsest.apps.acp.texts import valid
from palimpsest.core.events import TaskChanged
from palimpsest.tools.session.task_files import Task
from palimpsest.tools.session.todo import TODOS, TodoItem

_MOST_ENTRIES = 200
_todos = msgspec.json.Decoder(tuple[TodoItem, ...])
_task = msgspec.json.Decoder(Task)


class SessionPlan:
    """The newest state of the todo list and of each task."""

    def __init__(self) -> None:
        self._items: tuple[TodoItem, ...] = ()
        self._tasks: dict[int, Task] = {}

    def take(self, body: TaskChanged) -> bool:
        """Take in a change; false if it is none of the plan."""
        try:
            if body.task == TODOS:
                self._items = _todos.decode(body.state)
            else:
                task = _task.decode(body.state)
                self._tasks[task.id] = task
        except (msgspec.DecodeError, UnicodeError):
            # Business states, and the lists of other programs.
            return False
        return True

    def update(self) -> AgentPlanUpdate:
        """Return the whole plan: the list in its order, then the tasks by number."""
        entries = [PlanEntry(content=valid(item.text), priority="medium", status=item.status) for item in self._items]
        for _, task in sorted(self._tasks.items()):
            entries.append(PlanEntry(content=valid(f"#{task.id} {task.subject}"), priority="medium", status=task.status))
        return AgentPlanUpdate(session_update="plan", entries=entries[:_MOST_ENTRIES])
