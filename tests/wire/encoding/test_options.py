"""Options: tool names, forced tools, budgets and extra fields, none of them twice."""

import json
from typing import Any

import pytest
from every_case import every_case
from msgspec import Raw
from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Content, Item, Kind, Text, ToolCall, ToolResult
from palimpsest.core.view import View
from palimpsest.wire.encode import encode
from palimpsest.wire.models import ModelCard, card
from palimpsest.wire.request import Params, RequestRepair, Tool, resolved_params
from palimpsest.wire.wires import check_request

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


@every_case(("model", "key"), [(model, key) for model in (CLAUDE, GPT, CHAT) for key in KEYS[model.wire]])
def test_extra_fields_cannot_stand_for_the_view(model: ModelCard, key: str) -> None:
    with pytest.raises(BadInput) as caught:
        encode(USER, model, (), Params(extra=Raw(b'{"%s":[]}' % key.encode())))
    assert str(caught.value) == (
        f"params: the parameter extra has the key {key!r}, which is written from view, tools and card; take it out"
    )


def test_context_management_of_the_caller_is_sent_as_it_is() -> None:
    params = Params(extra=Raw(b'{"context_management":{"edits":[]}}'))
    assert json.loads(encode(USER, CLAUDE, (), params).body)["context_management"] == {"edits": []}


@WIRES
@pytest.mark.parametrize("extra", [b"[1]", b'"x"', b"3"])
def test_extra_fields_that_are_no_object_are_an_error_that_says_so(model: ModelCard, extra: bytes) -> None:
    with pytest.raises(BadInput, match=r"^params: the parameter extra must be a JSON object"):
        encode(USER, model, (), Params(extra=Raw(extra)))


@pytest.mark.states("PV-25", "PV-26", "PV-27", "PV-28", "PV-31")
def test_a_request_has_only_the_fields_that_its_model_accepts() -> None:
    adaptive, none = {"type": "adaptive"}, None
    low, high = {"effort": "low"}, {"effort": "high"}
    expected: list[tuple[str, Params, Any, Any]] = [
        ("claude-haiku-4-5", Params(thinking_budget=2_000), {"type": "enabled", "budget_tokens": 2_000}, none),
        ("claude-opus-4-7", Params(thinking_budget=2_000), adaptive, none),
        ("claude-fable-5-2", Params(thinking_budget=2_000, effort="low"), adaptive, low),
        ("claude-opus-5-5", Params(thinking="disabled"), none, low),
        ("claude-mythos-5-1", Params(thinking="disabled", effort="high"), none, high),
        ("claude-sonnet-5-5", Params(thinking="disabled", effort="max"), {"type": "between_tools"}, high),
        ("claude-opus-5", Params(thinking="disabled", effort="xhigh"), {"type": "disabled"}, high),
        ("claude-haiku-5-5", Params(thinking="disabled"), {"type": "disabled"}, none),
        ("claude-opus-4-8", Params(thinking="disabled", effort="max"), {"type": "disabled"}, {"effort": "max"}),
    ]
    for name, params, thinking, output in expected:
        body = json.loads(encode(USER, card(name), (), params).body)
        assert (name, body.get("thinking"), body.get("output_config")) == (name, thinking, output)
    for name in ("claude-sonnet-4-6", "claude-opus-4-7", "claude-haiku-5-5", "gpt-6-astra", "gpt-5.5"):
        body = json.loads(encode(USER, card(name), (), Params(temperature=0.5)).body)
        assert (name, body.get("temperature")) == (name, 0.5 if name in ("claude-sonnet-4-6", "gpt-5.5") else None)


@pytest.mark.states("PV-72")
def test_an_effort_that_is_too_low_is_the_lowest_that_the_model_accepts() -> None:
    for name, effort, sent in (
        ("gpt-6-astra", "none", "low"),
        ("gpt-6-astra", "minimal", "low"),
        ("gpt-6-astra", "max", "max"),
        ("gpt-6-sol", "none", "none"),
    ):
        assert json.loads(encode(USER, card(name), (), Params(effort=effort)).body)["reasoning"]["effort"] == sent


