"""Messages of Anthropic: system blocks, sides in turn, results first, options."""

import json
from typing import Any

import pytest
from msgspec import Raw

from palimpsest.core.items import Content, Document, Image, Item, Kind, Text, Thinking, ToolCall, ToolResult, kind_of
from palimpsest.core.view import View
from palimpsest.wire.encode import encode
from palimpsest.wire.models import card
from palimpsest.wire.request import Params, RequestRepair, Tool
from palimpsest.wire.stream import decode_response

CLAUDE = card("claude-sonnet-4-5")


def said(text: str) -> Text:
    return Text(text, "assistant")


def body_of(*contents: Content, params: Params | None = None, tools: tuple[Tool, ...] = (), head: tuple[Item, ...] = ()) -> Any:
    items = tuple(Item(f"{number}.0", _kind(content), content) for number, content in enumerate(contents, 1))
    return json.loads(encode(View(head, items), CLAUDE, tools, params or Params(breakpoint_rule="none"), lambda _: b"abc").body)


def _kind(content: Content) -> Any:
    return "user" if isinstance(content, Image | Document) else kind_of(content)


def test_the_whole_body_in_its_order() -> None:
    head = (Item("0.0", "context", Text("Base.", "system")),)
    request = encode(View(head, (Item("1.0", "user", Text("hi")),)), CLAUDE, (Tool("bash", "Run."),), Params(max_tokens=500))
    assert request.body == (
        b'{"model":"claude-sonnet-4-5","max_tokens":500,'
        b'"tools":[{"name":"bash","description":"Run.","input_schema":{"type":"object","properties":{}}}],"stream":true,'
        b'"system":[{"type":"text","text":"Base.","cache_control":{"type":"ephemeral"}}],'
        b'"messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]}]}'
    )


def test_results_come_first_in_the_next_message_in_the_order_of_the_calls() -> None:
    body = body_of(
        Text("go"),
        ToolCall("a", "bash", "{}"),
        ToolCall("b", "bash", "{}"),
        Text("hurry"),
        ToolResult("b", (Text("second"),)),
        ToolResult("a", (Text("first"),)),
        said("done"),
    )
    assert body["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": "first"},
        {"type": "tool_result", "tool_use_id": "b", "content": "second"},
        {"type": "text", "text": "hurry"},
    ]
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user", "assistant"]


def test_a_result_that_came_late_stands_after_its_call() -> None:
    body = body_of(Text("go"), ToolCall("a", "bash", "{}"), Text("and?"), said("wait"), ToolResult("a", (Text("late"),)), said("so"))
    assert [[block.get("text") or block["type"] for block in message["content"]] for message in body["messages"]] == [
        ["go"],
        ["tool_use"],
        ["tool_result", "and?"],
        ["wait", "so"],
    ]


def test_a_conversation_that_the_model_begins_gets_a_first_user_message() -> None:
    view = View(items=(Item("1.0", "assistant", said("hello")),))
    request = encode(view, CLAUDE, (), Params(breakpoint_rule="none"))
    assert json.loads(request.body)["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Go on."}]},
        {"role": "assistant", "content": [{"type": "text", "text": "hello"}]},
    ]
    assert request.repairs == (RequestRepair("no_first_user", "1.0"),)


@pytest.mark.parametrize("empty", [said(" \n"), said(""), Text(" ")])
def test_texts_without_a_word_are_dropped(empty: Text) -> None:
    assert body_of(Text("go"), empty)["messages"] == [{"role": "user", "content": [{"type": "text", "text": "go"}]}]


def test_the_last_reply_ends_without_white_space_and_others_keep_theirs() -> None:
    body = body_of(Text("go"), said("one \n"), Text("on"), said("two \n"))
    assert [message["content"][0]["text"] for message in body["messages"]] == ["go", "one \n", "on", "two"]


