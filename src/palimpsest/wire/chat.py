"""Chat Completions of OpenAI and compatible servers: encodes a view as a request, and decodes replies whole or by chunks."""

from collections.abc import Iterator
from itertools import groupby, takewhile

from msgspec import Raw
from msgspec.structs import replace

from palimpsest.core.deltas import CallDelta, Delta, TextDelta, ThinkingDelta, UsageDelta
from palimpsest.core.errors import BadInput, WireError
from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.items import Content, Document, Image, Item, Opaque, Role, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.text import lazy_pattern
from palimpsest.core.view import View
from palimpsest.wire.encoding import (
    FREE_INPUT,
    OPENING_TEXT,
    Assembled,
    BlockKind,
    Fields,
    Fragment,
    alternating_messages,
    arguments_object,
    dump,
    empty_fragment,
    extra_members,
    framed_statement,
    is_statement,
    object_members,
    ordered_tools,
    pair_key,
    sent_name,
    wire_names,
    with_wire_names,
    without_overridden,
)
from palimpsest.wire.json_reading import Json, is_json, is_object, number, table_at, tables_at, text
from palimpsest.wire.json_reading import dump as decode_dump
from palimpsest.wire.media import Fetch
from palimpsest.wire.models import ModelCard
from palimpsest.wire.repair import provider_call_id, sendable_content, valid_call_id
from palimpsest.wire.reply import error_object, provider_error, reply_of, tier_of
from palimpsest.wire.request import Params, RequestRepair, Tool, is_given

_DONE_MESSAGE = b',{"role":"assistant","content":"Done."}'
_TEXT = "text"


class ChatWire:
    """Encoder for Chat Completions: tool messages directly after their calls, images only in user messages.

    The body of a text fragment is a JSON string, so that a message of one text needs no list of parts; its group is `text`.
    """

    def __init__(self, card: ModelCard, tools: tuple[Tool, ...], params: Params, fetch: Fetch) -> None:
        self._card = card
        self._fetch = fetch
        self._names = wire_names(tools, "chat")
        self._echo = params.echo
        self._mistral = card.call_ids == "mistral"
        self._prefix = b"{" + object_members(chat_fields(card, tools, params))
        self._suffix = extra_members(params.extra) if is_given(params.extra) else b""

    def head(self, item: Item) -> Fragment:
        """A text of the head; the group is its role."""
        content = sendable_content(item, self._card, self._fetch)
        if not isinstance(content, Text):
            return empty_fragment(item)
        return Fragment(item, BlockKind.USER, content.text.encode(), group=self._role(content.role))

    def _role(self, role: Role) -> str:
        # Only OpenAI has the role developer; the chat templates of other servers fail on it.
        return "system" if role == "developer" and self._card.provider != "openai" else role

    def fragment(self, item: Item, wire_id: str = "") -> Fragment:
        """A text, a part, a tool call or a tool message."""
        content = sendable_content(item, self._card, self._fetch)
        match content:
            case None:
                return empty_fragment(item)
            case Text():
                return self._text_fragment(item, content)
            case Thinking():
                return Fragment(item, BlockKind.THINKING, dump(content.text)) if self._echo and content.text else empty_fragment(item)
            case Image() | Document():
                return Fragment(item, BlockKind.USER, self._media(content))
            case Opaque():
                return empty_fragment(item)
            case ToolCall():
                name = wire_id or valid_call_id(content.call_id, self._card.call_ids)
                function = {"name": sent_name(content.tool, self._names, "chat"), "arguments": arguments_object(content).decode()}
                body = dump({"id": name, "type": "function", "function": function})
                provider_id = provider_call_id(content, self._card.call_ids)
                return Fragment(item, BlockKind.CALL, body, pair_key(content.call_id), name, content.form, provider_id=provider_id)
            case ToolResult():
                return self._result_message(item, content, wire_id)

    def _text_fragment(self, item: Item, content: Text) -> Fragment:
        body = dump(content.text)
        if content.role == "assistant":
            return Fragment(item, BlockKind.ASSISTANT, body, group=_TEXT)
        if not is_statement(content):
            return Fragment(item, BlockKind.USER, body, group=_TEXT)
        if not self._card.takes_system_messages:
            return Fragment(item, BlockKind.USER, dump(framed_statement(content.text)), group=_TEXT)
        return Fragment(item, BlockKind.USER, b',{"role":"%s","content":%s}' % (self._role(content.role).encode(), body), group="message")

    def _result_message(self, item: Item, content: ToolResult, wire_id: str) -> Fragment:
        name = wire_id or valid_call_id(content.call_id, self._card.call_ids)
        texts = [part.text for part in content.parts if isinstance(part, Text)]
        output: object = "".join(texts) if len(texts) < 2 else [{"type": "text", "text": text} for text in texts]
        shown = [self._media(part) for part in content.parts if isinstance(part, Image | Document)]
        aside = b""
        if shown:
            aside = b",".join((dump({"type": "text", "text": f"[from the result of call {name}]"}), *shown))
            output = output or "[shown in the next message]"
        body = b"," + dump({"role": "tool", "tool_call_id": name, "content": output})
        return Fragment(item, BlockKind.RESULT, body, pair_key(content.call_id), name, content.form, aside=aside)

    def _media(self, part: Image | Document) -> bytes:
        if isinstance(part, Image):
            detail = {"detail": part.detail} if part.detail else {}
            return dump({"type": "image_url", "image_url": {"url": part.url, **detail}})
        return dump({"type": "file", "file": {"filename": part.name or "file", "file_data": part.url}})

    def assemble(self, view: View, heads: list[Fragment], fragments: list[Fragment]) -> Assembled:
        """Join the fragments into the body: the head, then alternating messages."""
        del view
        messages = alternating_messages(fragments)
        repairs: tuple[RequestRepair, ...] = ()
        if not messages:
            opener = Item("", "notice", Text(OPENING_TEXT))
            messages = [(False, [self._text_fragment(opener, Text(OPENING_TEXT))])]
            repairs = (RequestRepair("no_first_user", ""),)
        chunks = [self._prefix, b',"messages":[']
        start = len(chunks)
        _add_head(chunks, [head for head in heads if head.place])
        for from_model, blocks in messages:
            if from_model:
                _add_assistant(chunks, blocks)
            else:
                self._add_user_side(chunks, blocks)
        chunks[start] = chunks[start][1:]
        chunks += (b"]", self._suffix, b"}")
        return Assembled(b"".join(chunks), repairs=repairs)

    def _add_user_side(self, chunks: list[bytes], blocks: list[Fragment]) -> None:
        results = list(takewhile(lambda block: block.place == BlockKind.RESULT, blocks))
        chunks += (block.body for block in results)
        asides = [block.aside for block in results if block.aside]
        parts: list[Fragment] = []
        rest = len(results)
        if rest == len(blocks) and not asides:
            return
        if rest and self._mistral:
            chunks.append(_DONE_MESSAGE)
        for block in blocks[rest:]:
            if block.group != "message":
                parts.append(block)
                continue
            _add_user(chunks, parts, asides)
            parts, asides = [], []
            chunks.append(block.body)
        _add_user(chunks, parts, asides)


