"""Size rules of the programs that profiles imitate: how each of them estimates the tokens of a content."""

from collections.abc import Iterable
from typing import Final

import msgspec

from palimpsest.core.items import Content, Document, Image, Opaque, Text, Thinking, ToolCall, ToolResult, text_of
from palimpsest.core.tokens.sizes import SizeRule, decrypted_bytes, encrypted_in, palimpsest_size, quarter_rounded_up
from palimpsest.wire.responses.item_json import IMAGE_PAYLOAD, item_json

CLAUDE_IMAGE_TOKENS = 2_000
BLOB_BYTES = 500_000

_encode = msgspec.json.Encoder().encode


def codex_size(content: Content) -> int:
    """A quarter of the bytes of the compact JSON on the Responses wire; images and encrypted payloads count as in Codex."""
    if isinstance(content, Thinking) and content.signature is not None:
        return quarter_rounded_up(decrypted_bytes(len(content.signature.data)))
    if isinstance(content, Opaque):
        inside = encrypted_in(content.data)
        if inside.type == "ghost_snapshot":
            return 0
        if inside.encrypted_content is not None:
            return quarter_rounded_up(decrypted_bytes(len(inside.encrypted_content)))
    shape = item_json(content)
    return quarter_rounded_up(len(_encode(shape.json)) + shape.payloads * IMAGE_PAYLOAD)


def claude_size(content: Content) -> int:
    """Four characters per token; an image counts 2,000 tokens."""
    match content:
        case Image() | Document():
            return CLAUDE_IMAGE_TOKENS
        case ToolResult():
            return sum(claude_size(part) for part in content.parts)
        case Text() | Thinking() | ToolCall() | Opaque():
            return quarter_rounded_up(len(text_of(content)))


def claude_list_size(sizes: Iterable[int]) -> int:
    """A list without reported usage: a third more than its sum, rounded up."""
    return -(-sum(sizes) * 4 // 3)


def opencode_size(content: Content) -> int:
    """A quarter of the readable characters, rounded to the nearest; images count nothing."""
    match content:
        case Image() | Document():
            return 0
        case ToolResult():
            return _quarter("\n".join(text_of(part) for part in content.parts if isinstance(part, Text | Opaque)))
        case Text() | Thinking() | ToolCall() | Opaque():
            return _quarter(text_of(content))


def json_size(content: Content) -> int:
    """A quarter of the characters of the wire JSON, rounded to the nearest."""
    return _quarter(_encode(item_json(content).json).decode())


def _quarter(text: str) -> int:
    return (len(text) + 2) // 4


def bytes_size(content: Content) -> int:
    """Bytes on the wire instead of tokens; an image counts 500,000 bytes."""
    shape = item_json(content)
    return len(_encode(shape.json)) + shape.payloads * BLOB_BYTES


SIZE_RULES: Final[dict[str, SizeRule]] = {
    "palimpsest": palimpsest_size,
    "codex": codex_size,
    "claude-code": claude_size,
    "opencode": opencode_size,
    "opencode-1.18": json_size,
    "classroom": json_size,
    "bytes": bytes_size,
}
