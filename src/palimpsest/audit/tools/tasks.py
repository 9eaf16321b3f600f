"""Open tasks of task lists, in the formats of the tools of all programs."""

import re
from collections.abc import Iterable

import msgspec
from msgspec import Raw

from palimpsest.audit.tools.calls import args_of
from palimpsest.core.items import ToolCall
from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.wire.json_reading import Json, is_json

_LISTS = ("todos", "plan", "tasks", "items", "task_list", "todo_list", "todoList", "steps")
_TEXTS = ("content", "step", "title", "subject", "text", "task", "description", "name")
_IDS = ("taskId", "task_id", "id")
_STATES = ("status", "state")
_CLOSED = frozenset({"completed", "complete", "done", "cancelled", "canceled", "deleted", "skipped", "finished", "closed", "resolved"})
_BOX = lazy_pattern(r"^\s*(?:[-*]|\d+[.)])\s*\[( |x|X|-|~|/)\]\s*(.+?)\s*$", re.MULTILINE)
_NUMBERED = lazy_pattern(r"#(\w+) ")
_CREATED = lazy_pattern(r"[Tt]ask #?(\w+)")
_LONGEST = 300


def open_tasks(state: object) -> tuple[str, ...] | None:
    """The texts of the open tasks in a list; `None` if the value is no task list."""
    if isinstance(state, str):
        boxes = _BOX.findall(state)
        return tuple(text[:_LONGEST] for mark, text in boxes if mark not in "xX") if boxes else None
    if isinstance(state, list):
        return tuple(_open_texts(state))
    if is_json(state):
        return next((items for name in _LISTS if (items := open_tasks(state.get(name))) is not None), None)
    return None


def recorded_open_tasks(state: Raw) -> tuple[str, ...] | None:
    """The open tasks of a recorded state."""
    try:
        return open_tasks(msgspec.json.decode(state))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _open_texts(items: Iterable[object]) -> Iterable[str]:
    for item in items:
        if isinstance(item, str) and item:
            yield item[:_LONGEST]
        elif is_json(item) and not _closed(item):
            text = _first_text(item, _TEXTS)
            if text:
                yield text[:_LONGEST]


def _closed(item: Json) -> bool:
    return _first_text(item, _STATES).lower() in _CLOSED or item.get("done") is True or item.get("completed") is True


def _first_text(item: Json, names: tuple[str, ...]) -> str:
    return next((value for name in names if isinstance(value := item.get(name), str) and value), "")


def task_change(call: ToolCall) -> tuple[tuple[str, ...] | None, str, str]:
    """The change that a call makes to the open tasks: a new list or `None`, a task to add, and the key of a task to remove."""
    args = args_of(call)
    whole = open_tasks(args)
    if whole is not None:
        return whole, "", ""
    identity, text = _identity(args), _first_text(args, _TEXTS)[:_LONGEST]
    if not identity:
        return None, text, ""
    if _closed(args):
        return None, "", f"#{identity}"
    return None, f"#{identity} {text}" if text else "", ""


def _identity(args: Json) -> str:
    """The id of a task as text; some tools number their tasks."""
    numbers = (str(value) for name in _IDS if isinstance(value := args.get(name), int) and not isinstance(value, bool))
    return _first_text(args, _IDS) or next(numbers, "")


def task_key(task: str) -> str:
    """The key of a task: its number if it has one, else its text."""
    with_task_number = _NUMBERED.match(task)
    return f"#{with_task_number[1]}" if with_task_number else task


def with_task_number(task: str, answer: str) -> str:
    """A new task with the number that the tool answered, if any."""
    found = None if _NUMBERED.match(task) else _CREATED.search(answer[:200])
    return f"#{found[1]} {task}" if found is not None else task
