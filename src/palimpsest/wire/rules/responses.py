"""Rules of OpenAI Responses for a request."""

from collections.abc import Iterator

from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.wire.json_reading import Json, is_json, is_object, table_at, tables_at, text

RESPONSES_PARTS = frozenset(
    {"input_text", "input_image", "input_file", "input_audio", "output_text", "refusal", "encrypted_content", "reasoning_text"}
)
RESPONSES_ITEMS = frozenset(
    {
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "local_shell_call",
        "local_shell_call_output",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
        "file_search_call",
        "image_generation_call",
        "code_interpreter_call",
        "computer_call",
        "computer_call_output",
        "shell_call",
        "shell_call_output",
        "apply_patch_call",
        "apply_patch_call_output",
        "mcp_list_tools",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "item_reference",
        "program",
        "program_output",
        "compaction",
        "compaction_summary",
        "compaction_trigger",
        "context_compaction",
        "agent_message",
        "additional_tools",
        "configuration_update",
    }
)
_TOOL = lazy_pattern(r"[a-zA-Z0-9_-]{1,64}")
_ROLES = frozenset({"user", "assistant", "developer", "system"})
_CALLS = {
    "function_call": "function",
    "local_shell_call": "function",
    "custom_tool_call": "custom",
    "tool_search_call": "search",
}
_OUTPUTS = {"function_call_output": "function", "custom_tool_call_output": "custom", "tool_search_output": "search"}


def responses_violations(request: Json) -> Iterator[str]:
    """Violations of item types, call and output pairs, JSON arguments and encrypted reasoning."""
    items = tables_at(request, "input")
    if not isinstance(request.get("input"), list | str):
        yield "input: missing"
    for index, item in enumerate(items):
        yield from (f"input[{index}]: {line}" for line in _item(item, stored=request.get("store") is not False))
    yield from _pairs(items)


def _item(item: Json, *, stored: bool) -> Iterator[str]:
    kind = text(item, "type") or ("message" if "role" in item else "")
    if kind not in RESPONSES_ITEMS:
        yield f"unknown item type {kind!r}"
    if kind == "message":
        yield from _message(item)
    if kind == "reasoning":
        if not stored and not text(item, "encrypted_content"):
            yield "reasoning without encrypted_content, and nothing is stored"
        if not isinstance(item.get("summary"), list):
            yield "reasoning without a summary list"
    if kind == "function_call" and not is_object(text(item, "arguments")):
        yield "the arguments of a call are not the text of a JSON object"
    if kind == "custom_tool_call" and not isinstance(item.get("input"), str):
        yield "the input of a custom call is not text"
    if kind in {"function_call", "custom_tool_call"}:
        if not _TOOL.fullmatch(text(item, "name")):
            yield f"the tool name {text(item, 'name')!r} has letters that are not allowed"
        if not text(item, "call_id"):
            yield "a call without call_id"
    if kind == "tool_search_call" and not is_json(item.get("arguments")):
        yield "the arguments of a search are not an object"
    if kind == "local_shell_call" and not _is_command(table_at(item, "action")):
        yield "the action of a shell call is not a command"
    if kind in {"function_call_output", "custom_tool_call_output"} and not isinstance(item.get("output"), str | list):
        yield "an output that is neither text nor parts"


def _is_command(action: Json) -> bool:
    command = action.get("command")
    return text(action, "type") == "exec" and isinstance(command, list) and all(isinstance(word, str) for word in command)


def _message(item: Json) -> Iterator[str]:
    role, content = text(item, "role"), item.get("content")
    if role not in _ROLES:
        yield f"unknown role {role!r}"
    if not content:
        yield "a message without content"
    for part in tables_at(item, "content"):
        kind = text(part, "type")
        if kind not in RESPONSES_PARTS:
            yield f"unknown part type {kind!r}"
        elif kind.startswith("input_") and role == "assistant":
            yield f"a part {kind} in an assistant message"
        elif kind.startswith("output_") and role != "assistant":
            yield f"a part {kind} in a {role} message"


def _pairs(items: list[Json]) -> Iterator[str]:
    seen: set[str] = set()
    open_calls: dict[tuple[str, str], int] = {}
    for index, item in enumerate(items):
        kind, call_id = text(item, "type"), text(item, "call_id")
        if not call_id:
            continue
        if kind in _CALLS:
            if call_id in seen:
                yield f"input[{index}]: the call id {call_id!r} is taken twice"
            seen.add(call_id)
            open_calls[_CALLS[kind], call_id] = index
        elif kind in _OUTPUTS and open_calls.pop((_OUTPUTS[kind], call_id), None) is None:
            yield f"input[{index}]: the output of {call_id!r} has no open call of its kind before it"
    for (_, call_id), index in open_calls.items():
        yield f"input[{index}]: the call {call_id!r} has no output"
