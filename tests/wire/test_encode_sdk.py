"""The official clients' own parameter types accept what we encode."""

import copy
import json
from collections.abc import Iterator
from typing import Any, Required, get_origin, get_type_hints

import pytest
from anthropic.types.message_create_params import MessageCreateParamsBase
from every_case import every_case
from msgspec import Raw
from official_types import accept
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.responses.response_create_params import ResponseCreateParamsBase
from openai.types.responses.response_input_item_param import LocalShellCall
from openai.types.responses.response_output_message_param import ResponseOutputMessageParam
from openai.types.responses.response_output_text_param import ResponseOutputTextParam
from openai.types.responses.response_reasoning_item_param import ResponseReasoningItemParam
from pydantic import ValidationError

from palimpsest.core.items import Content, Cover, Document, Image, Item, Kind, Opaque, Signature, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.view import View
from palimpsest.wire.encode import encode
from palimpsest.wire.models import ModelCard, card
from palimpsest.wire.request import Params, Tool
from palimpsest.wire.wires import check_request

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
    seal = Signature(model.provider, model.name, "c2VhbA==")
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
        ("assistant", Opaque("elsewhere", "m", "{}", "[searched]", "msg_2")),
        ("steering", Text("go on")),
    )
    items = tuple(Item(f"{number}.0", kind, content) for number, (kind, content) in enumerate(contents, 1))
    return View(HEAD, items)


PARAMS = (
    Params(),
    Params(stream=False, breakpoint_rule="opencode", ttl="1h", tool_choice="bash", parallel=False, dialect="codex-0.166"),
    Params(max_tokens=9_000, thinking_budget=2_000, effort="high", cache_key="k", dialect="codex-0.166"),
    Params(tool_choice="required", schema=Raw(b'{"type":"object","properties":{}}'), breakpoint_rule="claude-code", dialect="codex-0.166"),
)


def checked(model: ModelCard, params: Params) -> dict[str, Any]:
    request = encode(view(model), model, TOOLS, params, lambda _: b"abc")
    assert check_request(model.wire, request.body) == ()
    body: dict[str, Any] = json.loads(request.body)
    return body


@pytest.mark.parametrize("params", PARAMS)
def test_the_anthropic_client_takes_our_messages(params: Params) -> None:
    accept(MessageCreateParamsBase, checked(CLAUDE, params))


@pytest.mark.parametrize("params", PARAMS)
def test_the_openai_client_takes_our_completions(params: Params) -> None:
    accept(CompletionCreateParamsBase, checked(OPENAI, params))


# The client has one type for what it is sent back and for what it once received, and that type demands what only a reply needs to say.
# The service does not: Codex sends neither ids nor states nor annotations, and our dialects follow it to the byte.
OUTPUT_ONLY: dict[str, tuple[Any, dict[str, object]]] = {
    "message": (ResponseOutputMessageParam, {"id": "msg_0", "status": "completed"}),
    "output_text": (ResponseOutputTextParam, {"annotations": []}),
    "reasoning": (ResponseReasoningItemParam, {"id": "rs_0"}),
    "local_shell_call": (LocalShellCall, {"id": "lsh_0"}),
}


