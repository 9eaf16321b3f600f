"""Steps of encoding that the wires share: cached fragments of items, alternating messages, tool names, and request options."""

from collections.abc import Callable, Mapping
from itertools import count
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from palimpsest.core.deltas import CallDelta, Delta
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Content, Form, Item, Opaque, Text, ToolCall
from palimpsest.core.ports import Sendable
from palimpsest.core.text import lazy_pattern, without_tags
from palimpsest.core.view import View
from palimpsest.wire.json_reading import is_object
from palimpsest.wire.models import ModelCard, WireName
from palimpsest.wire.request import LONGEST_NAME, Params, Request, RequestRepair, Tool, is_deferred, is_given

_encoder = msgspec.json.Encoder()


class BlockKind:
    """What a fragment is; everything from ASSISTANT on comes from the model. Plain integers, because they are compared for each item."""

    NOTHING: Final = 0
    USER: Final = 1
    RESULT: Final = 2
    ASSISTANT: Final = 3
    THINKING: Final = 4
    CALL: Final = 5


class Fragment(Struct, frozen=True):
    """The encoded bytes of an item, and what assembling needs to know about them.

    `key` pairs a result with its call, `wire_id` is the id that both are sent under, `provider_id` one that they may get instead.
    Adjacent fragments of one `group` share `opening` and `closing`. `aside` is sent elsewhere than the body. `erased` asks the provider to
    clear the result before the model reads it.
    """

    item: Item
    place: int
    body: bytes = b""
    key: str = ""
    wire_id: str = ""
    form: Form = "json"
    group: str = ""
    opening: bytes = b""
    closing: bytes = b""
    aside: bytes = b""
    erased: bool = False
    provider_id: str = ""


# The message of the user in a request that nothing else would begin.
OPENING_TEXT: Final = "Go on."


class Assembled(Struct, frozen=True):
    """An assembled body, with the labels of its cache breakpoints, the repairs that it needed, and its beta values of Anthropic."""

    body: bytes
    breakpoints: tuple[str, ...] = ()
    repairs: tuple[RequestRepair, ...] = ()
    betas: tuple[str, ...] = ()


class Wire(Protocol):
    """Encoder of one wire: encodes single items and assembles the body."""

    def head(self, item: Item) -> Fragment:
        """Encode an item of the head."""
        ...

    def fragment(self, item: Item, wire_id: str = "") -> Fragment:
        """Encode an item of the conversation; `wire_id` overrides its call id."""
        ...

    def assemble(self, view: View, heads: list[Fragment], fragments: list[Fragment]) -> Assembled:
        """Join repaired fragments into a body."""
        ...


class FragmentCache:
    """Fragments by the identity of their item; a fragment holds its item, so that the identity is not reused while it is cached."""

    def __init__(self, encode_item: Callable[[Item], Fragment]) -> None:
        self._encode_item = encode_item
        self.items: tuple[Item, ...] = ()
        self.fragments: list[Fragment] = []
        self.by_identity: dict[int, Fragment] = {}

    def fragments_of(self, items: tuple[Item, ...]) -> list[Fragment]:
        """The fragments of all items, in order; only items that were not in the previous view are encoded."""
        previous_count = len(self.items)
        if items[:previous_count] == self.items:
            self.fragments += [self._fragment(item) for item in items[previous_count:]]
        else:
            self.fragments = [self._fragment(item) for item in items]
        if len(self.by_identity) > len(items):
            self.by_identity = {id(fragment.item): fragment for fragment in self.fragments}
        self.items = items
        return list(self.fragments)

    def _fragment(self, item: Item) -> Fragment:
        found = self.by_identity.get(id(item))
        if found is None:
            found = self.by_identity[id(item)] = self._encode_item(item)
        return found

    def adopt(self, other: "FragmentCache") -> None:
        """Copy the contents of another cache."""
        self.items, self.fragments, self.by_identity = other.items, list(other.fragments), dict(other.by_identity)


def empty_fragment(item: Item) -> Fragment:
    """The fragment of an item that is not sent."""
    return Fragment(item, BlockKind.NOTHING)


def object_members(fields: dict[str, object]) -> bytes:
    """The members of a JSON object, in order and without the braces."""
    return dump(fields)[1:-1]


def dump(value: object) -> bytes:
    """Encode a value as JSON; keys keep their order."""
    return _encoder.encode(value)


