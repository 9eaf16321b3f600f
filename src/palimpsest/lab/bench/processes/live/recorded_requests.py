"""The requests of a recorded session of Claude Code, as that program sends them: with its marks, and a line that always changes."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

_MARK: Final = {"cache_control": {"type": "ephemeral"}}
_INSTRUCTIONS: Final = "Work carefully, read before you write, and run the tests after each change of the code. " * 120
_TOOLS: Final = [
    {"name": name, "description": f"{name} does what its name says. " * 25, "input_schema": {"type": "object", "properties": {}}}
    for name in ("Bash", "Read", "Edit", "Write", "Grep", "Glob", "Task", "WebFetch", "TodoWrite")
]


class RecordedRequest(NamedTuple):
    """The messages of a request, the reply to it, and the seconds since the request before."""

    messages: list[dict[str, Any]]
    reply: list[dict[str, Any]]
    pause: float


def recorded_requests(path: Path) -> Iterator[RecordedRequest]:
    """Yield the requests of the main conversation of a transcript; where the program compacted, the list begins again."""
    messages: list[dict[str, Any]] = []
    asked: set[str] = set()
    last = 0.0
    for message, at, begins in _messages(path):
        if begins:
            messages, asked = [], set()
        content = [block for block in message["content"] if _is_sent(block, asked)]
        if not content:
            continue
        if message["role"] == "assistant":
            if not messages or messages[-1]["role"] != "user":
                continue
            yield RecordedRequest(list(messages), content, max(0.0, at - last) if last else 0.0)
            last = at
            asked = {block["id"] for block in content if block["type"] == "tool_use"}
            messages.append({"role": "assistant", "content": content})
        elif messages and messages[-1]["role"] == "user":
            messages[-1] = {"role": "user", "content": [*messages[-1]["content"], *content]}
        else:
            answered = {block["tool_use_id"] for block in content if block["type"] == "tool_result"}
            missing = [{"type": "tool_result", "tool_use_id": name, "content": "interrupted"} for name in sorted(asked - answered)]
            messages.append({"role": "user", "content": [*missing, *content]})


def _is_sent(block: dict[str, Any], asked: set[str]) -> bool:
    kind = block.get("type")
    return (
        (kind == "text" and bool(block.get("text"))) or kind == "tool_use" or (kind == "tool_result" and block.get("tool_use_id") in asked)
    )


def _messages(path: Path) -> Iterator[tuple[dict[str, Any], float, bool]]:
    """The messages of a transcript: the lines of one reply are one message. Also the time in seconds, and whether a list begins with it."""
    waiting: tuple[dict[str, Any], float, bool] | None = None
    seen = ""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        record = _record(line)
        message = record.get("message")
        if record.get("type") not in ("user", "assistant") or record.get("isSidechain") or not isinstance(message, dict):
            continue
        content = message.get("content")
        blocks = (
            [{"type": "text", "text": content}] if isinstance(content, str) else [each for each in content or () if isinstance(each, dict)]
        )
        name = str(message.get("id") or record.get("uuid"))
        if waiting is not None and name == seen and record["type"] == "assistant":
            waiting[0]["content"] += blocks
            continue
        if waiting is not None:
            yield waiting
        seen = name
        waiting = {"role": record["type"], "content": blocks}, _seconds(record), bool(record.get("isCompactSummary"))
    if waiting is not None:
        yield waiting


def _record(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _seconds(record: dict[str, Any]) -> float:
    try:
        return datetime.fromisoformat(str(record.get("timestamp"))).timestamp()
    except ValueError:
        return 0.0


def marked_body(request: RecordedRequest, model: str, number: int) -> dict[str, Any]:
    """Return a request of Anthropic Messages as Claude Code marks it; its first line is another one in each request."""
    *before, last = request.messages
    content = last["content"]
    system = [
        {
            "type": "text",
            "text": f"x-anthropic-billing-header: cc_version=2.1.325.185; cc_entrypoint=cli; cch={number * 7919 % 99991:05x};",
        },
        {"type": "text", "text": "You are a coding agent.", **_MARK},
        {"type": "text", "text": _INSTRUCTIONS, **_MARK},
    ]
    messages = [*before, {**last, "content": [*content[:-1], {**content[-1], **_MARK}]}]
    return {"model": model, "max_tokens": 8_000, "stream": True, "system": system, "tools": _TOOLS, "messages": messages}


def chat_body(request: RecordedRequest, model: str) -> dict[str, Any]:
    """Return the same request for Chat Completions, with an automatic cache."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": _INSTRUCTIONS}]
    for message in request.messages:
        words = "".join(block["text"] for block in message["content"] if block["type"] == "text")
        calls = [_call(block) for block in message["content"] if block["type"] == "tool_use"]
        messages += [
            {"role": "tool", "tool_call_id": block["tool_use_id"], "content": _plain(block.get("content"))}
            for block in message["content"]
            if block["type"] == "tool_result"
        ]
        if words or calls:
            messages.append({"role": message["role"], "content": words or None, **({"tool_calls": calls} if calls else {})})
    tools = [{"type": "function", "function": {"name": tool["name"], "description": tool["description"]}} for tool in _TOOLS]
    return {"model": model, "messages": messages, "tools": tools, "stream": False}


def _call(block: dict[str, Any]) -> dict[str, Any]:
    return {"id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": json.dumps(block.get("input", {}))}}


def _plain(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(block.get("text", "")) for block in content if isinstance(block, dict))
    return str(content or "")
