"""The tool `edit`: replaces an exact text of a file, which must occur once or is replaced everywhere."""

import asyncio
from pathlib import Path

from msgspec import Struct

from palimpsest.tools.files.confined import LARGEST_FILE, read_file
from palimpsest.tools.tool import AgentTool, ToolError, ToolOutput, define
from palimpsest.tools.workspace import Workspace


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