def extra_members(raw: Raw) -> bytes:
    """The members of a raw JSON object with a leading comma, to append to another object."""
    inside = bytes(raw).strip()[1:-1].strip()
    return b"," + inside if inside else b""


Message: TypeAlias = tuple[bool, list[Fragment]]
"""Whether the message is from the model, and its fragments; in other messages the results come first, in the order of their calls."""


def alternating_messages(fragments: list[Fragment], *, in_order: bool = False) -> list[Message]:
    """Group fragments into alternating messages. Thinking is dropped if nothing follows it in its message.

    It comes first in its message, unless all is to stay `in_order`, as for models that bind thinking to what stands before it.
    """
    user, result, thinking, call = BlockKind.USER, BlockKind.RESULT, BlockKind.THINKING, BlockKind.CALL
    answers = {fragment.wire_id: fragment for fragment in fragments if fragment.place == result}
    messages: list[Message] = []
    blocks: list[Fragment] = []
    calls: list[Fragment] = []
    thinking_run: list[Fragment] = []
    from_model: bool | None = None
    for fragment in fragments:
        place = fragment.place
        if place > result:
            if place == thinking:
                thinking_run.append(fragment)
                continue
            if from_model is not True:
                from_model = True
                blocks = []
                messages.append((True, blocks))
            if thinking_run:
                if in_order:
                    blocks += thinking_run
                else:
                    _add_thinking(blocks, thinking_run)
                thinking_run = []
            blocks.append(fragment)
            if place == call:
                calls.append(fragment)
        elif place == user or (place == result and calls):
            if from_model is not False:
                from_model = False
                thinking_run = []
                blocks = [answers[open_call.wire_id] for open_call in calls]
                calls = []
                messages.append((False, blocks))
            elif in_order:
                thinking_run = []
            if place == user:
                blocks.append(fragment)
    if calls:
        messages.append((False, [answers[open_call.wire_id] for open_call in calls]))
    return messages


def _add_thinking(blocks: list[Fragment], thinking_run: list[Fragment]) -> None:
    if blocks and blocks[0].place != BlockKind.THINKING:
        blocks[0:0] = thinking_run
    else:
        blocks.extend(thinking_run)


STATED = "stated"
"""Group of a statement that may become a system message: its body is framed as user text, `aside` is the block of a system message."""
SYSTEM = "system"
"""Group of the blocks of a system message."""
CHANGED = "tool changes"
"""Group of a change of tools, whose blocks may stand in a system message alone."""
OF_SYSTEM = frozenset({SYSTEM, CHANGED})


def is_statement(content: Text) -> bool:
    """Whether a text comes from the operator rather than from the user or the model."""
    return content.role in {"system", "developer"}


def framed_statement(text: str) -> str:
    """A statement as user text, for models that accept no system messages inside the conversation."""
    inside = without_tags(text, "system-message")
    return f"<system-message>\nFrom the operator of this session, with the authority of the system prompt:\n\n{inside}\n</system-message>"


_TOOLS_CHANGED = b'{"type":"text","text":"The list of tools changed."}'
_END_OF_RESULTS = b'{"type":"text","text":"End of the tool results."}'


def with_system_messages(messages: list[Message], *, ends_results: bool = False) -> list[Message]:
    """Move statements into system messages, each directly after the user message that contained them.

    Anthropic accepts them nowhere else and never two in a row. A user message of statements only stays as it is, framed. One of changes of
    tools only gets a short text before them.
    `ends_results` puts a short text behind tool results, because some models read a system message there as part of the last result.
    """
    separated: list[Message] = []
    for from_model, blocks in messages:
        changes = [] if from_model else [block for block in blocks if block.group == CHANGED]
        stated = [] if from_model else [block for block in blocks if block.group in (STATED, CHANGED)]
        moved = {STATED, CHANGED} if len(stated) < len(blocks) else {CHANGED}
        stated = [block for block in stated if block.group in moved]
        if not stated:
            separated.append((from_model, blocks))
            continue
        said = [block for block in blocks if block.group not in moved] or [Fragment(changes[0].item, BlockKind.USER, _TOOLS_CHANGED)]
        if ends_results and said[-1].place == BlockKind.RESULT:
            said.append(Fragment(said[-1].item, BlockKind.USER, _END_OF_RESULTS))
        separated.append((False, said))
        separated.append((False, [block if block.group == CHANGED else _of_system(block) for block in stated]))
    return separated


def _of_system(block: Fragment) -> Fragment:
    return Fragment(block.item, BlockKind.USER, block.aside, group=SYSTEM)


