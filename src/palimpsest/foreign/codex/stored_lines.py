"""Stores lines of a rollout beside a body without repeating its content, and restores them exactly."""

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
from msgspec import Raw, Struct

from palimpsest.core.edits import Keep, into_of
from palimpsest.core.events import NULL, Body, ContextStated, ModelReplied, ToolReturned, UserSaid, ViewEdited
from palimpsest.core.items import Content, Document, Image, Opaque, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import Blobs

# Bytes; a placeholder would not save anything for shorter content.
_MIN_BYTES = 24
_PLACEHOLDER_START = b'{"~":'
_PLACEHOLDER = re.compile(rb'\{"~":(\d+)\}')
_encode = msgspec.json.Encoder().encode


class StoredLine(Struct, array_like=True):
    """A stored line without the content of its body, or `plain` if it is unchanged; `number` is its index in the file."""

    number: int
    line: Raw
    plain: bool = False


_decode = msgspec.json.Decoder(list[StoredLine]).decode


def store_lines(lines: Iterable[tuple[int, bytes]], contents: Sequence[Content], blobs: Blobs) -> Raw:
    """Numbered lines as JSON, with placeholders for what is in the contents."""
    fragments = [(number, fragment) for number, fragment in enumerate(fragments_of(contents, blobs)) if len(fragment) >= _MIN_BYTES]
    stored = [_with_placeholders(number, line, fragments) for number, line in lines]
    return Raw(b"[" + b",".join(stored) + b"]") if stored else NULL


def _with_placeholders(number: int, line: bytes, fragments: Sequence[tuple[int, bytes]]) -> bytes:
    if _PLACEHOLDER_START in line:
        return b"[%d,%s,true]" % (number, line)
    for index, fragment in fragments:
        start = line.find(fragment)
        if start >= 0:
            line = b'%s{"~":%d}%s' % (line[:start], index, line[start + len(fragment) :])
    return b"[%d,%s]" % (number, line)


def restore_lines(stored: Raw, contents: Callable[[], Sequence[Content]], blobs: Blobs) -> Iterator[tuple[int, bytes]]:
    """The numbered lines as they were; nothing if the stored value has no rollout lines."""
    try:
        lines = _decode(stored)
    except msgspec.DecodeError:
        return
    fragments: list[bytes] | None = None
    for each in lines:
        line = bytes(each.line)
        if not each.plain and _PLACEHOLDER_START in line:
            if fragments is None:
                fragments = list(fragments_of(contents(), blobs))
            line = _with_fragments(line, fragments)
        yield each.number, line


def _with_fragments(line: bytes, fragments: Sequence[bytes]) -> bytes:
    pieces = _PLACEHOLDER.split(line)
    pieces[1::2] = [fragments[int(index)] for index in pieces[1::2]]
    return b"".join(pieces)


def fragments_of(contents: Iterable[Content], blobs: Blobs) -> Iterator[bytes]:
    """The JSON of each value in the contents as lines have it, always in the same order."""
    for content in contents:
        match content:
            case Text():
                yield _encode(content.text)
            case Thinking():
                yield _encode(content.text)
                yield _encode(content.signature.data if content.signature is not None else "")
            case ToolCall(form="json" | "free"):
                yield _encode(content.args)
            case ToolCall():
                yield content.args.encode()
            case ToolResult(form="search"):
                yield "".join(part.text for part in content.parts if isinstance(part, Text)).encode()
            case ToolResult():
                yield from fragments_of(content.parts, blobs)
            case Image() | Document():
                yield _encode(media_url(content, blobs))
            case Opaque():
                yield content.data.encode()
                yield _encrypted_data(content)


def _encrypted_data(content: Opaque) -> bytes:
    """The encrypted or binary data of an item, which is most of it."""
    try:
        table = msgspec.json.decode(content.data)
    except (msgspec.DecodeError, UnicodeError):
        return b""
    encrypted = table.get("encrypted_content") or table.get("result") if isinstance(table, dict) else ""
    return _encode(encrypted) if isinstance(encrypted, str) else b""


def media_url(content: Image | Document, blobs: Blobs) -> str:
    """An image or document as a data URL, or its own URL if it has no blob."""
    if not content.blob:
        return content.url
    return f"data:{content.media};base64,{base64.b64encode(blobs.get(content.blob)).decode()}"


def contents_of(body: Body, item: Callable[[str], Content | None]) -> tuple[Content, ...]:
    """The contents whose fragments are placeholders in the lines of a body; `item` finds what an edit keeps."""
    match body:
        case UserSaid() | ModelReplied():
            return tuple(body.parts)
        case ToolReturned():
            return (body.result,)
        case ContextStated():
            return tuple(Text(statement.text, statement.role) for statement in (*(body.head or ()), *body.items))
        case ViewEdited():
            found = (item(piece.id) if isinstance(piece, Keep) else piece.content for edit in body.edits for piece in into_of(edit))
            return tuple(Text("") if content is None else content for content in found)
        case _:
            return ()
