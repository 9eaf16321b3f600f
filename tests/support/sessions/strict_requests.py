"""Requests of Anthropic Messages for the strict double, and the sessions that they make."""

from collections.abc import Mapping
from typing import Any

from palimpsest.testing.strict.provider import StrictProvider

MODEL = "claude-opus-5-5"
TOOLS = [
    {"name": "ls", "description": "List.", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}},
    {"name": "cat", "description": "Show.", "input_schema": {"type": "object"}},
]
Body = dict[str, Any]
HEADERS = {"anthropic-version": "2023-06-01", "x-api-key": "key"}


def asked(*messages: Any, **more: Any) -> Body:
    return {"model": MODEL, "max_tokens": 4_096, "system": "Be brief.", "tools": TOOLS, "messages": list(messages), **more}


def user(text: str) -> Body:
    return {"role": "user", "content": text}


def went_on(provider: StrictProvider, body: Body, *said: Body, headers: Mapping[str, str] = HEADERS) -> Body:
    """The request after a reply: the same list, the reply with results for its calls, and what the user says."""
    reply = provider.answer(body, headers=headers)
    assert reply.status == 200, reply.json
    content = reply.json["content"]
    results = [{"type": "tool_result", "tool_use_id": block["id"], "content": "a"} for block in content if block["type"] == "tool_use"]
    turn = {"role": "user", "content": results} if results else None
    return {**body, "messages": [*body["messages"], {"role": "assistant", "content": content}, *([turn] if turn else []), *said]}


def refusal(provider: StrictProvider, body: Body, *betas: str, path: str = "/v1/messages", **headers: str) -> tuple[int, str, str]:
    """Status, words and code of what a double refuses; an empty text for what it answers."""
    given = {**HEADERS, "anthropic-beta": ",".join(betas), **{name.replace("_", "-"): value for name, value in headers.items()}}
    answer = provider.answer(body, path=path, headers=given)
    if answer.status == 200:
        return (200, "", "")
    error = answer.json["error"]
    return (answer.status, error["message"], error.get("details", {}).get("error_code", ""))
