"""Rules of Anthropic Messages for a request."""

from collections.abc import Iterator

from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.wire.json_reading import Json, is_json, number, table_at, tables_at, text
from palimpsest.wire.request import MAX_BREAKPOINTS

ANTHROPIC_BLOCKS = frozenset(
    {
        "text",
        "image",
        "document",
        "search_result",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "tool_result",
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "tool_reference",
        "mcp_tool_use",
        "mcp_tool_result",
        "container_upload",
        "compaction",
        "fallback",
        "mcp_tool_listing",
        "advisor_tool_result",
        "tool_addition",
        "tool_removal",
    }
)
_CALL_ID = lazy_pattern(r"[a-zA-Z0-9_-]+")
_TOOL = lazy_pattern(r"[a-zA-Z0-9_-]{1,200}")
_LEAST_BUDGET = 1024
_THINKING_BLOCKS = frozenset({"thinking", "redacted_thinking"})


def anthropic_violations(request: Json) -> Iterator[str]:
    """Violations of limits, alternating roles, call and result pairs, thinking blocks and the number of cache breakpoints."""
    messages = tables_at(request, "messages")
    yield from _limits(request)
    yield from _roles(messages)
    yield from _blocks(messages)
    yield from _pairs(messages)
    yield from _breakpoints(request, messages)
    yield from _open_turn(request, messages)
    for index, block in enumerate(tables_at(request, "system")):
        if not text(block, "text").strip():
            yield f"system[{index}]: a text is empty"
    last = _content(messages[-1])[-1:] if messages and text(messages[-1], "role") == "assistant" else []
    if any(text(block, "text") != text(block, "text").rstrip() for block in last):
        yield f"messages[{len(messages) - 1}]: the prefilled reply ends in white space"


def _limits(request: Json) -> Iterator[str]:
    limit = number(request, "max_tokens")
    if limit < 1:
        yield "max_tokens: missing"
    thinking = table_at(request, "thinking")
    if text(thinking, "type") != "enabled":
        return
    budget = number(thinking, "budget_tokens")
    if not _LEAST_BUDGET <= budget < limit:
        yield f"thinking: a budget of {budget} is not between {_LEAST_BUDGET} and max_tokens ({limit})"
    if "temperature" in request:
        yield "temperature: not allowed while thinking"
    if text(table_at(request, "tool_choice"), "type") in {"any", "tool"}:
        yield "tool_choice: a tool cannot be forced while thinking has a budget"


def _roles(messages: list[Json]) -> Iterator[str]:
    if not messages:
        yield "messages: empty"
        return
    if text(messages[0], "role") != "user":
        yield "messages[0]: the first message is not the user's"
    before = ""
    for index, message in enumerate(messages):
        role = text(message, "role")
        if role not in {"user", "assistant", "system"}:
            yield f"messages[{index}]: unknown role {role!r}"
        elif role == before:
            yield f"messages[{index}]: two {role} messages in a row"
        elif role == "system" and before != "user":
            yield f"messages[{index}]: a system message that does not follow one of the user"
        elif before == "system" and role != "assistant":
            yield f"messages[{index}]: a {role} message after a system message"
        before = role


def _blocks(messages: list[Json]) -> Iterator[str]:
    for index, message in enumerate(messages):
        content = _content(message)
        if not content:
            yield f"messages[{index}]: no content"
        for at, block in enumerate(content):
            yield from (f"messages[{index}].content[{at}]: {line}" for line in block_violations(block, text(message, "role")))
        yield from (f"messages[{index}]: {line}" for line in _thinking_order([text(block, "type") for block in content]))


