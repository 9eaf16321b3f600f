"""Encodes a view for Anthropic Messages."""

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from palimpsest.core.items import Document, Image, Item, Opaque, Part, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.view import View
from palimpsest.wire.encoding.breakpoints import HEAD, BlockPosition, anchors, breakpoint_label, breakpoint_positions, cache_control
from palimpsest.wire.encoding.fragments import Assembled, BlockKind, Fragment, dump, empty_fragment, extra_members, object_members
from palimpsest.wire.encoding.media import Fetch, base64_of, bytes_of, is_inline, media_of
from palimpsest.wire.encoding.messages import (
    STATED,
    SYSTEM,
    Message,
    alternating_messages,
    framed_statement,
    is_statement,
    with_system_messages,
)
from palimpsest.wire.encoding.options import anthropic_fields
from palimpsest.wire.encoding.repair import provider_call_id, valid_call_id
from palimpsest.wire.encoding.sendable import role_of, sendable_content, usable_signature
from palimpsest.wire.encoding.tools import arguments_object, opaque_type, pair_key, sent_name, wire_names
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.request import Params, RequestRepair, Tool, is_given

_OPENING = {True: b',{"role":"assistant","content":[', False: b',{"role":"user","content":['}
_SYSTEM_OPENING = b',{"role":"system","content":['
_OPENING_TEXT = "Go on."
_THINKING_BLOCKS = frozenset({"thinking", "redacted_thinking"})


class AnthropicWire:
    """Encoder for Anthropic Messages: system blocks, alternating messages, results first in the message after their calls."""

    def __init__(self, card: ModelCard, tools: tuple[Tool, ...], params: Params, fetch: Fetch) -> None:
        self._card = card
        self._params = params
        self._fetch = fetch
        self._names = wire_names(tools, "anthropic")
        self._rule = params.breakpoint_rule if card.cache == "breakpoints" else "none"
        self._control = cache_control(params.ttl)
        self._prefix = b"{" + object_members(anthropic_fields(card, tools, params))
        self._prefix_without_thinking = b"{" + object_members(anthropic_fields(card, tools, replace(params, thinking_budget=None)))
        self._forced = bool(tools) and params.tool_choice not in {"auto", "none"}
        self._suffix = extra_members(params.extra) if is_given(params.extra) else b""

    def head(self, item: Item) -> Fragment:
        """Encode a head item as a system block."""
        content = sendable_content(item, self._card, self._fetch)
        if not isinstance(content, Text) or not content.text.strip():
            return empty_fragment(item)
        return Fragment(item, BlockKind.USER, _text(content.text))

    def fragment(self, item: Item, wire_id: str = "") -> Fragment:
        """Encode an item as a content block."""
        content = sendable_content(item, self._card, self._fetch)
        match content:
            case None:
                return empty_fragment(item)
            case Text():
                return self._text_fragment(item, content) if content.text.strip() else empty_fragment(item)
            case Thinking():
                return self._thinking(item, content)
            case Image() | Document():
                return Fragment(item, BlockKind.USER, self._media(content))
            case Opaque():
                from_thinking = opaque_type(content) in _THINKING_BLOCKS
                place = BlockKind.THINKING if from_thinking else BlockKind.ASSISTANT
                return Fragment(item, place if role_of(item) == "assistant" else BlockKind.USER, content.data.encode())
            case ToolCall():
                name = wire_id or valid_call_id(content.call_id, "claude")
                block = {
                    "type": "tool_use",
                    "id": name,
                    "name": sent_name(content.tool, self._names, "anthropic"),
                    "input": Raw(arguments_object(content)),
                }
                provider_id = provider_call_id(content, "claude")
                return Fragment(item, BlockKind.CALL, dump(block), pair_key(content.call_id), name, content.form, provider_id=provider_id)
            case ToolResult():
                return self._result(item, content, wire_id)

    def _text_fragment(self, item: Item, content: Text) -> Fragment:
        if not is_statement(content):
            return Fragment(item, BlockKind.ASSISTANT if content.role == "assistant" else BlockKind.USER, _text(content.text))
        body = _text(framed_statement(content.text))
        if not self._card.takes_system_messages:
            return Fragment(item, BlockKind.USER, body)
        return Fragment(item, BlockKind.USER, body, group=STATED, aside=_text(content.text))

    def _thinking(self, item: Item, content: Thinking) -> Fragment:
        signature = usable_signature(content, self._card)
        if signature is None:
            return empty_fragment(item)
        return Fragment(item, BlockKind.THINKING, dump({"type": "thinking", "thinking": content.text, "signature": signature.data}))

    def _result(self, item: Item, content: ToolResult, wire_id: str) -> Fragment:
        name = wire_id or valid_call_id(content.call_id, "claude")
        block: dict[str, object] = {"type": "tool_result", "tool_use_id": name}
        match content.parts:
            case ():
                pass
            case (Text(text=text),):
                block["content"] = text
            case parts:
                if shown := [Raw(encoded) for part in parts if (encoded := self._part(part))]:
                    block["content"] = shown
        if content.error:
            block["is_error"] = True
        erased = item.mask is not None and item.mask.form == "cached"
        return Fragment(item, BlockKind.RESULT, dump(block), pair_key(content.call_id), name, content.form, erased=erased)

    def _part(self, part: Part) -> bytes:
        match part:
            case Text():
                return _text(part.text) if part.text.strip() else b""
            case Image() | Document():
                return self._media(part)
            case Opaque():
                return part.data.encode()

    def _media(self, part: Image | Document) -> bytes:
        media = media_of(part)
        source: dict[str, object] = {"type": "url", "url": part.url}
        if is_inline(part):
            source = {"type": "base64", "media_type": media, "data": base64_of(part)}
        if isinstance(part, Image):
            return dump({"type": "image", "source": source})
        if media == "text/plain" and is_inline(part):
            source = {"type": "text", "media_type": media, "data": bytes_of(part).decode("utf-8", "replace")}
        return dump({"type": "document", "source": source} | ({"title": part.name} if part.name else {}))

    def assemble(self, view: View, heads: list[Fragment], fragments: list[Fragment]) -> Assembled:
        """Join the fragments into the body, with cache breakpoints by the rule of the parameters."""
        heads = [head for head in heads if head.place]
        messages = alternating_messages(fragments)
        if any(fragment.group == STATED for fragment in fragments):
            messages = with_system_messages(messages)
        repairs: tuple[RequestRepair, ...] = ()
        if not messages or messages[0][0]:
            opener = Fragment(Item("", "notice", Text(_OPENING_TEXT)), BlockKind.USER, _text(_OPENING_TEXT))
            messages.insert(0, (False, [opener]))
            repairs = (RequestRepair("no_first_user", fragments[0].item.id if fragments else ""),)
        wanted = anchors(view, fragments, self._params, "anthropic") if self._rule == "palimpsest" else ()
        positions = breakpoint_positions(self._rule, len(heads), messages, wanted)
        _end_without_space(messages)
        chunks = [self._prefix]
        if self._prefix != self._prefix_without_thinking and (self._forced or messages[-1][0] or _began_without_thinking(messages)):
            chunks = [self._prefix_without_thinking]
            repairs += (RequestRepair("thinking_off", messages[-1][1][0].item.id),)
        self._add_system(chunks, heads, positions)
        chunks.append(b',"messages":[')
        self._add_messages(chunks, messages, positions)
        chunks.append(b"]")
        if self._card.cache_edits:
            chunks.append(cache_edits(fragments))
        chunks += (self._suffix, b"}")
        # An inserted block has no item id, or that of the call it answers.
        breakpoints = dict.fromkeys(name for spot in positions if (name := breakpoint_label(spot, messages)))
        return Assembled(b"".join(chunks), tuple(breakpoints), repairs)

    def _add_system(self, chunks: list[bytes], heads: list[Fragment], positions: tuple[BlockPosition, ...]) -> None:
        if not heads:
            return
        blocks = [self._with_breakpoint(head.body) if (HEAD, index) in positions else head.body for index, head in enumerate(heads)]
        chunks += (b',"system":[', b",".join(blocks), b"]")

    def _add_messages(self, chunks: list[bytes], messages: list[Message], positions: tuple[BlockPosition, ...]) -> None:
        wanted = {message for message, _ in positions}
        opening = _OPENING
        start = len(chunks)
        for index, (from_model, blocks) in enumerate(messages):
            chunks.append(_SYSTEM_OPENING if blocks[0].group == SYSTEM else opening[from_model])
            if index in wanted:
                chunks.append(
                    b",".join(
                        [self._with_breakpoint(block.body) if (index, at) in positions else block.body for at, block in enumerate(blocks)]
                    )
                )
            elif len(blocks) == 1:
                chunks.append(blocks[0].body)
            else:
                chunks.append(b",".join([block.body for block in blocks]))
            chunks.append(b"]}")
        chunks[start] = chunks[start][1:]

    def _with_breakpoint(self, block: bytes) -> bytes:
        return block[:-1] + self._control


