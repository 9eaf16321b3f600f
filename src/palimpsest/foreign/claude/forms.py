"""Contents of ours in the form that Claude Code keeps them in its lines."""

import base64
from collections.abc import Iterable, Sequence
from hashlib import sha256

import msgspec

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import Usage
from palimpsest.core.items import Content, Document, Image, Opaque, Part, Text, Thinking, ToolCall, ToolResult, text_of
from palimpsest.core.ports import Blobs
from palimpsest.foreign.claude.blocks import PROVIDER
from palimpsest.wire.encoding.messages import framed_statement, is_statement
from palimpsest.wire.encoding.repair import valid_call_id
from palimpsest.wire.encoding.tools import arguments_object, tool_name
from palimpsest.wire.json_reading import Json

_LONGEST_ID = 128
_PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


def plain_id(call_id: str) -> str:
    """The id of a call in the letters and the length that the provider accepts, as a request would carry it."""
    plain = valid_call_id(call_id, "claude")
    return plain if len(plain) <= _LONGEST_ID else f"toolu_{sha256(call_id.encode()).hexdigest()[:24]}"


def usage_of(usage: Usage) -> Json:
    """Tokens as the provider names them."""
    return {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write + usage.cache_write_long,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
        "cache_creation": {"ephemeral_5m_input_tokens": usage.cache_write, "ephemeral_1h_input_tokens": usage.cache_write_long},
    }


def assistant_blocks(parts: Iterable[Content]) -> list[tuple[int, Json]]:
    """The blocks of a reply with the numbers of their parts; a thought without a seal of this provider would be refused: it is left out."""
    return [(number, block) for number, part in enumerate(parts) if (block := _assistant_block(part)) is not None]


def _assistant_block(part: Content) -> Json | None:
    match part:
        case Thinking():
            sealed = part.seal is not None and part.seal.provider == PROVIDER
            return {"type": "thinking", "thinking": part.text, "signature": part.seal.data} if sealed and part.seal is not None else None
        case ToolCall():
            return {
                "type": "tool_use",
                "id": plain_id(part.call_id),
                "name": tool_name(part.tool),
                "input": msgspec.json.decode(arguments_object(part)),
            }
        case Opaque(provider="anthropic"):
            found: Json = msgspec.json.decode(part.data)
            return found
        case _:
            said = text_of(part)
            return {"type": "text", "text": said} if said.strip() else None


def user_content(contents: Sequence[Content], blobs: Blobs) -> str | list[Json]:
    """What a user line says: a text, or blocks where there is more; nothing of empty texts."""
    if len(contents) == 1 and isinstance(contents[0], Text):
        return _said(contents[0])
    return [block for content in contents if (block := _user_block(content, blobs)) is not None]


def result_block(result: ToolResult, blobs: Blobs) -> Json:
    """A result, with the text alone where there is nothing else."""
    texts = all(isinstance(part, Text) for part in result.parts)
    content = text_of(result) if texts else [block for part in result.parts if (block := _user_block(part, blobs)) is not None]
    found: Json = {"tool_use_id": plain_id(result.call_id), "type": "tool_result", "content": content}
    return {**found, "is_error": True} if result.error else found


def _user_block(content: Content | Part, blobs: Blobs) -> Json | None:
    match content:
        case Image(url=url) if url.startswith(("http://", "https://")):
            return {"type": "image", "source": {"type": "url", "url": url}}
        case Image(blob=blob) | Document(blob=blob) if blob and (isinstance(content, Document) or content.media in _PICTURES):
            return _media(content, blobs)
        case _:
            said = _said(content) if isinstance(content, Text) else text_of(content)
            return {"type": "text", "text": said} if said.strip() else None


def _said(content: Text) -> str:
    """A text on the user's side; what the operator stated says so, as in a request, for such lines have no other roles."""
    if not content.text.strip():
        return ""
    return framed_statement(content.text) if is_statement(content) else content.text


def _media(content: Image | Document, blobs: Blobs) -> Json:
    try:
        data = base64.b64encode(blobs.get(content.blob)).decode()
    except PalimpsestError:
        return {"type": "text", "text": text_of(content)}
    kind = "image" if isinstance(content, Image) else "document"
    return {"type": kind, "source": {"type": "base64", "media_type": content.media, "data": data}}
