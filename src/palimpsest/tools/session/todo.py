"""The tool `todo`: one flat list of steps, replaced as a whole, of which at most one is in progress."""

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from palimpsest.core.events import Event, TaskChanged
from palimpsest.tools.tool import AgentTool, ToolError, ToolOutput, define, one_line
from palimpsest.tools.workspace import Workspace

TodoStatus: TypeAlias = Literal["pending", "in_progress", "completed"]
TODOS: Final = "todos"
"""The name of the list in `TaskChanged.task`."""
MOST_ITEMS: Final = 100
LONGEST_TEXT: Final = 500
"""Characters of one item; a result has at most `MOST_ITEMS` lines of that length."""
_MARKS: Final[dict[TodoStatus, str]] = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


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
    lines = [f"{_MARKS[item.status]} {one_line(item.text, LONGEST_TEXT)}" for item in listed]
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
