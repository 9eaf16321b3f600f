"""A tool call as editors show it: title, kind, places, and the change of a file as old and new text."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from acp.schema import FileEditToolCallContent, ToolCallLocation, ToolKind
from msgspec import Struct

from palimpsest.apps.acp.texts import LONGEST_TEXT, valid
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.items import ToolCall
from palimpsest.tools.files.confined import read_file
from palimpsest.tools.files.patch import FileChange, parse_patch
from palimpsest.tools.tool import one_line
from palimpsest.tools.workspace import Workspace

_LONGEST_TITLE: Final = 200
_LARGEST_INPUT: Final = 32_000
_MOST_PLACES: Final = 50
_KINDS: Final[Mapping[str, ToolKind]] = {
    "read": "read",
    "write": "edit",
    "edit": "edit",
    "apply_patch": "edit",
    "grep": "search",
    "glob": "search",
    "recall": "search",
    "tool_search": "search",
    "bash": "execute",
    "bash_output": "execute",
    "kill": "execute",
    "fetch": "fetch",
    "todo": "think",
    "compact": "think",
    "skill": "read",
}
# Tools of other packages and servers, by the class that they were declared with.
_BY_CLASS: Final[Mapping[str, ToolKind]] = {"read": "read", "edit": "edit", "write": "edit", "search": "search", "command": "execute"}
CODE_KINDS: Final[frozenset[ToolKind]] = frozenset({"read", "search", "execute"})
"""Kinds of calls whose results are no Markdown."""


class ShownCall(Struct, frozen=True):
    """A call for the editor. `raw` are its arguments if they are JSON and not too long, else `None`."""

    title: str
    kind: ToolKind
    locations: list[ToolCallLocation]
    diffs: list[FileEditToolCallContent]
    raw: dict[str, Any] | None = None


def shown_call(call: ToolCall, root: Path, old_text: Callable[[str], str | None] = lambda _: None) -> ShownCall:
    """Return how a call is shown. `old_text` returns what a file holds before a write; `None` if that is not known."""
    arguments = _arguments(call)
    kind = _KINDS.get(call.tool) or _BY_CLASS.get(call.kind, "other")
    changes = _changes(call.tool, arguments)
    paths = [path for change in changes for path in (change.path, change.move_to) if path] if changes else _paths(arguments, kind)
    line = arguments.get("offset") if call.tool == "read" else None
    places = [ToolCallLocation(path=_absolute(path, root), line=line if isinstance(line, int) and line > 0 else None) for path in paths]
    raw = arguments if arguments and len(call.args) <= _LARGEST_INPUT else None
    diffs = _diffs(call.tool, arguments, changes, root, old_text)
    return ShownCall(_title(call, arguments, paths), kind, places[:_MOST_PLACES], diffs, raw)


def file_text(workspace: Workspace, name: str) -> str | None:
    """Return the text of a file of the workspace as it is now; `None` if there is none, or it is too long or no text."""
    try:
        data = read_file(workspace, workspace.resolve(name), LONGEST_TEXT)
        return None if data is None else data.decode("utf-8")
    except (PalimpsestError, OSError, ValueError):
        return None


def _arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments by name; empty if the model wrote no JSON object."""
    try:
        value = json.loads(valid(call.args or "{}"))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _changes(tool: str, arguments: Mapping[str, Any]) -> list[FileChange]:
    """The changes of a patch; empty for any other tool, and for a patch that cannot be read."""
    patch = arguments.get("patch")
    if tool != "apply_patch" or not isinstance(patch, str):
        return []
    try:
        return parse_patch(patch)
    except PalimpsestError:
        return []


def _paths(arguments: Mapping[str, Any], kind: ToolKind) -> list[str]:
    path = arguments.get("path")
    return [path] if kind != "other" and isinstance(path, str) and path else []


def _absolute(path: str, root: Path) -> str:
    # Not resolved: it is only shown, and following links of an invented path is of no use.
    return valid(str(root / path))


def _title(call: ToolCall, arguments: Mapping[str, Any], paths: list[str]) -> str:
    def word(name: str) -> str:
        value = arguments.get(name)
        return valid(one_line(value, _LONGEST_TITLE)) if isinstance(value, str) else ""

    files = valid(one_line(", ".join(paths), _LONGEST_TITLE))
    match call.tool:
        case "bash":
            command = word("command")
            return command if "`" in command or not command else f"`{command}`"
        case "read":
            return f"Read {files}"
        case "write":
            return f"Write {files}"
        case "edit" | "apply_patch":
            return f"Edit {files}"
        case "grep":
            return f"Search {word('pattern')} in {files or '.'}"
        case "glob":
            return f"Find {word('pattern')}"
        case "fetch":
            return f"Fetch {word('url')}"
        case "todo":
            return "Update the plan"
        case _:
            return valid(one_line(call.tool, _LONGEST_TITLE)) or "tool"


def _diffs(
    tool: str, arguments: Mapping[str, Any], changes: list[FileChange], root: Path, old_text: Callable[[str], str | None]
) -> list[FileEditToolCallContent]:
    path, old, new, content = (arguments.get(name) for name in ("path", "old", "new", "content"))
    if tool == "edit" and isinstance(path, str) and isinstance(old, str) and isinstance(new, str):
        return _diff(_absolute(path, root), old, new)
    if tool == "write" and isinstance(path, str) and isinstance(content, str):
        return _diff(_absolute(path, root), old_text(path), content)
    return [diff for change in changes for diff in _patched(change, root)]


def _patched(change: FileChange, root: Path) -> list[FileEditToolCallContent]:
    """The hunks of a patch of one file; a file that is deleted has no text to show."""
    path = _absolute(change.move_to or change.path, root)
    if change.action == "add":
        return _diff(path, None, "\n".join(change.lines))
    return [diff for hunk in change.hunks for diff in _diff(path, "\n".join(hunk.old), "\n".join(hunk.new))]


def _diff(path: str, old: str | None, new: str) -> list[FileEditToolCallContent]:
    """One change; none if it is longer than an update may be."""
    if len(new) + len(old or "") > LONGEST_TEXT:
        return []
    return [FileEditToolCallContent(type="diff", path=path, old_text=None if old is None else valid(old), new_text=valid(new))]