def block_violations(block: Json, role: str) -> Iterator[str]:
    """Violations of a single block in a message of this role."""
    kind = text(block, "type")
    if kind not in ANTHROPIC_BLOCKS:
        yield f"unknown block type {kind!r}"
    if kind == "text" and not text(block, "text").strip():
        yield "a text is empty"
    if role == "system" and kind not in {"text", "tool_addition", "tool_removal"}:
        yield f"a {kind} block in a system message"
    if kind in {"tool_use", *_THINKING_BLOCKS} and role == "user":
        yield f"a {kind} block in a user message"
    if kind in {"tool_result", "image", "document"} and role == "assistant":
        yield f"a {kind} block in an assistant message"
    if kind == "thinking" and not text(block, "signature"):
        yield "thinking without a signature"
    if kind == "redacted_thinking" and not text(block, "data"):
        yield "redacted thinking without its data"
    if kind in _THINKING_BLOCKS and "cache_control" in block:
        yield "a cache breakpoint on a thinking block"
    if kind == "tool_use":
        if not _CALL_ID.fullmatch(text(block, "id")):
            yield f"the call id {text(block, 'id')!r} has letters that are not allowed"
        if not _TOOL.fullmatch(text(block, "name")):
            yield f"the tool name {text(block, 'name')!r} has letters that are not allowed"
        if not is_json(block.get("input")):
            yield "the input of a call is not an object"
    if kind == "tool_result":
        for part in tables_at(block, "content"):
            if text(part, "type") == "text" and not text(part, "text").strip():
                yield "a text of a result is empty"


def _thinking_order(kinds: list[str]) -> Iterator[str]:
    if not _THINKING_BLOCKS.intersection(kinds):
        return
    if kinds[0] not in _THINKING_BLOCKS:
        yield "thinking is not first in its message"
    if kinds[-1] in _THINKING_BLOCKS:
        yield "a message ends with thinking"


def _open_turn(request: Json, messages: list[Json]) -> Iterator[str]:
    """With a thinking budget the last message is from the user, and a turn that ends with results began with thinking."""
    if text(table_at(request, "thinking"), "type") != "enabled":
        return
    if messages and text(messages[-1], "role") == "assistant":
        yield "thinking: a budget does not allow a prefilled reply"
    answered = False
    for message in reversed(messages):
        kinds = [text(block, "type") for block in _content(message)[:1]]
        if text(message, "role") == "system":
            continue
        if text(message, "role") == "assistant":
            if _THINKING_BLOCKS.intersection(kinds):
                return
        elif kinds == ["tool_result"]:
            answered = True
        else:
            break
    if answered:
        yield "thinking: the open turn did not begin with thinking"


def _pairs(messages: list[Json]) -> Iterator[str]:
    seen: set[str] = set()
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        content = _content(message)
        results = [text(block, "tool_use_id") for block in content if text(block, "type") == "tool_result"]
        for call_id in sorted(set(open_calls) - set(results)):
            yield f"messages[{index}]: the call {call_id!r} has no result in the message after it"
        for call_id in sorted(set(results) - set(open_calls)):
            yield f"messages[{index}]: the result of {call_id!r} has no call in the message before it"
        if len(set(results)) < len(results):
            yield f"messages[{index}]: a call has two results"
        if any(text(block, "type") != "tool_result" for block in content[: len(results)]):
            yield f"messages[{index}]: results do not come first"
        open_calls = [text(block, "id") for block in content if text(block, "type") == "tool_use"]
        for call_id in open_calls:
            if call_id in seen:
                yield f"messages[{index}]: the call id {call_id!r} is taken twice"
            seen.add(call_id)
    for call_id in open_calls:
        yield f"messages: the call {call_id!r} at the end has no result"


def _breakpoints(request: Json, messages: list[Json]) -> Iterator[str]:
    blocks = [*tables_at(request, "tools"), *tables_at(request, "system")]
    for message in messages:
        for block in _content(message):
            blocks += (block, *tables_at(block, "content"))
    breakpoints = sum("cache_control" in block for block in blocks)
    if breakpoints > MAX_BREAKPOINTS:
        yield f"cache_control: {breakpoints} breakpoints, {MAX_BREAKPOINTS} are allowed"


def _content(message: Json) -> list[Json]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return tables_at(message, "content")
