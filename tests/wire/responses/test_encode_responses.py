"""Responses of OpenAI in both dialects: items, groups, instructions, options."""

import json
from typing import Any

import pytest
from msgspec import Raw

from palimpsest.core.items import Content, Cover, Document, Image, Item, Kind, Opaque, Signature, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.view import View
from palimpsest.wire.encode import encode
from palimpsest.wire.models import ModelCard, card
from palimpsest.wire.request import Params, RequestRepair, Tool

GPT = card("gpt-5.5")
NEWER = Params(dialect="codex-0.166")
HEAD = (
    Item("0.0", "context", Text("Base.", "system")),
    Item("0.1", "context", Text("<permissions>", "developer")),
    Item("0.2", "context", Text("<skills>", "developer")),
    Item("0.3", "context", Text("<environment_context>", "user")),
)


def body_of(*items: Item, params: Params | None = None, tools: tuple[Tool, ...] = (), head: tuple[Item, ...] = ()) -> Any:
    return json.loads(encode(View(head, items), GPT, tools, params or Params(), lambda _: b"abc").body)


def message(role: str, *texts: str, **more: str) -> dict[str, object]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts], **more}


def said(place: str, text: str, ref: str = "", phase: str = "", kind: Kind = "assistant") -> Item:
    return Item(place, kind, Text(text, "assistant", phase, ref))


def test_the_whole_body_in_its_order() -> None:
    request = encode(View(HEAD[:1], (Item("1.0", "user", Text("hi")),)), GPT, (), Params(effort="low", cache_key="thread"))
    assert request.body == (
        b'{"model":"gpt-5.5","tools":[],"tool_choice":"auto","parallel_tool_calls":true,"reasoning":{"effort":"low"},"store":false,'
        b'"stream":true,"include":["reasoning.encrypted_content"],"prompt_cache_key":"thread","instructions":"Base.",'
        b'"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}]}'
    )


@pytest.mark.states("PV-48")
@pytest.mark.parametrize("name", ["grok-4.5", "grok-4.6", "grok-4.7"])
def test_the_sealed_items_of_grok_go_back_as_they_came_with_the_key_of_the_conversation(name: str) -> None:
    model, compaction = card(name), '{"type":"compaction","id":"cmp_1","encrypted_content":"s1"}'
    thought = Thinking("", Signature("xai", name, "s2"), "digest")
    contents: tuple[Content, ...] = (Opaque("xai", name, compaction), Text("go on"), thought, Text("Done.", "assistant"), Text("and on"))
    kinds: tuple[Kind, ...] = ("summary", "user", "thinking", "assistant", "user")
    items = tuple(Item(f"{at}.0", kind, content) for at, (kind, content) in enumerate(zip(kinds, contents, strict=True), 1))
    request = encode(View(items=items), model, (), Params(cache_key="thread"))
    body = json.loads(request.body)
    assert (request.wire, body["prompt_cache_key"]) == ("responses", "thread")
    assert body["input"][0] == json.loads(compaction)
    assert [item.get("encrypted_content") for item in body["input"]] == ["s1", None, "s2", None, None]


def test_base_instructions_have_a_field_and_the_rest_of_the_head_comes_first() -> None:
    body = body_of(Item("1.0", "user", Text("hi")), head=HEAD)
    assert body["instructions"] == "Base."
    assert body["input"] == [
        message("developer", "<permissions>", "<skills>"),
        message("user", "<environment_context>"),
        message("user", "hi"),
    ]


def test_the_newer_dialect_says_base_instructions_as_the_first_developer_message() -> None:
    body = body_of(Item("1.0", "user", Text("hi")), head=HEAD[:2], params=NEWER)
    assert "instructions" not in body
    assert body["input"] == [message("developer", "Base."), message("developer", "<permissions>"), message("user", "hi")]