_NOT_A_NAME = lazy_pattern(r"[^a-zA-Z0-9_-]")
MISSING_CALL_ID = "call"
"""The call id sent for a call that has none."""


def arguments_object(call: ToolCall) -> bytes:
    """The arguments as a JSON object: verbatim if they are one, else as its only field `input`."""
    if call.form != "free":
        if not call.args.strip():
            return b"{}"
        if is_object(call.args):
            return call.args.encode()
    return dump({"input": call.args})


def pair_key(call_id: str, form: Form | None = None) -> str:
    """The key that a call and its result share; with a `form` it includes the kind of call."""
    return f"{call_kind(form) if form else ''}:{call_id or MISSING_CALL_ID}"


def call_kind(form: Form) -> str:
    """The kind of call; on Responses a result answers only a call of its kind."""
    return {"json": "function", "shell": "function", "free": "custom", "search": "search"}[form]


def tool_name(name: str, wire: WireName = "responses") -> str:
    """A tool name in the characters and length that a wire accepts."""
    return _NOT_A_NAME.sub("_", name)[: LONGEST_NAME[wire]] or "tool"


def opaque_type(content: Opaque) -> str:
    """The `type` field of an opaque item."""
    return str(msgspec.json.decode(content.data, type=dict[str, object]).get("type") or "")


Names: TypeAlias = Mapping[str, str]
"""Tool names on the wire by offered names, or the reverse."""
NO_NAMES: Names = MappingProxyType({})


def wire_names(tools: tuple[Tool, ...], wire: WireName) -> dict[str, str]:
    """The wire name of each offered tool; colliding names get a number.

    A name that the wire accepts stays unchanged, as does the name of a native declaration.
    """
    names = {tool.name: tool_name(tool.name, wire) for tool in tools if tool.is_native(wire) or tool_name(tool.name, wire) == tool.name}
    taken = set(names.values())
    for tool in tools:
        if tool.name not in names:
            names[tool.name] = _unused_name(tool_name(tool.name, wire), taken, LONGEST_NAME[wire])
            taken.add(names[tool.name])
    return names


def _unused_name(name: str, taken: set[str], longest: int) -> str:
    if name not in taken:
        return name
    candidates = (name[: longest - len(end)] + end for end in (f"_{number}" for number in count(2)))
    return next(candidate for candidate in candidates if candidate not in taken)


def sent_name(tool: str, names: Names, wire: WireName) -> str:
    """The wire name of a called tool, which may no longer be offered."""
    return names.get(tool) or tool_name(tool, wire)


def offered_names(request: Sendable) -> dict[str, str]:
    """The offered tool names of a request by wire name, where they differ."""
    return dict(request.tool_names) if isinstance(request, Request) else {}


def offered_reply(reply: ModelReplied, names: Names) -> ModelReplied:
    """The reply with offered tool names."""
    return replace(reply, parts=tuple(_offered(part, names) for part in reply.parts)) if names else reply


def offered_delta(delta: Delta, names: Names) -> Delta:
    """The delta with the offered tool name."""
    return replace(delta, tool=names[delta.tool]) if isinstance(delta, CallDelta) and delta.tool in names else delta


def _offered(part: Content, names: Names) -> Content:
    # Names of shell and search calls are fixed by the wire and never offered.
    return (
        replace(part, tool=names[part.tool])
        if isinstance(part, ToolCall) and part.form in {"json", "free"} and part.tool in names
        else part
    )


# OpenAI's newer models refuse `max_tokens`, also behind other servers; those servers' own models often know no other field.
_OPENAI_MODEL = lazy_pattern(r"(?:.*/)?(?:gpt-(?!oss)|chatgpt|codex|o\d)")
_INPUT = Raw(b'{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}')
_LEAST_BUDGET = 1024
# Most characters of the instructions of a compaction.
_LONGEST_INSTRUCTIONS = 16_384
_RESERVED_KEYS: Mapping[WireName, frozenset[str]] = {
    "anthropic": frozenset({"messages", "system", "tools"}),
    "responses": frozenset({"input", "instructions", "tools"}),
    "chat": frozenset({"messages", "tools"}),
}
# The fields of the compaction endpoint, beside items and instructions: those that Codex sends, and those that are documented.
_COMPACT_FIELDS = ("model", "tools", "parallel_tool_calls", "reasoning", "text")
_DOCUMENTED_COMPACT_FIELDS = ("model", "prompt_cache_key")

