"""Tool calls of any program: class, files, command and text changes of a call, outcomes of tests, and open tasks of task lists."""

import re
import shlex
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Literal, TypeAlias

import msgspec
from msgspec import Raw

from palimpsest.audit.commands import AccessKind, FileAccess, is_patch, patched_files, runs_tests, shell_file_accesses
from palimpsest.audit.shell_lines import executed
from palimpsest.core.events import ToolReturned
from palimpsest.core.items import Form, ToolCall, ToolResult, Value, text_of
from palimpsest.core.text import lazy_pattern
from palimpsest.wire.json_reading import Json, is_json
from palimpsest.wire.request import Tool

# Results for longer arguments are not cached, to bound memory.
_CACHED_CHARACTERS = 4_000

ToolClass: TypeAlias = Literal["read", "edit", "write", "command", "search", "agent", "plan", "recall", "other"]
"""What a call means for files and evidence; recorded with calls whose declaration says more than their name."""

Operation: TypeAlias = Literal[
    "read",
    "list",
    "find",
    "search",
    "web_search",
    "fetch",
    "edit",
    "notebook",
    "write",
    "command",
    "process",
    "agent",
    "todo",
    "task",
    "plan",
    "skill",
    "tool_search",
    "recall",
    "memory",
    "compact",
    "other",
]
"""What one tool does. `find` finds files by name and `search` text in files, `notebook` edits one, `process` goes on with a command that
runs, `todo` replaces a list of steps, `task` is a tool of a task graph, `plan` begins or ends plan mode."""


class Action(Value, frozen=True):
    """What one call does: a command has a line, other calls access their paths directly."""

    kind: ToolClass
    paths: tuple[FileAccess, ...] = ()
    command: str = ""


