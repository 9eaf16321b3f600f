"""OpenAI Responses: encodes a view in two dialects, decodes replies, and gives the JSON of a content for size rules."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, TypeAlias

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from palimpsest.core.deltas import CallDelta, Delta, TextDelta, ThinkingDelta, UsageDelta
from palimpsest.core.errors import WireError
from palimpsest.core.events import CacheDiagnosis, ModelReplied, Usage
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
    Value,
    is_tool_change,
    placed_changes,
)
from palimpsest.core.text import lazy_pattern
from palimpsest.core.view import View
from palimpsest.wire.encoding import (
    CHANGED,
    OPENING_TEXT,
    Assembled,
    BlockKind,
    Fields,
    Fragment,
    arguments_object,
    call_kind,
    dump,
    empty_fragment,
    extra_members,
    object_members,
    opaque_type,
    ordered_tools,
    pair_key,
    sent_name,
    wire_names,
    with_wire_names,
    without_overridden,
)
from palimpsest.wire.json_reading import Json as DecodeJson
from palimpsest.wire.json_reading import dump as decode_dump
from palimpsest.wire.json_reading import is_json, is_object, number, table_at, tables_at, text
from palimpsest.wire.media import Fetch
from palimpsest.wire.models import ModelCard
from palimpsest.wire.repair import provider_call_id, role_of, sendable_content, usable_signature, valid_call_id
from palimpsest.wire.reply import error_object, provider_error, reply_of, text_fallback, tier_of
from palimpsest.wire.request import Params, RequestRepair, Tool, is_deferred, is_given
from palimpsest.wire.rules import RESPONSES_ITEMS, RESPONSES_PARTS

_OUTPUTS = {"function": "function_call_output", "custom": "custom_tool_call_output", "search": "tool_search_output"}


class ResponsesWire:
    """Encoder for OpenAI Responses: a flat list of items in the order of the view."""

    def __init__(self, card: ModelCard, tools: tuple[Tool, ...], params: Params, fetch: Fetch) -> None:
        self._card = card
        self._fetch = fetch
        self._names = wire_names(tools, "responses")
        self._ids = params.dialect == "codex-0.166"
        self._readable_output = not self._ids and any(tool.name == "apply_patch" and tool.form == "free" for tool in tools)
        self._tools = {tool.name: replace(tool, name=self._names[tool.name]) for tool in tools}
        self._deferred = [tool.name for tool in tools if card.takes_tool_changes and is_deferred(tool, "responses")]
        self._fields = responses_fields(card, tools, params)
        self._prefix = b"{" + object_members(self._fields)
        self._suffix = extra_members(params.extra) if is_given(params.extra) else b""

    def head(self, item: Item) -> Fragment:
        """Encode a head item; base instructions stay plain text, because they may go into the field `instructions`."""
        content = sendable_content(item, self._card, self._fetch)
        if not isinstance(content, Text):
            return empty_fragment(item)
        if content.role == "system":
            return Fragment(item, BlockKind.ASSISTANT, content.text.encode())
        return self._message_part(item, content.role, content.phase, content.ref, self._part_entry(content, content.role))

    def fragment(self, item: Item, wire_id: str = "") -> Fragment:
        """Encode an item as an input item, or as a part of one that adjacent fragments complete."""
        if is_tool_change(item):
            # Its tools are known where the body is assembled.
            return Fragment(item, BlockKind.USER, group=CHANGED) if self._card.takes_tool_changes else empty_fragment(item)
        content = sendable_content(item, self._card, self._fetch)
        match content:
            case None:
                return empty_fragment(item)
            case Text():
                return self._message_part(item, content.role, content.phase, content.ref, self._part_entry(content, content.role))
            case Image() | Document():
                return self._message_part(item, "user", "", content.ref, self._part_entry(content, "user"))
            case Thinking():
                return self._thinking(item, content)
            case Opaque():
                return self._opaque(item, content)
            case ToolCall():
                return self._call(item, content, wire_id)
            case ToolResult():
                return self._output_item(item, content, wire_id)

    def _message_part(self, item: Item, role: Role, phase: str, ref: str, part: bytes) -> Fragment:
        event, _, rest = item.id.partition(".")
        # Contents of one event are parts of one message; contents that an edit inserted are separate messages.
        origin = ref or (item.id if "." in rest else event)
        opening = b',{"type":"message"' + self._id(ref) + b',"role":"%s","content":[' % role.encode()
        closing = b'],"phase":%s}' % dump(phase) if phase else b"]}"
        place = BlockKind.ASSISTANT if role == "assistant" else BlockKind.USER
        return Fragment(item, place, part, group=f"{role}:{phase}:{origin}", opening=opening, closing=closing)

    def _id(self, ref: str) -> bytes:
        return b',"id":' + dump(ref) if self._ids and ref else b""

    def _thinking(self, item: Item, content: Thinking) -> Fragment:
        part = b""
        if content.text:
            part = dump({"type": "summary_text" if content.form == "digest" else "reasoning_text", "text": content.text})
        signature = usable_signature(content, self._card)
        encrypted = dump(signature.data) if signature is not None else b""
        field = b"summary" if content.form == "digest" else b"content"
        group = f"reasoning:{content.ref or item.id}"
        # The parts of a reasoning item carry the name of their list in `opening` and the encrypted content in `closing`.
        return Fragment(item, BlockKind.THINKING, part, group=group, opening=field, closing=encrypted, aside=self._id(content.ref))

    def _opaque(self, item: Item, content: Opaque) -> Fragment:
        kind = opaque_type(content)
        if kind == "input_audio" and not self._card.audio:
            words = Text("[audio not shown: this model cannot hear]", role_of(item))
            return self._message_part(item, words.role, "", content.ref, self._part_entry(words, words.role))
        if kind in RESPONSES_PARTS:
            return self._message_part(item, role_of(item), "", content.ref, content.data.encode())
        if kind not in RESPONSES_ITEMS:
            return empty_fragment(item)
        data = content.data.encode()
        if kind == "image_generation_call" and not self._card.images:
            data = dump({**msgspec.json.decode(data, type=dict[str, object]), "result": ""})
        return Fragment(item, BlockKind.ASSISTANT, b"," + data)

    def _call(self, item: Item, content: ToolCall, wire_id: str) -> Fragment:
        name = wire_id or valid_call_id(content.call_id, self._card.call_ids)
        key = pair_key(content.call_id, content.form)
        fields: dict[str, object] = {"call_id": name}
        if not content.call_id and content.form in {"shell", "search"}:
            # The server ran the call, so that it has no id and expects no output.
            key, fields = "", {}
        match content.form:
            case "json":
                kind = "function_call"
                fields = {
                    "name": sent_name(content.tool, self._names, "responses"),
                    "arguments": arguments_object(content).decode(),
                    "call_id": name,
                }
            case "free":
                kind = "custom_tool_call"
                fields |= {"name": sent_name(content.tool, self._names, "responses"), "input": content.args}
            case "shell":
                kind = "local_shell_call"
                fields |= {"status": "completed", "action": _action(content)}
            case "search":
                kind = "tool_search_call"
                fields |= {
                    "status": "completed",
                    "execution": "client" if fields else "server",
                    "arguments": Raw(arguments_object(content)),
                }
        provider_id = provider_call_id(content, self._card.call_ids) if key else ""
        return Fragment(item, BlockKind.CALL, self._item(kind, content.ref, fields), key, name, content.form, provider_id=provider_id)

    def _output_item(self, item: Item, content: ToolResult, wire_id: str) -> Fragment:
        kind = call_kind(content.form)
        name = wire_id or valid_call_id(content.call_id, self._card.call_ids)
        # A result without a call, such as a notification, has no id.
        fields: dict[str, object] = {"call_id": name} if content.call_id or wire_id else {}
        if kind == "search":
            fields |= {"status": "completed", "execution": "client" if fields else "server", "tools": _found_tools(content)}
        else:
            fields["output"] = self._output_value(content)
        key = pair_key(content.call_id, content.form) if content.call_id else ""
        return Fragment(item, BlockKind.RESULT, self._item(_OUTPUTS[kind], content.ref, fields), key, name, content.form)

    def _output_value(self, content: ToolResult) -> object:
        match content.parts:
            case ():
                return ""
            case (Text(text=text),):
                return _readable(text) if self._readable_output else text
            case parts:
                return [Raw(self._part_entry(part, "user")) for part in parts]

    def _item(self, kind: str, ref: str, fields: dict[str, object]) -> bytes:
        return b',{"type":"%s"' % kind.encode() + self._id(ref) + b"," + object_members(fields) + b"}"

    def _part_entry(self, part: Part, role: Role) -> bytes:
        match part:
            case Text():
                return dump({"type": "output_text" if role == "assistant" else "input_text", "text": part.text})
            case Image():
                return dump({"type": "input_image", "image_url": part.url, "detail": part.detail or "auto"})
            case Document():
                if part.url and not part.url.startswith("data:"):
                    return dump({"type": "input_file", "file_url": part.url})
                return dump({"type": "input_file", "filename": part.name or "file", "file_data": part.url})
            case Opaque():
                return part.data.encode()

    def assemble(self, view: View, heads: list[Fragment], fragments: list[Fragment]) -> Assembled:
        """Join the fragments into the body; base instructions go into their field or into the first developer message."""
        del view
        fragments, removed = self._with_tool_changes(fragments)
        chunks = [self._prefix if not removed else b"{" + object_members(self._fields | self._choice_without(removed))]
        base = b"\n\n".join(head.body for head in heads if head.place and not head.group).decode()
        lead = [head for head in heads if head.group]
        if base and not self._ids:
            chunks += (b',"instructions":', dump(base))
        elif base:
            base_item = Item("head", "context", Text(base, "developer"))
            lead.insert(0, self.fragment(base_item))
        chunks.append(b',"input":[')
        start = len(chunks)
        _add_items(chunks, lead, fragments)
        repairs: tuple[RequestRepair, ...] = ()
        if not any(chunks[start:]):
            opener = Text(OPENING_TEXT)
            _add_items(chunks, [], [self.fragment(Item("", "notice", opener))])
            repairs = (RequestRepair("no_first_user", ""),)
        chunks += (b"]", self._suffix, b"}")
        return Assembled(b"".join(chunks), repairs=repairs)

    def _with_tool_changes(self, fragments: list[Fragment]) -> tuple[list[Fragment], frozenset[str]]:
        """The fragments with other efforts and, each at its first place, the tools that join; and the tools that are removed at the end."""
        if not any(fragment.group == CHANGED for fragment in fragments):
            return fragments, frozenset()
        joined: set[str] = set()
        bodies: dict[str, bytes] = {}
        available = frozenset(self._tools)
        for placed in placed_changes([each.item for each in fragments if each.group == CHANGED], self._tools, self._deferred):
            new = [name for name in placed.change.added if name in self._deferred and name not in joined]
            joined.update(new)
            said: list[dict[str, object]] = []
            if new:
                declarations = [responses_tool(self._tools[name]) for name in new]
                said.append({"type": "additional_tools", "role": "developer", "tools": declarations})
            if placed.change.effort:
                said.append({"type": "configuration_update", "reasoning": {"effort": placed.change.effort}})
            if said:
                bodies[placed.item.id] = b"".join(b"," + dump(each) for each in said)
            available = placed.available
        shown = (each for each in fragments if each.group != CHANGED or each.item.id in bodies)
        whole = [replace(each, group="", body=bodies[each.item.id]) if each.group == CHANGED else each for each in shown]
        return whole, frozenset(self._tools) - available

    def _choice_without(self, removed: frozenset[str]) -> dict[str, object]:
        """The field that lets the model call only the other tools: a removed one stays declared, as what was thought behind it needs."""
        choice = self._fields.get("tool_choice")
        if choice not in ("auto", "required"):
            return {}
        left = [msgspec.json.decode(dump(responses_tool(tool))) for name, tool in self._tools.items() if name not in removed]
        named = [{key: tool[key] for key in ("type", "name") if key in tool} for tool in left]
        return {"tool_choice": {"type": "allowed_tools", "mode": choice, "tools": named}}


# Keys of the body that parameters may not set, because view, tools and card write them.
_RESERVED = frozenset({"input", "instructions", "tools"})
# The fields of the compaction endpoint, beside items and instructions: those that Codex sends, and those that are documented.
_COMPACT_FIELDS = ("model", "tools", "parallel_tool_calls", "reasoning", "text")
_DOCUMENTED_COMPACT_FIELDS = ("model", "prompt_cache_key")


def responses_fields(card: ModelCard, tools: tuple[Tool, ...], params: Params) -> Fields:
    """Fields of OpenAI Responses."""
    tools, params = with_wire_names(tools, params, "responses")
    fields: Fields = {
        "model": params.model or card.api_name or card.name,
        "tools": [
            responses_tool(tool)
            for tool in ordered_tools(tools, params)
            if not (card.takes_tool_changes and is_deferred(tool, "responses"))
        ],
        "tool_choice": _responses_choice(tools, params),
        "parallel_tool_calls": params.parallel,
        "reasoning": None,
        "store": False,
        "stream": params.stream,
        "include": [],
    }
    reasons = card.thinks if params.reasoning is None else params.reasoning
    if reasons or params.effort or params.summary:
        effort = {"effort": params.effort} if params.effort else {}
        summary = {"summary": params.summary} if params.summary else {}
        fields["reasoning"] = {**effort, **summary}
        fields["include"] = ["reasoning.encrypted_content"]
    if params.cache_key:
        fields["prompt_cache_key"] = params.cache_key
    if params.compared_reply:
        fields["prompt_cache_options"] = {"comparison_response_id": params.compared_reply}
    if params.service_tier:
        fields["service_tier"] = params.service_tier
    if params.max_tokens is not None:
        fields["max_output_tokens"] = params.max_tokens
    if params.temperature is not None:
        fields["temperature"] = params.temperature
    wording: Fields = {"verbosity": params.verbosity} if params.verbosity else {}
    if is_given(params.schema):
        wording["format"] = {"type": "json_schema", "name": "codex_output_schema", "strict": True, "schema": params.schema}
    if wording:
        fields["text"] = wording
    if is_given(params.metadata):
        fields["client_metadata"] = params.metadata
    if params.compact_at is not None and card.provider == "openai":
        fields["context_management"] = [{"type": "compaction", "compact_threshold": params.compact_at}]
    if params.endpoint == "compact":
        taken = _DOCUMENTED_COMPACT_FIELDS if params.dialect == "openai" else _COMPACT_FIELDS
        fields = {name: fields[name] for name in taken if fields.get(name) is not None}
    return without_overridden(fields, params, _RESERVED)


def responses_tool(tool: Tool) -> Raw | Fields:
    """The declaration of a tool on Responses, which has its name on the wire."""
    if tool.is_native("responses"):
        return tool.native
    if tool.form == "shell":
        return {"type": "local_shell"}
    if tool.form == "search":
        return {"type": "tool_search", "execution": "client", "description": tool.description, "parameters": tool.schema}
    if tool.form == "free":
        grammar: Fields = {"format": tool.format} if is_given(tool.format) else {}
        return {"type": "custom", "name": tool.name, "description": tool.description, **grammar}
    return {"type": "function", "name": tool.name, "description": tool.description, "strict": False, "parameters": tool.schema}


def _responses_choice(tools: tuple[Tool, ...], params: Params) -> str | Fields:
    if params.tool_choice in {"auto", "none", "required"}:
        return params.tool_choice
    free = any(tool.name == params.tool_choice and tool.form == "free" for tool in tools)
    return {"type": "custom" if free else "function", "name": params.tool_choice}


def reply_items(fragments: list[Fragment]) -> tuple[Raw, ...]:
    """Return the items in which the contents of one reply are sent back."""
    chunks: list[bytes] = []
    _add_items(chunks, [], fragments)
    return msgspec.json.decode(b"[" + b"".join(chunks) + b"]", type=tuple[Raw, ...])


def _add_items(chunks: list[bytes], lead: list[Fragment], fragments: list[Fragment]) -> None:
    start = len(chunks)
    thinking = BlockKind.THINKING
    add = chunks.append
    parts: list[Fragment] = []
    group, closing = "", b""
    for fragment in chain(lead, fragments):
        if not fragment.place:
            continue
        if parts and (fragment.place != thinking or fragment.group != parts[0].group):
            add(_reasoning(parts))
            parts = []
        if group:
            if fragment.group == group:
                add(b",")
                add(fragment.body)
                continue
            add(closing)
            group = ""
        if fragment.place == thinking:
            parts.append(fragment)
        elif fragment.group:
            add(fragment.opening)
            add(fragment.body)
            group, closing = fragment.group, fragment.closing
        else:
            add(fragment.body)
    if parts:
        add(_reasoning(parts))
    if group:
        add(closing)
    first = next((index for index in range(start, len(chunks)) if chunks[index]), None)
    if first is not None:
        chunks[first] = chunks[first][1:]


def _reasoning(parts: list[Fragment]) -> bytes:
    """One reasoning item of all parts; empty if there is no encrypted content that this model can use."""
    signature = next((part.closing for part in parts if part.closing), b"")
    if not signature:
        return b""
    summary = b",".join(part.body for part in parts if part.body and part.opening == b"summary")
    content = b",".join(part.body for part in parts if part.body and part.opening == b"content")
    content_field = b',"content":[' + content + b"]" if content else b""
    return b',{"type":"reasoning"%s,"summary":[%s]%s,"encrypted_content":%s}' % (parts[0].aside, summary, content_field, signature)


def _action(call: ToolCall) -> object:
    """The action of a shell call: verbatim if it is a valid command, else a command with the arguments as its only word."""
    if is_object(call.args):
        action = msgspec.json.decode(call.args)
        command = action.get("command")
        if action.get("type") == "exec" and isinstance(command, list) and all(isinstance(word, str) for word in command):
            return Raw(call.args.encode())
        if isinstance(command, list) and all(isinstance(word, str) for word in command):
            return {**action, "type": "exec", "env": action.get("env") or {}}
    return {"type": "exec", "command": [call.args], "env": {}}


def _found_tools(result: ToolResult) -> object:
    """The tools in the result of a search, which is the JSON of a list or of an object with the list `tools`."""
    text = "".join(part.text for part in result.parts if isinstance(part, Text))
    try:
        found = msgspec.json.decode(text) if text else []
    except (msgspec.DecodeError, RecursionError):
        return []
    tools = found.get("tools") if isinstance(found, dict) else found
    return tools if isinstance(tools, list) else []


def _readable(text: str) -> str:
    """The output of a command as plain lines, if it was recorded as JSON with exit code and duration in seconds."""
    if not text.startswith("{") or not is_object(text):
        return text
    recorded = msgspec.json.decode(text)
    metadata = recorded.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(recorded.get("output"), str):
        return text
    code, seconds = metadata.get("exit_code"), metadata.get("duration_seconds")
    if code is None or seconds is None:
        return text
    return f"Exit code: {code}\nWall time: {seconds} seconds\nOutput:\n{recorded['output']}"


# The most characters that are kept of a word of the provider.
_LONGEST_WORD: Final = 100


def decode_response_object(response: DecodeJson, card: ModelCard) -> ModelReplied:
    """Decode a response that was not streamed. Raises `WireError` if it is none, `ProviderError` if it failed."""
    _refuse_failed(response, card)
    if not isinstance(response.get("output"), list):
        raise WireError("the answer is not a response", where=card.provider)
    return _assembled_reply(response, tables_at(response, "output"), card)


def _refuse_failed(response: DecodeJson, card: ModelCard) -> None:
    error = error_object(response)
    if error or text(response, "status") == "failed":
        raise provider_error(error or {"message": "the response failed without a reason"}, card.provider)


def _assembled_reply(response: DecodeJson, output: list[DecodeJson], card: ModelCard) -> ModelReplied:
    parts = [part for item in output for part in decode_item(item, card)]
    refused = any(text(part, "type") == "refusal" for item in output for part in tables_at(item, "content"))
    reason = text(table_at(response, "incomplete_details"), "reason") or text(response, "status")
    reply = reply_of(parts, reason, decode_usage(table_at(response, "usage")), card, text(response, "id"), refused=refused)
    tier = tier_of(response, table_at(response, "usage"), output)
    return replace(reply, diagnosis=_diagnosis(table_at(response, "prompt_cache_diagnostics")), tier=tier)


def _diagnosis(said: DecodeJson) -> CacheDiagnosis | None:
    """What a response says of the cache; `None` if nothing."""
    if not said:
        return None
    word = text(said, "type")[:_LONGEST_WORD]
    if word == "cache_hit":
        return CacheDiagnosis("same", word)
    if word != "cache_miss":
        return CacheDiagnosis("unknown", word)
    missed = max(0, number(said, "cache_missed_tokens")) if "cache_missed_tokens" in said else None
    return CacheDiagnosis("changed", text(said, "reason")[:_LONGEST_WORD], missed)


def decode_item(item: DecodeJson, card: ModelCard) -> Iterator[Content]:
    """The contents of an output item."""
    ref, call_id = text(item, "id"), text(item, "call_id")
    match text(item, "type"):
        case "message" if all(text(part, "type") in ("output_text", "refusal") for part in tables_at(item, "content")):
            for part in tables_at(item, "content"):
                yield Text(text(part, "text") or text(part, "refusal"), role="assistant", phase=text(item, "phase"), ref=ref)
        case "reasoning":
            yield from _decode_reasoning(item, card)
        case "function_call":
            arguments = item.get("arguments")
            # Some servers send the object itself instead of its text.
            args = arguments if isinstance(arguments, str) else decode_dump(arguments) if is_json(arguments) else ""
            yield ToolCall(call_id, text(item, "name"), args or "{}", ref=ref)
        case "custom_tool_call":
            yield ToolCall(call_id, text(item, "name"), text(item, "input"), form="free", ref=ref)
        case "local_shell_call":
            yield ToolCall(call_id or ref, "local_shell", decode_dump(item.get("action") or {}), form="shell", ref=ref)
        # A search that the server ran has no call id and needs no result.
        case "tool_search_call" if call_id:
            yield ToolCall(call_id, "tool_search", decode_dump(item.get("arguments") or {}), form="search", ref=ref)
        case _:
            yield Opaque(card.provider, card.name, decode_dump(item), text_fallback(item), ref)


def _decode_reasoning(item: DecodeJson, card: ModelCard) -> Iterator[Content]:
    ref, encrypted = text(item, "id"), text(item, "encrypted_content")
    signature = Signature(card.provider, card.name, encrypted) if encrypted else None
    parts = [Thinking(text(part, "text"), form="digest", ref=ref) for part in tables_at(item, "summary")]
    parts += [Thinking(text(part, "text"), form="whole", ref=ref) for part in tables_at(item, "content")]
    if not parts:
        yield Thinking("", signature, "sealed", ref)
        return
    yield from parts[:-1]
    yield Thinking(parts[-1].text, signature, parts[-1].form, ref)


def decode_usage(usage: DecodeJson) -> Usage:
    """Token usage by part; the provider counts cached tokens as input tokens."""
    details = table_at(usage, "input_tokens_details")
    read = number(details, "cached_tokens")
    written = number(details, "cache_write_tokens")
    long = min(written, number(table_at(details, "cache_write_tokens_details"), "ttl_12h_tokens"))
    return Usage(
        input=max(0, number(usage, "input_tokens") - read - written),
        cache_read=read,
        cache_write=written - long,
        cache_write_long=long,
        output=number(usage, "output_tokens"),
        reasoning=number(table_at(usage, "output_tokens_details"), "reasoning_tokens"),
    )


# The target of each delta event: the list of parts, the type of a part and its field, or the field of the item.
_PARTS = {
    "response.output_text.delta": ("content", "output_text", "text"),
    "response.refusal.delta": ("content", "refusal", "refusal"),
    "response.reasoning_summary_text.delta": ("summary", "summary_text", "text"),
    "response.reasoning_text.delta": ("content", "reasoning_text", "text"),
}
_FIELDS = {"response.function_call_arguments.delta": "arguments", "response.custom_tool_call_input.delta": "input"}
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done"})


class ResponseAssembler:
    """Assembles a streamed response."""

    def __init__(self, card: ModelCard) -> None:
        self._card = card
        self._response: DecodeJson = {}
        self._items: dict[int, DecodeJson] = {}
        self._refs: dict[str, int] = {}
        # By item, then by event type and index of the part. Joined once, because a long reply has tens of thousands of pieces.
        self._pieces: dict[int, dict[tuple[str, int], list[str]]] = {}
        self._complete = False

    @property
    def complete(self) -> bool:
        """Whether the final event has arrived."""
        return self._complete

    def take(self, event: DecodeJson) -> Iterator[Delta]:
        """Apply one event and yield its deltas."""
        kind, index = text(event, "type"), self._index(event)
        if kind in _PARTS:
            yield self._extend_part(kind, index, event)
        elif kind in _FIELDS:
            item = self._items.setdefault(index, {})
            self._keep(index, kind, 0, text(event, "delta"))
            yield CallDelta(text(item, "call_id"), text(item, "name"), text(event, "delta"))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            item = dict(table_at(event, "item"))
            self._items[index] = item
            self._pieces.pop(index, None)
            if kind.endswith("added"):
                # That of an item that has only begun is not what goes back.
                item.pop("encrypted_content", None)
            if kind.endswith("added") and text(item, "type") in ("function_call", "custom_tool_call"):
                yield CallDelta(text(item, "call_id"), text(item, "name"), "")
        elif kind in ("response.created", "response.in_progress"):
            self._response = table_at(event, "response")
            if usage := table_at(self._response, "usage"):
                yield UsageDelta(decode_usage(usage))
        elif kind in _ENDS:
            self._end(table_at(event, "response"))
        elif kind == "error":
            raise provider_error(error_object(event) or event, self._card.provider)

    def _index(self, event: DecodeJson) -> int:
        if isinstance(event.get("output_index"), int):
            return number(event, "output_index")
        # Some servers send no index and identify an item by its id or call id.
        item = table_at(event, "item")
        ref = text(event, "item_id") or text(item, "id") or text(item, "call_id")
        return self._refs.setdefault(ref, len(self._refs)) if ref else max(0, len(self._refs) - 1)

    def _end(self, response: DecodeJson) -> None:
        self._response = response
        self._complete = True
        _refuse_failed(response, self._card)

    def _extend_part(self, kind: str, index: int, event: DecodeJson) -> Delta:
        thinks = "reasoning" in kind
        self._items.setdefault(index, {"type": "reasoning" if thinks else "message"})
        place = number(event, "summary_index" if _PARTS[kind][0] == "summary" else "content_index")
        self._keep(index, kind, place, text(event, "delta"))
        return ThinkingDelta(text(event, "delta")) if thinks else TextDelta(text(event, "delta"))

    def _keep(self, index: int, kind: str, place: int, piece: str) -> None:
        self._pieces.setdefault(index, {}).setdefault((kind, place), []).append(piece)

    def _whole(self, index: int) -> DecodeJson:
        item = dict(self._items[index])
        for (kind, _), pieces in sorted(self._pieces.get(index, {}).items()):
            joined = "".join(pieces)
            if kind in _FIELDS:
                item[_FIELDS[kind]] = text(item, _FIELDS[kind]) + joined
            else:
                parts, part_type, field = _PARTS[kind]
                item[parts] = [*tables_at(item, parts), {"type": part_type, field: joined}]
        return item

    def reply(self) -> ModelReplied:
        """The reply as far as it has arrived."""
        return _assembled_reply(self._response, self._output_value(), self._card)

    def message(self) -> DecodeJson:
        """The reply as the response that it would be if it were not streamed."""
        return {**self._response, "output": self._output_value()}

    def _output_value(self) -> list[DecodeJson]:
        # Some servers omit the output at the end, because it was streamed.
        return tables_at(self._response, "output") or [self._whole(index) for index in sorted(self._items)]


IMAGE_PAYLOAD = 7_373

Json: TypeAlias = "str | Raw | Sequence[Json] | dict[str, Json] | None"

_DATA_IMAGE = lazy_pattern(r"(data:image/[A-Za-z0-9.+-]{1,40}(?:;[a-z0-9=-]{1,40})*;base64,)[A-Za-z0-9+/=_-]*", re.IGNORECASE)


class ItemJson(Value, frozen=True):
    """JSON without its base64 images, and their number."""

    json: Json
    payloads: int = 0


def without_payloads(text: str) -> tuple[str, int]:
    """The text without the base64 of its images, and their number."""
    return _DATA_IMAGE.subn(r"\1", text) if "data:image/" in text else (text, 0)


def item_json(content: Content) -> ItemJson:
    """The Responses item of a content."""
    match content:
        case Text():
            part: dict[str, Json] = {"type": "output_text" if content.role == "assistant" else "input_text", "text": content.text}
            message: dict[str, Json] = {"type": "message", "role": content.role, "content": [part]}
            return ItemJson({**message, "phase": content.phase} if content.phase else message)
        case Thinking():
            return ItemJson({"type": "reasoning", "summary": [{"type": "summary_text", "text": content.text}]})
        case Image() | Document():
            inside = _json_of_part(content)
            return ItemJson({"type": "message", "role": "user", "content": [inside.json]}, inside.payloads)
        case Opaque():
            return _json_of_part(content)
        case ToolCall():
            return ItemJson(_call(content))
        case ToolResult():
            return _json_of_result(content)


def _json_of_part(part: Part) -> ItemJson:
    match part:
        case Text():
            return ItemJson({"type": "input_text", "text": part.text})
        case Image():
            url, payloads = without_payloads(part.url) if part.url else (f"data:{part.media};base64,", 1)
            image: dict[str, Json] = {"type": "input_image", "image_url": url}
            return ItemJson({**image, "detail": part.detail} if part.detail else image, payloads)
        case Document():
            if part.url:
                return ItemJson({"type": "input_file", "file_url": part.url})
            return ItemJson({"type": "input_file", "filename": part.name, "file_data": f"data:{part.media};base64,"}, 1)
        case Opaque():
            data, payloads = without_payloads(part.data)
            return ItemJson(_json(data), payloads)


def _json(text: str) -> Json:
    """Raw JSON if the text is valid, else a JSON string: arguments of a model may be malformed."""
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return Raw(text.encode())


def _call(call: ToolCall) -> Json:
    match call.form:
        case "json":
            return {"type": "function_call", "name": call.tool, "arguments": call.args, "call_id": call.call_id}
        case "free":
            return {"type": "custom_tool_call", "call_id": call.call_id, "name": call.tool, "input": call.args}
        case "shell":
            return {"type": "local_shell_call", "call_id": call.call_id, "status": "completed", "action": _json(call.args)}
        case "search":
            searching: dict[str, Json] = {"type": "tool_search_call", "call_id": call.call_id, "execution": "client"}
            return {**searching, "arguments": _json(call.args)}


def _json_of_result(result: ToolResult) -> ItemJson:
    parts = [_json_of_part(part) for part in result.parts]
    payloads = sum(part.payloads for part in parts)
    texts = [part.text for part in result.parts if isinstance(part, Text)]
    output: Json = "\n".join(texts) if len(texts) == len(parts) else [part.json for part in parts]
    match result.form:
        case "json" | "shell":
            return ItemJson({"type": "function_call_output", "call_id": result.call_id, "output": output}, payloads)
        case "free":
            return ItemJson({"type": "custom_tool_call_output", "call_id": result.call_id, "output": output}, payloads)
        case "search":
            found: dict[str, Json] = {"type": "tool_search_output", "call_id": result.call_id, "status": "completed", "execution": "client"}
            return ItemJson({**found, "tools": _json("\n".join(texts))}, payloads)
