"""The tool `read`: lines of a text file, cells of a notebook, pages of a PDF file, an image, or the entries of a folder."""

import asyncio
import binascii
import json
import struct
from base64 import b64decode
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import Struct

from palimpsest.agent.confined_files import LARGEST_FILE, entries_of, read_file
from palimpsest.agent.tool import AgentTool, ToolError, ToolOutput, bounded, define
from palimpsest.agent.workspace import Workspace
from palimpsest.core.items import Image
from palimpsest.core.text import lazy_pattern

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
        _run_read,
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


async def _run_read(arguments: ReadArguments, workspace: Workspace) -> ToolOutput:
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

    problem, found = image_problem(data), image_format(data)
    if problem or found is None:
        raise ToolError(f"{name} {problem}", where=name)
    text = f"{name}: {found.media}, {found.width} x {found.height} pixels, {len(data):,} bytes"
    return ToolOutput(text, (Image(found.media, workspace.keep(data)),), paths=(name,))


def _notebook(name: str, data: bytes, arguments: ReadArguments, workspace: Workspace) -> ToolOutput:

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
    from palimpsest.coding.tools.pdf import (
        MOST_PAGES,
        pdf_text,
    )

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


LARGEST_IMAGE: Final = 5_000_000
"""Bytes of an image; providers refuse larger ones, and with them the whole request."""
LONGEST_SIDE: Final = 8_000
"""Pixels of the longer side."""
# Start-of-frame markers of JPEG; the gaps are other kinds of segments.
_FRAMES: Final = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})


class ImageFormat(NamedTuple):
    """The media type of an image and its size in pixels; a size of 0 is unknown."""

    media: str
    width: int = 0
    height: int = 0


def image_format(data: bytes) -> ImageFormat | None:
    """The format of an image that providers accept (PNG, JPEG, GIF, WebP), or `None` for other data."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            return ImageFormat("image/png", *struct.unpack_from(">II", data, 16))
        if data.startswith((b"GIF87a", b"GIF89a")):
            return ImageFormat("image/gif", *struct.unpack_from("<HH", data, 6))
        if data.startswith(b"\xff\xd8\xff"):
            return ImageFormat("image/jpeg", *_jpeg_size(data))
        if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            return ImageFormat("image/webp", *_webp_size(data))
    except struct.error:
        # The data ends within its header.
        return None
    return None


def image_problem(data: bytes) -> str:
    """Why an image cannot be shown, as the end of a sentence; empty if it can."""
    if len(data) > LARGEST_IMAGE:
        return f"has {len(data):,} bytes; images of at most {LARGEST_IMAGE:,} can be shown"
    found = image_format(data)
    if found is None:
        return "is no PNG, JPEG, GIF or WebP image, or a damaged one"
    if max(found.width, found.height) > LONGEST_SIDE:
        return f"has {found.width:,} x {found.height:,} pixels; a side may have at most {LONGEST_SIDE:,}"
    return ""


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Width and height from the first frame; zeros if there is none."""
    place = 2
    while place + 4 <= len(data) and data[place] == 0xFF:
        marker, length = data[place + 1], struct.unpack_from(">H", data, place + 2)[0]
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, place + 5)
            return width, height
        place += 2 + length
    return 0, 0


def _webp_size(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8X":
            return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case _:
            return 0, 0


LONGEST_OUTPUT: Final = 10_000
"""Characters of one output that are shown: of its beginning and of its end together."""
MOST_IMAGES: Final = 8
_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_COLORS: Final = lazy_pattern(r"\x1b\[[0-9;]*[A-Za-z]")


class Cell(NamedTuple):
    """The text of a cell with its outputs, and the bytes of the images among them."""

    text: str
    images: tuple[bytes, ...] = ()


def notebook_cells(name: str, data: bytes) -> list[Cell]:
    """The cells of a notebook, at most `MOST_IMAGES` images in all. Raises `ToolError` if the data is no notebook."""
    try:
        cells = json.loads(data)["cells"]
        shown: list[Cell] = []
        images = MOST_IMAGES
        for number, cell in enumerate(cells, 1):
            shown.append(_cell(number, cell, images))
            images -= len(shown[-1].images)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ToolError(f"{name} is not a notebook that can be read: {error}", where=name) from error
    return shown


def _cell(number: int, cell: dict[str, Any], images_left: int) -> Cell:
    lines = [f"[cell {number}, {cell['cell_type']}]", _lines_text(cell["source"])]
    images: list[bytes] = []
    for output in cell.get("outputs", ()):
        image = _notebook_image(output)
        if image is not None and image_problem(image):
            lines.append(f"[output: an image that {image_problem(image)}]")
        elif image is not None and len(images) >= images_left:
            lines.append("[output: an image, left out]")
        elif image is not None:
            images.append(image)
            lines.append("[output: an image, shown below]")
        else:
            lines += (f"[output]\n{_notebook_bounded(text)}" for text in _output_texts(output))
    return Cell("\n".join(lines), tuple(images))


def _notebook_image(output: dict[str, Any]) -> bytes | None:
    for media in _IMAGES:
        encoded = output.get("data", {}).get(media)
        if encoded is not None:
            try:
                return b64decode(_lines_text(encoded))
            except (ValueError, binascii.Error):
                return b""
    return None


def _output_texts(output: dict[str, Any]) -> Iterator[str]:
    if output.get("output_type") == "error":
        yield (
            _lines_text("\n".join(str(line) for line in output.get("traceback", ()))) or f"{output.get('ename')}: {output.get('evalue')}"
        )
    elif "text" in output:
        yield _lines_text(output["text"])
    elif "text/plain" in output.get("data", {}):
        yield _lines_text(output["data"]["text/plain"])


def _lines_text(value: object) -> str:
    """A text of the format: a string, or a list of lines with their newlines."""
    return _COLORS.sub("", "".join(str(line) for line in value) if isinstance(value, list) else str(value))


def _notebook_bounded(text: str) -> str:
    if len(text) <= LONGEST_OUTPUT:
        return text.rstrip("\n")
    half = LONGEST_OUTPUT // 2
    return f"{text[:half]}\n[{len(text) - LONGEST_OUTPUT:,} characters left out]\n{text[-half:]}".rstrip("\n")
