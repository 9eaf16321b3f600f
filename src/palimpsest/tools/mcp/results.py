"""What MCP servers return, as parts that a model can be shown: texts, images and links, bounded in number and size."""

import base64
import binascii
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import mcp_types as types
import msgspec

from palimpsest.core.items import Image, Part
from palimpsest.tools.files.images import image_format, image_problem
from palimpsest.tools.tool import ToolOutput, bounded, one_line

LONGEST_RESULT: Final = 400_000
"""Bytes of all texts of a result."""
MOST_IMAGES: Final = 10
MOST_BLOCKS: Final = 1_000
_ADVICE: Final = "ask the server for less at a time"

Block: TypeAlias = types.TextContent | types.ImageContent | types.AudioContent | types.ResourceLink | types.EmbeddedResource
Contents: TypeAlias = types.TextResourceContents | types.BlobResourceContents


def call_output(result: types.CallToolResult, keep: Callable[[bytes], str]) -> ToolOutput:
    """The output of a tool call. `keep` stores the bytes of an image as a blob and returns its address.

    Structured content is shown only where there is no other, because a server repeats it as text.
    """
    output = blocks_output(result.content, keep)
    if not output.text and not output.parts and result.structured_content is not None:
        output = ToolOutput(bounded(msgspec.json.encode(result.structured_content).decode(), LONGEST_RESULT, _ADVICE))
    if not output.text and not output.parts:
        output = ToolOutput("[no output]")
    return ToolOutput(output.text, output.parts, error=bool(result.is_error))


def blocks_output(blocks: Iterable[Block], keep: Callable[[bytes], str]) -> ToolOutput:
    """The texts of some blocks, with a line for each that cannot be shown, and their images."""
    texts: list[str] = []
    images: list[Part] = []
    all_blocks = list(blocks)
    for block in all_blocks[:MOST_BLOCKS]:
        match block:
            case types.TextContent():
                texts.append(block.text)
            case types.ImageContent():
                _add_image(block.data, texts, images, keep)
            case types.AudioContent():
                texts.append(f"[audio {one_line(block.mime_type, 60)}, which cannot be shown]")
            case types.ResourceLink():
                described = f": {one_line(block.description)}" if block.description else ""
                texts.append(f"[resource {one_line(block.name, 100)} at {one_line(block.uri, 500)}{described}]")
            case types.EmbeddedResource():
                _add_contents(block.resource, texts, images, keep)
    if len(all_blocks) > MOST_BLOCKS:
        texts.append(f"[{len(all_blocks) - MOST_BLOCKS:,} more parts left out]")
    return ToolOutput(bounded("\n".join(texts), LONGEST_RESULT, _ADVICE), tuple(images))


def contents_output(contents: Iterable[Contents], keep: Callable[[bytes], str]) -> ToolOutput:
    """The contents of a resource."""
    texts: list[str] = []
    images: list[Part] = []
    for each in list(contents)[:MOST_BLOCKS]:
        _add_contents(each, texts, images, keep)
    return ToolOutput(bounded("\n".join(texts), LONGEST_RESULT, _ADVICE), tuple(images))


def visible(text: str, limit: int) -> str:
    """A text of a server without characters that are not seen, such as those that hide or turn round others; at most `limit` long."""
    shown = "".join(letter for letter in text if letter.isprintable() or letter in "\n\t").strip()
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def _add_contents(contents: Contents, texts: list[str], images: list[Part], keep: Callable[[bytes], str]) -> None:
    shown = one_line(contents.uri, 500)
    match contents:
        case types.TextResourceContents():
            texts.append(f"[resource {shown}]\n{contents.text}")
        case types.BlobResourceContents():
            texts.append(f"[resource {shown}, {one_line(contents.mime_type or 'unknown type', 60)}]")
            if (contents.mime_type or "").startswith("image/"):
                _add_image(contents.blob, texts, images, keep)


def _add_image(data: str, texts: list[str], images: list[Part], keep: Callable[[bytes], str]) -> None:
    """Add an image by its content, whatever the server says about its type, or a line that says why it cannot be shown."""
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    problem = image_problem(decoded)
    found = image_format(decoded)
    if found is None or problem:
        texts.append(f"[an image that cannot be shown: it {problem}]")
    elif len(images) >= MOST_IMAGES:
        texts.append(f"[an image that is not shown: there are more than {MOST_IMAGES}]")
    else:
        images.append(Image(found.media, keep(decoded)))
