"""The strict double takes what we encode for each of its models, whatever is asked for."""

import json
from itertools import product
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from palimpsest.core.items import Content, Image, Item, Kind, Opaque, Text, ToolCall, ToolResult
from palimpsest.core.view import View
from palimpsest.testing.strict.answers import STRICT_MODELS
from palimpsest.testing.strict.provider import StrictProvider
from palimpsest.wire.encode import encode
from palimpsest.wire.models import card
from palimpsest.wire.request import Params, Tool

TOOLS = (Tool("bash", "Run a command.", Raw(b'{"type":"object","properties":{"command":{"type":"string"}}}')), Tool("read", "Read."))
SCHEMA = Raw(b'{"type":"object","properties":{},"additionalProperties":false}')
HEAD = (Item("0.0", "context", Text("You fix bugs.", "system")),)
CONTENTS: tuple[tuple[Kind, Content], ...] = (
    ("user", Text("look at this")),
    ("user", Image("image/png", url="https://a.example/b.png")),
    ("context", Text("Mind the gap.", "developer")),
    ("assistant", Text("I will", "assistant")),
    ("call", ToolCall("call 1!", "bash", '{"command":"ls"}')),
    ("call", ToolCall("call_2", "read", "{}")),
    ("result", ToolResult("call 1!", (Text("a.py"),), error=True)),
    ("steering", Text("go on")),
    ("context", Text("It is Tuesday.", "developer")),
)
VIEW = View(HEAD, tuple(Item(f"{number}.0", kind, content) for number, (kind, content) in enumerate(CONTENTS, 1)))
PARAMS = (
    Params(),
    Params(tool_choice="required", effort="max"),
    Params(tool_choice="bash", parallel=False, breakpoint_rule="opencode", ttl="1h"),
    Params(thinking_budget=2_000, max_tokens=9_000, breakpoint_rule="claude-code"),
    Params(thinking_budget=0, effort="low", schema=SCHEMA),
    Params(temperature=0.5, stream=False, tool_choice="none"),
)
PATHS = {"anthropic": "/v1/messages", "responses": "/v1/responses", "chat": "/v1/chat/completions"}
HEADERS = {"anthropic-version": "2023-06-01", "x-api-key": "key"}


@pytest.mark.states("PV-25", "PV-26", "PV-27", "PV-28", "PV-29", "PV-30", "PV-72", "PV-90")
def test_no_request_that_we_encode_is_refused() -> None:
    refused: list[Any] = []
    provider = StrictProvider()
    for name, params in product(STRICT_MODELS, PARAMS):
        model = card(name)
        request = encode(VIEW, model, TOOLS, params)
        answer = provider.answer(json.loads(request.body), path=PATHS[model.wire], headers=HEADERS)
        if answer.status != 200:
            refused.append((name, params, answer.json["error"]["message"]))
    assert refused == []
    assert provider.counts.requests == len(STRICT_MODELS) * len(PARAMS)


NEWER = "2026-10-21"
CITED = {"type": "text", "text": "so it says", "citations": [{"type": "char_location", "cited_text": "so"}]}
FOUND = {"type": "search_result", "source": "a.example", "title": "A", "content": [CITED]}


@pytest.mark.states("PV-60")
def test_no_request_is_refused_under_the_version_that_takes_neither_sampling_nor_citations_of_the_user() -> None:
    params = Params(temperature=1.0, extra=Raw(b'{"top_p":0.9,"top_k":5,"metadata":{"user_id":"u"}}'))
    for name in (name for name, model in STRICT_MODELS.items() if model.provider == "anthropic"):
        shown = (Item(f"20.{number}", "user", Opaque("anthropic", name, json.dumps(each))) for number, each in enumerate((FOUND, CITED)))
        view = View(HEAD, (*VIEW.items, *shown, Item("21.0", "user", Text("what is it?"))))
        asked = [encode(view, card(name), TOOLS, replace(params, api_version=version)) for version in ("", NEWER)]
        usual, newer = (json.loads(request.body) for request in asked)
        provider = StrictProvider()
        answers = [provider.answer(body, headers={**HEADERS, "anthropic-version": NEWER}) for body in (usual, newer)]
        assert [(name, answer.status) for answer in answers] == [(name, 400), (name, 200)]
        assert {"temperature", "top_p", "top_k"}.isdisjoint(newer)
        assert newer["metadata"] == {"user_id": "u"}
        assert "citations" in json.dumps(usual)
        assert "citations" not in json.dumps(newer)
