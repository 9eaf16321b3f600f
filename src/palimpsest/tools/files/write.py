"""The tool `write`: creates a file or replaces the whole content of one that was read before."""

import asyncio
from pathlib import Path
from typing import Final

from msgspec import Struct

from palimpsest.tools.files.confined import LARGEST_FILE, make_folders, read_file
from palimpsest.tools.tool import AgentTool, ToolError, ToolOutput, define
from palimpsest.tools.workspace import Workspace

LARGEST: Final = 5_000_000


class WriteArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole new content of a file."""

    path: str
    content: str


def write_tool() -> AgentTool:
    """The tool."""
    return define(
        WriteArguments,
        _write,
        name="write",
        description=(
            "Create a file of the project, or replace the whole content of one. An existing file must have been read in this session and "
            "must not have changed since. For a change of a part use `edit`."
        ),
        kind="edits",
        check=_check,
    )


async def _check(arguments: WriteArguments, workspace: Workspace) -> None:
    await asyncio.to_thread(_replaced, workspace.resolve(arguments.path), _encoded(arguments.content), workspace)


async def _write(arguments: WriteArguments, workspace: Workspace) -> ToolOutput:
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
