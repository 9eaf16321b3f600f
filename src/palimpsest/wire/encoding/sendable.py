"""Adapts an item to a model: applies its mask, drops signatures of other models, replaces unsupported media by text."""

from typing import Final

import msgspec
from msgspec.structs import replace

from palimpsest.core.errors import DamagedBlob, MissingBlob
from palimpsest.core.items import (
    Content,
    Document,
    Image,
    Item,
    Opaque,
    Part,
    Role,
    Signature,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    text_of,
)
from palimpsest.core.view import shown, speaker
from palimpsest.wire.encoding.media import Fetch, inlined, is_inline, media_of
from palimpsest.wire.encoding.tools import opaque_type
from palimpsest.wire.json_reading import Json, dump, is_object, tables_at, text
from palimpsest.wire.models.cards import ModelCard, parse_model_name
from palimpsest.wire.rules.anthropic import ANTHROPIC_BLOCKS, block_violations
from palimpsest.wire.rules.responses import RESPONSES_PARTS

# Pairs are checked by their item kinds; a call or result inside an opaque block would stay unpaired.
_PAIRED: Final = frozenset({"tool_use", "tool_result"})
_WITHIN_RESULTS: Final = frozenset({"text", "image", "document", "search_result", "tool_reference"})
_BREAKPOINT: Final = "cache_control"


def sendable_block(data: str, role: Role, *, within_result: bool = False, binds: bool = False) -> str | None:
    """The JSON of an opaque block without cache breakpoints, or `None` if the provider would reject it.

    A model that `binds` thinking to what stands before it gets a block of a kind that is not known yet as it came in its reply.
    """
    block = msgspec.json.decode(data, type=dict[str, object])
    bare = _without_breakpoints(block)
    kind = text(bare, "type")
    if kind in _PAIRED or (within_result and kind not in _WITHIN_RESULTS):
        return None
    is_new = binds and role == "assistant" and kind != "" and kind not in ANTHROPIC_BLOCKS
    if not is_new and any(block_violations(bare, "assistant" if role == "assistant" else "user")):
        return None
    # Unchanged bytes where possible, because providers compare what they sent.
    return data.strip() if bare is block else dump(bare)


def _without_breakpoints(block: Json) -> Json:
    with_breakpoint = [part for part in tables_at(block, "content") if _BREAKPOINT in part]
    if _BREAKPOINT not in block and not with_breakpoint:
        return block
    bare = {key: value for key, value in block.items() if key != _BREAKPOINT}
    content = bare.get("content")
    if with_breakpoint and isinstance(content, list):
        bare["content"] = [
            {key: value for key, value in part.items() if key != _BREAKPOINT} if part in with_breakpoint else part for part in content
        ]
    return bare


_PICTURES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PAPERS = frozenset({"application/pdf", "text/plain"})


def sendable_content(item: Item, card: ModelCard, fetch: Fetch) -> Content | None:
    """The content that this model is sent for an item, or `None` if it is sent nothing; blobs are data URLs in it.

    A text takes the place of a blob that is missing or damaged.
    """
    content = shown(item)
    match content:
        case None:
            return None
        case Text():
            # An empty text between two thoughts of a reply is sent where thinking is bound to it.
            return content if content.text or (card.binds_thinking and content.role == "assistant") else None
        case Thinking():
            return _thinking(content, card)
        case Image() | Document():
            if role_of(item) == "assistant":
                return Text(f"[{_name(content)}]", "assistant", ref=content.ref)
            return _part(content, card, fetch)
        case Opaque():
            return _opaque(content, card, role_of(item))
        case ToolResult():
            if not content.call_id and card.wire != "responses":
                return Text(text_shown) if (text_shown := text_of(content)) else None
            return _result(content, card, fetch)
        case ToolCall():
            return content


def role_of(item: Item) -> Role:
    """The role of an item, by its content or else by its kind."""
    return item.content.role if isinstance(item.content, Text) else speaker(item.kind)


def may_read_state(provider: str, model: str, card: ModelCard) -> bool:
    """Whether this model can use signatures and encrypted items of a provider and model.

    OpenAI accepts them across a model family; some models read the thinking of others, which their cards name.
    """
    if provider != card.provider:
        return False
    if model in {card.name, card.api_name} or parse_model_name(model).card in card.reads_thinking:
        return True
    if card.wire == "responses" and card.family:
        return model.startswith(card.family)
    return parse_model_name(model).card == parse_model_name(card.api_name or card.name).card


def usable_signature(content: Thinking, card: ModelCard) -> Signature | None:
    """The signature or encrypted content of a thinking item, if this model can use it."""
    signature = content.signature
    return signature if signature is not None and may_read_state(signature.provider, signature.model, card) else None


def _thinking(content: Thinking, card: ModelCard) -> Thinking | None:
    if content.signature is None:
        return content if content.text else None
    if usable_signature(content, card) is not None:
        return content
    # Without its signature the thinking of another model would look like that of this model.
    return None


def _result(content: ToolResult, card: ModelCard, fetch: Fetch) -> ToolResult:
    fitted = tuple(fitted_part for part in content.parts if (fitted_part := _part(part, card, fetch, within_result=True)) is not None)
    return content if fitted == content.parts else replace(content, parts=fitted)


def _part(part: Part, card: ModelCard, fetch: Fetch, *, within_result: bool = False) -> Part | None:
    match part:
        case Text():
            return part if part.text else None
        case Image() | Document() if not part.blob and not part.url:
            return _placeholder(part, "its bytes were not kept")
        case Image():
            return (
                _whole(part, fetch)
                if card.images and _is_supported_media(part, card)
                else _unreadable(part, "see images" if not card.images else "see this format")
            )
        case Document():
            readable = card.documents and _is_supported_media(part, card)
            return _whole(part, fetch) if readable else _unreadable(part, "read documents" if not card.documents else "read this format")
        case Opaque():
            return _opaque(part, card, "user", within_result=within_result)


def _whole(part: Image | Document, fetch: Fetch) -> Part:
    try:
        return inlined(part, fetch)
    except DamagedBlob:
        return _placeholder(part, "its bytes are damaged")
    except MissingBlob:
        return _placeholder(part, "its bytes are missing")


def _opaque(content: Opaque, card: ModelCard, role: Role, *, within_result: bool = False) -> Opaque | Text | None:
    # Chat Completions has no provider-specific items, so that it always gets the text fallback.
    if card.wire != "chat" and may_read_state(content.provider, content.model, card) and is_object(content.data):
        data: str | None = content.data
        if card.wire == "anthropic":
            data = sendable_block(content.data, role, within_result=within_result, binds=card.binds_thinking)
        elif within_result and opaque_type(content) not in RESPONSES_PARTS:
            data = None
        if data is not None:
            return content if data == content.data else replace(content, data=data)
    return Text(content.text_fallback, role, ref=content.ref) if content.text_fallback else None


def _is_supported_media(part: Image | Document, card: ModelCard) -> bool:
    if card.wire != "anthropic" or not is_inline(part):
        return True
    return media_of(part) in (_PICTURES if isinstance(part, Image) else _PAPERS)


def _name(part: Image | Document) -> str:
    if isinstance(part, Image):
        return f"image {part.media}"
    return f"document {part.name} {part.media}" if part.name else f"document {part.media}"


def _unreadable(part: Image | Document, sense: str) -> Text:
    return _placeholder(part, f"this model cannot {sense}")


def _placeholder(part: Image | Document, reason: str) -> Text:
    return Text(f"[{_name(part)} not shown: {reason}]", ref=part.ref)
