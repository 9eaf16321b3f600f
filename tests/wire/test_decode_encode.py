import json
from pathlib import Path

from palimpsest.core.items import Item, Text, ToolCall, ToolResult, kind_of
from palimpsest.core.view import View
from palimpsest.wire.encode import encode
from palimpsest.wire.models import ModelCard, card
from palimpsest.wire.request import Params
from palimpsest.wire.stream import decoder

STREAMS = Path(__file__).parents[1] / "golden" / "streams"


def go_on(model: ModelCard, params: Params) -> dict[str, list[dict[str, object]]]:
    """The request that follows the recorded reply of a model."""
    decoding = decoder(model.wire, model)
    decoding.feed((STREAMS / f"{model.wire}.sse").read_bytes())
    parts = decoding.finish().parts
    said = tuple(Item(f"2.{place}", kind_of(part), part) for place, part in enumerate(parts))
    results = tuple(
        Item(f"{3 + place}.0", "result", ToolResult(call.call_id, (Text("done"),), form=call.form))
        for place, call in enumerate(part for part in parts if isinstance(part, ToolCall))
    )
    request = encode(View(items=(Item("1.0", "user", Text("Fix a.py")), *said, *results)), model, params=params)
    assert request.repairs == ()
    body: dict[str, list[dict[str, object]]] = json.loads(request.body)
    return body


def whole(name: str) -> dict[str, list[dict[str, object]]]:
    answer: dict[str, list[dict[str, object]]] = json.loads((STREAMS / name).read_bytes())
    return answer


def test_a_message_goes_back_as_it_came() -> None:
    body = go_on(card("claude-sonnet-4-5"), Params(breakpoint_rule="none"))
    assert body["messages"][1] == {"role": "assistant", "content": whole("anthropic.json")["content"]}


def test_the_items_of_a_response_go_back_as_they_came_but_for_what_only_an_answer_has() -> None:
    body = go_on(card("gpt-5.5"), Params(dialect="codex-0.166"))
    came = whole("responses.json")["output"]
    for item in came:
        if item["type"] in ("message", "function_call", "custom_tool_call"):
            del item["status"]
    came[1]["content"] = [{"type": "output_text", "text": "I patch it – 修补。"}]
    assert body["input"][1:9] == came


def test_a_completion_goes_back_as_it_came() -> None:
    body = go_on(card("openai-compatible/qwen3-coder"), Params(echo=True))
    (choice,) = whole("chat.json")["choices"]
    assert body["messages"][1] == choice["message"]
