"""The tool `read`: a text file by lines, a notebook by cells, a PDF file by pages, an image, or the entries of a folder."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from msgspec import Struct

from palimpsest.core.items import Image
from palimpsest.tools.files.confined import LARGEST_FILE, entries_of, read_file
from palimpsest.tools.tool import AgentTool, ToolError, ToolOutput, bounded, define
from palimpsest.tools.workspace import Workspace

MOST_LINES: Final = 2_000
LONGEST_LINE: Final = 2_000
MOST_BYTES: Final = 200_000
"""Bytes of one result; the rest can be read with `offset`."""
SHELF_BYTES: Final = 32_000
"""The same of a file on the shelf, which holds what was too large for the window."""
MOST_ENTRIES: Final = 1_000
LARGEST_ON_SHELF: Final = 400_000_000
"""Bytes of a file on the shelf that is read at most: the transcript of a session can be long."""
_IMAGE_SUFFIXES: Final = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp"})


class ReadArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """`offset` is the first line, cell or page, from 1; `limit` the number of them. `column` goes on in the middle of a long line."""

    path: str
    offset: int = 1
    limit: int = MOST_LINES
    column: int = 1


def read_tool() -> AgentTool:
    """The tool."""
    return define(
        ReadArguments,
        _read,
        name="read",
        description=(
            f"Read a file of the project. Returns numbered lines, at most {MOST_LINES} and {MOST_BYTES // 1000} kB at a time: use `offset` "
            "(first line, from 1) and `limit` for the rest, `column` within a long line. Images are shown. Of notebooks you get the cells "
            "with their outputs, of PDF files the text of the pages; there `offset` and `limit` count cells or pages. Of a folder the "
            "entries are listed."
        ),
        kind="reads",
        parallel=True,
    )


async def _read(arguments: ReadArguments, workspace: Workspace) -> ToolOutput:
    path = workspace.resolve_to_read(arguments.path)
    name = workspace.shown(path)
    if path.suffix.lower() == ".pdf" and path.is_file():
        return await _pdf(name, await asyncio.to_thread(_data, path, name, workspace), arguments)
    return await asyncio.to_thread(_read_now, path, name, arguments, workspace)


def _read_now(path: Path, name: str, arguments: ReadArguments, workspace: Workspace) -> ToolOutput:
    try:
        if path.is_dir():
            return ToolOutput(_entries(entries_of(workspace, path)), paths=(name,))
    except OSError as error:
        raise ToolError(f"{name} cannot be read: {error.strerror or error}", where=name) from error
    data = _data(path, name, workspace)
    if path.suffix.lower() in _IMAGE_SUFFIXES:
        return _image(name, data, workspace)
    seen = (workspace.seen(path, data),)
    if path.suffix.lower() == ".ipynb":
        return replace(_notebook(name, data, arguments, workspace), seen=seen)
    text = data.decode("utf-8", "replace")
    if workspace.on_shelf(path):
        # A page of what was moved out of the window must not be moved out again, and does not count as a file of the project. All of it is
        # text, also where a command printed zero bytes.
        return ToolOutput(_numbered(name, text, arguments, SHELF_BYTES), paged=True)
    if b"\0" in data[:8_192]:
        raise ToolError(f"{name} is a binary file of {len(data):,} bytes", where=name)
    return ToolOutput(_numbered(name, text, arguments, MOST_BYTES), paths=(name,), seen=seen)


def _data(path: Path, name: str, workspace: Workspace) -> bytes:
    """The bytes of a regular file of bounded size. Raises `ToolError`."""
    data = read_file(workspace, path, LARGEST_ON_SHELF if workspace.on_shelf(path) else LARGEST_FILE)
    if data is None:
        raise ToolError(f"there is no file {name}", where=name)
    return data


def _image(name: str, data: bytes, workspace: Workspace) -> ToolOutput:
    from palimpsest.tools.files.images import image_format, image_problem  # noqa: PLC0415 - few sessions read one, and a start is measured

    problem, found = image_problem(data), image_format(data)
    if problem or found is None:
        raise ToolError(f"{name} {problem}", where=name)
    text = f"{name}: {found.media}, {found.width} x {found.height} pixels, {len(data):,} bytes"
    return ToolOutput(text, (Image(found.media, workspace.keep(data)),), paths=(name,))


def _notebook(name: str, data: bytes, arguments: ReadArguments, workspace: Workspace) -> ToolOutput:
    from palimpsest.tools.files.images import image_format  # noqa: PLC0415 - as above
    from palimpsest.tools.files.notebook import notebook_cells  # noqa: PLC0415 - few sessions read one, and a start is measured

    cells = notebook_cells(name, data)
    if not cells:
        return ToolOutput(f"{name} has no cells", paths=(name,))
    first = _first(name, arguments, len(cells), "cell")
    chosen = cells[first - 1 : first - 1 + max(1, arguments.limit)]
    text, count = _joined([cell.text for cell in chosen], first, len(cells), "cell")
    images = [image for cell in chosen[:count] for image in cell.images]
    shown = tuple(Image(found.media, workspace.keep(image)) for image in images if (found := image_format(image)) is not None)
    return ToolOutput(text, shown, paths=(name,))


async def _pdf(name: str, data: bytes, arguments: ReadArguments) -> ToolOutput:
    if b"%PDF-" not in data[:1_024]:
        raise ToolError(f"{name} is no PDF file", where=name)
    from palimpsest.tools.files.pdf import MOST_PAGES, pdf_text  # noqa: PLC0415 - few sessions read one, and a start is measured

    found = await pdf_text(name, data, max(1, arguments.offset), max(1, min(arguments.limit, MOST_PAGES)))
    first = _first(name, arguments, found.total, "page")
    pages = [f"[page {number}]\n{text.strip()}" for number, text in enumerate(found.pages, first)]
    return ToolOutput(_joined(pages, first, found.total, "page")[0], paths=(name,))


def _first(name: str, arguments: ReadArguments, total: int, unit: str) -> int:
    """The first line, cell or page that is wanted. Raises `ToolError` if the file ends before it."""
    first = max(1, arguments.offset)
    if first > total:
        raise ToolError(f"{name} has {total:,} {unit}s; {unit} {first:,} does not exist", where=name)
    return first


def _joined(texts: Sequence[str], first: int, total: int, unit: str, most: int = MOST_BYTES) -> tuple[str, int]:
    """As many texts as fit into one result, at least one, with the place to go on; and how many they are."""
    size = count = 0
    for text in texts:
        size += len(text.encode("utf-8", "replace")) + 1
        if count and size > most:
            break
        count += 1
    last = first - 1 + count
    rest = [f"[{unit}s {first:,} to {last:,} of {total:,}; go on with offset {last + 1}]"] if last < total else []
    return "\n".join((*(bounded(text, most) for text in texts[:count]), *rest)), count


def _numbered(name: str, text: str, arguments: ReadArguments, most: int) -> str:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        return f"{name} is empty"
    first = _first(name, arguments, len(lines), "line")
    if arguments.column > 1:
        return _rest_of_line(lines[first - 1], first, arguments.column, most)
    chosen = lines[first - 1 : first - 1 + max(1, min(arguments.limit, MOST_LINES))]
    numbered = [f"{number:>6}\t{_bounded(line, number)}" for number, line in enumerate(chosen, first)]
    return _joined(numbered, first, len(lines), "line", most)[0]


def _bounded(line: str, number: int) -> str:
    if len(line) <= LONGEST_LINE:
        return line
    more = len(line) - LONGEST_LINE
    return f"{line[:LONGEST_LINE]} [{more:,} more characters; go on with offset {number} and column {LONGEST_LINE + 1}]"


def _rest_of_line(line: str, number: int, column: int, most: int) -> str:
    """A long line from a column on. Raises `ToolError` if it ends before it."""
    if column > len(line):
        raise ToolError(f"line {number:,} has {len(line):,} characters; column {column:,} does not exist")
    # A character has at most four bytes.
    piece = line[column - 1 : column - 1 + most // 4]
    end = column - 1 + len(piece)
    more = f" [{len(line) - end:,} more characters; go on with offset {number} and column {end + 1}]" if end < len(line) else ""
    return f"{number:>6}\t{piece}{more}"


def _entries(names: list[str]) -> str:
    more = [f"[{len(names) - MOST_ENTRIES:,} more entries]"] if len(names) > MOST_ENTRIES else []
    return "\n".join((*names[:MOST_ENTRIES], *more)) or "the folder is empty"