def test_pictures_and_files_are_sent_inline_or_by_address() -> None:
    body = body_of(
        Image("image/png", blob="a"),
        Image("image/png", url="https://example.org/a.png"),
        Document("application/pdf", blob="a", name="a.pdf"),
        Document("text/plain", blob="a"),
    )
    assert body["messages"][0]["content"] == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "YWJj"}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "YWJj"}, "title": "a.pdf"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "abc"}},
    ]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (Params(), {"max_tokens": 64_000, "stream": True}),
        (Params(max_tokens=10, temperature=0.5, stream=False), {"max_tokens": 10, "temperature": 0.5}),
        (
            Params(max_tokens=9_000, thinking_budget=4_000, temperature=0.5),
            {"max_tokens": 9_000, "thinking": {"type": "enabled", "budget_tokens": 4_000}, "stream": True},
        ),
        (
            Params(max_tokens=2_000, thinking_budget=4_000),
            {"max_tokens": 2_000, "thinking": {"type": "enabled", "budget_tokens": 1_999}, "stream": True},
        ),
        (
            Params(thinking="adaptive", effort="high", schema=Raw(b'{"type":"object"}')),
            {
                "max_tokens": 64_000,
                "thinking": {"type": "adaptive"},
                "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": {"type": "object"}}},
                "stream": True,
            },
        ),
    ],
)
def test_parameters_have_their_names(params: Params, expected: dict[str, object]) -> None:
    body = body_of(Text("go"), params=params)
    assert {key: value for key, value in body.items() if key not in {"model", "messages"}} == expected


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (Params(), None),
        (Params(parallel=False), {"type": "auto", "disable_parallel_tool_use": True}),
        (Params(tool_choice="none"), {"type": "none"}),
        (Params(tool_choice="required"), {"type": "any"}),
        (Params(tool_choice="bash"), {"type": "tool", "name": "bash"}),
    ],
)
def test_the_choice_of_a_tool(params: Params, expected: dict[str, object] | None) -> None:
    assert body_of(Text("go"), params=params, tools=(Tool("bash"),)).get("tool_choice") == expected


def test_a_native_tool_is_declared_verbatim_and_a_free_one_takes_a_text() -> None:
    memory = Tool("memory", native=Raw(b'{"type":"memory_20250818","name":"memory"}'))
    body = body_of(Text("go"), tools=(memory, Tool("apply_patch", form="free")))
    assert body["tools"] == [
        {"type": "memory_20250818", "name": "memory"},
        {
            "name": "apply_patch",
            "input_schema": {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
        },
    ]


@pytest.mark.states("PV-13", "PV-32", "PV-33")
def test_the_blocks_of_a_reply_go_back_as_they_came_to_a_model_that_binds_its_thinking() -> None:
    model = card("claude-sonnet-5-5")
    thought = {"type": "thinking", "thinking": "", "signature": "s"}
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "Let me see."},
        thought,
        {"type": "text", "text": ""},
        {**thought, "signature": "t"},
        {"type": "text", "text": "\n\n"},
        {**thought, "signature": "u"},
        {"type": "fallback", "from": {"model": "a"}},
        {"type": "kind_of_next_year", "nested": [{"x": None}]},
        {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}},
    ]
    reply = decode_response("anthropic", json.dumps({"type": "message", "content": blocks}).encode(), model)
    said = Item("1.0", "user", Text("hi"))
    kinds: dict[type[Content], Kind] = {Thinking: "thinking", ToolCall: "call"}
    items = tuple(Item(f"2.{number}", kinds.get(type(part), "assistant"), part) for number, part in enumerate(reply.parts))
    sent = json.loads(encode(View(items=(said, *items)), model, (), Params(breakpoint_rule="none")).body)
    assert sent["messages"][1] == {"role": "assistant", "content": blocks}


@pytest.mark.states("PV-30")
def test_a_system_message_behind_results_does_not_touch_them_on_a_model_that_could_take_it_for_a_part_of_them() -> None:
    talk = (
        Item("1.0", "user", Text("hi")),
        Item("2.0", "call", ToolCall("toolu_1", "read", "{}")),
        Item("3.0", "result", ToolResult("toolu_1", (Text("ok"),))),
        Item("4.0", "context", Text("mind", "developer")),
    )
    body = json.loads(encode(View(items=talk), card("claude-haiku-5-5"), (Tool("read"),), Params(breakpoint_rule="none")).body)
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user", "system"]
    assert body["messages"][2]["content"][1:] == [{"type": "text", "text": "End of the tool results."}]
    older = json.loads(encode(View(items=talk), card("claude-sonnet-5"), (Tool("read"),), Params(breakpoint_rule="none")).body)
    assert [message["role"] for message in older["messages"]] == ["user", "assistant", "user"]
