"""Requests that Anthropic's models refuse, each with its words: the shape of the list, and what a model or a version does not take."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from palimpsest.testing.strict.answers import JsonObject, StrictModel, StrictRefusal, StrictRequest, blocks_of
from palimpsest.testing.strict.binding import (
    BINDING_BETA,
    EDITING_BETA,
    ON_DEMAND_BETA,
    THINKING,
    THRESHOLD_BETA,
    check_compaction,
    check_context_management,
)

VERSIONS: Final = ("2023-06-01", "2026-10-21")
THREADS_BETA: Final = "message-threads-2026-08-12"
_FIELDS: Final = frozenset(
    [
        "cache_control",
        "container",
        "diagnostics",
        "inference_geo",
        "max_tokens",
        "mcp_servers",
        "messages",
        "metadata",
        "model",
        "output_config",
        "service_tier",
        "speed",
        "stop_sequences",
        "stream",
        "system",
        "temperature",
        "thinking",
        "tool_choice",
        "tools",
        "top_k",
        "top_p",
        "user_profile_id",
        "workspace_id",
    ]
)
# Fields that a request may have only with one of these headers.
_GATED_FIELDS: Final = {
    "compaction": (ON_DEMAND_BETA,),
    "context_management": (EDITING_BETA, THRESHOLD_BETA),
    "fallbacks": ("server-side-fallback-2026-07-01",),
    "thread": (THREADS_BETA,),
}
# Fields of a system message; Claude Code 2.1.325 sends its effort under the second name of the same control.
_GATED_MESSAGE_FIELDS: Final = {
    "clear_at": ("mid-conversation-system-clear-at-2026-08-21",),
    "output_config": ("mid-conversation-output-config-2026-07-01", "per-turn-control-2026-07-01"),
}
_GATED_BLOCKS: Final = {
    "tool_addition": "mid-conversation-tool-changes-2026-07-01",
    "tool_removal": "mid-conversation-tool-changes-2026-07-01",
}
_EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
_call_id: Final = re.compile(r"[a-zA-Z0-9_-]+")


def check_envelope(request: StrictRequest, model: StrictModel) -> None:
    """Raise `StrictRefusal` for headers and fields that are missing or unknown, before the list is read."""
    _check_headers(request, model)
    _check_fields(request, model)


def check_request_rules(request: StrictRequest, model: StrictModel) -> None:
    """Raise `StrictRefusal` for the first rule that a request with its whole list breaks."""
    for check in (_check_thinking, _check_sampling, _check_tools, _check_version):
        check(request, model)
    check_context_management(request)
    _check_messages(request, model)
    check_compaction(request, model)
    _check_marks(request)


def refuse(reason: str, message: str) -> StrictRefusal:
    """Make a refusal of a request: 400 `invalid_request_error`."""
    return StrictRefusal(reason, message)


def _check_headers(request: StrictRequest, _: StrictModel) -> None:
    version = request.headers.get("anthropic-version")
    if not request.account:
        raise StrictRefusal("no key", "x-api-key header is required", 401, "authentication_error")
    if version is None:
        raise refuse("no version", "anthropic-version: header is required")
    if version not in VERSIONS:
        raise refuse("version", f'anthropic-version: "{version}" is not a valid version')


_SHAPES: Final[Mapping[str, type]] = {"tools": list, "messages": list} | dict.fromkeys(
    ("cache_control", "context_management", "diagnostics", "metadata", "output_config", "thinking", "tool_choice"), dict
)


def _check_shapes(body: JsonObject) -> None:
    """Raise `StrictRefusal` for a field, message, block or tool of another JSON type than the API has there."""
    for field, kind in _SHAPES.items():
        if body.get(field) is not None and not isinstance(body[field], kind):
            raise refuse("shape", f"{field}: Input should be a valid {'list' if kind is list else 'dictionary'}")
    placed: list[tuple[str, object, str]] = [(f"tools.{at}", tool, "name") for at, tool in enumerate(body.get("tools") or ())]
    for at, message in enumerate(body.get("messages") or ()):
        placed.append((f"messages.{at}", message, "role"))
        content = message.get("content") if isinstance(message, dict) else None
        for place, block in enumerate(content if isinstance(content, list) else ()):
            placed.append((f"messages.{at}.content.{place}", block, "type"))
            inner = block.get("content") if isinstance(block, dict) else None
            placed += [(f"messages.{at}.content.{place}.content", each, "type") for each in (inner if isinstance(inner, list) else ())]
    for path, value, key in placed:
        if not isinstance(value, dict) or not isinstance(value.get(key), str):
            raise refuse("shape", f"{path}.{key}: Field required")
        if not isinstance(value.get("cache_control") or {}, dict):
            raise refuse("shape", f"{path}.cache_control: Input should be a valid dictionary")


def _check_fields(request: StrictRequest, model: StrictModel) -> None:
    _check_shapes(request.body)
    body, counting = request.body, request.path.endswith("/count_tokens")
    for field in body:
        allowed = body[field] is None or field in _FIELDS or any(beta in request.betas for beta in _GATED_FIELDS.get(field, ()))
        if not allowed:
            raise refuse("unknown field", f"{field}: Extra inputs are not permitted")
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        raise refuse("messages", "messages: at least one message is required")
    limit = body.get("max_tokens")
    if not counting and not (isinstance(limit, int) and limit >= 0):
        raise refuse("max_tokens", "max_tokens: Field required")
    if isinstance(limit, int) and limit > model.reply:
        raise refuse(
            "max_tokens",
            f"max_tokens: {limit} > {model.reply}, which is the maximum allowed number of output tokens for {model.name}",
        )
    effort = _section(body, "output_config").get("effort")
    if effort is not None and effort not in _EFFORTS:
        raise refuse("effort", "output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'")
    if "task_budget" in _section(body, "output_config") and "task-budgets-2026-03-13" not in request.betas:
        raise refuse("unknown field", "output_config.task_budget: Extra inputs are not permitted")


def _section(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = body.get(name)
    return value if isinstance(value, dict) else {}


def _check_thinking(request: StrictRequest, model: StrictModel) -> None:
    thinking = request.body.get("thinking")
    if thinking is None:
        return
    kind = thinking.get("type")
    if kind not in ("adaptive", "enabled", "disabled", "between_tools"):
        raise refuse(
            "thinking", "thinking: Input tag does not match any of the expected tags: 'adaptive', 'between_tools', 'disabled', 'enabled'"
        )
    _check_binding_field(request, thinking, str(kind))
    effort = _section(request.body, "output_config").get("effort")
    loud = effort in {"xhigh", "max"}
    if kind == "enabled":
        if not model.budget:
            raise refuse(
                "budget",
                '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and "output_config.effort" to '
                "control thinking behavior.",
            )
        if not isinstance(thinking.get("budget_tokens"), int) or thinking["budget_tokens"] < 1_024:
            raise refuse("budget", "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        limit = request.body.get("max_tokens")
        if isinstance(limit, int) and limit <= thinking["budget_tokens"]:
            raise refuse("budget", "`max_tokens` must be greater than `thinking.budget_tokens`")
    if kind == "adaptive" and not model.adaptive:
        raise refuse("thinking", "adaptive thinking is not supported on this model")
    if kind == "disabled" and model.off in {"never", "between_tools"}:
        raise refuse("thinking off", '"thinking.type.disabled" is not supported for this model.')
    if kind == "between_tools" and (model.off != "between_tools" or thinking.keys() != {"type"}):
        raise refuse("thinking off", '"thinking.type.between_tools" is not supported for this model or not with other keys.')
    if kind in {"disabled", "between_tools"} and model.off != "always" and loud:
        raise refuse("effort", f"output_config.effort: '{effort}' is not supported with thinking turned off")


def _check_binding_field(request: StrictRequest, thinking: JsonObject, kind: str) -> None:
    if "block_binding" not in thinking:
        return
    path = f"thinking.{kind}.block_binding"
    if BINDING_BETA not in request.betas or kind in {"disabled", "between_tools"}:
        raise refuse("binding field", f"{path}: Extra inputs are not permitted")
    asked = thinking["block_binding"]
    if not isinstance(asked, dict) or asked.keys() - {"prefix_mismatch_behavior"}:
        raise refuse("binding field", f"{path}: Input should be a valid dictionary")
    if asked.get("prefix_mismatch_behavior", "error") not in {"error", "drop_block"}:
        raise refuse("binding field", f"{path}.prefix_mismatch_behavior: Input should be 'error' or 'drop_block'")


def _check_sampling(request: StrictRequest, model: StrictModel) -> None:
    for field in ("temperature", "top_p", "top_k"):
        if field not in request.body:
            continue
        if request.headers.get("anthropic-version") == VERSIONS[1]:
            raise refuse("sampling", f"{field}: Extra inputs are not permitted")
        default = field == "temperature" and request.body[field] == 1
        if not model.sampling and not default:
            raise refuse("sampling", f"`{field}` is not supported for this model.")


def _check_tools(request: StrictRequest, model: StrictModel) -> None:
    tools = request.body.get("tools") or []
    names = [tool.get("name") for tool in tools]
    if len(names) != len(set(names)):
        raise refuse("tools", "tools: Tool names must be unique.")
    if tools and all(tool.get("defer_loading") is True for tool in tools):
        raise refuse("tools", "tools: At least one tool must have `defer_loading` set to false.")
    choice = _section(request.body, "tool_choice").get("type")
    if choice in {"any", "tool"} and not model.forced_tools:
        raise refuse("forced tools", 'tool_choice: type "tool" and "any" are not supported for this model.')
    if choice is not None and not tools:
        raise refuse("tools", "tool_choice: `tool_choice` may only be specified while providing `tools`.")


def _check_version(request: StrictRequest, _: StrictModel) -> None:
    if request.headers.get("anthropic-version") != VERSIONS[1]:
        return
    for path, role, block in _placed_blocks(request):
        if role == "assistant" and block.get("type") == "document":
            raise refuse("version", f"{path}: `document` blocks are not permitted in assistant messages")
        cited = [block, *blocks_of(block.get("content"))] if block.get("type") in {"search_result", "tool_result"} else [block]
        if role == "user" and any(each.get("type") == "text" and each.get("citations") for each in cited):
            raise refuse("version", f"{path}.citations: `citations` are not permitted in user messages")


def _placed_blocks(request: StrictRequest) -> Iterator[tuple[str, str, JsonObject]]:
    for at, message in enumerate(request.messages):
        for place, block in enumerate(blocks_of(message.get("content"))):
            yield f"messages.{at}.content.{place}", str(message.get("role")), block


def _check_messages(request: StrictRequest, model: StrictModel) -> None:
    messages = request.messages
    first = blocks_of(messages[0].get("content"))
    if messages[0].get("role") != "user" and not (first and first[0].get("type") == "compaction"):
        raise refuse("first role", 'messages: first message must use the "user" role')
    for at, message in enumerate(messages):
        _check_message(request, model, at, message)
    for path, role, block in _placed_blocks(request):
        if block.get("type") in THINKING and role != "assistant":
            raise refuse("roles", f"{path}: `thinking` blocks are only permitted in assistant messages")
        if block.get("type") == "text" and not str(block.get("text", "")).strip() and role != "assistant":
            raise refuse("empty text", f"{path}: text content blocks must be non-empty")
        if (beta := _GATED_BLOCKS.get(str(block.get("type")))) and beta not in request.betas:
            raise refuse("unknown block", f"{path}: Input tag '{block['type']}' found using 'type' does not match any of the expected tags")
    _check_pairs(messages)
    _check_last(request, model)


def _check_message(request: StrictRequest, model: StrictModel, at: int, message: JsonObject) -> None:
    role, content = message.get("role"), message.get("content")
    path = f"messages.{at}"
    if role not in {"user", "assistant", "system"}:
        raise refuse("roles", f"{path}.role: Input should be 'user', 'assistant' or 'system'")
    if role == "system" and not model.inner_system:
        raise refuse("system message", f"{path}: role 'system' is not supported on this model")
    for field in sorted(message.keys() - {"role", "content"}):
        if role != "system" or request.betas.isdisjoint(_GATED_MESSAGE_FIELDS.get(field, ())):
            raise refuse("unknown field", f"{path}.{field}: Extra inputs are not permitted")
    if not isinstance(content, (str, list)):
        raise refuse("content", f"{path}.content: Input should be a valid string or list")
    if not content and "output_config" not in message:
        raise refuse("empty content", f"{path}: all messages must have non-empty content except for the optional final assistant message")
    if role == "assistant":
        blocks = blocks_of(content)
        empty = [block for block in blocks if block.get("type") == "text" and not block.get("text")]
        # An empty text between two thinking blocks is part of what the model said, and comes back.
        if empty and not any(block.get("type") in THINKING for block in blocks):
            raise refuse("empty text", f"{path}: text content blocks must be non-empty")


def _check_pairs(messages: tuple[JsonObject, ...]) -> None:
    """Each tool use has its result at the head of the next turn, and each result its use in the turn before; ids are unique."""
    turns: list[tuple[int, str, list[JsonObject]]] = []
    for at, message in enumerate(messages):
        blocks = blocks_of(message.get("content"))
        if turns and turns[-1][1] == message.get("role"):
            turns[-1][2].extend(blocks)
        else:
            turns.append((at, str(message.get("role")), list(blocks)))
    seen: set[str] = set()
    awaited: list[str] = []
    for at, role, blocks in turns:
        leading = []
        for block in blocks:
            if block.get("type") != "tool_result":
                break
            leading.append(str(block.get("tool_use_id")))
        results = [str(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"]
        if missing := [use for use in awaited if use not in leading]:
            raise refuse(
                "pairing",
                f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(missing)}. "
                "Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
            )
        if unknown := [use for use in results if use not in awaited]:
            raise refuse(
                "pairing",
                f"messages.{at}: unexpected `tool_use_id` found in `tool_result` blocks: {', '.join(unknown)}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message.",
            )
        if len(results) != len(set(results)):
            raise refuse("pairing", f"messages.{at}: each tool_use must have a single result. Found multiple `tool_result` blocks with id")
        awaited = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"] if role == "assistant" else []
        for use in awaited:
            if use in seen:
                raise refuse("pairing", f"messages.{at}: `tool_use` ids must be unique")
            if not _call_id.fullmatch(use):
                raise refuse("pairing", f"messages.{at}: tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
            seen.add(use)


def _check_last(request: StrictRequest, model: StrictModel) -> None:
    last = request.messages[-1]
    blocks = blocks_of(last.get("content"))
    if last.get("role") != "assistant" or request.body.get("compaction") is not None:
        return
    # A reply that stopped to be continued goes back as the last message: it ends with a compaction block or a tool of the server.
    paused = bool(blocks) and blocks[-1].get("type") in {"compaction", "server_tool_use"}
    if not paused and not model.prefill:
        raise refuse("prefill", "This model does not support assistant message prefill. The conversation must end with a user message.")
    if any(block.get("type") == "tool_use" for block in blocks):
        raise refuse("pairing", "messages: `tool_use` ids were found without `tool_result` blocks immediately after the last message.")


def cache_marks(body: JsonObject, messages: tuple[JsonObject, ...]) -> Iterator[JsonObject]:
    """The cache breakpoints of a request, in the order in which the provider reads it."""
    for tool in body.get("tools") or []:
        yield from [tool["cache_control"]] if tool.get("cache_control") else []
    listed = [blocks_of(body.get("system") or []), *(blocks_of(message.get("content")) for message in messages)]
    for blocks in listed:
        for block in blocks:
            inner = blocks_of(block.get("content")) if block.get("type") == "tool_result" else []
            for each in (*inner, block):
                yield from [each["cache_control"]] if each.get("cache_control") else []
    yield from [body["cache_control"]] if body.get("cache_control") else []


def _check_marks(request: StrictRequest) -> None:
    marks = list(cache_marks(request.body, request.messages))
    if len(marks) > 4:
        raise refuse("breakpoints", f"A maximum of 4 blocks with cache_control may be provided. Found {len(marks)}.")
    lifetimes = [mark.get("ttl", "5m") for mark in marks]
    if any(mark.get("type") != "ephemeral" or life not in {"5m", "1h"} for mark, life in zip(marks, lifetimes, strict=True)):
        raise refuse("breakpoints", "cache_control.ephemeral.ttl: Input should be '5m' or '1h'")
    if "1h" in lifetimes[lifetimes.index("5m") :] if "5m" in lifetimes else False:
        raise refuse(
            "breakpoints",
            "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that blocks are processed in the "
            "following order: `tools`, `system`, `messages`.",
        )
    for path, _, block in _placed_blocks(request):
        if block.get("type") in THINKING and "cache_control" in block:
            raise refuse("breakpoints", f"{path}.cache_control: Extra inputs are not permitted")
