"""Contents of Claude Code's messages: taken out of a line as contents of ours, and put back where they stood."""

import base64
import json
from collections.abc import Iterator

import msgspec
from msgspec import Raw

from palimpsest.core.items import Content, Document, Image, Opaque, Part, Role, Seal, Text, Thinking, ToolCall, ToolResult, text_of
from palimpsest.core.ports import Blobs
from palimpsest.foreign.reading.parts import blob_part
from palimpsest.wire.json_reading import Json, is_json, table_at, text
from palimpsest.wire.rules.vocabulary import ANTHROPIC_BLOCKS
from palimpsest.wire.text_fallback import text_fallback

# What stands in a kept line where the body has the content: nothing that a program would write there.
HOLE: Json = {"$": 0}

PROVIDER = "anthropic"
# Blocks of the provider's own that may go back to it; of all others only a twin is ever shown.
_OWN = ANTHROPIC_BLOCKS - {"text", "image", "document", "thinking", "tool_use", "tool_result"}


def raw_of(value: object) -> Raw:
    """A value as JSON; numbers of any size."""
    try:
        return Raw(msgspec.json.encode(value))
    except OverflowError:
        return Raw(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def dumped(value: object) -> str:
    """A value as compact JSON text."""
    return bytes(raw_of(value)).decode()


def take_blocks(message: Json, role: Role, model: str, blobs: Blobs) -> list[Content]:
    """The contents of a message, one a block; the message keeps a hole for each."""
    content = message.get("content")
    if isinstance(content, str):
        message["content"] = HOLE
        return [Text(content, role)]
    if not isinstance(content, list):
        return []
    return [_take(content, place, role, model, blobs) for place in range(len(content))]


def _take(blocks: list[object], place: int, role: Role, model: str, blobs: Blobs) -> Content:
    block = blocks[place]
    if is_json(block) and role == "user" and block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str):
        return _result(block, model, blobs)
    return _take_part(blocks, place, role, model, blobs)


def _take_part(blocks: list[object], place: int, role: Role, model: str, blobs: Blobs) -> Content:
    block = blocks[place]
    found = _known(block, role, model, blobs) if is_json(block) else None
    if found is not None:
        return found
    blocks[place] = HOLE
    if isinstance(block, str):
        return Text(block, role)
    data = block if is_json(block) else {"type": "unknown", "value": block}
    return Opaque(PROVIDER if model and text(data, "type") in _OWN else "claude-code", model, dumped(data), text_fallback(data))


def _known(block: Json, role: Role, model: str, blobs: Blobs) -> Content | None:
    match block.get("type"):
        case "text" if isinstance(said := block.get("text"), str):
            block["text"] = HOLE
            return Text(said, role)
        case "thinking" if role == "assistant" and isinstance(thought := block.get("thinking"), str):
            block["thinking"] = HOLE
            return Thinking(thought, _seal(block, model), form="whole" if thought else "sealed")
        case "tool_use" if role == "assistant" and "input" in block and isinstance(block.get("id"), str):
            args = dumped(block["input"])
            block["input"] = HOLE
            return ToolCall(text(block, "id"), text(block, "name"), args)
        case "image" | "document":
            return _media(block, blobs)
        case _:
            return None


def _seal(block: Json, model: str) -> Seal | None:
    signature = text(block, "signature")
    if not signature:
        return None
    block["signature"] = HOLE
    return Seal(PROVIDER, model, signature)


def _result(block: Json, model: str, blobs: Blobs) -> ToolResult:
    content = block.get("content")
    parts: tuple[Part, ...] = ()
    if isinstance(content, str):
        block["content"] = HOLE
        parts = (Text(content),) if content else ()
    elif isinstance(content, list):
        taken = (_take_part(content, place, "user", model, blobs) for place in range(len(content)))
        parts = tuple(part if isinstance(part, Text | Image | Document | Opaque) else Text(text_of(part)) for part in taken)
    return ToolResult(text(block, "tool_use_id"), parts, error=block.get("is_error") is True)


def _media(block: Json, blobs: Blobs) -> Part | None:
    source = table_at(block, "source")
    data = text(source, "data")
    if text(source, "type") == "url" and text(source, "url"):
        media = "image/*" if block["type"] == "image" else "application/pdf"
        url = text(source, "url")
        return Image(media, url=url) if block["type"] == "image" else Document(media, url=url, name=text(block, "title"))
    if text(source, "type") != "base64" or not data:
        return None
    part = blob_part(text(source, "media_type"), data, blobs, text(block, "title"))
    if isinstance(part, Image | Document) and _same(part, data, blobs):
        source["data"] = HOLE
    return part


def _same(part: Image | Document, data: str, blobs: Blobs) -> bool:
    return base64.b64encode(blobs.get(part.blob)).decode() == data


def fill_blocks(message: Json, contents: Iterator[Content], blobs: Blobs) -> None:
    """Put contents back into the holes of a message; one content belongs to each block."""
    content = message.get("content")
    if content == HOLE:
        message["content"] = _text(next(contents, None))
    elif isinstance(content, list):
        for place in range(len(content)):
            _fill(content, place, next(contents, None), blobs)


def _fill(blocks: list[object], place: int, content: Content | None, blobs: Blobs) -> None:
    block = blocks[place]
    if block == HOLE:
        blocks[place] = _whole(content)
    if not is_json(block):
        return
    match content:
        case Text() | Thinking():
            _put(block, "text", content.text)
            _put(block, "thinking", content.text)
            seal = content.seal if isinstance(content, Thinking) else None
            _put(block, "signature", seal.data if seal is not None else "")
        case ToolCall():
            _put(block, "input", _decoded(content.args))
        case ToolResult():
            _refill(block, content, blobs)
        case Image() | Document():
            source = table_at(block, "source")
            if source.get("data") == HOLE:
                source["data"] = base64.b64encode(blobs.get(content.blob)).decode()
        case Opaque() | None:
            pass


def _refill(block: Json, result: ToolResult, blobs: Blobs) -> None:
    content = block.get("content")
    if isinstance(content, list):
        parts = iter(result.parts)
        for place in range(len(content)):
            _fill(content, place, next(parts, None), blobs)
    else:
        _put(block, "content", "".join(text_of(part) for part in result.parts))


def _put(block: Json, key: str, value: object) -> None:
    if block.get(key) == HOLE:
        block[key] = value


def _text(content: Content | None) -> str:
    return content.text if isinstance(content, Text) else ""


def _whole(content: Content | None) -> object:
    if isinstance(content, Opaque):
        data = _decoded(content.data)
        return data["value"] if is_json(data) and data.get("type") == "unknown" and "value" in data else data
    return _text(content)


def _decoded(data: str) -> object:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data
