"""Provider-specific items: verbatim without cache breakpoints, or as their text fallback."""

import json
from typing import Any

import pytest

from palimpsest.core.items import Cover, Item, Kind, Opaque, Text, ToolCall, ToolResult
from palimpsest.core.view import View
from palimpsest.wire.encode import encode
from palimpsest.wire.models.cards import card
from palimpsest.wire.request import Params
from palimpsest.wire.rules.check import check_request

CLAUDE = card("claude-sonnet-4-5")
GPT = card("gpt-5.5")
USER = Item("0.0", "user", Text("hi"))
HEAD = tuple(Item(f"h.{index}", "context", Text("s", "system")) for index in range(3))
MARK = {"type": "ephemeral"}


def own(data: str) -> Opaque:
    return Opaque("anthropic", "claude-sonnet-4-5", data, "words")


def sent(data: str, kind: Kind = "assistant") -> Any:
    request = encode(View(HEAD, (USER, Item("1.0", kind, own(data)))), CLAUDE)
    assert check_request("anthropic", request.body) == ()
    block = json.loads(request.body)["messages"][-1]["content"][-1]
    assert block.pop("cache_control", MARK) == MARK
    return block


WORDS = {"type": "text", "text": "words"}


def test_space_around_a_block_is_left_out() -> None:
    assert sent('  {"type":"text", "text":"x"} \n') == {"type": "text", "text": "x"}


@pytest.mark.parametrize(
    "data",
    [
        "{}",
        '{"type":"tomorrow"}',
        '{"type":"text","text":" "}',
        '{"type":"tool_use","id":"q","name":"n","input":{}}',
        '{"type":"image","source":{}}',
        '{"type":"thinking","thinking":"hm"}',
        '{"a":' * 3_000 + "1" + "}" * 3_000,
    ],
    ids=lambda data: data[:30],
)
def test_what_the_provider_would_refuse_is_sent_as_its_text_fallback(data: str) -> None:
    assert sent(data) == WORDS


def test_a_known_block_goes_out_as_it_came() -> None:
    data = '{"type":"server_tool_use", "id":"s", "name":"web_search", "input":{"n":1.50}}'
    view = View(items=(USER, Item("1.0", "assistant", own(data)), Item("2.0", "user", Text("go on"))))
    assert data.encode() in encode(view, CLAUDE, (), Params(breakpoint_rule="none")).body


def test_the_breakpoint_of_an_opaque_block_is_removed() -> None:
    data = '{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}'
    items = tuple(Item(f"{index}.0", "assistant" if index % 2 else "user", own(data) if index % 2 else Text("u")) for index in range(11))
    for rule in ("palimpsest", "opencode", "claude-code"):
        request = encode(View(HEAD, items), CLAUDE, (), Params(breakpoint_rule=rule))
        assert check_request("anthropic", request.body) == ()
        assert request.body.count(b'"cache_control"') == len(request.breakpoints)


def test_breakpoints_within_a_block_are_removed_too() -> None:
    data = (
        '{"type":"search_result","source":"u","title":"t","cache_control":{"type":"ephemeral"},'
        '"content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}},{"type":"text","text":"y"}]}'
    )
    assert sent(data, "user") == {
        "type": "search_result",
        "source": "u",
        "title": "t",
        "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}],
    }


def test_a_result_holds_only_what_results_may_hold() -> None:
    parts = (own('{"type":"server_tool_use","id":"s","name":"n","input":{}}'), own('{"type":"tool_reference","tool_name":"t"} '))
    items = (USER, Item("1.0", "call", ToolCall("c", "t", "{}")), Item("2.0", "result", ToolResult("c", parts)))
    body = json.loads(encode(View(items=items), CLAUDE, (), Params(breakpoint_rule="none")).body)
    assert body["messages"][-1]["content"][0]["content"] == [WORDS, {"type": "tool_reference", "tool_name": "t"}]


def test_an_output_of_responses_holds_only_parts() -> None:
    item = Opaque("openai", "gpt-5.5", '{"type":"compaction","encrypted_content":"x"}', "words")
    part = Opaque("openai", "gpt-5.5", '{"type":"input_text","text":"x"}', "words")
    items = (USER, Item("1.0", "call", ToolCall("c", "t", "{}")), Item("2.0", "result", ToolResult("c", (item, part))))
    body = json.loads(encode(View(items=items), GPT).body)
    assert body["input"][-1]["output"] == [{"type": "input_text", "text": "words"}, {"type": "input_text", "text": "x"}]


@pytest.mark.parametrize(
    ("args", "cover", "action"),
    [
        ('{"type":"exec","command":["ls"]}', None, {"type": "exec", "command": ["ls"]}),
        ('{"type":"exec","command":["ls"]}', Cover("cut"), {"type": "exec", "command": ["cut"], "env": {}}),
        ('{"command":["ls"]}', None, {"type": "exec", "command": ["ls"], "env": {}}),
        ('{"note":"x"}', None, {"type": "exec", "command": ['{"note":"x"}'], "env": {}}),
        ("ls", None, {"type": "exec", "command": ["ls"], "env": {}}),
    ],
)
def test_the_action_of_a_shell_call_is_a_command(args: str, cover: Cover | None, action: object) -> None:
    call = Item("1.0", "call", ToolCall("c", "local_shell", args, "shell"), mask=cover)
    result = Item("2.0", "result", ToolResult("c", (Text("ok"),), form="shell"))
    body = json.loads(encode(View(items=(USER, call, result)), GPT).body)
    assert body["input"][1] == {"type": "local_shell_call", "call_id": "c", "status": "completed", "action": action}
