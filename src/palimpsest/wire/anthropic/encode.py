"""Encodes a view for Anthropic Messages."""

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from palimpsest.core.items import Document, Image, Item, Opaque, Part, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.tool_changes import is_tool_change
from palimpsest.core.view import View
from palimpsest.wire.anthropic.compaction import (
    CLEAR_EDIT,
    SIGNED,
    betas_of,
    compact_edit,
    compaction_first,
    compaction_fragment,
    without_refused_fields,
)
from palimpsest.wire.anthropic.tool_changes import TOOL_CHANGES_BETA, in_tool_changes, with_tool_changes, without_change_positions
from palimpsest.wire.encoding.breakpoints import HEAD, BlockPosition, anchors, breakpoint_label, breakpoint_positions, cache_control
from palimpsest.wire.encoding.fragments import Assembled, BlockKind, Fragment, dump, empty_fragment, extra_members, object_members
from palimpsest.wire.encoding.media import Fetch, base64_of, bytes_of, is_inline, media_of
from palimpsest.wire.encoding.messages import (
    CHANGED,
    OF_SYSTEM,
    STATED,
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
from palimpsest.wire.json_reading import is_object, table_at, tables_at
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.request import Params, RequestRepair, Tool, is_deferred, is_given

_OPENING = {True: b',{"role":"assistant","content":[', False: b',{"role":"user","content":['}
_SYSTEM_OPENING = b',{"role":"system","content":['
_OPENING_TEXT = "Go on."
_ANY_TOOL = "required"
# Group of a text of white space in a reply.
_BLANK = "blank"
_THINKING_BLOCKS = frozenset({"thinking", "redacted_thinking"})


class AnthropicWire:
    """Encoder for Anthropic Messages: system blocks, alternating messages, results first in the message after their calls."""

    def __init__(self, card: ModelCard, tools: tuple[Tool, ...], params: Params, fetch: Fetch) -> None:
        if params.endpoint == "compact":
            params = without_refused_fields(params)
        self._card = card
        self._params = params
        self._fetch = fetch
        self._tools = tools
        self._names = wire_names(tools, "anthropic")
        self._rule = params.breakpoint_rule if card.cache == "breakpoints" else "none"
        self._control = cache_control(params.ttl)
        self._prefix = b"{" + object_members(anthropic_fields(card, tools, params))
        self._prefix_without_thinking = b"{" + object_members(anthropic_fields(card, tools, replace(params, thinking_budget=None)))
        self._defers = card.takes_tool_changes and any(is_deferred(tool, "anthropic") for tool in tools)
        self._forced = bool(tools) and params.tool_choice not in {"auto", "none"}
        self._suffix = extra_members(params.extra) if is_given(params.extra) else b""
        # Those of the caller win.
        self._own_edits = _own_edits(params)

    def head(self, item: Item) -> Fragment:
        """Encode a head item as a system block."""
        content = sendable_content(item, self._card, self._fetch)
        if not isinstance(content, Text) or not content.text.strip():
            return empty_fragment(item)
        return Fragment(item, BlockKind.USER, _text(content.text))

    def fragment(self, item: Item, wire_id: str = "") -> Fragment:
        """Encode an item as a content block."""
        if is_tool_change(item):
            # Its blocks depend on the tools, which are known where the body is assembled.
            return Fragment(item, BlockKind.USER, group=CHANGED) if self._card.takes_tool_changes else empty_fragment(item)
        content = sendable_content(item, self._card, self._fetch)
        match content:
            case None:
                return empty_fragment(item)
            case Text():
                if content.text.strip():
                    return self._text_fragment(item, content)
                if self._card.binds_thinking and content.role == "assistant":
                    return Fragment(item, BlockKind.ASSISTANT, _text(content.text), group=_BLANK)
                return empty_fragment(item)
            case Thinking():
                return self._thinking(item, content)
            case Image() | Document():
                return Fragment(item, BlockKind.USER, self._media(content))
            case Opaque():
                kind = opaque_type(content)
                if kind == "compaction":
                    return compaction_fragment(empty_fragment(item), content)
                from_thinking = kind in _THINKING_BLOCKS
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
                if content.caller and self._card.provider == "anthropic" and is_object(content.caller):
                    block["caller"] = Raw(content.caller.encode())
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
        opening, fragments = compaction_first(fragments, self._params)
        fragments = with_tool_changes(fragments, self._tools, self._names)
        if self._card.binds_thinking:
            fragments = _without_blanks(fragments)
        messages = alternating_messages(fragments, in_order=self._card.binds_thinking)
        if any(fragment.group in (STATED, CHANGED) for fragment in fragments):
            messages = with_system_messages(messages, ends_results=self._card.binds_thinking)
        repairs: tuple[RequestRepair, ...] = ()
        if opening is not None:
            if opening.group == SIGNED or not messages or not messages[0][0]:
                # A message of its own, so that the reply behind it stays as it was.
                messages.insert(0, (True, [opening]))
            else:
                messages[0][1].insert(0, opening)
        elif not messages or messages[0][0]:
            opener = Fragment(Item("", "notice", Text(_OPENING_TEXT)), BlockKind.USER, _text(_OPENING_TEXT))
            messages.insert(0, (False, [opener]))
            repairs = (RequestRepair("no_first_user", fragments[0].item.id if fragments else ""),)
        repairs += self._end_for_model(messages)
        wanted = anchors(view, fragments, self._params, "anthropic") if self._rule == "palimpsest" else ()
        positions = without_change_positions(breakpoint_positions(self._rule, len(heads), messages, wanted), messages)
        if opening is not None:
            # The block goes back without any key that it did not have.
            positions = tuple(position for position in positions if position != (0, 0))
        _end_without_space(messages)
        chunks = [self._prefix]
        if self._prefix != self._prefix_without_thinking and (self._forced or messages[-1][0] or _began_without_thinking(messages)):
            chunks = [self._prefix_without_thinking]
            repairs += (RequestRepair("thinking_off", messages[-1][1][0].item.id),)
        self._add_system(chunks, heads, positions)
        chunks.append(b',"messages":[')
        self._add_messages(chunks, messages, positions)
        chunks.append(b"]")
        edits = self._own_edits or self._context_edits(opening, fragments)
        if edits and not self._own_edits:
            chunks += (b',"context_management":', dump({"edits": edits}))
        chunks += (self._suffix, b"}")
        # An inserted block has no item id, or that of the call it answers.
        breakpoints = dict.fromkeys(name for spot in positions if (name := breakpoint_label(spot, messages)))
        betas = betas_of(opening, edits, self._params) + ((TOOL_CHANGES_BETA,) if in_tool_changes(fragments) or self._defers else ())
        return Assembled(b"".join(chunks), tuple(breakpoints), repairs, betas)

    def _end_for_model(self, messages: list[Message]) -> tuple[RequestRepair, ...]:
        """End the list as the model accepts it: not with its own text, and with the demand for a tool that it cannot be forced to call."""
        from_model, blocks = messages[-1]
        last = blocks[-1].item
        repairs: tuple[RequestRepair, ...] = ()
        if from_model and not self._card.prefill and isinstance(last.content, Text):
            messages.append((False, [Fragment(last, BlockKind.USER, _text(_OPENING_TEXT))]))
            repairs = (RequestRepair("no_prefill", last.id),)
        demanded = self._params.demanded_tool
        if demanded and not messages[-1][0]:
            name = "one of your tools" if demanded == _ANY_TOOL else f"the tool {sent_name(demanded, self._names, 'anthropic')}"
            messages[-1][1].append(Fragment(last, BlockKind.USER, _text(f"Call {name} now.")))
            repairs += (RequestRepair("demanded_tool", last.id),)
        return repairs

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
            chunks.append(_SYSTEM_OPENING if blocks[0].group in OF_SYSTEM else opening[from_model])
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

    def _context_edits(self, opening: Fragment | None, fragments: list[Fragment]) -> list[dict[str, object]]:
        """The edits that the server makes: it clears results, and compacts at a threshold; none in a request for a compaction."""
        if self._params.endpoint == "compact":
            return []
        cleared = self._cleared_uses(fragments) if self._card.cache_edits else None
        # The API refuses both kinds of compaction in one request.
        compacts = self._params.compact_at is not None and self._card.compaction != "none"
        compacts = compacts and (opening is None or opening.group != SIGNED)
        return [*([cleared] if cleared else []), *([compact_edit(self._params)] if compacts else [])]

    def _cleared_uses(self, fragments: list[Fragment]) -> dict[str, object] | None:
        """The edit by which the server clears the results under cached masks; the messages keep their bytes.

        The server clears all tool uses but the newest ones, without those of some tools: the newest are those behind the last masked
        result, and excluded are tools with a result before it that is not masked. The policy that masks chooses none of those.
        """
        last = max((place for place, fragment in enumerate(fragments) if fragment.erased), default=None)
        if last is None:
            return None
        calls = {each.key: each.item.content for each in fragments if each.place == BlockKind.CALL}
        results = [(place, fragment) for place, fragment in enumerate(fragments) if fragment.place == BlockKind.RESULT]
        shown = (calls.get(fragment.key) for place, fragment in results if place < last and fragment.item.mask is None)
        excluded = sorted({sent_name(call.tool, self._names, "anthropic") for call in shown if isinstance(call, ToolCall)})
        kept = sum(place > last for place, _ in results)
        edit: dict[str, object] = {
            "type": CLEAR_EDIT,
            "trigger": {"type": "tool_uses", "value": max(1, kept)},
            "keep": {"type": "tool_uses", "value": kept},
        }
        return edit | ({"exclude_tools": excluded} if excluded else {})

    def _with_breakpoint(self, block: bytes) -> bytes:
        return block[:-1] + self._control


def _own_edits(params: Params) -> list[object]:
    """The edits of `context_management` that the caller asks for; one entry for a field that is not understood."""
    if not is_given(params.extra):
        return []
    extra = msgspec.json.decode(params.extra, type=dict[str, object])
    if "context_management" not in extra:
        return []
    return [*tables_at(table_at(extra, "context_management"), "edits")] or [extra["context_management"]]


def _without_blanks(fragments: list[Fragment]) -> list[Fragment]:
    """The fragments without texts of white space, which are refused, unless one stands between thinking, which is bound to it."""
    sent = [fragment for fragment in fragments if fragment.place]
    thinking = BlockKind.THINKING
    around = zip([None, *sent], sent, [*sent[1:], None], strict=False)
    return [
        fragment
        for before, fragment, after in around
        if fragment.group != _BLANK or (before is not None and after is not None and before.place == after.place == thinking)
    ]


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
        elif blocks[0].group in OF_SYSTEM:
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
