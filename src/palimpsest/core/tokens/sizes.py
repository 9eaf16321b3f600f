"""Our rule for the size of a content in tokens, and the size of a list of tool declarations."""

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
    """The type of an opaque content, and its encrypted payload if it has one."""

    type: str = ""
    encrypted_content: str | None = None


_decoder = msgspec.json.Decoder(Encrypted)


def decrypted_bytes(length: int) -> int:
    """Return the approximate plaintext size, in bytes, of an encrypted payload of `length` base64 characters."""
    return max(0, length * 3 // 4 - 650)


def quarter_rounded_up(size: int) -> int:
    """Return a quarter of a size, rounded up."""
    return -(-size // 4)


def encrypted_in(data: str) -> Encrypted:
    """Return the type and the encrypted payload of an opaque content; empty if it cannot be decoded."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError:
        return Encrypted()


def palimpsest_size(content: Content) -> int:
    """Return our unscaled estimate of a content in tokens, with a few tokens for its JSON frame.

    Texts count by their bytes, images and documents by a constant, encrypted contents by their plaintext size.
    """
    # Results are tested first because they are the most frequent.
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
            payload = encrypted_in(content.data).encrypted_content
            return quarter_rounded_up(decrypted_bytes(len(payload))) if payload is not None else estimate(content.data)


def _id_size(call_id: str) -> int:
    """Return the tokens of a call id: random letters and digits have about two characters per token."""
    return (len(call_id) + 1) // 2


def tool_list_size(tools: bytes) -> int:
    """Return our unscaled estimate of the tokens of an encoded tool list."""
    return int(estimate_bytes(tools)) + 1 if tools else 0