def returned(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The items and parts of a request that the client types like those of a reply."""
    for item in body["input"]:
        if item["type"] == "message" and item["role"] == "assistant":
            yield item
            yield from item["content"]
        elif item["type"] in {"reasoning", "local_shell_call"}:
            yield item


def missing(body: dict[str, Any]) -> set[tuple[str, str]]:
    """What the client demands and we do not send, by type and key."""
    return {(part["type"], key) for part in returned(body) for key in demanded(OUTPUT_ONLY[part["type"]][0]) - part.keys()}


def demanded(kind: Any) -> set[str]:
    return {key for key, hint in get_type_hints(kind, include_extras=True).items() if get_origin(hint) is Required}


def completed(body: dict[str, Any]) -> dict[str, Any]:
    """The request with what is missing, and nothing else added."""
    whole = copy.deepcopy(body)
    for part in returned(whole):
        for key, value in OUTPUT_ONLY[part["type"]][1].items():
            part.setdefault(key, value)
    return whole


STATES = {("message", "status"), ("output_text", "annotations")}
IDS = {("message", "id"), ("reasoning", "id"), ("local_shell_call", "id")}


@pytest.mark.parametrize("params", PARAMS)
def test_the_openai_client_takes_our_responses_but_for_what_only_a_reply_says(params: Params) -> None:
    body = checked(GPT, params)
    assert missing(body) == (STATES | IDS if params.dialect == "codex" else STATES)
    accept(ResponseCreateParamsBase, completed(body))
    with pytest.raises(ValidationError):
        accept(ResponseCreateParamsBase, body)


MASKS = (None, Cover("cut"), Cover("", "cached"))
CASES: dict[str, tuple[Kind, Content]] = {
    "words": ("user", Text("hi")),
    "rules": ("context", Text("mind", "developer")),
    "reply": ("assistant", Text("ok ", "assistant", "final_answer")),
    "claude thought": ("thinking", Thinking("hm", Signature("anthropic", "claude-sonnet-4-5", "c2VhbA=="))),
    "gpt thought": ("thinking", Thinking("hm", Signature("openai", "gpt-5.5", "c2VhbA=="), "whole")),
    "sealed thought": ("thinking", Thinking("", Signature("openai", "gpt-5.5", "c2VhbA=="), "sealed")),
    "picture": ("user", PICTURE),
    "linked picture": ("user", Image("image/png", url="https://a.example/b.png")),
    "inline picture": ("user", Image("image/PNG", url="data:image/png;base64,AAAA")),
    "lost picture": ("user", Image("image/png")),
    "said picture": ("assistant", PICTURE),
    "paper": ("user", Document("application/pdf", blob="a", name="a.pdf")),
    "text file": ("user", Document("text/plain", blob="a")),
    "inline text file": ("user", Document("text/plain", url="data:text/plain;base64,aGk=")),
    "linked paper": ("user", Document("application/pdf", url="https://a.example/b.pdf")),
    "call": ("call", ToolCall("c 1!", "read file", "not JSON")),
    "free call": ("call", ToolCall("c", "apply_patch", "*** x", "free")),
    "shell call": ("call", ToolCall("c", "local_shell", "ls", "shell")),
    "search call": ("call", ToolCall("c", "tool_search", "{}", "search")),
    "lone result": ("result", ToolResult("c", (Text("r"),))),
    "block": (
        "assistant",
        Opaque(
            "anthropic", "claude-sonnet-4-5", '{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}} ', "searched"
        ),
    ),
    "stranger": ("assistant", Opaque("anthropic", "claude-sonnet-4-5", '{"type":"tomorrow"}', "words")),
    "item": ("assistant", Opaque("openai", "gpt-5.5", '{"type":"compaction","encrypted_content":"eA=="}', "a summary")),
}


@every_case("mask", MASKS)
@every_case("case", CASES)
@every_case(
    ("model", "kind"),
    [(CLAUDE, MessageCreateParamsBase), (GPT, ResponseCreateParamsBase), (OPENAI, CompletionCreateParamsBase)],
)
def test_the_clients_take_every_kind_of_item_shown_masked_and_erased(model: ModelCard, kind: Any, case: str, mask: Cover | None) -> None:
    said, content = CASES[case]
    seen = View(items=(Item("0.0", "user", Text("u")), Item("1.0", said, content, mask=mask)))
    request = encode(seen, model, (), Params(), lambda _: b"abc")
    assert check_request(model.wire, request.body) == ()
    body = json.loads(request.body)
    if model is GPT:
        assert missing(body) <= STATES | IDS
        body = completed(body)
    accept(kind, body)


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