Fields = dict[str, object]


def anthropic_fields(card: ModelCard, tools: tuple[Tool, ...], params: Params) -> Fields:
    """Fields of Anthropic Messages; `max_tokens` is mandatory there."""
    tools, params = _with_wire_names(tools, params, "anthropic")
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
        fields["tools"] = [_anthropic_tool(tool, defers=card.takes_tool_changes) for tool in _ordered(tools, params)]
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
    return _without_overridden(fields, params, "anthropic")


def responses_fields(card: ModelCard, tools: tuple[Tool, ...], params: Params) -> Fields:
    """Fields of OpenAI Responses."""
    tools, params = _with_wire_names(tools, params, "responses")
    fields: Fields = {
        "model": params.model or card.api_name or card.name,
        "tools": [
            responses_tool(tool) for tool in _ordered(tools, params) if not (card.takes_tool_changes and is_deferred(tool, "responses"))
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
    text: Fields = {"verbosity": params.verbosity} if params.verbosity else {}
    if is_given(params.schema):
        text["format"] = {"type": "json_schema", "name": "codex_output_schema", "strict": True, "schema": params.schema}
    if text:
        fields["text"] = text
    if is_given(params.metadata):
        fields["client_metadata"] = params.metadata
    if params.compact_at is not None and card.provider == "openai":
        fields["context_management"] = [{"type": "compaction", "compact_threshold": params.compact_at}]
    if params.endpoint == "compact":
        taken = _DOCUMENTED_COMPACT_FIELDS if params.dialect == "openai" else _COMPACT_FIELDS
        fields = {name: fields[name] for name in taken if fields.get(name) is not None}
    return _without_overridden(fields, params, "responses")


def chat_fields(card: ModelCard, tools: tuple[Tool, ...], params: Params) -> Fields:
    """Fields of Chat Completions."""
    tools, params = _with_wire_names(tools, params, "chat")
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
        fields["tools"] = [_chat_tool(tool) for tool in _ordered(tools, params)]
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
    return _without_overridden(fields, params, "chat")


def _ordered(tools: tuple[Tool, ...], params: Params) -> list[Tool]:
    return sorted(tools, key=lambda tool: tool.name) if params.sort_tools else list(tools)


def _without_overridden(fields: Fields, params: Params, wire: WireName) -> Fields:
    """The fields without those that `params.extra` sets, because a key may occur once. Raises `BadInput` if `extra` sets a reserved key."""
    if not is_given(params.extra):
        return fields
    try:
        extra = msgspec.json.decode(params.extra, type=dict[str, Raw])
    except msgspec.DecodeError as error:
        raise BadInput(f"the parameter extra must be a JSON object ({error})", where="params") from error
    for key in extra:
        if key in _RESERVED_KEYS[wire]:
            raise BadInput(
                f"the parameter extra has the key {key!r}, which is written from view, tools and card; take it out", where="params"
            )
    return {key: value for key, value in fields.items() if key not in extra}


def _with_wire_names(tools: tuple[Tool, ...], params: Params, wire: WireName) -> tuple[tuple[Tool, ...], Params]:
    """The tools and the tool choice under their names on the wire."""
    names = wire_names(tools, wire)
    choice = params.tool_choice
    if choice not in {"auto", "none", "required"}:
        params = replace(params, tool_choice=sent_name(choice, names, wire))
    return tuple(replace(tool, name=names[tool.name]) for tool in tools), params


def _anthropic_tool(tool: Tool, *, defers: bool) -> Raw | Fields:
    if tool.is_native("anthropic"):
        return tool.native
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "input_schema": _INPUT if tool.form == "free" else tool.schema} | (
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


def _check_chat_tools(card: ModelCard, params: Params) -> None:
    """Raise `BadInput` if OpenAI would refuse the tools of a request to Chat Completions."""
    if card.provider != "openai" or card.chat_tools == "always" or (card.chat_tools == "unthinking" and params.effort == "none"):
        return
    unthinking = ', or set the effort to "none"' if card.chat_tools == "unthinking" else ""
    raise BadInput(f'{card.name} takes tools over Responses: give its card wire = "responses"{unthinking}', where="wire")


def _chat_tool(tool: Tool) -> Raw | Fields:
    if tool.is_native("chat"):
        return tool.native
    parameters = _INPUT if tool.form == "free" else tool.schema
    return {"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": parameters}}
