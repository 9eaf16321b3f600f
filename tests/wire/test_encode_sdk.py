"""The official clients' own parameter types accept what we encode."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsBase
from msgspec import Raw
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.responses.response_create_params import ResponseCreateParamsBase
from pydantic import TypeAdapter, ValidationError

from palimpsest.core.items import Content, Document, Image, Item, Kind, Opaque, Seal, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.view import View
from palimpsest.wire.cards import ModelCard, card
from palimpsest.wire.encode import encode
from palimpsest.wire.request import Params, Tool
from palimpsest.wire.rules import check_request

CLAUDE = card("claude-sonnet-4-5")
GPT = card("gpt-5.5")
OPENAI = ModelCard("gpt-old", "chat", "openai", 100_000, 4_096, documents=True, cache="automatic")
PICTURE = Image("image/png", blob="a")
HEAD = tuple(Item(f"0.{index}", "context", Text(f"part {index}", "system")) for index in range(3))
TOOLS = (
    Tool("bash", "Run a command.", Raw(b'{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}')),
    Tool("apply_patch", "Change files.", form="free", format=Raw(b'{"type":"grammar","syntax":"lark","definition":"start: x"}')),
)


def view(model: ModelCard) -> View:
    seal = Seal(model.provider, model.name, "c2VhbA==")
    shell = '{"type":"exec","command":["ls"],"env":{}}'
    contents: tuple[tuple[Kind, Content], ...] = (
        ("user", Text("look at this")),
        ("user", PICTURE),
        ("user", Document("application/pdf", blob="a", name="a.pdf")),
        ("context", Text("mind the gap", "developer")),
        ("thinking", Thinking("hm", seal, "digest", "rs_1")),
        ("assistant", Text("I will", "assistant", "commentary", "msg_1")),
        ("call", ToolCall("call_1", "bash", '{"command":"ls"}', ref="fc_1")),
        ("call", ToolCall("call_2", "apply_patch", "*** Begin", "free", "ctc_1")),
        ("call", ToolCall("call_3", "local_shell", shell, "shell", "lsh_1")),
        ("call", ToolCall("call_4", "tool_search", '{"query":"x"}', "search", "tsc_1")),
        ("result", ToolResult("call_1", (Text("a.py"), PICTURE), error=True)),
        ("result", ToolResult("call_2", (Text("done"),), form="free")),
        ("result", ToolResult("call_3", (), form="shell")),
        ("assistant", Opaque("elsewhere", "m", "{}", "[searched]")),
        ("steering", Text("go on")),
    )
    items = tuple(Item(f"{number}.0", kind, content) for number, (kind, content) in enumerate(contents, 1))
    return View(HEAD, items)


PARAMS = (
    Params(),
    Params(stream=False, mark_rule="opencode", ttl="1h", tool_choice="bash", parallel=False, dialect="codex-0.166"),
    Params(max_tokens=9_000, thinking_budget=2_000, effort="high", cache_key="k", dialect="codex-0.166"),
    Params(tool_choice="required", schema=Raw(b'{"type":"object","properties":{}}'), mark_rule="claude-code", dialect="codex-0.166"),
)


def checked(model: ModelCard, params: Params) -> dict[str, Any]:
    request = encode(view(model), model, TOOLS, params, lambda _: b"abc")
    assert check_request(model.wire, request.body) == ()
    body: dict[str, Any] = json.loads(request.body)
    return body


def accept(kind: Any, body: dict[str, Any]) -> None:
    """Validate to the last leaf: the clients type lists as iterables, which are only checked as they are read."""
    adapter = TypeAdapter(kind)
    read(adapter.validate_python(body))


def read(value: Any) -> None:
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, Iterable) and not isinstance(value, str):
        for each in value:
            read(each)


@pytest.mark.parametrize("params", PARAMS)
def test_the_anthropic_client_takes_our_messages(params: Params) -> None:
    accept(MessageCreateParamsBase, checked(CLAUDE, params))


@pytest.mark.parametrize("params", PARAMS)
def test_the_openai_client_takes_our_completions(params: Params) -> None:
    accept(CompletionCreateParamsBase, checked(OPENAI, params))


@pytest.mark.parametrize("params", PARAMS)
def test_the_openai_client_takes_our_responses(params: Params) -> None:
    body = checked(GPT, params)
    body["input"] = [as_returned(item) for item in body["input"]]
    accept(ResponseCreateParamsBase, body)


def as_returned(item: dict[str, Any]) -> dict[str, Any]:
    """What the client types of a reply demand beyond what the service needs to have sent back: ids, status, annotations."""
    if item["type"] in {"reasoning", "local_shell_call"}:
        return {"id": "x", **item}
    if item["type"] == "message" and item["role"] == "assistant":
        return {"id": "x", "status": "completed", **item, "content": [{**part, "annotations": []} for part in item["content"]]}
    return item


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (MessageCreateParamsBase, {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "text"}]}]}),
        (CompletionCreateParamsBase, {"model": "m", "messages": [{"role": "tool", "content": "x"}]}),
        (ResponseCreateParamsBase, {"model": "m", "input": [{"type": "function_call", "name": "x"}]}),
    ],
)
def test_the_clients_do_refuse_what_is_wrong(kind: Any, body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        accept(kind, body)
