"""The prompt of an editor as input of a session: texts with mentions of files, attached files, and images."""

import binascii
from base64 import b64decode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from palimpsest.apps.acp.texts import valid
from palimpsest.core.errors import BadInput
from palimpsest.core.items import Document, Image, Part, Text

PromptBlock: TypeAlias = TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
# Bytes of one text, and of one image or document.
_LARGEST_TEXT: Final = 4 * 1024 * 1024
_LARGEST_BLOB: Final = 16 * 1024 * 1024
_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_PDF: Final = "application/pdf"


def prompt_parts(blocks: Sequence[PromptBlock], root: Path, keep: Callable[[bytes], str]) -> tuple[Part, ...]:
    """Return the input: one text with mentions `@path` in their places, then the attached texts and images.

    `keep` stores bytes as a blob. Raises `BadInput` for content that is too large, damaged, or that models do not read.
    """
    text, attached = "", list[Part]()
    for block in blocks:
        match block:
            case TextContentBlock():
                text += block.text
            case ResourceContentBlock():
                text += _mention(block.uri, root, block.name)
            case ImageContentBlock():
                attached.append(_image(block.mime_type, block.data, keep))
            case EmbeddedResourceContentBlock():
                text += _mention(block.resource.uri, root)
                attached.append(_resource(block.resource, root, keep))
            case AudioContentBlock():
                raise BadInput("audio is not supported; send text, images or files", where="prompt")
    if len(text) > _LARGEST_TEXT:
        raise BadInput(f"the text has more than {_LARGEST_TEXT // 1024 // 1024} MiB; attach a file instead", where="prompt")
    parts: tuple[Part, ...] = ((Text(valid(text)),) if text.strip() else ()) + tuple(attached)
    if not parts:
        raise BadInput("the prompt is empty; send a text or a file", where="prompt")
    return parts


def _shown_uri(uri: str, root: Path) -> str:
    """A URI as the model should read it: a file of the project by its path there, another file by its absolute path."""
    try:
        address = urlsplit(uri)
    except ValueError:
        return uri
    if address.scheme != "file" or address.netloc not in ("", "localhost"):
        return uri
    path = Path(unquote(address.path))
    lines = f"#{address.fragment}" if address.fragment else ""
    return f"{path.relative_to(root) if path.is_relative_to(root) else path}{lines}"


def _mention(uri: str, root: Path, name: str = "") -> str:
    shown = _shown_uri(uri, root)
    return f"[{name}]({uri})" if name and shown == uri else f"@{shown}"


def _resource(resource: TextResourceContents | BlobResourceContents, root: Path, keep: Callable[[bytes], str]) -> Part:
    shown = valid(_shown_uri(resource.uri, root))
    if isinstance(resource, TextResourceContents):
        if len(resource.text) > _LARGEST_TEXT:
            raise BadInput(f"the attached file has more than {_LARGEST_TEXT // 1024 // 1024} MiB; mention it instead", where=shown)
        return Text(f"Attached file {shown}:\n\n{valid(resource.text)}", attached=True)
    if resource.mime_type == _PDF:
        return Document(_PDF, keep(_decoded(resource.blob, shown)), name=Path(shown).name)
    return _image(resource.mime_type or "", resource.blob, keep, shown)


def _image(media: str, data: str, keep: Callable[[bytes], str], where: str = "prompt") -> Image:
    if media not in _IMAGES:
        raise BadInput(f"content of the type {media or 'unknown'} is not supported; PNG, JPEG, GIF and WebP images are", where=where)
    return Image(media, keep(_decoded(data, where)))


def _decoded(data: str, where: str) -> bytes:
    if len(data) > _LARGEST_BLOB * 4 // 3 + 4:
        raise BadInput(f"the content has more than {_LARGEST_BLOB // 1024 // 1024} MiB", where=where)
    try:
        return b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadInput("the content is not valid base64", where=where) from error