@pytest.mark.states("CX-05")
def test_function_arguments_stay_a_json_string_and_custom_input_stays_free_text() -> None:
    body = body_of(
        Item("1.0", "call", ToolCall("a", "shell", '{ "command": ["ls"] }', ref="fc_1")),
        Item("2.0", "result", ToolResult("a", (Text("a.py"),), ref="fco_1")),
        Item("3.0", "call", ToolCall("b", "apply_patch", '*** Begin Patch\n+"x"', "free", "ctc_1")),
        Item("4.0", "result", ToolResult("b", (Text("Done"),), form="free", ref="ctco_1")),
    )
    assert body["input"] == [
        {"type": "function_call", "name": "shell", "arguments": '{ "command": ["ls"] }', "call_id": "a"},
        {"type": "function_call_output", "call_id": "a", "output": "a.py"},
        {"type": "custom_tool_call", "call_id": "b", "name": "apply_patch", "input": '*** Begin Patch\n+"x"'},
        {"type": "custom_tool_call_output", "call_id": "b", "output": "Done"},
    ]


def test_shell_and_search_calls_have_items_of_their_own() -> None:
    body = body_of(
        Item("1.0", "call", ToolCall("a", "local_shell", '{"type":"exec","command":["ls"],"env":{}}', "shell")),
        Item("2.0", "result", ToolResult("a", (Text("a.py"),), form="shell")),
        Item("3.0", "call", ToolCall("b", "tool_search", '{"query":"mail"}', "search")),
        Item("4.0", "result", ToolResult("b", (Text('{"tools":[{"type":"function","name":"send"}]}'),), form="search")),
    )
    assert body["input"] == [
        {"type": "local_shell_call", "call_id": "a", "status": "completed", "action": {"type": "exec", "command": ["ls"], "env": {}}},
        {"type": "function_call_output", "call_id": "a", "output": "a.py"},
        {"type": "tool_search_call", "call_id": "b", "status": "completed", "execution": "client", "arguments": {"query": "mail"}},
        {
            "type": "tool_search_output",
            "call_id": "b",
            "status": "completed",
            "execution": "client",
            "tools": [{"type": "function", "name": "send"}],
        },
    ]


def test_neighbours_of_one_reference_are_one_message_with_its_phase() -> None:
    body = body_of(said("1.0", "one", "msg_1", "commentary"), said("1.1", "two", "msg_1", "commentary"), said("1.2", "three", "msg_2"))
    assert body["input"] == [message("assistant", "one", "two", phase="commentary"), message("assistant", "three")]


def test_without_a_reference_what_one_event_says_is_one_message() -> None:
    body = body_of(Item("1.0", "user", Text("one")), Item("1.1", "user", Text("two")), Item("2.0", "user", Text("three")))
    assert body["input"] == [message("user", "one", "two"), message("user", "three")]


def test_what_an_edit_puts_in_place_are_messages_of_their_own() -> None:
    body = body_of(Item("9.0.0", "user", Text("kept")), Item("9.0.1", "summary", Text("so far")))
    assert body["input"] == [message("user", "kept"), message("user", "so far")]


def test_a_hidden_part_does_not_part_its_message() -> None:
    body = body_of(Item("1.0", "user", Text("one")), Item("1.1", "user", Text("two"), mask=Cover("")), Item("1.2", "user", Text("three")))
    assert body["input"] == [message("user", "one", "three")]


def test_only_the_newer_dialect_sends_the_ids_of_items() -> None:
    items = (
        Item("1.0", "thinking", Thinking("", Signature("openai", "gpt-5.5", "x"), "sealed", "rs_1")),
        said("1.1", "hi", "msg_1"),
        Item("1.2", "call", ToolCall("a", "bash", "{}", ref="fc_1")),
        Item("2.0", "result", ToolResult("a", (Text("ok"),), ref="fco_1")),
    )
    assert [item.get("id") for item in body_of(*items)["input"]] == [None, None, None, None]
    assert [item.get("id") for item in body_of(*items, params=NEWER)["input"]] == ["rs_1", "msg_1", "fc_1", "fco_1"]


