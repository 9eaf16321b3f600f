"""The tool `read`: a text file by lines, an image, a notebook, or the entries of a folder."""

import asyncio
import json
from pathlib import Path
from typing import Final

from msgspec import Struct

from palimpsest.core.items import Image
from palimpsest.tools.files.confined import LARGEST_FILE, entries_of, read_file
from palimpsest.tools.tool import AgentTool, ToolError, ToolOutput, define
from palimpsest.tools.workspace import Workspace

MOST_LINES: Final = 2_000
LONGEST_LINE: Final = 2_000
LARGEST_IMAGE: Final = 5_000_000
MOST_ENTRIES: Final = 1_000
_IMAGES: Final = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}


class ReadArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """`offset` is the first line, from 1; `limit` the number of lines."""

    path: str
    offset: int = 1
    limit: int = MOST_LINES


def read_tool() -> AgentTool:
    """The tool."""
    return define(
        ReadArguments,
        _read,
        name="read",
        description=(
            f"Read a file of the project. Returns numbered lines, at most {MOST_LINES} at a time: use `offset` (first line, from 1) and "
            "`limit` for the rest. Images are shown; notebooks are returned cell by cell; for a folder its entries are listed."
        ),
        kind="reads",
        parallel=True,
    )


async def _read(arguments: ReadArguments, workspace: Workspace) -> ToolOutput:
    path = workspace.resolve(arguments.path)
    return await asyncio.to_thread(_read_now, path, arguments, workspace)


def _read_now(path: Path, arguments: ReadArguments, workspace: Workspace) -> ToolOutput:
    name = workspace.shown(path)
    try:
        if path.is_dir():
            return ToolOutput(_entries(entries_of(workspace, path)), paths=(name,))
    except OSError as error:
        raise ToolError(f"{name} cannot be read: {error.strerror or error}", where=name) from error
    data = read_file(workspace, path, LARGEST_FILE)
    if data is None:
        raise ToolError(f"there is no file {name}", where=name)
    media = _IMAGES.get(path.suffix.lower())
    if media is not None:
        return _image(name, media, data, workspace)
    if path.suffix == ".ipynb":
        workspace.saw(path, data)
        return ToolOutput(_notebook(name, data), paths=(name,))
    if b"\0" in data[:8_192]:
        raise ToolError(f"{name} is a binary file of {len(data):,} bytes", where=name)
    workspace.saw(path, data)
    return ToolOutput(_numbered(name, data.decode("utf-8", "replace"), arguments), paths=(name,))


def _image(name: str, media: str, data: bytes, workspace: Workspace) -> ToolOutput:
    if len(data) > LARGEST_IMAGE:
        raise ToolError(f"{name} has {len(data):,} bytes; images of at most {LARGEST_IMAGE:,} can be shown", where=name)
    return ToolOutput(f"{name}: {media}, {len(data):,} bytes", (Image(media, workspace.keep(data)),), paths=(name,))


def _numbered(name: str, text: str, arguments: ReadArguments) -> str:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        return f"{name} is empty"
    first = max(1, arguments.offset)
    if first > len(lines):
        raise ToolError(f"{name} has {len(lines):,} lines; line {first:,} does not exist", where=name)
    last = min(len(lines), first - 1 + max(1, min(arguments.limit, MOST_LINES)))
    shown = [f"{number:>6}\t{_bounded(line)}" for number, line in enumerate(lines[first - 1 : last], first)]
    if last < len(lines):
        shown.append(f"[lines {first:,} to {last:,} of {len(lines):,}; go on with offset {last + 1}]")
    return "\n".join(shown)


def _bounded(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} [{len(line) - LONGEST_LINE:,} more characters]"


def _entries(names: list[str]) -> str:
    more = [f"[{len(names) - MOST_ENTRIES:,} more entries]"] if len(names) > MOST_ENTRIES else []
    return "\n".join((*names[:MOST_ENTRIES], *more)) or "the folder is empty"


def _notebook(name: str, data: bytes) -> str:
    try:
        cells = json.loads(data)["cells"]
        texts = [(str(cell["cell_type"]), "".join(cell["source"])) for cell in cells]
    except (ValueError, KeyError, TypeError) as error:
        raise ToolError(f"{name} is not a notebook that can be read: {error}", where=name) from error
    return "\n".join(f"[cell {number}, {kind}]\n{text}" for number, (kind, text) in enumerate(texts, 1)) or f"{name} has no cells"
