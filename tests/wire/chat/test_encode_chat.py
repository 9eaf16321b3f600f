"""Chat Completions: roles, tool messages, pictures of results, the habits of Mistral."""

import json
from typing import Any

import pytest
from msgspec import Raw

from palimpsest.core.items import Content, Document, Image, Item, Text, ToolCall, ToolResult, kind_of
from palimpsest.core.view import View
from palimpsest.wire.encode import encode
from palimpsest.wire.models import ModelCard, card
from palimpsest.wire.request import Params, RequestRepair, Tool

SOME = card("openai-compatible/some")
MISTRAL = card("openai-compatible/mistral-large")
OPENAI = ModelCard("gpt-old", "chat", "openai", 100_000, 4_096, documents=True, cache="automatic")
HEAD = (
    Item("0.0", "context", Text("Base.", "system")),
    Item("0.1", "context", Text("More.", "developer")),
    Item("0.2", "context", Text("Env.", "user")),
)


def said(text: str) -> Text:
    return Text(text, "assistant")


def body_of(
    model: ModelCard, *contents: Content, params: Params | None = None, tools: tuple[Tool, ...] = (), head: tuple[Item, ...] = ()
) -> Any:
    items = tuple(Item(f"{number}.0", _kind(content), content) for number, content in enumerate(contents, 1))
    return json.loads(encode(View(head, items), model, tools, params or Params(), lambda _: b"abc").body)


def _kind(content: Content) -> Any:
    return "user" if isinstance(content, Image | Document) else kind_of(content)


def test_the_whole_body_in_its_order() -> None:
    request = encode(View(HEAD[:1], (Item("1.0", "user", Text("hi")),)), SOME, (Tool("bash", "Run."),), Params(max_tokens=9, cache_key="k"))
    assert request.body == (
        b'{"model":"some","max_tokens":9,"tools":[{"type":"function","function":{"name":"bash","description":"Run.",'
        b'"parameters":{"type":"object","properties":{}}}}],"prompt_cache_key":"k","stream":true,"stream_options":{"include_usage":true},'
        b'"messages":[{"role":"system","content":"Base."},{"role":"user","content":"hi"}]}'
    )


def test_other_servers_get_one_system_message_and_openai_gets_developers() -> None:
    assert body_of(SOME, Text("hi"), head=HEAD)["messages"][:2] == [
        {"role": "system", "content": "Base.\n\nMore."},
        {"role": "user", "content": "Env."},
    ]
    assert body_of(OPENAI, Text("hi"), head=HEAD)["messages"][:3] == [
        {"role": "system", "content": "Base."},
        {"role": "developer", "content": "More."},
        {"role": "user", "content": "Env."},
    ]


def test_a_developer_in_the_middle_has_a_message_of_his_own_at_openai() -> None:
    assert body_of(OPENAI, Text("one"), Text("mind", "developer"), Text("two"))["messages"] == [
        {"role": "user", "content": "one"},
        {"role": "developer", "content": "mind"},
        {"role": "user", "content": "two"},
    ]


def test_texts_around_calls_are_one_message_and_tool_messages_follow_it() -> None:
    body = body_of(
        SOME,
        Text("go"),
        said("first"),
        ToolCall("a", "bash", "{}"),
        said("then"),
        ToolCall("b", "bash", "{}"),
        ToolResult("b", (Text("2"),)),
        ToolResult("a", ()),
    )
    function = {"name": "bash", "arguments": "{}"}
    assert body["messages"][1:] == [
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "first"}, {"type": "text", "text": "then"}],
            "tool_calls": [{"id": "a", "type": "function", "function": function}, {"id": "b", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "a", "content": ""},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
    ]


def test_pictures_of_a_result_move_to_the_user_message_after_it() -> None:
    picture = Image("image/png", blob="a", detail="low")
    body = body_of(
        OPENAI,
        Text("go"),
        ToolCall("a", "view", "{}"),
        ToolCall("b", "view", "{}"),
        ToolResult("a", (Text("here"), picture)),
        ToolResult("b", (picture,)),
        Text("see?"),
    )
    shown = {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj", "detail": "low"}}
    assert body["messages"][2:] == [
        {"role": "tool", "tool_call_id": "a", "content": "here"},
        {"role": "tool", "tool_call_id": "b", "content": "[shown in the next message]"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "[from the result of call a]"},
                shown,
                {"type": "text", "text": "[from the result of call b]"},
                shown,
                {"type": "text", "text": "see?"},
            ],
        },
    ]


def test_files_are_parts_of_user_messages() -> None:
    body = body_of(OPENAI, Document("application/pdf", blob="a", name="a.pdf"))
    assert body["messages"][0]["content"] == [
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,YWJj"}}
    ]


@pytest.mark.states("OC-41")
def test_mistral_wants_short_ids_and_a_word_between_tool_and_user() -> None:
    body = body_of(MISTRAL, Text("go"), ToolCall("call_1", "bash", "{}"), ToolResult("call_1", (Text("ok"),)), Text("next"))
    assert body["messages"][1:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call10000", "type": "function", "function": {"name": "bash", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "call10000", "content": "ok"},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "next"},
    ]


def test_mistral_gets_no_word_when_no_user_follows() -> None:
    body = body_of(MISTRAL, Text("go"), ToolCall("call_1", "bash", "{}"), ToolResult("call_1", (Text("ok"),)), said("so"))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool", "assistant"]


def test_an_empty_view_still_says_something() -> None:
    request = encode(View(), SOME)
    assert json.loads(request.body)["messages"] == [{"role": "user", "content": "Go on."}]
    assert request.repairs == (RequestRepair("no_first_user", ""),)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (Params(stream=False), {"stream": False}),
        (Params(max_tokens=9, effort="low", verbosity="low"), {"max_completion_tokens": 9, "reasoning_effort": "low", "verbosity": "low"}),
        (Params(tool_choice="none", parallel=False), {"tool_choice": "none", "parallel_tool_calls": False}),
        (Params(tool_choice="bash"), {"tool_choice": {"type": "function", "function": {"name": "bash"}}}),
        (
            Params(temperature=0.5, schema=Raw(b'{"type":"object"}')),
            {
                "temperature": 0.5,
                "response_format": {"type": "json_schema", "json_schema": {"name": "output", "strict": True, "schema": {"type": "object"}}},
            },
        ),
    ],
)
def test_parameters_have_their_names(params: Params, expected: dict[str, object]) -> None:
    body = body_of(OPENAI, Text("go"), params=params, tools=(Tool("bash"),))
    assert {key: value for key, value in body.items() if key in expected} == expected
    assert ("stream_options" in body) == params.stream