# The only table of tool names: those of this program and of every other one, in lower case and with `_` for `-`.
_NAMES: dict[Operation, str] = {
    "read": "read view open cat read_file readfile view_file open_file read_many_files readmanyfiles fsread fs_read view_image "
    "notebookread read_text_file read_media_file read_multiple_files get_file_contents view_source fileread readmcpresource",
    "list": "ls list list_dir list_directory list_files",
    "find": "glob find find_file find_files file_search search_files search_dir",
    "search": "grep search rg grep_search grep_files search_file codebase_search search_file_content semantic_search find_references",
    "web_search": "websearch web_search google_web_search",
    "fetch": "fetch webfetch web_fetch fetch_url",
    "edit": "edit multiedit multi_edit apply_patch applypatch patch str_replace replace edit_file editfile search_replace "
    "insert insert_edit_into_file replace_string_in_file multi_replace_string_in_file replace_in_file apply_diff edit_block update_file "
    "str_replace_editor str_replace_based_edit_tool file_editor text_editor edit_via_llm llm_based_edit undo_edit",
    "notebook": "notebookedit edit_notebook",
    "write": "write create write_file writefile create_file createfile write_to_file save_file fswrite fs_write filewrite",
    "command": "bash shell exec exec_command local_shell local_shell_call execute_bash execute_command run run_command run_shell_command "
    "run_in_terminal terminal command cmd powershell shell_command container_exec unified_exec ipython execute_ipython_cell run_ipython "
    "code_interpreter bash_code_execution executebash async_bash run_terminal_cmd",
    "process": "bashoutput bash_output read_bash write_stdin killshell kill_shell killbash",
    "agent": "task agent delegate spawn_agent subagent runsubagent dispatch_agent delegate_task new_task sendmessage send_input wait_agent "
    "call_omo_agent delegate_to_agent",
    "todo": "todowrite todoread todo todo_write todos update_plan task_tracker manage_todo_list write_todos update_todo_list plan",
    "task": "taskcreate taskupdate tasklist taskget task_create task_update task_list task_get",
    "plan": "exitplanmode enterplanmode exit_plan_mode",
    "skill": "skill",
    "tool_search": "toolsearch tool_search",
    "recall": "recall search_memory search_sessions context_recall",
    "memory": "remember memory",
    "compact": "compact",
}
_CLASS_BY_OPERATION: dict[Operation, ToolClass] = {
    **dict.fromkeys(("list", "find", "search", "web_search", "tool_search"), "search"),
    **dict.fromkeys(("edit", "notebook"), "edit"),
    **dict.fromkeys(("command", "process"), "command"),
    **dict.fromkeys(("todo", "task", "plan"), "plan"),
    **dict.fromkeys(("recall", "memory"), "recall"),
    **dict.fromkeys(("fetch", "skill", "compact", "other"), "other"),
    "read": "read",
    "write": "write",
    "agent": "agent",
}
# Generic names: with the prefix of a server they do not mean work on files.
_BARE = frozenset({"insert", "create", "run", "open", "list", "patch", "replace", "view", "find", "search", "plan", "task", "exec"})
_BY_NAME: dict[str, Operation] = {name: operation for operation, names in _NAMES.items() for name in names.split()}
_CLASSES: dict[str, ToolClass] = {kind: kind for kind in _CLASS_BY_OPERATION.values()}
# The operation of a tool of which only the class is known.
_USUAL: dict[ToolClass, Operation] = {
    "read": "read",
    "edit": "edit",
    "write": "write",
    "command": "command",
    "search": "search",
    "agent": "agent",
    "plan": "todo",
    "recall": "recall",
    "other": "other",
}
_WORDS = lazy_pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SERVER = lazy_pattern(r"^(?:mcp__.+?__|functions[./]|tools[./]|.*(?:__|[./:]))(?=[A-Za-z])")
_FILE_WORDS = frozenset({"file", "files", "notebook", "document", "path", "buffer"})
_VERBS: dict[str, ToolClass] = {
    **dict.fromkeys(("read", "view", "get", "open", "cat", "show", "load"), "read"),
    **dict.fromkeys(("edit", "replace", "patch", "insert", "update", "modify", "append", "apply"), "edit"),
    **dict.fromkeys(("write", "create", "save", "put", "overwrite"), "write"),
    **dict.fromkeys(("search", "find", "grep", "glob", "list"), "search"),
}
_SHELL_WORDS = frozenset({"bash", "shell", "terminal", "command", "exec", "cmd", "powershell"})
_PATH_KEYS = (
    *("file_path", "filePath", "path", "file", "filename", "notebook_path", "notebookPath", "target_file", "absolute_path"),
    *("relative_path", "file_name", "fileName", "TargetFile", "AbsolutePath", "relative_workspace_path", "uri"),
)
_PATH_LIST_KEYS = ("paths", "files", "file_paths", "filePaths")
_COMMAND_KEYS = ("command", "cmd", "CommandLine", "script", "code", "input")
_PATCH_KEYS = ("input", "patch", "patchText", "patch_text", "diff")
_FIRST_LINE_KEYS = ("start_line", "startLine", "StartLine", "line_start", "start", "line_number", "line")
_LAST_LINE_KEYS = ("end_line", "endLine", "EndLine", "line_end", "end")
_BROKEN = lazy_pattern(r'"(file_path|filePath|path|command|cmd|notebook_path|target_file)"\s*:\s*"((?:[^"\\]|\\.)*)"?')
_SHELLS = frozenset({"bash", "sh", "zsh", "fish", "/bin/bash", "/bin/sh", "/usr/bin/bash", "pwsh", "powershell", "cmd"})
_EDITOR: dict[str, ToolClass] = {
    "view": "read",
    "read": "read",
    "create": "write",
    "write": "write",
    "str_replace": "edit",
    "insert": "edit",
    "undo_edit": "edit",
    "delete": "edit",
    "rename": "edit",
}
_ACCESS_BY_CLASS: dict[ToolClass, AccessKind] = {"read": "read", "edit": "edit", "write": "write", "search": "search", "other": "read"}
_EXIT = lazy_pattern(
    r"^(?:Process exited with code|Exit code:?|exit code:|Exit Code:)\s*(-?\d+)"
    r"|<(?:returncode|exit_code)>\s*(-?\d+)\s*</"
    r"|(?:completed|finished|exited) with exit code:? (-?\d+)[.\]>]*\s*$"
    r'|"exit_?[cC]ode":\s*(-?\d+)',
    re.MULTILINE,
)
_OPENED = lazy_pattern(r"^\[File: (\S.*?) \(\d+ lines total\)\]", re.MULTILINE)


def plain_name(tool: str) -> str:
    """The name of a tool without the prefix of its server or namespace."""
    return _SERVER.sub("", tool) or tool