def test_pictures_and_files_are_parts() -> None:
    body = body_of(
        Item("1.0", "user", Image("image/png", blob="a", detail="high")),
        Item("1.1", "user", Document("application/pdf", blob="a", name="a.pdf")),
        Item("1.2", "user", Document("application/pdf", url="https://example.org/a.pdf")),
    )
    assert body["input"][0]["content"] == [
        {"type": "input_image", "image_url": "data:image/png;base64,YWJj", "detail": "high"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,YWJj"},
        {"type": "input_file", "file_url": "https://example.org/a.pdf"},
    ]


KEPT = '{"output":"a.py\\n","metadata":{"exit_code":0,"duration_seconds":0.1}}'
PATCH = Tool("apply_patch", "Change files.", form="free", format=Raw(b'{"type":"grammar","syntax":"lark","definition":"start: x"}'))


@pytest.mark.parametrize(
    ("tools", "params", "expected"),
    [
        ((PATCH,), Params(), "Exit code: 0\nWall time: 0.1 seconds\nOutput:\na.py\n"),
        ((), Params(), KEPT),
        ((PATCH,), NEWER, KEPT),
    ],
)
def test_shell_outputs_kept_as_json_become_lines_beside_the_free_patch_tool(tools: tuple[Tool, ...], params: Params, expected: str) -> None:
    pair = (Item("1.0", "call", ToolCall("a", "shell", "{}")), Item("2.0", "result", ToolResult("a", (Text(KEPT),))))
    assert body_of(*pair, tools=tools, params=params)["input"][1]["output"] == expected


def test_tools_of_each_form() -> None:
    native = Tool("web_search", native=Raw(b'{"type":"web_search"}'))
    body = body_of(tools=(Tool("bash", "Run."), PATCH, Tool("sh", form="shell"), native))
    assert body["tools"] == [
        {"type": "function", "name": "bash", "description": "Run.", "strict": False, "parameters": {"type": "object", "properties": {}}},
        {
            "type": "custom",
            "name": "apply_patch",
            "description": "Change files.",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"},
        },
        {"type": "local_shell"},
        {"type": "web_search"},
    ]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (Params(tool_choice="required", parallel=False), {"tool_choice": "required", "parallel_tool_calls": False}),
        (Params(tool_choice="bash"), {"tool_choice": {"type": "function", "name": "bash"}}),
        (Params(tool_choice="apply_patch"), {"tool_choice": {"type": "custom", "name": "apply_patch"}}),
        (Params(effort="high", summary="auto"), {"reasoning": {"effort": "high", "summary": "auto"}}),
        (Params(max_tokens=9, temperature=0.5), {"max_output_tokens": 9, "temperature": 0.5}),
        (
            Params(verbosity="low", schema=Raw(b'{"type":"object"}')),
            {
                "text": {
                    "verbosity": "low",
                    "format": {"type": "json_schema", "name": "codex_output_schema", "strict": True, "schema": {"type": "object"}},
                }
            },
        ),
    ],
)
def test_parameters_have_their_names(params: Params, expected: dict[str, object]) -> None:
    body = body_of(params=params, tools=(Tool("bash"), PATCH))
    assert {key: body[key] for key in expected} == expected


def test_a_model_without_reasoning_is_asked_for_none() -> None:
    plain = ModelCard("plain", "responses", "openai", 100_000, 4_096)
    body = json.loads(encode(View(), plain).body)
    assert (body["reasoning"], body["include"]) == (None, [])


def test_a_view_that_shows_nothing_begins_with_a_message_because_a_request_must_have_one() -> None:
    request = encode(View(), GPT)
    assert json.loads(request.body)["input"] == [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]}]
    assert request.repairs == (RequestRepair("no_first_user", ""),)
