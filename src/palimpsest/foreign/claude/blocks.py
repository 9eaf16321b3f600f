"""Content blocks of Claude Code's messages, decoded into contents and encoded back."""

import base64
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256

import msgspec

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import Usage
from palimpsest.core.items import Content, Document, Image, Opaque, Part, Role, Signature, Text, Thinking, ToolCall, ToolResult, text_of
from palimpsest.core.ports import Blobs
from palimpsest.foreign.reading.files import raw_of
from palimpsest.wire.encoding.media import blob_part
from palimpsest.wire.encoding.messages import framed_statement, is_statement
from palimpsest.wire.encoding.repair import valid_call_id
from palimpsest.wire.encoding.tools import arguments_object, tool_name
from palimpsest.wire.json_reading import Json, is_json, table_at, text
from palimpsest.wire.reply import text_fallback
from palimpsest.wire.rules.anthropic import ANTHROPIC_BLOCKS

# Marks a value that is stored in the body instead of the line; no program writes this object.
PLACEHOLDER: Json = {"$": 0}

PROVIDER = "anthropic"
# Provider-specific blocks that may be sent back; of all others only a text fallback is shown.
_PROVIDER_BLOCKS = ANTHROPIC_BLOCKS - {"text", "image", "document", "thinking", "tool_use", "tool_result"}


def dumped(value: object) -> str:
    """A value as compact JSON text."""
    return bytes(raw_of(value)).decode()


def take_blocks(message: Json, role: Role, model: str, blobs: Blobs) -> list[Content]:
    """Decode the contents of a message, one for each block, and replace them in the message by placeholders."""
    content = message.get("content")
    if isinstance(content, str):
        message["content"] = PLACEHOLDER
        return [Text(content, role)]
    if not isinstance(content, list):
        return []
    return [
        _take_result(block, model, blobs)
        if is_json(block) and role == "user" and block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str)
        else _take_block(content, index, role, model, blobs)
        for index, block in enumerate(content)
    ]


def _take_block(blocks: list[object], index: int, role: Role, model: str, blobs: Blobs) -> Content:
    block = blocks[index]
    found = _take_known_block(block, role, model, blobs) if is_json(block) else None
    if found is not None:
        return found
    blocks[index] = PLACEHOLDER
    if isinstance(block, str):
        return Text(block, role)
    data = block if is_json(block) else {"type": "unknown", "value": block}
    return Opaque(PROVIDER if model and text(data, "type") in _PROVIDER_BLOCKS else "claude-code", model, dumped(data), text_fallback(data))


def _take_known_block(block: Json, role: Role, model: str, blobs: Blobs) -> Content | None:
    match block.get("type"):
        case "text" if isinstance(text_value := block.get("text"), str):
            block["text"] = PLACEHOLDER
            return Text(text_value, role)
        case "thinking" if role == "assistant" and isinstance(thinking := block.get("thinking"), str):
            block["thinking"] = PLACEHOLDER
            if signature := text(block, "signature"):
                block["signature"] = PLACEHOLDER
            seal = Signature(PROVIDER, model, signature) if signature else None
            return Thinking(thinking, seal, form="whole" if thinking else "sealed")
        case "tool_use" if role == "assistant" and "input" in block and isinstance(block.get("id"), str):
            args = dumped(block["input"])
            block["input"] = PLACEHOLDER
            return ToolCall(text(block, "id"), text(block, "name"), args)
        case "image" | "document":
            return _media(block, blobs)
        case _:
            return None


def _take_result(block: Json, model: str, blobs: Blobs) -> ToolResult:
    content = block.get("content")
    parts: tuple[Part, ...] = ()
    if isinstance(content, str):
        block["content"] = PLACEHOLDER
        parts = (Text(content),) if content else ()
    elif isinstance(content, list):
        decoded_parts = (_take_block(content, index, "user", model, blobs) for index in range(len(content)))
        parts = tuple(part if isinstance(part, Text | Image | Document | Opaque) else Text(text_of(part)) for part in decoded_parts)
    return ToolResult(text(block, "tool_use_id"), parts, error=block.get("is_error") is True)


def _media(block: Json, blobs: Blobs) -> Part | None:
    source = table_at(block, "source")
    data, url = text(source, "data"), text(source, "url")
    if text(source, "type") == "url" and url:
        return Image("image/*", url=url) if block["type"] == "image" else Document("application/pdf", url=url, name=text(block, "title"))
    if text(source, "type") != "base64" or not data:
        return None
    part = blob_part(text(source, "media_type"), data, blobs, text(block, "title"))
    # Only canonical base64 can be restored from the blob.
    if isinstance(part, Image | Document) and _base64(part, blobs) == data:
        source["data"] = PLACEHOLDER
    return part


def _base64(part: Image | Document, blobs: Blobs) -> str:
    return base64.b64encode(blobs.get(part.blob)).decode()


def fill_blocks(message: Json, contents: Iterator[Content], blobs: Blobs) -> None:
    """Replace the placeholders of a message by contents, one for each block; the inverse of `take_blocks`."""
    content = message.get("content")
    if content == PLACEHOLDER:
        message["content"] = _text(next(contents, None))
    elif isinstance(content, list):
        for index in range(len(content)):
            _fill(content, index, next(contents, None), blobs)