# Keys of the body that parameters may not set, because view, tools and card write them.
_RESERVED = frozenset({"messages", "tools"})
# OpenAI's newer models refuse `max_tokens`, also behind other servers; those servers' own models often know no other field.
_OPENAI_MODEL = lazy_pattern(r"(?:.*/)?(?:gpt-(?!oss)|chatgpt|codex|o\d)")


def chat_fields(card: ModelCard, tools: tuple[Tool, ...], params: Params) -> Fields:
    """Fields of Chat Completions."""
    tools, params = with_wire_names(tools, params, "chat")
    fields: Fields = {"model": params.model or card.api_name or card.name}
    if params.max_tokens is not None:
        is_openai = card.provider == "openai" or _OPENAI_MODEL.match(str(fields["model"])) is not None
        fields["max_completion_tokens" if is_openai else "max_tokens"] = params.max_tokens
    if params.temperature is not None:
        fields["temperature"] = params.temperature
    if params.effort:
        fields["reasoning_effort"] = params.effort
    if params.verbosity:
        fields["verbosity"] = params.verbosity
    if is_given(params.schema):
        fields["response_format"] = {"type": "json_schema", "json_schema": {"name": "output", "strict": True, "schema": params.schema}}
    if tools:
        _check_chat_tools(card, params)
        fields["tools"] = [_chat_tool(tool) for tool in ordered_tools(tools, params)]
        if params.tool_choice in {"none", "required"}:
            fields["tool_choice"] = params.tool_choice
        elif params.tool_choice != "auto":
            fields["tool_choice"] = {"type": "function", "function": {"name": params.tool_choice}}
        if not params.parallel:
            fields["parallel_tool_calls"] = False
    if params.cache_key and card.cache == "automatic":
        fields["prompt_cache_key"] = params.cache_key
    fields["stream"] = params.stream
    if params.stream:
        fields["stream_options"] = {"include_usage": True}
    return without_overridden(fields, params, _RESERVED)


def _check_chat_tools(card: ModelCard, params: Params) -> None:
    """Raise `BadInput` if OpenAI would refuse the tools of a request to Chat Completions."""
    if card.provider != "openai" or card.chat_tools == "always" or (card.chat_tools == "unthinking" and params.effort == "none"):
        return
    unthinking = ', or set the effort to "none"' if card.chat_tools == "unthinking" else ""
    raise BadInput(f'{card.name} takes tools over Responses: give its card wire = "responses"{unthinking}', where="wire")


