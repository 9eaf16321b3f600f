"""The tools `edit`, `write` and `apply_patch`, which change files of the workspace."""

import asyncio
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct, field

from palimpsest.agent.confined_files import LARGEST_FILE, make_folders, read_file, remove_file
from palimpsest.agent.tool import AgentTool, ToolError, ToolOutput, define
from palimpsest.agent.workspace import Workspace
from palimpsest.core.errors import PalimpsestError


class EditArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """`old` is the text as it stands in the file, with its white space; `all` replaces every occurrence."""

    path: str
    old: str
    new: str
    all: bool = False


def edit_tool() -> AgentTool:
    """The tool."""
    return define(
        EditArguments,
        _edit,
        name="edit",
        description=(
            "Replace a text of a file by another. `old` must stand in the file exactly so, with its indentation and without line numbers, "
            "and once: add lines around it until it is unique, or set `all` to replace every occurrence. The file must have been read in "
            "this session and must not have changed since."
        ),
        kind="edits",
        check=_check,
    )


async def _check(arguments: EditArguments, workspace: Workspace) -> None:
    await asyncio.to_thread(_changed, workspace.resolve(arguments.path), arguments, workspace)


async def _edit(arguments: EditArguments, workspace: Workspace) -> ToolOutput:
    path = workspace.resolve(arguments.path)
    return await asyncio.to_thread(_edit_now, path, arguments, workspace)


def _edit_now(path: Path, arguments: EditArguments, workspace: Workspace) -> ToolOutput:
    name = workspace.shown(path)
    changed, count = _changed(path, arguments, workspace)
    try:
        workspace.write(path, changed)
    except OSError as error:
        raise ToolError(f"{name} cannot be written: {error.strerror or error}", where=name) from error
    text = f"Edited {name}: {count} replacement{'s' if count > 1 else ''}"
    return ToolOutput(text, paths=(name,), seen=(workspace.seen(path, changed),))


def _changed(path: Path, arguments: EditArguments, workspace: Workspace) -> tuple[bytes, int]:
    """The new content of the file and the number of replacements. Raises `PalimpsestError` if the edit is not possible."""
    name = workspace.shown(path)
    if not arguments.old:
        raise ToolError("`old` is empty; use `write` to create a file", where=name)
    if arguments.old == arguments.new:
        raise ToolError("`old` and `new` are the same; nothing would change", where=name)
    data = read_file(workspace, path, LARGEST_FILE)
    if data is None:
        raise ToolError(f"there is no file {name}; use `write` to create it", where=name)
    workspace.check_unchanged(path, data)
    text = _decoded(data, name)
    old, new = _with_line_ends_of(text, arguments.old, arguments.new)
    count = text.count(old)
    if count == 0:
        raise ToolError(f"`old` does not occur in {name}; read the file again and copy the text exactly", where=name)
    if count > 1 and not arguments.all:
        raise ToolError(f"`old` occurs {count} times in {name}; add lines around it until it is unique, or set `all`", where=name)
    return text.replace(old, new).encode("utf-8", "surrogateescape"), count


def _with_line_ends_of(text: str, old: str, new: str) -> tuple[str, str]:
    """Both texts with the line ends of the file: models write plain newlines, whatever it has."""
    windows = text.count("\r\n")
    # In a file with both kinds, a text that stands there exactly so is meant exactly so.
    if not windows or (windows < text.count("\n") and old in text):
        return old, new
    return old.replace("\r\n", "\n").replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")


def _decoded(data: bytes, name: str) -> str:
    if b"\0" in data[:8_192]:
        raise ToolError(f"{name} is a binary file", where=name)
    return data.decode("utf-8", "surrogateescape")


LARGEST: Final = 5_000_000


class WriteArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole new content of a file."""

    path: str
    content: str


def write_tool() -> AgentTool:
    """The tool."""
    return define(
        WriteArguments,
        _run_write,
        name="write",
        description=(
            "Create a file of the project, or replace the whole content of one. An existing file must have been read in this session and "
            "must not have changed since. For a change of a part use `edit`."
        ),
        kind="edits",
        check=_check_write,
    )


async def _check_write(arguments: WriteArguments, workspace: Workspace) -> None:
    await asyncio.to_thread(_replaced, workspace.resolve(arguments.path), _encoded(arguments.content), workspace)


async def _run_write(arguments: WriteArguments, workspace: Workspace) -> ToolOutput:
    path = workspace.resolve(arguments.path)
    return await asyncio.to_thread(_write_now, path, arguments.content, workspace)


def _write_now(path: Path, content: str, workspace: Workspace) -> ToolOutput:
    name, data = workspace.shown(path), _encoded(content)
    current = _replaced(path, data, workspace)
    try:
        make_folders(workspace, path.parent)
        workspace.write(path, data)
    except OSError as error:
        raise ToolError(f"{name} cannot be written: {error.strerror or error}", where=name) from error
    lines = content.count("\n") + (not content.endswith("\n") and bool(content))
    text = f"{'Created' if current is None else 'Replaced'} {name} ({lines:,} lines)"
    return ToolOutput(text, paths=(name,), seen=(workspace.seen(path, data),))


def _encoded(content: str) -> bytes:
    return content.encode("utf-8", "surrogatepass")


def _replaced(path: Path, data: bytes, workspace: Workspace) -> bytes | None:
    """The content that would be replaced; `None` if there is no file. Raises `PalimpsestError` if the file may not be written."""
    name = workspace.shown(path)
    if len(data) > LARGEST:
        raise ToolError(f"the content has {len(data):,} bytes; at most {LARGEST:,} are written at once", where=name)
    if path.is_dir():
        raise ToolError(f"{name} is a folder", where=name)
    current = read_file(workspace, path, LARGEST_FILE)
    if current is not None:
        workspace.check_unchanged(path, current)
    return current


_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_HEADERS: Final = {"*** Add File: ": "add", "*** Delete File: ": "delete", "*** Update File: ": "update"}
_MOVE, _AT, _EOF = "*** Move to: ", "@@", "*** End of File"


class PatchArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """A patch from `*** Begin Patch` to `*** End Patch`."""

    patch: str


class Hunk(Struct):
    """Lines to be found in a file and lines to put in their place; `context` is the line of code that `@@` names."""

    context: str = ""
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    at_end: bool = False


class FileChange(Struct):
    """What a patch does to one file."""

    action: Literal["add", "delete", "update"]
    path: str
    move_to: str = ""
    lines: list[str] = field(default_factory=list)
    hunks: list[Hunk] = field(default_factory=list)


def patch_tool() -> AgentTool:
    """The tool."""
    return define(
        PatchArguments,
        _patch,
        name="apply_patch",
        description=(
            "Change several files at once. The patch begins with `*** Begin Patch` and ends with `*** End Patch`. In between stand "
            "sections: `*** Add File: PATH` (every line begins with `+`), `*** Delete File: PATH`, and `*** Update File: PATH`, which "
            "`*** Move to: PATH` may follow, with hunks: `@@` and a line of code to find the place, then lines that begin with a blank "
            "(unchanged), `-` (removed) or `+` (added). Either all files are changed or none."
        ),
        kind="edits",
        check=_check_patch,
    )


async def _check_patch(arguments: PatchArguments, workspace: Workspace) -> None:
    await asyncio.to_thread(_planned, parse_patch(arguments.patch), workspace)


async def _patch(arguments: PatchArguments, workspace: Workspace) -> ToolOutput:
    return await asyncio.to_thread(_patch_now, parse_patch(arguments.patch), workspace)


def parse_patch(text: str) -> list[FileChange]:
    """The changes that a patch describes. Raises `ToolError` with the line that cannot be read."""
    lines = text.strip("\n").split("\n")
    if lines[0].strip() != _BEGIN or lines[-1].strip() != _END:
        raise ToolError(f"a patch begins with `{_BEGIN}` and ends with `{_END}`")
    changes: list[FileChange] = []
    for number, line in enumerate(lines[1:-1], 2):
        header = next((each for each in _HEADERS if line.startswith(each)), None)
        if header is not None:
            changes.append(FileChange(_action(header), line.removeprefix(header).strip()))
        elif not changes:
            raise ToolError(f"line {number} of the patch stands before the first file: {line!r}")
        else:
            _take_line(changes[-1], line, number)
    if not changes:
        raise ToolError("the patch names no file")
    return changes


def _action(header: str) -> Literal["add", "delete", "update"]:
    return "add" if header.startswith("*** Add") else "delete" if header.startswith("*** Delete") else "update"


def _take_line(change: FileChange, line: str, number: int) -> None:
    match change.action:
        case "add":
            if not line.startswith("+"):
                raise ToolError(f"line {number} of the patch: every line of an added file begins with `+`, not {line!r}")
            change.lines.append(line[1:])
        case "delete":
            raise ToolError(f"line {number} of the patch: a deleted file has no lines")
        case "update":
            if line.startswith(_MOVE) and not change.hunks:
                change.move_to = line.removeprefix(_MOVE).strip()
            elif line.startswith(_AT):
                change.hunks.append(Hunk(line.removeprefix(_AT).strip()))
            else:
                if not change.hunks:
                    change.hunks.append(Hunk())
                _take_hunk_line(change.hunks[-1], line, number)


def _take_hunk_line(hunk: Hunk, line: str, number: int) -> None:
    if line.strip() == _EOF:
        hunk.at_end = True
        return
    sign, text = line[:1], line[1:]
    if sign not in ("", " ", "-", "+"):
        raise ToolError(f"line {number} of the patch begins neither with a blank nor with `-` or `+`: {line!r}")
    if sign != "+":
        hunk.old.append(text)
    if sign != "-":
        hunk.new.append(text)


def _patch_now(changes: list[FileChange], workspace: Workspace) -> ToolOutput:
    contents = _planned(changes, workspace)
    _carry_out(contents, workspace)
    names = [f"{change.action[0].upper()} {change.move_to or change.path}" for change in changes]
    paths = tuple(workspace.shown(path) for path in contents)
    seen = tuple(workspace.seen(path, data) for path, data in contents.items())
    return ToolOutput("Patched:\n" + "\n".join(names), paths=paths, seen=seen)


def _planned(changes: list[FileChange], workspace: Workspace) -> dict[Path, bytes | None]:
    """The new contents of all files of a patch; nothing is written yet. Raises `PalimpsestError` if the patch does not fit."""
    contents: dict[Path, bytes | None] = {}
    try:
        for change in changes:
            _plan(change, workspace, contents)
    except OSError as error:
        raise ToolError(f"a file of the patch cannot be read: {error.strerror or error}") from error
    return contents


def _plan(change: FileChange, workspace: Workspace, contents: dict[Path, bytes | None]) -> None:
    """Work out the new contents of the files of one change; `None` deletes a file. Nothing is written yet."""
    path = workspace.resolve(change.path)
    current = contents[path] if path in contents else read_file(workspace, path, LARGEST_FILE)
    if change.action == "add":
        if current is not None:
            raise ToolError(f"{change.path} exists already; update it instead of adding it")
        contents[path] = "".join(f"{line}\n" for line in change.lines).encode()
        return
    if current is None:
        raise ToolError(f"there is no file {change.path}")
    if path not in contents:
        workspace.check_unchanged(path, current)
    if (change.action == "delete" or change.move_to) and (workspace.root / change.path).is_symlink():
        # The file that the link leads to would go, and the link would stay and lead nowhere.
        raise ToolError(f"{change.path} is a link to {workspace.shown(path)}; name that file, or use `rm` or `mv` for the link")
    if change.action == "delete":
        contents[path] = None
        return
    text = current.decode("utf-8", "surrogateescape")
    # Models write plain newlines, whatever the file has; a file with both kinds is left as it is.
    crlf = text.count("\r\n") == text.count("\n") > 0
    changed = _updated(text.replace("\r\n", "\n") if crlf else text, change)
    updated = (changed.replace("\n", "\r\n") if crlf else changed).encode("utf-8", "surrogateescape")
    if change.move_to:
        target = workspace.resolve(change.move_to)
        if target != path and (target.exists() or contents.get(target) is not None):
            raise ToolError(f"{change.move_to} exists already")
        contents[path], contents[target] = None, updated
    else:
        contents[path] = updated


def _updated(text: str, change: FileChange) -> str:
    lines, start = text.split("\n"), 0
    for hunk in change.hunks:
        if hunk.context:
            start = next((place + 1 for place in range(start, len(lines)) if lines[place].strip() == hunk.context), start)
        place = _find(lines, hunk, start)
        if place < 0:
            begin = hunk.old[0] if hunk.old else hunk.context
            raise ToolError(f"a hunk does not fit {change.path}: {begin!r} was not found; read the file again")
        lines[place : place + len(hunk.old)] = hunk.new
        start = place + len(hunk.new)
    return "\n".join(lines)


def _find(lines: list[str], hunk: Hunk, start: int) -> int:
    """Where the old lines of a hunk stand from a line on: exactly so, else without white space at their ends; -1 if nowhere."""
    if not hunk.old:
        return len(lines) - (lines[-1] == "") if hunk.at_end or not hunk.context else start
    for strip in (False, True):
        wanted = [line.rstrip() if strip else line for line in hunk.old]
        for place in range(start, len(lines) - len(wanted) + 1):
            found = [line.rstrip() if strip else line for line in lines[place : place + len(wanted)]]
            if found == wanted:
                return place
    return -1


def _carry_out(contents: dict[Path, bytes | None], workspace: Workspace) -> None:
    """Write all files; if the disk refuses one, those that were written get their old content back."""
    before = {path: read_file(workspace, path, LARGEST_FILE) for path in contents}
    done: list[Path] = []
    try:
        for path, data in contents.items():
            done.append(path)
            _put(path, data, workspace)
    except (OSError, PalimpsestError) as error:
        for path in done:
            _put(path, before[path], workspace)
        raise ToolError(f"{workspace.shown(done[-1])} cannot be written: {error}; no file was changed") from error


def _put(path: Path, data: bytes | None, workspace: Workspace) -> None:
    if data is None:
        remove_file(workspace, path)
    else:
        make_folders(workspace, path.parent)
        workspace.write(path, data)
