"""Rules that give a content its size in tokens: ours, and those of the programs that profiles imitate."""

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import msgspec

from palimpsest.core.items import Content, Document, Image, Opaque, Text, Thinking, ToolCall, ToolResult, Value, text_of
from palimpsest.core.responses_shape import IMAGE_PAYLOAD, shape_of
from palimpsest.core.tokens import estimate, estimate_bytes

SizeRule: TypeAlias = Callable[[Content], int]

IMAGE_TOKENS = 1_500
DOCUMENT_TOKENS = 3_000
CLAUDE_IMAGE_TOKENS = 2_000
BLOB_BYTES = 500_000
_FRAME = 4

_encode = msgspec.json.Encoder().encode


class _Sealed(Value, frozen=True):
    type: str = ""
    encrypted_content: str | None = None


_sealed = msgspec.json.Decoder(_Sealed)


def sealed_bytes(length: int) -> int:
    """What an encrypted payload of that many characters stands for, in bytes."""
    return max(0, length * 3 // 4 - 650)


def _four(size: int) -> int:
    return -(-size // 4)


def _look_inside(data: str) -> _Sealed:
    try:
        return _sealed.decode(data)
    except msgspec.DecodeError:
        return _Sealed()


def palimpsest_size(content: Content) -> int:
    """Our own estimate, unscaled: texts by their bytes, pictures and seals by what they stand for, and a few tokens of frame."""
    # Results come first, for they are most of what arrives.
    match content:
        case ToolResult():
            size = _id_size(content.call_id) + _FRAME
            for part in content.parts:
                size += estimate(part.text) + _FRAME if isinstance(part, Text) else palimpsest_size(part)
            return size
        case Text():
            return estimate(content.text) + _FRAME
        case Thinking():
            if content.form == "whole" or content.seal is None:
                return estimate(content.text) + _FRAME
            return _four(sealed_bytes(len(content.seal.data)))
        case ToolCall():
            return estimate(content.tool) + estimate(content.args) + _id_size(content.call_id) + _FRAME
        case Image():
            return IMAGE_TOKENS
        case Document():
            return DOCUMENT_TOKENS
        case Opaque():
            seal = _look_inside(content.data).encrypted_content
            return _four(sealed_bytes(len(seal))) if seal is not None else estimate(content.data)


def _id_size(call_id: str) -> int:
    """Ids are letters and digits without sense: about two of them a token."""
    return (len(call_id) + 1) // 2


def codex_size(content: Content) -> int:
    """A quarter of the bytes of the compact JSON on the Responses wire; pictures and encrypted payloads count as codex has them."""
    if isinstance(content, Thinking) and content.seal is not None:
        return _four(sealed_bytes(len(content.seal.data)))
    if isinstance(content, Opaque):
        inside = _look_inside(content.data)
        if inside.type == "ghost_snapshot":
            return 0
        if inside.encrypted_content is not None:
            return _four(sealed_bytes(len(inside.encrypted_content)))
    shape = shape_of(content)
    return _four(len(_encode(shape.json)) + shape.payloads * IMAGE_PAYLOAD)


def claude_size(content: Content) -> int:
    """Four characters a token; a picture counts 2,000."""
    match content:
        case Image() | Document():
            return CLAUDE_IMAGE_TOKENS
        case ToolResult():
            return sum(claude_size(part) for part in content.parts)
        case Text() | Thinking() | ToolCall() | Opaque():
            return _four(len(text_of(content)))


def claude_list_size(sizes: Iterable[int]) -> int:
    """A whole list without reported usage: a third more than its sum, rounded up."""
    return -(-sum(sizes) * 4 // 3)


def opencode_size(content: Content) -> int:
    """A quarter of the characters of what can be read, rounded to the nearest; pictures count nothing."""
    match content:
        case Image() | Document():
            return 0
        case ToolResult():
            return _quarter("\n".join(text_of(part) for part in content.parts if isinstance(part, Text | Opaque)))
        case Text() | Thinking() | ToolCall() | Opaque():
            return _quarter(text_of(content))


def json_size(content: Content) -> int:
    """A quarter of the characters of the wire JSON, rounded to the nearest."""
    return _quarter(_encode(shape_of(content).json).decode())


def _quarter(text: str) -> int:
    return (len(text) + 2) // 4


def bytes_size(content: Content) -> int:
    """Bytes on the wire rather than tokens; what lies in a blob counts as a picture of common size."""
    shape = shape_of(content)
    return len(_encode(shape.json)) + shape.payloads * BLOB_BYTES


def tool_list_size(tools: bytes) -> int:
    """Our estimate, unscaled, of a tool list as it stands in a request."""
    return int(estimate_bytes(tools)) + 1 if tools else 0


SIZE_RULES: Final[dict[str, SizeRule]] = {
    "palimpsest": palimpsest_size,
    "codex": codex_size,
    "claude-code": claude_size,
    "opencode": opencode_size,
    "opencode-1.18": json_size,
    "classroom": json_size,
    "bytes": bytes_size,
}
