"""Items as messages of Anthropic Messages, one JSON object each, for a transcript that people and programs read."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec import Raw

from palimpsest.core.items import MODEL_KINDS, Content, Image, Item, Opaque, Part, Text, Thinking, ToolCall, ToolResult, text_of

_encode: Final = msgspec.json.Encoder().encode


def message_lines(items: Iterable[Item]) -> bytes:
    """Return one message a line, with what stubs stand for; what JSON cannot express, such as an image, stands as text.

    Items that are hidden without a stub, such as a note that the user had forgotten, are left out.
    """
    return b"".join(_encode(message) + b"\n" for message in _messages(item for item in items if not item.hidden))


def _messages(items: Iterable[Item]) -> Iterator[dict[str, Any]]:
    """Yield the messages: runs of items of one role."""
    role, blocks = "", list[dict[str, Any]]()
    for item in items:
        own = "assistant" if item.kind in MODEL_KINDS or getattr(item.content, "role", "") == "assistant" else "user"
        if own != role and blocks:
            yield {"role": role, "content": blocks}
            blocks = []
        role = own
        blocks.append(_block(item.content))
    if blocks:
        yield {"role": role, "content": blocks}


def _block(content: Content) -> dict[str, Any]:
    match content:
        case ToolCall():
            return {"type": "tool_use", "id": content.call_id, "name": content.tool, "input": _arguments(content.args)}
        case ToolResult(parts=(Text(text=text),)):
            block: dict[str, Any] = {"type": "tool_result", "tool_use_id": content.call_id, "content": text}
        case ToolResult():
            block = {"type": "tool_result", "tool_use_id": content.call_id, "content": [_text_block(part) for part in content.parts]}
        case Thinking():
            return {"type": "thinking", "thinking": content.text}
        case _:
            return _text_block(content)
    return {**block, "is_error": True} if content.error else block


def _text_block(content: Part | Opaque) -> dict[str, Any]:
    address = f" {content.blob or content.url}" if isinstance(content, Image) else ""
    return {"type": "text", "text": f"{text_of(content)}{address}"}


def _arguments(text: str) -> Raw | str:
    """The arguments of a call as JSON; a text that is none stays one."""
    try:
        msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
    return Raw((text or "{}").encode())
