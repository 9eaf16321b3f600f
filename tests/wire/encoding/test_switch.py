"""Switching models: signatures stay with their model, text fallbacks and texts are sent to the next."""

import json
from typing import Any

import pytest

from palimpsest.core.items import Content, Document, Image, Item, Opaque, Signature, Text, Thinking, ToolCall, ToolResult, kind_of
from palimpsest.core.view import View
from palimpsest.wire.encode import encode
from palimpsest.wire.models import ModelCard, card
from palimpsest.wire.repair import may_read_state
from palimpsest.wire.request import Params, RequestRepair

SONNET = card("claude-sonnet-4-5")
OPUS = card("claude-opus-4-5")
GPT = card("gpt-5.5")
OLDER_GPT = card("gpt-5.1")
SOME = card("openai-compatible/some")
BLIND = (
    ModelCard("claude-blind", "anthropic", "anthropic", 100_000, 4_096, images=False),
    ModelCard("gpt-blind", "responses", "openai", 100_000, 4_096, images=False),
    ModelCard("some-blind", "chat", "elsewhere", 100_000, 4_096, images=False),
)


def conversation(model: ModelCard, *contents: Content, params: Params | None = None) -> list[Any]:
    items = tuple(Item(f"{number}.0", kind_of(content), content) for number, content in enumerate(contents, 1))
    user = Item("0.0", "user", Text("go"))
    body = json.loads(encode(View(items=(user, *items)), model, (), params or Params(breakpoint_rule="none")).body)
    found: list[Any] = body["input"] if model.wire == "responses" else body["messages"]
    return found[1:]


CLAUDE_THOUGHT = Thinking("let me see", Signature("anthropic", "claude-sonnet-4-5", "c2ln"))
GPT_THOUGHT = Thinking("a look", Signature("openai", "gpt-5.5", "ZW5j"), "digest", "rs_1")
REPLY = Text("done", "assistant")


def test_signed_thinking_is_sent_back_to_its_model() -> None:
    assert conversation(SONNET, CLAUDE_THOUGHT, REPLY) == [
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "let me see", "signature": "c2ln"}, {"type": "text", "text": "done"}],
        }
    ]


def test_encrypted_reasoning_is_sent_back_within_its_model_family() -> None:
    expected = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a look"}], "encrypted_content": "ZW5j"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
    ]
    assert conversation(GPT, GPT_THOUGHT, REPLY) == expected
    assert conversation(OLDER_GPT, GPT_THOUGHT, REPLY) == expected


@pytest.mark.parametrize("model", [OPUS, GPT, SOME])
def test_a_thought_of_another_model_is_never_sent(model: ModelCard) -> None:
    foreign = (CLAUDE_THOUGHT, REPLY)
    assert conversation(model, *foreign) == conversation(model, REPLY)


@pytest.mark.parametrize("model", [SONNET, GPT, SOME])
def test_thinking_without_a_signature_is_not_sent(model: ModelCard) -> None:
    assert conversation(model, Thinking("aloud"), REPLY) == conversation(model, REPLY)


def test_thinking_without_a_signature_is_echoed_on_chat_when_asked_for() -> None:
    assert conversation(SOME, Thinking("aloud, "), Thinking('"twice"'), REPLY, params=Params(echo=True)) == [
        {"role": "assistant", "content": "done", "reasoning_content": 'aloud, "twice"'}
    ]


def test_summaries_with_foreign_encrypted_content_are_dropped_with_it() -> None:
    parts = (Thinking("one", None, "digest", "rs_1"), Thinking("two", Signature("elsewhere", "m", "x"), "digest", "rs_1"))
    assert conversation(GPT, *parts, REPLY) == conversation(GPT, REPLY)


def test_parts_of_one_reasoning_item_are_sent_as_one() -> None:
    seal = Signature("openai", "gpt-5.5", "ZW5j")
    parts = (Thinking("one", None, "digest", "rs_1"), Thinking("two", None, "digest", "rs_1"), Thinking("all", seal, "whole", "rs_1"))
    assert conversation(GPT, *parts) == [
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}],
            "content": [{"type": "reasoning_text", "text": "all"}],
            "encrypted_content": "ZW5j",
        }
    ]


def test_neighbouring_reasoning_items_stay_apart() -> None:
    sealed = [
        Thinking("", Signature("openai", "gpt-5.5", data), "sealed", ref)
        for data, ref in (("A", "rs_1"), ("B", "rs_2"), ("C", ""), ("D", ""))
    ]
    assert [item["encrypted_content"] for item in conversation(GPT, *sealed)] == ["A", "B", "C", "D"]


SEARCH = Opaque("openai", "gpt-5.5", '{"type":"web_search_call","status":"completed"}', "[searched the web]")


def test_an_item_of_a_provider_is_sent_back_verbatim_and_elsewhere_as_its_text_fallback() -> None:
    assert conversation(GPT, SEARCH) == [{"type": "web_search_call", "status": "completed"}]
    assert conversation(SONNET, SEARCH) == [{"role": "assistant", "content": [{"type": "text", "text": "[searched the web]"}]}]
    assert conversation(SOME, SEARCH) == [{"role": "assistant", "content": "[searched the web]"}]


@pytest.mark.parametrize("model", [SONNET, SOME])
def test_a_foreign_item_without_a_text_fallback_is_dropped(model: ModelCard) -> None:
    assert conversation(model, Opaque("openai", "gpt-5.5", '{"type":"web_search_call"}')) == []


