"""Encodes the request fields that do not depend on the view: model, limits, tools and options."""

from collections.abc import Mapping

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.wire.encoding.tools import sent_name, wire_names
from palimpsest.wire.models.cards import ModelCard, WireName
from palimpsest.wire.request import Params, Tool, is_deferred, is_given

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
