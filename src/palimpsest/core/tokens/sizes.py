"""The rule that gives a content its size in tokens, and the size of a list of tools."""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from palimpsest.core.items import Content, Document, Image, Opaque, Text, Thinking, ToolCall, ToolResult, Value
from palimpsest.core.tokens.estimate import estimate, estimate_bytes

SizeRule: TypeAlias = Callable[[Content], int]

IMAGE_TOKENS = 1_500
DOCUMENT_TOKENS = 3_000
_FRAME = 4


class Encrypted(Value, frozen=True):
    """What an opaque content says of itself: its type, and its encrypted payload if it has one."""

    type: str = ""
    encrypted_content: str | None = None


_sealed = msgspec.json.Decoder(Encrypted)


def decrypted_bytes(length: int) -> int:
    """What an encrypted payload of that many characters stands for, in bytes."""
    return max(0, length * 3 // 4 - 650)


def quarter_rounded_up(size: int) -> int:
    """A quarter of a size, rounded up."""
    return -(-size // 4)


def encrypted_in(data: str) -> Encrypted:
    """The type and the encrypted payload of an opaque content, empty if it cannot be read."""
    try:
        return _sealed.decode(data)
    except msgspec.DecodeError:
        return Encrypted()


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
            if content.form == "whole" or content.signature is None:
                return estimate(content.text) + _FRAME
            return quarter_rounded_up(decrypted_bytes(len(content.signature.data)))
        case ToolCall():
            return estimate(content.tool) + estimate(content.args) + _id_size(content.call_id) + _FRAME
        case Image():
            return IMAGE_TOKENS
        case Document():
            return DOCUMENT_TOKENS
        case Opaque():
            seal = encrypted_in(content.data).encrypted_content
            return quarter_rounded_up(decrypted_bytes(len(seal))) if seal is not None else estimate(content.data)


def _id_size(call_id: str) -> int:
    """Ids are letters and digits without sense: about two of them a token."""
    return (len(call_id) + 1) // 2


def tool_list_size(tools: bytes) -> int:
    """Our estimate, unscaled, of a tool list as it stands in a request."""
    return int(estimate_bytes(tools)) + 1 if tools else 0