def tool_operation(tool: str) -> Operation:
    """What a tool does, by its known name, or by the words of its name."""
    operation = _operation_by_tool.get(tool)
    if operation is None:
        operation = _operation_by_name(tool)
        if len(_operation_by_tool) < 4_096:
            _operation_by_tool[tool] = operation
    return operation


def tool_class(tool: str) -> ToolClass:
    """The class of a tool by its known name, or by the words of its name."""
    return _CLASS_BY_OPERATION[tool_operation(tool)]


def operation_of(call: ToolCall) -> Operation:
    """What the tool of a call does: by its name, unless the tool was declared as one of another class.

    A class of a later version counts as none. That a tool whose name is known only reads says less than its name.
    """
    operation, declared = tool_operation(call.tool), _CLASSES.get(call.kind)
    if declared is None or _CLASS_BY_OPERATION[operation] == declared:
        return operation
    named = operation != "other" and _CLASS_BY_OPERATION[operation] == "other"
    return operation if named and declared in ("read", "recall") else _USUAL[declared]


def is_served(tool: str) -> bool:
    """Whether a tool belongs to an MCP server and not to the agent itself."""
    return tool.startswith("mcp__")


_operation_by_tool: dict[str, Operation] = {}


def _operation_by_name(tool: str) -> Operation:
    plain = plain_name(tool).strip("_")
    low = plain.lower().replace("-", "_")
    known = _BY_NAME.get(low)
    if known is not None and not (low in _BARE and "__" in tool.strip("_")):
        return known
    words = [word.lower() for word in _WORDS.findall(plain)]
    if not words:
        return "other"
    if not _FILE_WORDS.isdisjoint(words):
        return _USUAL[next((_VERBS[word] for word in words if word in _VERBS), "other")]
    if not _SHELL_WORDS.isdisjoint(words):
        return "command"
    if "todo" in words or "todos" in words:
        return "todo"
    if words[0] in ("search", "find", "grep", "glob"):
        return "search"
    return "agent" if "agent" in words or "subagent" in words else "other"


class _Schema(msgspec.Struct):
    properties: dict[str, msgspec.Raw] = {}


def declared_class(tool: Tool) -> ToolClass:
    """The class of a tool by its declaration: its name, or else its parameters, as far as they agree with its declared kind."""
    found = _class_by_declaration(tool)
    match tool.kind:
        case "runs":
            return found
        case "reads":
            return "read" if found in ("edit", "write", "command", "other") else found
        case "edits":
            return found if found in ("edit", "write") else "edit"
        case "reports":
            return "other" if found in ("edit", "write", "command") else found
        case "remembers":
            return "recall"


def _class_by_declaration(tool: Tool) -> ToolClass:
    kind = tool_class(tool.name)
    if kind != "other":
        return kind
    try:
        parameters = frozenset(msgspec.json.decode(tool.schema, type=_Schema).properties)
    except msgspec.DecodeError:
        return "other"
    if not parameters.isdisjoint(("command", "cmd")):
        return "command"
    if parameters.isdisjoint((*_PATH_KEYS, *_PATH_LIST_KEYS)):
        return "other"
    if not parameters.isdisjoint(("old_string", "oldString", "old_str", "edits", "patch", "diff")):
        return "edit"
    if not parameters.isdisjoint(("content", "contents", "file_text", "new_content")):
        return "write"
    return "search" if not parameters.isdisjoint(("pattern", "query", "regex")) else "read"


def declared_classes(tools: Iterable[Tool]) -> dict[str, ToolClass]:
    """The classes of tools whose declarations say more than their names."""
    classes = {tool.name: declared_class(tool) for tool in tools}
    return {name: kind for name, kind in classes.items() if kind != tool_class(name)}


def args_of(call: ToolCall) -> Json:
    """The arguments of a call; from malformed JSON only its paths and commands."""
    text = call.args
    if text[:1] == "{" or text.lstrip()[:1] == "{":
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return {name: _unescape(value) for name, value in _BROKEN.findall(text[:20_000])}
        return value if is_json(value) else {}
    return {}


def _unescape(text: str) -> str:
    return text.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\")


