"""Rules of Chat Completions for a request."""

import re
from collections.abc import Iterator

from palimpsest.wire.json_reading import Json, is_object, table_at, tables_at, text

_PARTS = frozenset({"text", "image_url", "input_audio", "file", "refusal"})
_TOOL = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


def chat_violations(request: Json) -> Iterator[str]:
    """Violations of roles, content, tool calls, and tool messages that do not follow their calls."""
    messages = tables_at(request, "messages")
    if not messages:
        yield "messages: empty"
    if "tool_choice" in request and not tables_at(request, "tools"):
        yield "tool_choice: there are no tools to choose from"
    if "stream_options" in request and not request.get("stream"):
        yield "stream_options: only for a stream"
    for index, message in enumerate(messages):
        yield from (f"messages[{index}]: {line}" for line in _message(message))
    yield from _pairs(messages)


def _message(message: Json) -> Iterator[str]:
    role, content, calls = text(message, "role"), message.get("content"), tables_at(message, "tool_calls")
    if role not in _ROLES:
        yield f"unknown role {role!r}"
    if not content and role != "tool" and not (role == "assistant" and calls):
        yield "a message without content"
    if role == "tool" and not isinstance(content, str | list):
        yield "a tool message without content"
    if content == "" and calls:
        yield "empty text beside calls, where null is meant"
    for part in tables_at(message, "content"):
        kind = text(part, "type")
        if kind not in _PARTS:
            yield f"unknown part type {kind!r}"
        elif kind not in {"text", "refusal"} and role != "user":
            yield f"a part {kind} in a {role} message"
    if "tool_calls" in message and (role != "assistant" or not calls):
        yield "tool_calls without calls, or not the model's"
    for call in calls:
        function = table_at(call, "function")
        if not text(call, "id"):
            yield "a call without id"
        if not _TOOL.fullmatch(text(function, "name")):
            yield f"the tool name {text(function, 'name')!r} has letters that are not allowed"
        if not is_object(text(function, "arguments")):
            yield "the arguments of a call are not the text of a JSON object"


def _pairs(messages: list[Json]) -> Iterator[str]:
    seen: set[str] = set()
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        if text(message, "role") == "tool":
            call_id = text(message, "tool_call_id")
            if call_id not in open_calls:
                yield f"messages[{index}]: the result of {call_id!r} has no open call right before it"
            else:
                open_calls.remove(call_id)
            continue
        for call_id in open_calls:
            yield f"messages[{index}]: the call {call_id!r} has no result before this message"
        open_calls = [text(call, "id") for call in tables_at(message, "tool_calls")]
        for call_id in open_calls:
            if call_id in seen:
                yield f"messages[{index}]: the call id {call_id!r} is taken twice"
            seen.add(call_id)
    for call_id in open_calls:
        yield f"messages: the call {call_id!r} at the end has no result"