@pytest.mark.states("PV-72")
def test_tools_that_openai_would_refuse_on_chat_completions_are_refused_with_what_to_do() -> None:
    way = 'takes tools over Responses: give its card wire = "responses"'
    for name, effort, refused in (
        ("gpt-6-astra", "low", f"wire: gpt-6-astra {way}"),
        ("gpt-5.4", "", f'wire: gpt-5.4 {way}, or set the effort to "none"'),
        ("gpt-6.1-sol", "high", f'wire: gpt-6.1-sol {way}, or set the effort to "none"'),
    ):
        model = replace(card(name), wire="chat")
        with pytest.raises(BadInput) as caught:
            encode(USER, model, (Tool("a"),), Params(effort=effort))
        assert str(caught.value) == refused
        # Without tools, or behind the server of somebody else, nothing is refused.
        encode(USER, model, (), Params(effort=effort))
        encode(USER, replace(model, provider="openai-compatible"), (Tool("a"),), Params(effort=effort))
    for name, effort in (("gpt-5.4", "none"), ("gpt-5.2", "high")):
        encode(USER, replace(card(name), wire="chat"), (Tool("a"),), Params(effort=effort))


@pytest.mark.states("PV-25")
def test_a_model_that_cannot_be_forced_to_call_a_tool_is_asked_for_it_in_the_last_message() -> None:
    seen = view(("user", Text("hi")), ("call", ToolCall("c", "a", "{}")), ("result", ToolResult("c", (Text("ok"),))))
    for name, choice in (("claude-fable-5-2", "the tool b"), ("claude-sonnet-5-5", "one of your tools")):
        params = Params(tool_choice="b" if "tool b" in choice else "required", breakpoint_rule="none")
        request = encode(seen, card(name), (Tool("a"), Tool("b")), params)
        body = json.loads(request.body)
        assert "tool_choice" not in body
        assert body["messages"][-1]["content"][1:] == [{"type": "text", "text": f"Call {choice} now."}]
        assert request.repairs == (RequestRepair("demanded_tool", "2.0"),)
    forced = json.loads(encode(seen, card("claude-haiku-5-5"), (Tool("a"),), Params(tool_choice="a")).body)
    assert forced["tool_choice"] == {"type": "tool", "name": "a"}


@pytest.mark.states("PV-29")
def test_a_list_that_ends_with_the_model_ends_with_the_user_where_no_reply_can_be_begun() -> None:
    seen = view(("user", Text("hi")), ("assistant", Text("Well, ", "assistant")))
    ended = encode(seen, card("claude-opus-4-6"), (), Params(breakpoint_rule="none"))
    assert json.loads(ended.body)["messages"][1:] == [
        {"role": "assistant", "content": [{"type": "text", "text": "Well, "}]},
        {"role": "user", "content": [{"type": "text", "text": "Go on."}]},
    ]
    assert ended.repairs == (RequestRepair("no_prefill", "1.0"),)
    begun = encode(seen, CLAUDE, (), Params(breakpoint_rule="none"))
    assert json.loads(begun.body)["messages"][-1] == {"role": "assistant", "content": [{"type": "text", "text": "Well,"}]}


def test_parameters_that_were_fitted_once_are_not_fitted_to_another_card_of_the_same_model() -> None:
    asked = Params(temperature=0.5, thinking_budget=2_000)
    later = replace(card("claude-sonnet-4-5"), sampling=False, thinking="adaptive")
    fitted = resolved_params(asked, card("claude-sonnet-4-5"))
    assert encode(USER, later, (), fitted).body == encode(USER, card("claude-sonnet-4-5"), (), asked).body
    assert encode(USER, later, (), asked).body != encode(USER, later, (), fitted).body