def action_of(call: ToolCall) -> Action:
    """What a call does, as far as the call alone tells."""
    if len(call.args) <= _CACHED_CHARACTERS:
        return _cached_action(call.tool, call.args, call.form, call.kind)
    return _action_of(call)


@lru_cache(maxsize=1_024)
def _cached_action(tool: str, args: str, form: Form, kind: str) -> Action:
    """Cached, because every reader of a view asks for the same calls."""
    return _action_of(ToolCall("", tool, args, form, kind=kind))


def class_of_call(call: ToolCall) -> ToolClass:
    """The class of the tool of a call: as it was declared, else by its name. A class of a later version counts as none."""
    return _CLASSES.get(call.kind) or tool_class(call.tool)


def _action_of(call: ToolCall) -> Action:
    kind = class_of_call(call)
    args = args_of(call)
    text = _patch_text(call, args, kind) if kind in ("edit", "other") else ""
    if text:
        return Action("edit", patched_files(text))
    if kind == "command" or call.form == "shell":
        line, shell = _command_line(call, args)
        return Action("command", shell_file_accesses(shell), line)
    if kind == "edit" and isinstance(args.get("command"), str):
        kind = _EDITOR.get(str(args["command"]), "edit")
    how = _ACCESS_BY_CLASS.get(kind)
    return Action(kind, _paths_of(args, how) if how is not None else ())


def action_with(call: ToolCall, returned: ToolReturned) -> Action:
    """What a call did, including paths that only its result names; a failed call other than a command accessed nothing."""
    action = action_of(call)
    if returned.result.error and action.kind != "command":
        return Action(action.kind, (), action.command)
    known = {access.path for access in action.paths}
    how = _ACCESS_BY_CLASS.get(action.kind)
    if how is not None:
        return Action(action.kind, (*action.paths, *(FileAccess(path, how) for path in returned.paths if path not in known)))
    opened = opened_file(action.command, result_text(returned.result)) if action.kind == "command" else ""
    return Action("command", (FileAccess(opened, "edit"),), action.command) if opened else action


def opened_file(command: str, output: str) -> str:
    """The file that an `edit` without a path changed: editors inside a shell name the open file in their output."""
    found = _OPENED.search(output[:2_000]) if command[:5] in ("edit\n", "edit ") else None
    return found[1] if found is not None else ""


def result_text(result: ToolResult) -> str:
    """The text of a result."""
    parts = result.parts
    return text_of(parts[0]) if len(parts) == 1 else "\n".join(text_of(part) for part in parts)


def exit_of(returned: ToolReturned) -> int | None:
    """The exit code of a command: as recorded, or from the first or last lines of its output."""
    if returned.exit is not None:
        return returned.exit
    text = result_text(returned.result)
    found = _EXIT.search(text[:600]) or (_EXIT.search(text[-400:]) if len(text) > 600 else None)
    if found is None:
        return None
    digits = next(group for group in found.groups() if group is not None)
    return int(digits) if len(digits) < 12 else None


def shell_line(call: ToolCall) -> str:
    """The command line as a shell gets it, with the words of a list quoted; empty if the tool runs other code."""
    return _command_line(call, args_of(call))[1]


def _patch_text(call: ToolCall, args: Json, kind: ToolClass) -> str:
    """The patch in a call; for a tool that does not edit, only text that is a complete patch."""
    if kind != "edit":
        values = [args.get(name) for name in _PATCH_KEYS] if args else [call.args]
        return next((value for value in values if isinstance(value, str) and is_patch(value)), "")
    if call.form == "free" or (not args and "*** Begin Patch" in call.args):
        return call.args
    for name in _PATCH_KEYS:
        value = args.get(name)
        if isinstance(value, str) and ("*** Begin Patch" in value or "\n+++ " in value or value.startswith("--- ")):
            return value
    return ""


def _command_line(call: ToolCall, args: Json) -> tuple[str, str]:
    """The command line of a call, for display and as a shell gets it."""
    if not args:
        return call.args, call.args
    for name in _COMMAND_KEYS:
        value = args.get(name)
        if isinstance(value, str) and value:
            line = value.strip()
            return line, "" if name == "code" else line
        if isinstance(value, list) and value:
            words = [word for word in value if isinstance(word, str)]
            if len(words) == 3 and words[0] in _SHELLS:
                return words[2].strip(), words[2].strip()
            return " ".join(words), shlex.join(words)
    return "", ""


