"""A decoded reply is encoded as the provider sent it."""

import json
from typing import Any

from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Item, Text, kind_of
from palimpsest.core.view import View
from palimpsest.wire.anthropic.decode import decode_message
from palimpsest.wire.chat.decode import decode_completion
from palimpsest.wire.encode import encode
from palimpsest.wire.models.cards import ModelCard, card
from palimpsest.wire.request import Params
from palimpsest.wire.responses.decode import decode_response_object


def returned(reply: ModelReplied, model: ModelCard) -> list[Any]:
    items = tuple(Item(f"2.{number}", kind_of(part), part) for number, part in enumerate(reply.parts))
    view = View(items=(Item("1.0", "user", Text("go")), *items))
    body = json.loads(encode(view, model, (), Params(breakpoint_rule="none", dialect="codex-0.166")).body)
    found: list[Any] = body["input"] if model.wire == "responses" else body["messages"]
    return found[1:]


def test_blocks_of_a_message() -> None:
    model = card("claude-sonnet-4-5")
    blocks: list[object] = [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "I look it up."},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "thinking", "thinking": "", "signature": "c2ln"},
        {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}},
    ]
    reply = decode_message({"type": "message", "content": blocks}, model)
    assert returned(reply, model)[0] == {"role": "assistant", "content": blocks}


def test_items_of_a_response() -> None:
    model = card("gpt-5.5")
    items: list[object] = [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}],
            "encrypted_content": "ZW5j",
        },
        {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "ZW5k"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "one"}, {"type": "output_text", "text": "two"}],
            "phase": "commentary",
        },
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "apply_patch", "input": "*** Begin"},
        {"type": "function_call", "id": "fc_1", "name": "bash", "arguments": '{ "a":1 }', "call_id": "call_2"},
    ]
    reply = decode_response_object({"output": items, "status": "completed"}, model)
    sent = [item for item in returned(reply, model) if not item["type"].endswith("_output")]
    assert sent == items


def test_a_completion() -> None:
    model = card("openai-compatible/some")
    said = {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": '{ "a":1 }'}}],
    }
    reply = decode_completion({"choices": [{"index": 0, "message": said, "finish_reason": "tool_calls"}]}, model)
    assert returned(reply, model)[0] == said
