"""Which tool results come from the workspace: told by the call in the log, its tool and its paths, never by what the result says."""

import posixpath
from collections.abc import Callable, Iterable
from typing import Final

from palimpsest.audit.tools.calls import action_with, shell_line
from palimpsest.audit.tools.executed import word_set
from palimpsest.core.events import Event, ModelReplied, ToolReturned
from palimpsest.core.items import ToolCall
from palimpsest.memory.evidence.local_commands import is_local_line

IsUntrusted = Callable[[ToolReturned], bool]

# Tools that work on the files of a workspace, of our own program and of those whose sessions are imported. Any other tool is untrusted:
# web, MCP, sub-agents, recalled sessions, and what another package brings.
_LOCAL: Final = word_set(
    "read view cat read_file readfile view_file open_file read_many_files notebookread view_image edit multiedit multi_edit notebookedit "
    "apply_patch applypatch patch str_replace replace edit_file search_replace str_replace_editor str_replace_based_edit_tool file_editor "
    "text_editor write write_file create_file write_to_file grep glob ls list rg grep_search search_files search_dir find_file file_search "
    "search_file_content list_dir list_directory list_files bash shell exec exec_command local_shell local_shell_call execute_bash "
    "execute_command run_command run_shell_command run_in_terminal terminal shell_command container_exec unified_exec run_terminal_cmd"
)
_NAMESPACES: Final = ("functions.", "functions/", "tools.", "tools/")
_HARMLESS_PATHS: Final = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty"})
# Calls that are remembered while events are read; a result follows its call closely.
_MOST_CALLS: Final = 10_000


def untrusted_results(events: Iterable[Event], root: str, *more: str) -> IsUntrusted:
    """Return a function that says whether a result brings text from outside of the workspace, by the calls in these events.

    The workspace is the folder `root`, in which relative paths begin, and `more` folders that the user granted. A result counts as one of
    it only if its call is among the events, its tool is one that works on files or runs commands, every path that it names lies in these
    folders, and each command in it is one that stays on this machine. For a session of another program `root` is the folder that it states.
    """
    calls: dict[str, ToolCall] = {}
    for event in events:
        if isinstance(event.body, ModelReplied):
            calls |= {part.call_id: part for part in event.body.parts if isinstance(part, ToolCall)}
            if len(calls) > _MOST_CALLS:
                calls = dict(list(calls.items())[-_MOST_CALLS:])

    def is_untrusted(returned: ToolReturned) -> bool:
        call = calls.get(returned.result.call_id)
        return call is None or not _is_local(call, returned, (root, *more))

    return is_untrusted


def written_paths(call: ToolCall, returned: ToolReturned, root: str) -> tuple[str, ...]:
    """Return the absolute paths of the files that a call changed."""
    return tuple(_absolute(access.path, root) for access in action_with(call, returned).paths if access.changes)


def _is_local(call: ToolCall, returned: ToolReturned, roots: tuple[str, ...]) -> bool:
    name = call.tool.lower().replace("-", "_")
    for namespace in _NAMESPACES:
        name = name.removeprefix(namespace)
    # A tool whose declaration says something else than its name is not the known one.
    if name not in _LOCAL or call.kind:
        return False
    action = action_with(call, returned)
    paths = {access.path for access in action.paths} | set(returned.paths)
    if not all(_is_below(path, roots) for path in paths):
        return False
    return action.kind != "command" or is_local_line(shell_line(call) or action.command, lambda path: _is_below(path, roots))


def _is_below(path: str, roots: tuple[str, ...]) -> bool:
    if path in _HARMLESS_PATHS:
        return True
    if not roots[0] or path.startswith(("~", "$")) or "://" in path:
        return False
    place = _absolute(path, roots[0])
    folders = [posixpath.normpath(root).rstrip("/") for root in roots]
    return any(place == folder or place.startswith(f"{folder}/") for folder in folders)


def _absolute(path: str, root: str) -> str:
    return posixpath.normpath(posixpath.join(root, path))