def test_a_redacted_thought_opens_its_message() -> None:
    redacted = Opaque("anthropic", "claude-sonnet-4-5", '{"type":"redacted_thinking","data":"x"}', "[thinking]")
    assert conversation(SONNET, REPLY, redacted, ToolCall("c", "bash", "{}"), ToolResult("c"))[0]["content"] == [
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "done"},
        {"type": "tool_use", "id": "c", "name": "bash", "input": {}},
    ]


def test_a_thought_that_nothing_follows_is_left_out() -> None:
    assert conversation(SONNET, CLAUDE_THOUGHT, Text("wait")) == []
    assert conversation(SONNET, CLAUDE_THOUGHT) == []


@pytest.mark.parametrize(
    ("provider", "model", "expected"),
    [
        ("anthropic", "claude-sonnet-4-5", True),
        ("anthropic", "claude-sonnet-4-5-20250929", True),
        ("anthropic", "claude-sonnet-4", False),
        ("elsewhere", "claude-sonnet-4-5", False),
    ],
)
def test_a_dated_name_is_the_same_model(provider: str, model: str, *, expected: bool) -> None:
    assert may_read_state(provider, model, SONNET) is expected


PICTURE = Image("image/png", url="https://example.org/a.png")
LINE = "[image image/png not shown: this model cannot see images]"


@pytest.mark.states("CX-31")
def test_images_become_placeholders_for_a_model_without_image_input() -> None:
    items = (Item("1.0", "user", Text("look")), Item("1.1", "user", PICTURE))
    sent = [json.loads(encode(View(items=items), model, (), Params()).body) for model in BLIND]
    assert sent[0]["messages"] == [{"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "text", "text": LINE}]}]
    assert sent[1]["input"] == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "look"}, {"type": "input_text", "text": LINE}]}
    ]
    assert sent[2]["messages"] == [{"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "text", "text": LINE}]}]


@pytest.mark.states("CX-31")
def test_images_become_placeholders_in_outputs() -> None:
    pair = (ToolCall("c", "view_image", "{}"), ToolResult("c", (PICTURE,)))
    claude, gpt, some = (conversation(model, *pair) for model in BLIND)
    assert claude[1]["content"] == [{"type": "tool_result", "tool_use_id": "c", "content": LINE}]
    assert gpt[1] == {"type": "function_call_output", "call_id": "c", "output": LINE}
    assert some[1] == {"role": "tool", "tool_call_id": "c", "content": LINE}


@pytest.mark.states("CX-31")
def test_a_generated_image_loses_its_bytes() -> None:
    made = Opaque("openai", "gpt-blind", '{"type":"image_generation_call","id":"ig_1","status":"completed","result":"AAAA"}', "[image]")
    assert conversation(BLIND[1], made) == [{"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": ""}]


def test_audio_becomes_a_placeholder_for_a_model_that_cannot_hear() -> None:
    item = Item("1.0", "user", Opaque("openai", "gpt-5.5", '{"type":"input_audio","input_audio":{}}', "[audio]"))
    body = json.loads(encode(View(items=(item,)), GPT).body)
    assert body["input"][0]["content"] == [{"type": "input_text", "text": "[audio not shown: this model cannot hear]"}]


def test_documents_become_placeholders_for_a_model_that_cannot_read_them() -> None:
    item = Item("1.0", "user", Document("application/pdf", url="https://example.org/a.pdf", name="a.pdf"))
    body = json.loads(encode(View(items=(item,)), SOME).body)
    assert body["messages"] == [{"role": "user", "content": "[document a.pdf application/pdf not shown: this model cannot read documents]"}]


def test_a_picture_in_a_format_that_the_provider_refuses_becomes_a_line() -> None:
    drawing = Item("1.0", "user", Image("image/svg+xml", url="data:image/svg+xml;base64,AAAA"))
    body = json.loads(encode(View(items=(drawing,)), SONNET, (), Params(breakpoint_rule="none")).body)
    assert body["messages"][0]["content"] == [
        {"type": "text", "text": "[image image/svg+xml not shown: this model cannot see this format]"}
    ]


def test_a_turn_that_another_model_began_is_finished_without_a_budget_for_thinking() -> None:
    call, result = Item("3.0", "call", ToolCall("c", "bash", "{}")), Item("4.0", "result", ToolResult("c", (Text("ok"),)))
    view = View(items=(Item("1.0", "user", Text("go")), Item("2.0", "thinking", GPT_THOUGHT), call, result))
    request = encode(view, SONNET, (), Params(thinking_budget=2_000))
    assert "thinking" not in json.loads(request.body)
    assert request.repairs == (RequestRepair("thinking_off", "4.0"),)
    own_turn = View(items=(Item("1.0", "user", Text("go")), Item("2.0", "thinking", CLAUDE_THOUGHT), call, result))
    assert json.loads(encode(own_turn, SONNET, (), Params(thinking_budget=2_000)).body)["thinking"]["budget_tokens"] == 2_000
    answered = View(items=(*view.items, Item("5.0", "assistant", REPLY), Item("6.0", "user", Text("next"))))
    assert json.loads(encode(answered, SONNET, (), Params(thinking_budget=2_000)).body)["thinking"]["budget_tokens"] == 2_000


def test_thinking_of_which_only_the_signature_is_left_is_sent_back() -> None:
    sealed = Thinking("", Signature("anthropic", "claude-sonnet-4-5", "c2ln"), "sealed")
    assert conversation(SONNET, sealed, REPLY)[0]["content"][0] == {"type": "thinking", "thinking": "", "signature": "c2ln"}
