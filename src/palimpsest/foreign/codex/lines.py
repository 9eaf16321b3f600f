"""Lines of a rollout kept beside a body: what the body says already is a hole in the line, filled again on the way back."""

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
from msgspec import Raw, Struct

from palimpsest.core.edits import Keep, into_of
from palimpsest.core.events import NULL, Body, ContextStated, ModelReplied, ToolReturned, UserSaid, ViewEdited
from palimpsest.core.items import Content, Document, Image, Opaque, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import Blobs

# What is shorter than this costs no more than the hole would.
_SHORTEST = 24
_OPENING = b'{"~":'
_HOLE = re.compile(rb'\{"~":(\d+)\}')
_encode = msgspec.json.Encoder().encode


class Kept(Struct, array_like=True):
    """A line without what its body says, or `plain` as it was; `number` is its place in the file."""

    number: int
    line: Raw
    plain: bool = False


_decode = msgspec.json.Decoder(list[Kept]).decode


def kept_lines(lines: Iterable[tuple[int, bytes]], contents: Sequence[Content], blobs: Blobs) -> Raw:
    """Numbered lines as JSON, each without what the contents say."""
    said = [(number, fragment) for number, fragment in enumerate(fragments_of(contents, blobs)) if len(fragment) >= _SHORTEST]
    kept = [_hollow(number, line, said) for number, line in lines]
    return Raw(b"[" + b",".join(kept) + b"]") if kept else NULL


def _hollow(number: int, line: bytes, said: Sequence[tuple[int, bytes]]) -> bytes:
    if _OPENING in line:
        return b"[%d,%s,true]" % (number, line)
    for place, fragment in said:
        start = line.find(fragment)
        if start >= 0:
            line = b'%s{"~":%d}%s' % (line[:start], place, line[start + len(fragment) :])
    return b"[%d,%s]" % (number, line)


def lines_back(kept: Raw, contents: Callable[[], Sequence[Content]], blobs: Blobs) -> Iterator[tuple[int, bytes]]:
    """The numbered lines as they were; nothing if these are no lines of a rollout."""
    try:
        lines = _decode(kept)
    except msgspec.DecodeError:
        return
    fragments: list[bytes] | None = None
    for each in lines:
        line = bytes(each.line)
        if not each.plain and _OPENING in line:
            if fragments is None:
                fragments = list(fragments_of(contents(), blobs))
            line = _filled(line, fragments)
        yield each.number, line


def _filled(line: bytes, fragments: Sequence[bytes]) -> bytes:
    pieces = _HOLE.split(line)
    pieces[1::2] = [fragments[int(place)] for place in pieces[1::2]]
    return b"".join(pieces)


def fragments_of(contents: Iterable[Content], blobs: Blobs) -> Iterator[bytes]:
    """The JSON that stands in a line for each thing that contents say, always in the same order."""
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
                yield _encode(picture_url(content, blobs))
            case Opaque():
                yield content.data.encode()
                yield _sealed(content)


def _sealed(content: Opaque) -> bytes:
    """What nobody here can read is most of such an item."""
    try:
        table = msgspec.json.decode(content.data)
    except (msgspec.DecodeError, UnicodeError):
        return b""
    sealed = table.get("encrypted_content") or table.get("result") if isinstance(table, dict) else ""
    return _encode(sealed) if isinstance(sealed, str) else b""


def picture_url(content: Image | Document, blobs: Blobs) -> str:
    """A picture or file as a URL that holds it."""
    if not content.blob:
        return content.url
    return f"data:{content.media};base64,{base64.b64encode(blobs.get(content.blob)).decode()}"


def contents_of(body: Body, item: Callable[[str], Content | None]) -> tuple[Content, ...]:
    """What the fragments of a body's lines are made of; `item` finds what an edit keeps."""
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