def _fill(blocks: list[object], index: int, content: Content | None, blobs: Blobs) -> None:
    block = blocks[index]
    if block == PLACEHOLDER:
        blocks[index] = _whole_block(content)
    if not is_json(block):
        return
    match content:
        case Text() | Thinking():
            _put(block, "text", content.text)
            _put(block, "thinking", content.text)
            seal = content.signature if isinstance(content, Thinking) else None
            _put(block, "signature", seal.data if seal is not None else "")
        case ToolCall():
            _put(block, "input", _decoded(content.args))
        case ToolResult():
            _fill_result(block, content, blobs)
        case Image() | Document():
            source = table_at(block, "source")
            if source.get("data") == PLACEHOLDER:
                source["data"] = _base64(content, blobs)
        case Opaque() | None:
            pass


def _fill_result(block: Json, result: ToolResult, blobs: Blobs) -> None:
    content = block.get("content")
    if isinstance(content, list):
        fill_blocks(block, iter(result.parts), blobs)
    else:
        _put(block, "content", "".join(text_of(part) for part in result.parts))


def _put(block: Json, key: str, value: object) -> None:
    if block.get(key) == PLACEHOLDER:
        block[key] = value


def _text(content: Content | None) -> str:
    return content.text if isinstance(content, Text) else ""


def _whole_block(content: Content | None) -> object:
    if isinstance(content, Opaque):
        data = _decoded(content.data)
        return data["value"] if is_json(data) and data.get("type") == "unknown" and "value" in data else data
    return _text(content)


def _decoded(data: str) -> object:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data


_MAX_ID_LENGTH = 128
_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


def plain_id(call_id: str) -> str:
    """A call id in the characters and the length that the provider accepts, as in a request."""
    plain = valid_call_id(call_id, "claude")
    return plain if len(plain) <= _MAX_ID_LENGTH else f"toolu_{sha256(call_id.encode()).hexdigest()[:24]}"


def usage_of(usage: Usage) -> Json:
    """Token counts with the provider's field names."""
    return {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write + usage.cache_write_long,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
        "cache_creation": {"ephemeral_5m_input_tokens": usage.cache_write, "ephemeral_1h_input_tokens": usage.cache_write_long},
    }


def assistant_blocks(parts: Iterable[Content]) -> list[tuple[int, Json]]:
    """The blocks of a reply, each with the index of its part.

    Thinking without a signature of this provider is left out, because the provider would refuse it.
    """
    return [(number, block) for number, part in enumerate(parts) if (block := _assistant_block(part)) is not None]


def _assistant_block(part: Content) -> Json | None:
    match part:
        case Thinking():
            if part.signature is None or part.signature.provider != PROVIDER:
                return None
            return {"type": "thinking", "thinking": part.text, "signature": part.signature.data}
        case ToolCall():
            arguments = msgspec.json.decode(arguments_object(part))
            return {"type": "tool_use", "id": plain_id(part.call_id), "name": tool_name(part.tool), "input": arguments}
        case Opaque(provider="anthropic"):
            block_fields: Json = msgspec.json.decode(part.data)
            return block_fields
        case _:
            shown_text = text_of(part)
            return {"type": "text", "text": shown_text} if shown_text.strip() else None


def user_content(contents: Sequence[Content], blobs: Blobs) -> str | list[Json]:
    """The content of a user line: a text, or blocks if there is more than one text; empty if all texts are empty."""
    if len(contents) == 1 and isinstance(contents[0], Text):
        return _user_text(contents[0])
    return [block for content in contents if (block := _user_block(content, blobs)) is not None]


def result_block(result: ToolResult, blobs: Blobs) -> Json:
    """A tool result; its content is a plain text if it has no other parts."""
    texts = all(isinstance(part, Text) for part in result.parts)
    content = text_of(result) if texts else [block for part in result.parts if (block := _user_block(part, blobs)) is not None]
    block_fields: Json = {"tool_use_id": plain_id(result.call_id), "type": "tool_result", "content": content}
    return {**block_fields, "is_error": True} if result.error else block_fields


def _user_block(content: Content | Part, blobs: Blobs) -> Json | None:
    match content:
        case Image(url=url) if url.startswith(("http://", "https://")):
            return {"type": "image", "source": {"type": "url", "url": url}}
        case Image(blob=blob) | Document(blob=blob) if blob and (isinstance(content, Document) or content.media in _IMAGE_TYPES):
            return _media_block(content, blobs)
        case _:
            shown_text = _user_text(content) if isinstance(content, Text) else text_of(content)
            return {"type": "text", "text": shown_text} if shown_text.strip() else None


def _user_text(content: Text) -> str:
    """A text on the user's side. Statements of the operator are framed as in a request, because these lines have no other role."""
    if not content.text.strip():
        return ""
    return framed_statement(content.text) if is_statement(content) else content.text


def _media_block(content: Image | Document, blobs: Blobs) -> Json:
    try:
        data = _base64(content, blobs)
    except PalimpsestError:
        return {"type": "text", "text": text_of(content)}
    kind = "image" if isinstance(content, Image) else "document"
    return {"type": kind, "source": {"type": "base64", "media_type": content.media, "data": data}}