def _chat_tool(tool: Tool) -> Raw | Fields:
    if tool.is_native("chat"):
        return tool.native
    parameters = FREE_INPUT if tool.form == "free" else tool.schema
    return {"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": parameters}}


def _add_user(chunks: list[bytes], parts: list[Fragment], asides: list[bytes]) -> None:
    if not parts and not asides:
        return
    chunks.append(b',{"role":"user","content":')
    if len(parts) == 1 and not asides and parts[0].group:
        chunks.append(parts[0].body)
    else:
        chunks += (b"[", b",".join((*asides, *map(_as_part, parts))), b"]")
    chunks.append(b"}")


def _add_assistant(chunks: list[bytes], blocks: list[Fragment]) -> None:
    call, thinking = BlockKind.CALL, BlockKind.THINKING
    if len(blocks) == 1 and blocks[0].place < thinking:
        chunks += (b',{"role":"assistant","content":', blocks[0].body, b"}")
        return
    texts = [block for block in blocks if block.place < thinking]
    calls = [block.body for block in blocks if block.place == call]
    thoughts = [block for block in blocks if block.place == thinking]
    chunks.append(b',{"role":"assistant","content":')
    if not texts:
        chunks.append(b"null")
    elif len(texts) == 1:
        chunks.append(texts[0].body)
    else:
        chunks += (b"[", b",".join(map(_as_part, texts)), b"]")
    if thoughts:
        chunks += (b',"reasoning_content":"', *(thought.body[1:-1] for thought in thoughts), b'"')
    if calls:
        chunks += (b',"tool_calls":[', b",".join(calls), b"]")
    chunks.append(b"}")


def _as_part(fragment: Fragment) -> bytes:
    return b'{"type":"text","text":' + fragment.body + b"}" if fragment.group else fragment.body


def _add_head(chunks: list[bytes], heads: list[Fragment]) -> None:
    """One message per run of equal roles, because many servers accept a single system message only."""
    for role, run in groupby(heads, key=lambda head: head.group):
        text = b"\n\n".join(head.body for head in run).decode()
        chunks.append(b',{"role":"%s","content":%s}' % (role.encode(), dump(text)))


# Servers disagree on the field of the thinking text.
_THINKING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")


def decode_completion(completion: Json, card: ModelCard) -> ModelReplied:
    """Decode a completion that was not streamed; its first choice is the reply. Raises `WireError` if it has none."""
    if error := error_object(completion):
        raise provider_error(error, card.provider)
    choices = tables_at(completion, "choices")
    if not choices:
        raise WireError("the answer has no choice", where=card.provider)
    first = next((choice for choice in choices if choice.get("index") == 0), choices[0])
    message = table_at(first, "message")
    # In a whole response every entry is a separate call, whatever its index.
    calls = [{**entry, "index": place} for place, entry in enumerate(tables_at(message, "tool_calls"))]
    assembler = ChunkAssembler(card)
    tuple(assembler.take({**completion, "choices": [{**first, "index": 0, "delta": {**message, "tool_calls": calls}}]}))
    return assembler.reply()


def decode_usage(usage: Json) -> Usage:
    """Token usage by part; the provider counts cached tokens as prompt tokens.

    Some servers leave the reasoning out of the completion and count it in the total alone; it is billed as output everywhere.
    """
    details = table_at(usage, "prompt_tokens_details")
    read = number(details, "cached_tokens") or number(usage, "prompt_cache_hit_tokens")
    written = number(details, "cache_write_tokens")
    prompt, completion = number(usage, "prompt_tokens"), number(usage, "completion_tokens")
    reasoning = number(table_at(usage, "completion_tokens_details"), "reasoning_tokens")
    return Usage(
        input=max(0, prompt - read - written),
        cache_read=read,
        cache_write=written,
        output=max(completion, min(number(usage, "total_tokens") - prompt, completion + reasoning)),
        reasoning=reasoning,
    )