def _paths_of(args: Json, how: AccessKind) -> tuple[FileAccess, ...]:
    first, last = _range_of(args) if how == "read" else (None, None)
    paths = [value for name in _PATH_KEYS if isinstance(value := args.get(name), str) and value][:1]
    for name in _PATH_LIST_KEYS:
        value = args.get(name)
        if isinstance(value, str) and value:
            paths.append(value)
        elif isinstance(value, list):
            for entry in value:
                path = _paths_of(entry, how)[:1] if is_json(entry) else ()
                paths += [path[0].path] if path else [entry] if isinstance(entry, str) and entry else []
    return tuple(FileAccess(path, how, first, last) for path in dict.fromkeys(paths))


def _range_of(args: Json) -> tuple[int | None, int | None]:
    spread = args.get("view_range")
    if isinstance(spread, list) and len(spread) == 2:
        return _line(spread[0]), _line(spread[1])
    first = next((line for name in _FIRST_LINE_KEYS if (line := _line(args.get(name))) is not None), None)
    last = next((line for name in _LAST_LINE_KEYS if (line := _line(args.get(name))) is not None), None)
    offset, limit = _line(args.get("offset")), _line(args.get("limit"))
    if offset is not None or limit is not None:
        first = offset or 1
        last = first + limit - 1 if limit else None
    return first, last