def cache_edits(fragments: list[Fragment]) -> bytes:
    """The `context_management` field that deletes erased results from the cached prefix; their bytes are still sent, so that it matches."""
    ids = [fragment.wire_id for fragment in fragments if fragment.erased]
    if not ids:
        return b""
    edit = {"type": "delete_tool_results", "tool_use_ids": ids}
    return b',"context_management":' + dump({"edits": [edit]})


def _began_without_thinking(messages: list[Message]) -> bool:
    """Whether the open turn, whose results come last, began without thinking, as after a switch of models.

    Anthropic rejects a thinking budget there, as it does for a prefilled reply and a forced tool call.
    """
    results, thinking = BlockKind.RESULT, BlockKind.THINKING
    open_turn = False
    for from_model, blocks in reversed(messages):
        if from_model:
            if blocks[0].place == thinking:
                return False
        elif blocks[0].group == SYSTEM:
            continue
        elif blocks[0].place == results:
            open_turn = True
        else:
            break
    return open_turn


def _end_without_space(messages: list[Message]) -> None:
    """Strip trailing white space from a prefilled reply, which Anthropic rejects."""
    from_model, blocks = messages[-1]
    if not from_model:
        return
    last = blocks[-1]
    block = msgspec.json.decode(last.body, type=dict[str, object])
    text = block.get("text")
    if isinstance(text, str) and text != text.rstrip():
        blocks[-1] = Fragment(last.item, last.place, dump({**block, "text": text.rstrip()}))


def _text(text: str) -> bytes:
    return dump({"type": "text", "text": text})