class _StreamedCall:
    """A tool call whose arguments are still arriving."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.call_id = ""
        self.tool = ""
        self.args: list[str] = []
        self.free = False

    def content(self, number: int) -> ToolCall:
        args = "".join(self.args)
        return ToolCall(
            self.call_id or f"call_{number}", self.tool, args if self.free else args or "{}", form="free" if self.free else "json"
        )

    def ended_by(self, call_id: str, tool: str) -> bool:
        """Whether an entry at the same index starts another call: it names a tool and has another id.

        Some servers invent an id for every chunk, so that an id alone starts no call.
        """
        return bool(tool and call_id and self.call_id and call_id != self.call_id)

    def whole(self) -> bool:
        """Whether the arguments are complete."""
        return is_object("".join(self.args))


class ChunkAssembler:
    """Assembles a streamed completion; its first choice is the reply."""

    def __init__(self, card: ModelCard) -> None:
        self._card = card
        self._id = ""
        self._texts: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[_StreamedCall] = []
        self._open: dict[int, _StreamedCall] = {}
        self._choice: int | None = None
        self._usage: Json = {}
        self._tier = ""
        self._stop = ""
        self._refused = False

    @property
    def complete(self) -> bool:
        """Whether the choice has a finish reason."""
        return bool(self._stop)

    def take(self, event: Json) -> Iterator[Delta]:
        """Apply one chunk and yield its deltas."""
        if error := error_object(event):
            raise provider_error(error, self._card.provider)
        self._id = self._id or text(event, "id")
        usage = table_at(event, "usage")
        self._usage = usage or self._usage
        self._tier = tier_of(event) or self._tier
        choices = tables_at(event, "choices")
        if self._choice is None and choices:
            self._choice = min(number(choice, "index") for choice in choices)
        for choice in choices:
            if number(choice, "index") == self._choice:
                self._stop = text(choice, "finish_reason") or self._stop
                yield from self._extend(table_at(choice, "delta"))
        # Usage after the finish reason is that of the whole reply, which `reply` returns.
        if usage and not self._stop:
            yield UsageDelta(decode_usage(usage))

    def _extend(self, delta: Json) -> Iterator[Delta]:
        thinking = next(filter(None, (text(delta, name) for name in _THINKING_FIELDS)), "") + _joined_parts(delta, "thinking")
        if thinking:
            self._thinking.append(thinking)
            yield ThinkingDelta(thinking)
        refusal = text(delta, "refusal")
        self._refused = self._refused or bool(refusal)
        visible_text = text(delta, "content") + _joined_parts(delta, "text") + refusal
        if visible_text:
            self._texts.append(visible_text)
            yield TextDelta(visible_text)
        extended_places: set[int] = set()
        for entry in tables_at(delta, "tool_calls"):
            yield self._call(entry, extended_places)

    def _call(self, entry: Json, extended_places: set[int]) -> Delta:
        free = is_json(entry.get("custom"))
        function = table_at(entry, "custom" if free else "function")
        call = self._call_for(entry, text(function, "name"), extended_places)
        extended_places.add(call.place)
        arguments = function.get("input" if free else "arguments")
        args = decode_dump(arguments) if is_json(arguments) else arguments if isinstance(arguments, str) else ""
        call.free = call.free or free
        call.call_id = call.call_id or text(entry, "id")
        call.tool = call.tool or text(function, "name")
        call.args.append(args)
        return CallDelta(call.call_id, call.tool, args)

    def _call_for(self, entry: Json, tool: str, extended_places: set[int]) -> _StreamedCall:
        """The call that an entry extends, or a new one; `extended_places` are the indexes that this chunk has extended already."""
        named = text(entry, "id")
        if type(entry.get("index")) is int:
            place = number(entry, "index")
            call = self._open.get(place)
            return self._open_call(place) if call is None or call.ended_by(named, tool) else call
        if named:
            return next((call for call in self._calls if call.call_id == named), None) or self._open_call(len(self._calls))
        last = self._calls[-1] if self._calls else None
        # Without index and id an entry extends the last call, unless that is complete or was extended by this chunk.
        if last is None or last.place in extended_places or (tool and (tool != last.tool or last.whole())):
            return self._open_call(len(self._calls))
        return last

    def _open_call(self, place: int) -> _StreamedCall:
        call = _StreamedCall(place)
        self._calls.append(call)
        self._open[place] = call
        return call

    def reply(self) -> ModelReplied:
        """The reply as far as it has arrived."""
        parts: list[Content] = []
        if self._thinking:
            parts.append(Thinking("".join(self._thinking)))
        if self._texts:
            parts.append(Text("".join(self._texts), role="assistant"))
        calls = sorted(self._calls, key=lambda call: call.place)
        parts.extend(call.content(number) for number, call in enumerate(calls))
        reply = reply_of(parts, self._stop, decode_usage(self._usage), self._card, self._id, refused=self._refused)
        return replace(reply, tier=" ".join(filter(None, (self._tier, tier_of({}, self._usage)))))


def _joined_parts(delta: Json, kind: str) -> str:
    """The joined text of content that comes as a list of parts."""
    return "".join(_part_text(part, kind) for part in tables_at(delta, "content") if text(part, "type") == kind)


def _part_text(part: Json, kind: str) -> str:
    return text(part, kind) or "".join(text(inner, "text") for inner in tables_at(part, kind))
