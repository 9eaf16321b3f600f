"""Texts of ours as blocks of the protocol: bounded, fenced where they are no Markdown, and without what other parsers refuse."""

import re
from base64 import b64encode
from collections.abc import Callable, Iterable
from typing import Final

from acp.schema import ContentToolCallContent, ImageContentBlock, TextContentBlock

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.items import Document, Image, Opaque, Part, Text, text_of
from palimpsest.tools.tool import bounded

# Bytes of one text in an update; the log has the whole.
LONGEST_TEXT: Final = 200_000
_LARGEST_IMAGE: Final = 8 * 1024 * 1024
_TICKS: Final = re.compile("`{3,}")


def valid(text: str) -> str:
    """Return a text that can be encoded: halves of surrogate pairs are replaced."""
    return text.encode("utf-8", "replace").decode()


def text_block(text: str) -> TextContentBlock:
    """Return a text, at most `LONGEST_TEXT` bytes of it."""
    return TextContentBlock(type="text", text=bounded(valid(text), LONGEST_TEXT))


def fenced(text: str) -> str:
    """Return a text as a code block whose fence is longer than any in it."""
    ticks = "`" * max((len(found) + 1 for found in _TICKS.findall(text)), default=3)
    return f"{ticks}\n{text.rstrip()}\n{ticks}"


def result_content(parts: Iterable[Part], blob: Callable[[str], bytes], *, code: bool) -> list[ContentToolCallContent]:
    """Return the parts of a tool result; with `code`, texts are fenced. Images that cannot be read are named only."""
    found: list[ContentToolCallContent] = []
    for part in parts:
        match part:
            case Text(text=text):
                shown = bounded(valid(text), LONGEST_TEXT)
                block: TextContentBlock | ImageContentBlock = TextContentBlock(type="text", text=fenced(shown) if code and shown else shown)
            case Image():
                block = image_block(part, blob) or text_block(text_of(part))
            case Document() | Opaque():
                block = text_block(text_of(part))
        found.append(ContentToolCallContent(type="content", content=block))
    return found


def image_block(image: Image, blob: Callable[[str], bytes]) -> ImageContentBlock | None:
    """Return an image with its bytes; `None` if they are not at hand or too many."""
    if not image.blob:
        return None
    try:
        data = blob(image.blob)
    except PalimpsestError:
        return None
    return None if len(data) > _LARGEST_IMAGE else ImageContentBlock(type="image", data=b64encode(data).decode(), mime_type=image.media)
