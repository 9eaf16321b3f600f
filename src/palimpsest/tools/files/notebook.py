"""Notebooks as texts and images, cell by cell, with the outputs of each cell."""

import binascii
import json
from base64 import b64decode
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.tools.files.images import image_problem
from palimpsest.tools.tool import ToolError

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
    lines = [f"[cell {number}, {cell['cell_type']}]", _text(cell["source"])]
    images: list[bytes] = []
    for output in cell.get("outputs", ()):
        image = _image(output)
        if image is not None and image_problem(image):
            lines.append(f"[output: an image that {image_problem(image)}]")
        elif image is not None and len(images) >= images_left:
            lines.append("[output: an image, left out]")
        elif image is not None:
            images.append(image)
            lines.append("[output: an image, shown below]")
        else:
            lines += (f"[output]\n{_bounded(text)}" for text in _output_texts(output))
    return Cell("\n".join(lines), tuple(images))


def _image(output: dict[str, Any]) -> bytes | None:
    for media in _IMAGES:
        encoded = output.get("data", {}).get(media)
        if encoded is not None:
            try:
                return b64decode(_text(encoded))
            except (ValueError, binascii.Error):
                return b""
    return None


def _output_texts(output: dict[str, Any]) -> Iterator[str]:
    if output.get("output_type") == "error":
        yield _text("\n".join(str(line) for line in output.get("traceback", ()))) or f"{output.get('ename')}: {output.get('evalue')}"
    elif "text" in output:
        yield _text(output["text"])
    elif "text/plain" in output.get("data", {}):
        yield _text(output["data"]["text/plain"])


def _text(value: object) -> str:
    """A text of the format: a string, or a list of lines with their newlines."""
    return _COLORS.sub("", "".join(str(line) for line in value) if isinstance(value, list) else str(value))


def _bounded(text: str) -> str:
    if len(text) <= LONGEST_OUTPUT:
        return text.rstrip("\n")
    half = LONGEST_OUTPUT // 2
    return f"{text[:half]}\n[{len(text) - LONGEST_OUTPUT:,} characters left out]\n{text[-half:]}".rstrip("\n")
