"""Anthropic Messages: encodes a view as a request and decodes replies, with compaction by Anthropic and changes of tools."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from palimpsest.core.deltas import CallDelta, Delta, TextDelta, ThinkingDelta, UsageDelta
from palimpsest.core.errors import WireError
from palimpsest.core.events import NULL as DECODE_NULL
from palimpsest.core.events import AppliedEdit, CacheDiagnosis, InputTransformation, ModelReplied, Usage, UsageBeside
from palimpsest.core.items import (
    Content,
    Document,
    Image,
    Item,
    Opaque,
    Part,
    Signature,
    Text,
    Thinking,
    ToolCall,
    ToolChange,
    ToolResult,
    is_tool_change,
    placed_changes,
)
from palimpsest.core.view import View
from palimpsest.wire.breakpoints import HEAD, BlockPosition, anchors, breakpoint_label, breakpoint_positions, cache_control
from palimpsest.wire.encoding import (
    CHANGED,
    FREE_INPUT,
    OF_SYSTEM,
    OPENING_TEXT,
    STATED,
    Assembled,
    BlockKind,
    Fields,
    Fragment,
    Message,
    Names,
    alternating_messages,
    arguments_object,
    dump,
    empty_fragment,
    extra_members,
    framed_statement,
    is_statement,
    object_members,
    opaque_type,
    ordered_tools,
    pair_key,
    sent_name,
    wire_names,
    with_system_messages,
    with_wire_names,
    without_overridden,
)
from palimpsest.wire.json_reading import Json, is_json, is_object, number, parse, shorten, table_at, tables_at, text
from palimpsest.wire.json_reading import dump as decode_dump
from palimpsest.wire.media import Fetch, base64_of, bytes_of, is_inline, media_of
from palimpsest.wire.models import ModelCard
from palimpsest.wire.repair import provider_call_id, role_of, sendable_content, usable_signature, valid_call_id
from palimpsest.wire.reply import error_object, provider_error, reply_of, text_fallback, tier_of
from palimpsest.wire.request import NULL, Params, RequestRepair, Tool, is_deferred, is_given

ON_DEMAND: Final = "compact-2026-09-04"
AT_THRESHOLD: Final = "compact-2026-01-12"
CONTEXT_EDITS: Final = "context-management-2025-06-27"
BINDING_CONTROLS: Final = "thinking-binding-controls-2026-08-01"
CLEAR_EDIT: Final = "clear_tool_uses_20250919"
COMPACT_EDIT: Final = "compact_20260112"

SIGNED, UNSIGNED = "signed compaction", "compaction at a threshold"
"""Groups of the fragments of compaction blocks: those that were asked for are signed, those at a threshold are not."""
# The API refuses these fields together with a compaction.
_NOT_WITH_COMPACTION: Final = frozenset({"context_management", "stop_sequences"})
_EDIT_BETAS: Final = {COMPACT_EDIT: AT_THRESHOLD}


def compaction_fragment(fragment: Fragment, content: Opaque) -> Fragment:
    """The fragment of a compaction block; `aside` is its summary as a text block of the user, empty if it has none."""
    block = msgspec.json.decode(content.data, type=dict[str, object])
    group = SIGNED if text(block, "signature") else UNSIGNED
    aside = dump({"type": "text", "text": content.text_fallback}) if content.text_fallback.strip() and block.get("content") else b""
    return replace(fragment, place=BlockKind.ASSISTANT, body=content.data.encode(), group=group, aside=aside)


def compaction_first(fragments: list[Fragment], params: Params) -> tuple[Fragment | None, list[Fragment]]:
    """Split a list into the compaction block at its beginning, if there is one, and the rest.

    A block elsewhere is left out: what it summarises is sent. In a request for a compaction a block of the other kind is sent as text,
    because the API refuses both kinds in one request.
    """
    first = next((fragment for fragment in fragments if fragment.place), None)
    opening = first if first is not None and first.group in (SIGNED, UNSIGNED) else None
    rest = [fragment for fragment in fragments if fragment.group not in (SIGNED, UNSIGNED)]
    if opening is not None and opening.group == UNSIGNED and params.endpoint == "compact":
        as_text = replace(opening, place=BlockKind.USER, body=opening.aside, group="", aside=b"")
        return None, [as_text, *rest] if opening.aside else rest
    return opening, rest


def without_refused_fields(params: Params) -> Params:
    """The parameters of a request for a compaction, without what the API refuses beside it: schemas, forced tools and some fields."""
    extra = {} if bytes(params.extra) == b"null" else msgspec.json.decode(params.extra, type=dict[str, msgspec.Raw])
    kept = {name: value for name, value in extra.items() if name not in _NOT_WITH_COMPACTION}
    forced = params.tool_choice not in {"auto", "none"}
    return replace(
        params,
        schema=NULL,
        tool_choice="auto" if forced else params.tool_choice,
        extra=params.extra if kept == extra else msgspec.Raw(dump(kept)),
    )


def compact_edit(params: Params) -> dict[str, object]:
    """The entry of `context_management` by which the server compacts at a threshold of input tokens."""
    return {"type": COMPACT_EDIT, "trigger": {"type": "input_tokens", "value": params.compact_at}}


def betas_of(opening: Fragment | None, edits: Iterable[object], params: Params) -> tuple[str, ...]:
    """The values of the header `anthropic-beta` that a body needs, each once."""
    kinds = [str(edit.get("type")) for edit in edits if isinstance(edit, dict)]
    found = [_EDIT_BETAS.get(kind, CONTEXT_EDITS) for kind in kinds]
    if b'"block_binding":' in bytes(params.extra):
        found.append(BINDING_CONTROLS)
    if params.endpoint == "compact":
        found.append(ON_DEMAND)
    if opening is not None:
        found.append(ON_DEMAND if opening.group == SIGNED else AT_THRESHOLD)
    return tuple(dict.fromkeys(found))


TOOL_CHANGES_BETA: Final = "mid-conversation-tool-changes-2026-07-01"


def in_tool_changes(fragments: Iterable[Fragment]) -> bool:
    """Whether a list tells the model of a change."""
    return any(fragment.group == CHANGED for fragment in fragments)


def with_tool_changes(fragments: list[Fragment], tools: Sequence[Tool], names: Names) -> list[Fragment]:
    """The fragments with the blocks of the changes among them; one that changes nothing in this request is left out."""
    if not in_tool_changes(fragments):
        return fragments
    said = [fragment.item for fragment in fragments if fragment.group == CHANGED]
    deferred = [tool.name for tool in tools if is_deferred(tool, "anthropic")]
    bodies = {placed.item.id: _change_blocks(placed.change, names) for placed in placed_changes(said, names, deferred)}
    whole = (replace(each, body=bodies.get(each.item.id, b"")) if each.group == CHANGED else each for each in fragments)
    return [fragment for fragment in whole if fragment.group != CHANGED or fragment.body]


def _change_blocks(change: ToolChange, names: Names) -> bytes:
    return b",".join([*_references("tool_removal", change.removed, names), *_references("tool_addition", change.added, names)])


def _references(kind: str, tools: tuple[str, ...], names: Names) -> Iterator[bytes]:
    for tool in tools:
        yield dump({"type": kind, "tool": {"type": "tool_reference", "name": names[tool]}})


def without_change_positions(positions: tuple[BlockPosition, ...], messages: Sequence[Message]) -> tuple[BlockPosition, ...]:
    """The breakpoints, each moved from a change of tools to the block before it that may have one."""
    moved: set[BlockPosition] = set()
    for message, block in positions:
        place, at = message, block
        while place != HEAD and messages[place][1][at].group == CHANGED:
            place, at = (place, at - 1) if at else (place - 1, len(messages[place - 1][1]) - 1)
        moved.add((place, at))
    return tuple(sorted(moved)) if len(moved) < len(positions) or moved != set(positions) else positions


_OPENING = {True: b',{"role":"assistant","content":[', False: b',{"role":"user","content":['}
_SYSTEM_OPENING = b',{"role":"system","content":['
_ANY_TOOL = "required"
# Group of a text of white space in a reply.
_BLANK = "blank"
_THINKING_BLOCKS = frozenset({"thinking", "redacted_thinking"})
_CITATIONS: Final = "citations"


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
        return Fragment(item, BlockKind.USER, _text_block(content.text))

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
                    return Fragment(item, BlockKind.ASSISTANT, _text_block(content.text), group=_BLANK)
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
                if role_of(item) == "assistant":
                    return Fragment(item, place, content.data.encode())
                return Fragment(item, BlockKind.USER, self._user_block(content))
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
                return self._result_block(item, content, wire_id)

    def _text_fragment(self, item: Item, content: Text) -> Fragment:
        if content.role == "assistant":
            cites = content.citations and self._card.provider == "anthropic" and self._card.binds_thinking
            cited = {_CITATIONS: Raw(content.citations.encode())} if cites else {}
            return Fragment(item, BlockKind.ASSISTANT, dump({"type": "text", "text": content.text, **cited}))
        if not is_statement(content):
            return Fragment(item, BlockKind.USER, _text_block(content.text))
        body = _text_block(framed_statement(content.text))
        if not self._card.takes_system_messages:
            return Fragment(item, BlockKind.USER, body)
        return Fragment(item, BlockKind.USER, body, group=STATED, aside=_text_block(content.text))

    def _thinking(self, item: Item, content: Thinking) -> Fragment:
        signature = usable_signature(content, self._card)
        if signature is None:
            return empty_fragment(item)
        return Fragment(item, BlockKind.THINKING, dump({"type": "thinking", "thinking": content.text, "signature": signature.data}))

    def _result_block(self, item: Item, content: ToolResult, wire_id: str) -> Fragment:
        name = wire_id or valid_call_id(content.call_id, "claude")
        block: dict[str, object] = {"type": "tool_result", "tool_use_id": name}
        match content.parts:
            case ():
                pass
            case (Text(text=text),):
                block["content"] = text
            case parts:
                if shown := [Raw(encoded) for part in parts if (encoded := self._part_block(part))]:
                    block["content"] = shown
        if content.error:
            block["is_error"] = True
        erased = item.mask is not None and item.mask.form == "cached"
        return Fragment(item, BlockKind.RESULT, dump(block), pair_key(content.call_id), name, content.form, erased=erased)

    def _part_block(self, part: Part) -> bytes:
        match part:
            case Text():
                return _text_block(part.text) if part.text.strip() else b""
            case Image() | Document():
                return self._media(part)
            case Opaque():
                return self._user_block(part)

    def _user_block(self, content: Opaque) -> bytes:
        """A block in a message of the user, which has no citations where the version of the API refuses them."""
        if not self._params.is_stricter or _CITATIONS not in content.data:
            return content.data.encode()
        return dump(_without_citations(parse(content.data, content.provider)))

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
            opener = Fragment(Item("", "notice", Text(OPENING_TEXT)), BlockKind.USER, _text_block(OPENING_TEXT))
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
            messages.append((False, [Fragment(last, BlockKind.USER, _text_block(OPENING_TEXT))]))
            repairs = (RequestRepair("no_prefill", last.id),)
        demanded = self._params.demanded_tool
        if demanded and not messages[-1][0]:
            name = "one of your tools" if demanded == _ANY_TOOL else f"the tool {sent_name(demanded, self._names, 'anthropic')}"
            messages[-1][1].append(Fragment(last, BlockKind.USER, _text_block(f"Call {name} now.")))
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


# Keys of the body that parameters may not set, because view, tools and card write them.
_RESERVED = frozenset({"messages", "system", "tools"})
_LEAST_BUDGET = 1024
# Most characters of the instructions of a compaction.
_LONGEST_INSTRUCTIONS = 16_384


def anthropic_fields(card: ModelCard, tools: tuple[Tool, ...], params: Params) -> Fields:
    """Fields of Anthropic Messages; `max_tokens` is mandatory there."""
    tools, params = with_wire_names(tools, params, "anthropic")
    limit = params.max_tokens or card.reply
    fields: Fields = {"model": params.model or card.api_name or card.name, "max_tokens": limit}
    budget = params.thinking_budget
    thinks = budget is not None or params.thinking == "adaptive"
    if budget is not None:
        # The budget counts towards the limit, and Anthropic rejects one below 1,024.
        fields["max_tokens"] = max(limit, _LEAST_BUDGET + 1)
        fields["thinking"] = {"type": "enabled", "budget_tokens": min(max(budget, _LEAST_BUDGET), max(limit, _LEAST_BUDGET + 1) - 1)}
    elif params.thinking:
        fields["thinking"] = {"type": params.thinking}
    if params.temperature is not None and not thinks:
        fields["temperature"] = params.temperature
    output: Fields = {}
    if params.effort:
        output["effort"] = params.effort
    if is_given(params.schema):
        output["format"] = {"type": "json_schema", "schema": params.schema}
    if output:
        fields["output_config"] = output
    if tools:
        fields["tools"] = [_anthropic_tool(tool, defers=card.takes_tool_changes) for tool in ordered_tools(tools, params)]
        choice = _anthropic_choice(params)
        if choice:
            fields["tool_choice"] = choice
    if params.compared_reply is not None:
        fields["diagnostics"] = {"previous_message_id": params.compared_reply or None}
    if params.stream:
        fields["stream"] = True
    if params.endpoint == "compact":
        instructions = {"instructions": params.instructions[:_LONGEST_INSTRUCTIONS]} if params.instructions else {}
        fields["compaction"] = {"type": "summarize", **instructions}
    return without_overridden(fields, params, _RESERVED)


def _anthropic_tool(tool: Tool, *, defers: bool) -> Raw | Fields:
    if tool.is_native("anthropic"):
        return tool.native
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "input_schema": FREE_INPUT if tool.form == "free" else tool.schema} | (
        {"defer_loading": True} if defers and tool.deferred else {}
    )


def _anthropic_choice(params: Params) -> Fields:
    single: Fields = {} if params.parallel else {"disable_parallel_tool_use": True}
    match params.tool_choice:
        case "auto":
            return {"type": "auto", **single} if single else {}
        case "none":
            return {"type": "none"}
        case "required":
            return {"type": "any", **single}
        case name:
            return {"type": "tool", "name": name, **single}


def _without_citations(block: Json) -> Json:
    """A block whose texts cite nothing, also those inside of it."""
    kept = {key: value for key, value in block.items() if key != _CITATIONS or text(block, "type") != "text"}
    if isinstance(inside := kept.get("content"), list):
        kept["content"] = [_without_citations(each) if is_json(each) else each for each in inside]
    return kept


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


def _text_block(text: str) -> bytes:
    return dump({"type": "text", "text": text})


_ARGS = "partial_json"
_OF_DELTA = frozenset({"type", "delta", "usage"})
_FALLBACK = "fallback_message"
_MESSAGES = ("message", _FALLBACK)
_TRANSFORMED: Final = "input_transformations"
_CHANGES: Final = frozenset({"model_changed", "system_changed", "tools_changed", "messages_changed"})
_MISSED: Final = "cache_missed_input_tokens"
# The most that is kept of what a provider says of its input: entries, and characters of a word.
_MOST_TRANSFORMATIONS: Final = 1_000
_LONGEST_WORD: Final = 100


def decode_message(message: Json, card: ModelCard) -> ModelReplied:
    """Decode a message that was not streamed. Raises `WireError` if it is none."""
    if error := error_object(message):
        raise provider_error(error, card.provider)
    if text(message, "type") != "message" and "content" not in message:
        raise WireError("the answer is not a message", where=card.provider)
    return _reply_of_message(message, [(block, "") for block in tables_at(message, "content")], card)


def _reply_of_message(message: Json, blocks: Sequence[tuple[Json, str]], card: ModelCard) -> ModelReplied:
    """The reply that a message with these blocks is; one that a fallback gave is a reply of that model."""
    usage, beside, fallback = split_usage(table_at(message, "usage"), text(message, "model"), card.name)
    card = replace(card, name=fallback) if fallback else card
    reply = reply_of(list(decode_blocks(blocks, card)), text(message, "stop_reason"), usage, card, text(message, "id"))
    details = table_at(message, "stop_details")
    reply = replace(
        reply,
        beside=beside,
        tier=tier_of(table_at(message, "usage"), table_at(message, "usage"), (block for block, _ in blocks)),
        stop_details=Raw(decode_dump(details).encode()) if details else DECODE_NULL,
    )
    return _with_transformations(replace(reply, applied_edits=applied_edits(message), diagnosis=_diagnosis(message)), message)


def _diagnosis(message: Json) -> CacheDiagnosis | None:
    """What a message says of the cache; `null` says that nothing differed, or that nothing was asked."""
    if "diagnostics" not in message:
        return None
    if message["diagnostics"] is None:
        return CacheDiagnosis("same")
    reason = table_at(table_at(message, "diagnostics"), "cache_miss_reason")
    word = text(reason, "type")[:_LONGEST_WORD]
    if word not in _CHANGES:
        return CacheDiagnosis("unknown", word)
    return CacheDiagnosis("changed", word, max(0, number(reason, _MISSED)) if _MISSED in reason else None)


def _with_transformations(reply: ModelReplied, message: Json) -> ModelReplied:
    """The reply with what the provider did to the blocks of its request."""
    if not (listed := tables_at(message, _TRANSFORMED)):
        return reply
    words = ([text(each, name)[:_LONGEST_WORD] for name in ("type", "path", "reason")] for each in listed)
    return replace(reply, transformations=tuple(InputTransformation(*each) for each in islice(words, _MOST_TRANSFORMATIONS)))


def split_usage(usage: Json, model: str = "", asked: str = "") -> tuple[Usage, tuple[UsageBeside, ...], str]:
    """The usage of the last message of a reply, what was billed beside it, and the model if it was a fallback.

    `model` is the one that the reply names, for a fallback whose entry names none; what stands before a fallback is of the `asked` one.
    """
    entries = tables_at(usage, "iterations")
    last = next((index for index in reversed(range(len(entries))) if text(entries[index], "type") in _MESSAGES), None)
    whole = decode_usage(usage)
    if not entries:
        return whole, (), ""
    is_fallback = last is not None and text(entries[last], "type") == _FALLBACK
    before = asked if is_fallback else ""
    others = [entry for index, entry in enumerate(entries) if index != last and not _is_free(entry)]
    beside = tuple(UsageBeside(decode_usage(entry), text(entry, "model") or before) for entry in others)
    if last is None:
        return whole, beside, ""
    shown = decode_usage(entries[last])
    fallback = (text(entries[last], "model") or model) if is_fallback else ""
    return replace(shown, reasoning=min(shown.output, whole.reasoning)), beside, fallback


def _is_free(entry: Json) -> bool:
    """Whether an entry says that nothing was billed, which is more than saying nothing."""
    return (
        all(type(entry.get(name)) is int and entry[name] == 0 for name in ("input_tokens", "output_tokens"))
        and not decode_usage(entry).total
    )


def decode_blocks(blocks: Sequence[tuple[Json, str]], card: ModelCard) -> Iterator[Content]:
    """The contents of the blocks of a reply, each with its streamed input.

    An empty text yields nothing, unless it stands between two thinking blocks: the second may be bound to it.
    """
    kinds = [text(block, "type") for block, _ in blocks]
    for index, (block, args) in enumerate(blocks):
        found = list(decode_block(block, card, args))
        is_between = len(kinds[index - 1 : index + 2]) == 3 and {kinds[index - 1], kinds[index + 1]} <= _THINKING_BLOCKS
        if not found and kinds[index] == "text" and is_between:
            found = [Text("", role="assistant")]
        yield from found


def decode_block(block: Json, card: ModelCard, args: str = "") -> Iterator[Content]:
    """The content of a block; `args` is its streamed input. An empty text yields nothing."""
    match text(block, "type"):
        case "text":
            if shown_text := text(block, "text"):
                cited = block.get(_CITATIONS)
                yield Text(shown_text, role="assistant", citations=decode_dump(cited) if isinstance(cited, list) and cited else "")
        case "thinking":
            thinking, signed = text(block, "thinking"), text(block, "signature")
            signature = Signature(card.provider, card.name, signed) if signed else None
            if thinking or signature:
                yield Thinking(thinking, signature, form="whole" if thinking else "sealed")
        case "tool_use":
            caller = decode_dump(block["caller"]) if is_json(block.get("caller")) else ""
            yield ToolCall(text(block, "id"), text(block, "name"), args or decode_dump(block.get("input") or {}), caller=caller)
        case _:
            whole = {**block, "input": _input(args)} if args else block
            yield Opaque(card.provider, card.name, decode_dump(whole), text_fallback(whole))


def _input(args: str) -> object:
    try:
        return parse(args, "input")
    except WireError:
        # The stream was cut inside the input, so that its text is kept.
        return args


_MOST_EDITS = 20


def applied_edits(message: Json) -> tuple[AppliedEdit, ...]:
    """What a message reports under `context_management`: the edits that the server made before the model read the list."""
    return tuple(
        AppliedEdit(
            shorten(kind),
            *(number(edit, name) if isinstance(edit.get(name), int) else None for name in _CLEARED),
        )
        for edit in tables_at(table_at(message, "context_management"), "applied_edits")[:_MOST_EDITS]
        if (kind := text(edit, "type"))
    )


_CLEARED = ("cleared_input_tokens", "cleared_tool_uses", "cleared_thinking_turns")


def decode_usage(usage: Json) -> Usage:
    """Token usage by part; cache writes are split by their lifetime."""
    split = table_at(usage, "cache_creation")
    long = number(split, "ephemeral_1h_input_tokens")
    short = number(split, "ephemeral_5m_input_tokens")
    written = number(usage, "cache_creation_input_tokens") or short + long
    details = table_at(usage, "output_tokens_details")
    return Usage(
        input=number(usage, "input_tokens"),
        cache_read=number(usage, "cache_read_input_tokens"),
        cache_write=max(0, written - long),
        cache_write_long=long,
        output=number(usage, "output_tokens"),
        reasoning=number(details, "thinking_tokens") or number(details, "reasoning_tokens"),
    )


class MessageAssembler:
    """Assembles a streamed message."""

    def __init__(self, card: ModelCard) -> None:
        self._card = card
        self._message: Json = {}
        self._usage: Json = {}
        self._blocks: dict[int, Json] = {}
        # Joined once at the end, because a long reply has tens of thousands of pieces.
        self._pieces: dict[int, dict[str, list[str]]] = {}
        self._ending: Json = {}
        self._complete = False

    @property
    def complete(self) -> bool:
        """Whether a stop reason or the end of the message has arrived."""
        return self._complete

    def take(self, event: Json) -> Iterator[Delta]:
        """Apply one event and yield its deltas."""
        index = number(event, "index")
        match text(event, "type"):
            case "message_start":
                self._message = dict(table_at(event, "message"))
                if usage := table_at(self._message, "usage"):
                    # The output of the start is a placeholder; one that the end does not replace is not known.
                    self._count({key: value for key, value in usage.items() if key != "output_tokens"})
                    yield UsageDelta(decode_usage(usage))
            case "content_block_start":
                block = dict(table_at(event, "content_block"))
                self._blocks[index] = block
                yield from _opening(block)
            case "content_block_delta":
                yield from self._extend(index, table_at(event, "delta"))
            case "message_delta":
                self._ending |= {key: value for key, value in table_at(event, "delta").items() if value is not None}
                self._message |= {key: value for key, value in event.items() if key not in _OF_DELTA}
                self._count(table_at(event, "usage"))
                # After a fallback in mid-stream it is said once more, and replaces what was said first.
                for told in (event, table_at(event, "delta")):
                    if isinstance(told.get(_TRANSFORMED), list):
                        self._ending[_TRANSFORMED] = told[_TRANSFORMED]
                self._complete = self._complete or bool(text(self._ending, "stop_reason"))
            case "message_stop":
                self._complete = True
            case "error":
                raise provider_error(error_object(event), self._card.provider)
            case _:
                # Pings, ends of blocks and unknown events carry nothing that is needed.
                return

    def _count(self, usage: Json) -> None:
        self._usage |= {key: value for key, value in usage.items() if value is not None}

    def _extend(self, index: int, delta: Json) -> Iterator[Delta]:
        block = self._blocks.get(index)
        if block is None:
            raise WireError(f"the stream adds to block {index}, which never began", where=self._card.provider)
        pieces = self._pieces.setdefault(index, {})
        kind = text(delta, "type")
        for key, value in delta.items():
            if key == "type" or value is None:
                continue
            if kind == "citations_delta" and is_json(value):
                block["citations"] = [*tables_at(block, "citations"), value]
            elif isinstance(value, str):
                pieces.setdefault(key, []).append(value)
            else:
                block[key] = value
        match kind:
            case "text_delta":
                yield TextDelta(text(delta, "text"))
            case "thinking_delta":
                yield ThinkingDelta(text(delta, "thinking"))
            case "input_json_delta" if text(block, "type") == "tool_use":
                yield CallDelta(text(block, "id"), text(block, "name"), text(delta, _ARGS))
            case _:
                return

    def _block(self, index: int) -> tuple[Json, str]:
        """A block with its pieces joined, and the text of its streamed input."""
        block = dict(self._blocks[index])
        args = ""
        for key, pieces in self._pieces.get(index, {}).items():
            if key == _ARGS:
                args = "".join(pieces)
            else:
                block[key] = text(block, key) + "".join(pieces)
        return block, args

    def reply(self) -> ModelReplied:
        """The reply as far as it has arrived."""
        message = {**self._message, **self._ending, "usage": self._usage}
        return _reply_of_message(message, [self._block(index) for index in sorted(self._blocks)], self._card)

    def message(self) -> Json:
        """The reply as the message that it would be if it were not streamed, with every block and field as the provider gave it."""
        blocks = [{**block, "input": _input(args)} if args else block for block, args in map(self._block, sorted(self._blocks))]
        return {**self._message, **self._ending, "content": blocks, "usage": self._usage}


def _opening(block: Json) -> Iterator[Delta]:
    match text(block, "type"):
        case "tool_use":
            yield CallDelta(text(block, "id"), text(block, "name"), "")
        case "text":
            if shown_text := text(block, "text"):
                yield TextDelta(shown_text)
        case _:
            return
