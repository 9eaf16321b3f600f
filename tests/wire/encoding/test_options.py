"""Options: tool names, forced tools, budgets and extra fields, none of them twice."""

import json
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Content, Item, Kind, Text, ToolCall, ToolResult
from palimpsest.core.view import View
from palimpsest.wire.encode import encode
from palimpsest.wire.models.cards import ModelCard, card
from palimpsest.wire.request import Params, RequestRepair, Tool
from palimpsest.wire.rules.check import check_request

CLAUDE = card("claude-sonnet-4-5")
GPT = card("gpt-5.5")
CHAT = card("openai-compatible/x")
WIRES = pytest.mark.parametrize("model", [CLAUDE, GPT, CHAT], ids=lambda model: model.wire)
USER = View(items=(Item("0.0", "user", Text("hi")),))


def view(*contents: tuple[Kind, Content]) -> View:
    return View(items=tuple(Item(f"{number}.0", kind, content) for number, (kind, content) in enumerate(contents)))


def names(value: Any) -> list[str]:
    """Every name in a body, however deep."""
    if isinstance(value, list):
        return [name for each in value for name in names(each)]
    if not isinstance(value, dict):
        return []
    return [each for key, each in value.items() if key == "name"] + [name for each in value.values() for name in names(each)]


@WIRES
@pytest.mark.parametrize("name", ["read file", "x" * 90, "x" * 200, "读"])
def test_a_tool_is_declared_chosen_and_called_by_one_name(model: ModelCard, name: str) -> None:
    seen = view(("user", Text("hi")), ("call", ToolCall("c", name, "{}")), ("result", ToolResult("c", (Text("ok"),))))
    request = encode(seen, model, (Tool(name),), Params(tool_choice=name))
    assert check_request(model.wire, request.body) == ()
    found = names(json.loads(request.body))
    assert (len(found), len(set(found))) == (3, 1)


def test_anthropic_takes_longer_names_than_the_others() -> None:
    tool = Tool("x" * 200)
    assert [len(names(json.loads(encode(USER, model, (tool,)).body))[0]) for model in (CLAUDE, GPT, CHAT)] == [128, 64, 64]


@WIRES
def test_two_tools_that_would_have_one_name_have_two(model: ModelCard) -> None:
    request = encode(USER, model, (Tool("read file"), Tool("read_file"), Tool("read/file")))
    assert names(json.loads(request.body)) == ["read_file_2", "read_file", "read_file_3"]
    assert request.tool_names == (("read_file_2", "read file"), ("read_file_3", "read/file"))
    assert check_request(model.wire, request.body) == ()


@pytest.mark.parametrize("choice", ["required", "a"])
def test_a_forced_tool_is_chosen_without_a_budget_for_thinking(choice: str) -> None:
    request = encode(USER, CLAUDE, (Tool("a"),), Params(max_tokens=9_000, thinking_budget=2_000, tool_choice=choice))
    assert check_request("anthropic", request.body) == ()
    assert "thinking" not in json.loads(request.body)
    assert request.repairs == (RequestRepair("thinking_off", "0.0"),)


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_a_free_choice_keeps_the_budget(choice: str) -> None:
    request = encode(USER, CLAUDE, (Tool("a"),), Params(max_tokens=9_000, thinking_budget=2_000, tool_choice=choice))
    assert check_request("anthropic", request.body) == ()
    assert json.loads(request.body)["thinking"] == {"type": "enabled", "budget_tokens": 2_000}
    assert request.repairs == ()


def test_a_reply_to_go_on_with_has_no_budget_for_thinking() -> None:
    request = encode(view(("user", Text("hi")), ("assistant", Text("yes", "assistant"))), CLAUDE, (), Params(thinking_budget=2_000))
    assert check_request("anthropic", request.body) == ()
    assert "thinking" not in json.loads(request.body)
    assert request.repairs == (RequestRepair("thinking_off", "1.0"),)


KEYS = {CLAUDE.wire: ("messages", "system", "tools"), GPT.wire: ("input", "instructions", "tools"), CHAT.wire: ("messages", "tools")}


@pytest.mark.parametrize(
    ("model", "key"), [(model, key) for model in (CLAUDE, GPT, CHAT) for key in KEYS[model.wire]], ids=lambda value: str(value)[:20]
)
def test_extra_fields_cannot_stand_for_the_view(model: ModelCard, key: str) -> None:
    with pytest.raises(BadInput) as caught:
        encode(USER, model, (), Params(extra=Raw(b'{"%s":[]}' % key.encode())))
    assert str(caught.value) == (
        f"params: the parameter extra has the key {key!r}, which is written from view, tools and card; take it out"
    )


def test_context_management_is_the_callers_only_where_the_card_has_no_edits() -> None:
    params = Params(extra=Raw(b'{"context_management":{"edits":[]}}'))
    assert json.loads(encode(USER, CLAUDE, (), params).body)["context_management"] == {"edits": []}
    with pytest.raises(BadInput, match="context_management"):
        encode(USER, replace(CLAUDE, cache_edits=True), (), params)


@WIRES
@pytest.mark.parametrize("extra", [b"[1]", b'"x"', b"3"])
def test_extra_fields_that_are_no_object_are_an_error_that_says_so(model: ModelCard, extra: bytes) -> None:
    with pytest.raises(BadInput, match=r"^params: the parameter extra must be a JSON object"):
        encode(USER, model, (), Params(extra=Raw(extra)))
