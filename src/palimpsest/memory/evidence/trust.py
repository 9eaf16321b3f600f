"""Which tool results come from the workspace: told by the call in the log, its tool and its paths, never by what the result says."""

import posixpath
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from palimpsest.audit.tools.calls import Action, action_with, shell_line
from palimpsest.audit.tools.executed import executed, program_name, word_set
from palimpsest.core.events import Event, ModelReplied, ToolReturned
from palimpsest.core.items import ToolCall

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
# Programs whose output comes from another machine.
_REMOTE: Final = word_set(
    "curl wget http https xh aria2c lynx w3m links elinks nc ncat netcat socat telnet ftp sftp ssh scp rsync gh glab hub docker podman "
    "kubectl aws gcloud az psql mysql mongosh redis-cli npx bunx uvx pipx"
)
# Subcommands of other programs for which the same holds.
_REMOTE_SUBCOMMANDS: Final = {
    "git": word_set("clone fetch pull ls-remote submodule remote"),
    **dict.fromkeys(
        ("npm", "pnpm", "yarn", "bun", "pip", "pip3", "uv", "poetry", "cargo", "go", "gem", "brew", "apt", "apt-get", "conda", "composer"),
        word_set("install i ci add view info show search audit outdated download update upgrade get exec dlx tool index sync"),
    ),
}
_HARMLESS_PATHS: Final = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty"})
# Calls that are remembered while events are read; a result follows its call closely.
_MOST_CALLS: Final = 10_000


def untrusted_results(events: Iterable[Event], root: str) -> IsUntrusted:
    """Return a function that says whether a result brings text from outside of the workspace `root`, by the calls in these events.

    A result counts as one of the workspace only if its call is among the events, its tool is one that works on files or runs commands,
    every path that it names lies below the root, and no command in it reads from another machine.
    """
    calls: dict[str, ToolCall] = {}
    for event in events:
        if isinstance(event.body, ModelReplied):
            calls |= {part.call_id: part for part in event.body.parts if isinstance(part, ToolCall)}
            if len(calls) > _MOST_CALLS:
                calls = dict(list(calls.items())[-_MOST_CALLS:])

    def is_untrusted(returned: ToolReturned) -> bool:
        call = calls.get(returned.result.call_id)
        return call is None or not _is_local(call, returned, root)

    return is_untrusted


def written_paths(call: ToolCall, returned: ToolReturned, root: str) -> tuple[str, ...]:
    """Return the absolute paths of the files that a call changed."""
    return tuple(_absolute(access.path, root) for access in action_with(call, returned).paths if access.changes)


def _is_local(call: ToolCall, returned: ToolReturned, root: str) -> bool:
    name = call.tool.lower().replace("-", "_")
    for namespace in _NAMESPACES:
        name = name.removeprefix(namespace)
    if name not in _LOCAL:
        return False
    action = action_with(call, returned)
    paths = {access.path for access in action.paths} | set(returned.paths)
    return all(_is_below(path, root) for path in paths) and (action.kind != "command" or _is_local_command(call, action, root))


def _is_local_command(call: ToolCall, action: Action, root: str) -> bool:
    line = shell_line(call) or action.command
    if not line or "://" in line:
        return False
    for command, elsewhere in executed(line):
        words = command.words
        if elsewhere or (words and _is_remote(words)):
            return False
        if not all(_is_below(path, root) for path in _named_paths(words)):
            return False
    return True


def _is_remote(words: tuple[str, ...]) -> bool:
    program = program_name(words[0])
    return program in _REMOTE or not _REMOTE_SUBCOMMANDS.get(program, frozenset()).isdisjoint(words[1:4])


def _named_paths(words: tuple[str, ...]) -> Iterator[str]:
    """Yield the arguments that are paths by their form: absolute ones, those of a home, and those that go up; not the program itself."""
    for word in words[1:]:
        value = word.partition("=")[2] if word.startswith("-") else word
        if value.startswith(("/", "~", "..", "$HOME")):
            yield value


def _is_below(path: str, root: str) -> bool:
    if path in _HARMLESS_PATHS:
        return True
    if not root or path.startswith(("~", "$")) or "://" in path:
        return False
    base = posixpath.normpath(root)
    place = _absolute(path, base)
    return place == base or place.startswith(base.rstrip("/") + "/")


def _absolute(path: str, root: str) -> str:
    return posixpath.normpath(posixpath.join(root, path))