def _line(value: object) -> int | None:
    """A line number, perhaps given as text; -1 means no bound."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 12:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**11 else None


_OLD_KEYS = ("old_string", "oldString", "old_str", "old_text", "oldText", "old", "search", "target")
_NEW_KEYS = ("new_string", "newString", "new_str", "new_text", "newText", "new", "replace", "replacement")
_CONTENT_KEYS = ("content", "contents", "file_text", "new_content", "text")
_EVERYWHERE_KEYS = ("replace_all", "replaceAll", "all")
_PATCHED = lazy_pattern(r"^\*\*\* (?P<verb>Update|Add|Delete) File: (?P<path>.+?)\s*$|^(?:\+\+\+ (?:b/)?)(?P<new>[^\t\n]+)")
_HUNK = ("@@", "*** End of File", "*** Move to: ", "--- ", "diff --git ", "index ")


class TextChange(Value, frozen=True):
    """A text of a file that a call replaces; without `old` it is the whole new content. `everywhere` replaces each occurrence."""

    path: str
    old: str
    new: str
    everywhere: bool = False


def changes_of(call: ToolCall) -> tuple[TextChange, ...]:
    """Return what a call replaces in files, as far as the call alone says it; lines of a patch are grouped by hunk."""
    action, args = action_of(call), args_of(call)
    patch = _patch_in(call, args)
    if patch:
        return tuple(_of_patch(patch))
    if action.kind == "write":
        content = next((text for key in _CONTENT_KEYS if isinstance(text := args.get(key), str)), None)
        return (TextChange(_path_of(action), "", content),) if content is not None and action.paths else ()
    return tuple(_of_edits(args, _path_of(action))) if action.kind == "edit" else ()


def with_change(text: str, change: TextChange) -> str | None:
    """Return the text of a file after a change; None if the change does not fit it, so that the text is not known any more."""
    if not change.old:
        return change.new
    if change.old not in text:
        return None
    return text.replace(change.old, change.new) if change.everywhere else text.replace(change.old, change.new, 1)


def _path_of(action: Action) -> str:
    return action.paths[0].path if action.paths else ""


def _patch_in(call: ToolCall, args: Json) -> str:
    texts = [call.args] if not args else [text for text in args.values() if isinstance(text, str)]
    return next((text for text in texts if "*** Begin Patch" in text or text.startswith("--- ") or "\n+++ " in text), "")


def _of_edits(args: Json, path: str) -> Iterator[TextChange]:
    old = next((text for key in _OLD_KEYS if isinstance(text := args.get(key), str)), None)
    if old:
        new = next((text for key in _NEW_KEYS if isinstance(text := args.get(key), str)), "")
        yield TextChange(path, old, new, any(args.get(key) is True for key in _EVERYWHERE_KEYS))
    edits = args.get("edits")
    for edit in edits if isinstance(edits, list) else ():
        if is_json(edit):
            yield from _of_edits(edit, path)


def _of_patch(patch: str) -> Iterator[TextChange]:
    path, is_added = "", False
    old: list[str] = []
    new: list[str] = []
    for line in [*patch.splitlines(), "@@"]:
        named = _PATCHED.match(line)
        if named is not None or line.startswith(_HUNK):
            if path and (old or new):
                yield TextChange(path, "\n".join(old), "\n".join(new))
            old, new = [], []
            if named is not None:
                path, is_added = (named["path"] or named["new"]).strip(), named["verb"] == "Add"
        elif line.startswith("+"):
            new.append(line[1:])
        elif not is_added and line[:1] in ("-", " "):
            old.append(line[1:])
            if line[0] == " ":
                new.append(line[1:])


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


_SUMMARY = lazy_pattern(
    r"^.*(?:\b\d+ (?:passed|failed|passing|failing|pass|fail|skipped|errors?|tests?|specs?|examples?|failures?)\b|"
    r"\b(?:Tests|Test Suites|Tests run|Ran \d+ tests?)\b|test result: |^(?:OK|FAILED|ok|FAIL|PASS)\b|--- FAIL).*$",
    re.MULTILINE,
)
_QUIET = frozenset(
    {"grep", "rg", "egrep", "fgrep", "diff", "test", "[", "which", "ls", "find", "cmp", "pgrep", "ag", "git grep", "git diff"}
)
_TAIL = lazy_pattern(r"\s*(?:2>&1|\|\s*(?:tail|head|grep|cat|tee|less|sed|awk|wc)\b[^|&;]*|>\s*/dev/null|2>\s*/dev/null)\s*$")
_PARTS = lazy_pattern(r"\|{1,2}|&&|;|\n")
_CHANGES_FOLDER = lazy_pattern(r"^cd\s+\S+\s*(?:&&|;)\s*")
_RUNS_ON = lazy_pattern(
    r"running with session ID (\w+)|shellId:? (\w+) is still running|background with ID:? (\w+)|still running.{0,20}PID:? (\w+)"
)
_HANDLES = ("session_id", "sessionId", "shellId", "shell_id", "bash_id", "task_id", "process_id")
_LONGEST_NOTE = 160


def is_test_command(command: str) -> bool:
    """Whether a shell line runs tests in one of its commands."""
    return any(words and runs_tests(words) for (words, _, _), _ in executed(command))


def normalized_command(command: str) -> str:
    """A command without a leading `cd` and trailing filters, by which two runs of it are recognized."""
    plain = " ".join(command[:2_000].split())
    while (shorter := _TAIL.sub("", _CHANGES_FOLDER.sub("", plain))) != plain:
        plain = shorter
    return plain


def command_failed(command: str, code: int | None, *, error: bool) -> bool:
    """Whether a command failed; exit code 1 of a search means that it found nothing."""
    if code is None:
        return error
    if code == 0:
        return False
    # The exit code is that of the last command of a line.
    last = _PARTS.split(command[-2_000:].strip())[-1].split()
    return not (code == 1 and last and (last[0] in _QUIET or " ".join(last[:2]) in _QUIET))


def summary_of_tests(output: str) -> str:
    """The last summary line of the output of tests, or empty."""
    lines = _SUMMARY.findall(output[-4_000:])
    return str(lines[-1]).strip()[:_LONGEST_NOTE] if lines else ""


def error_line(output: str, lines: list[str]) -> str:
    """The last of the given error lines, or else the last line of the output."""
    if lines:
        return lines[-1][:_LONGEST_NOTE]
    return next((line.strip()[:_LONGEST_NOTE] for line in reversed(output[-2_000:].split("\n")) if line.strip()), "")


def handle_in_output(output: str) -> str:
    """The handle of a command that keeps running, from its output; empty if it ended."""
    found = _RUNS_ON.search(output[:400]) or _RUNS_ON.search(output[-400:])
    return next((group for group in found.groups() if group), "") if found is not None else ""


def handle_in_call(call: ToolCall) -> str:
    """The handle of the running command that a call polls; empty if there is none."""
    args = args_of(call)
    return next((str(value) for name in _HANDLES if isinstance(value := args.get(name), str | int) and value != ""), "")
