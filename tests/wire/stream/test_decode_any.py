import json

import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import ModelReplied
from palimpsest.wire.models import WireName, card
from palimpsest.wire.stream import decode_response, decoder

TYPES = [
    "message_start",
    "message",
    "content_block_start",
    "content_block_delta",
    "message_delta",
    "message_stop",
    "text",
    "thinking",
    "tool_use",
    "text_delta",
    "input_json_delta",
    "citations_delta",
    "error",
    "response.created",
    "response.output_item.added",
    "response.output_item.done",
    "response.output_text.delta",
    "response.reasoning_summary_text.delta",
    "response.function_call_arguments.delta",
    "response.completed",
    "reasoning",
    "function_call",
    "local_shell_call",
    "tool_search_call",
    "output_text",
    "refusal",
    "function",
    "custom",
    "failed",
    "incomplete",
    "odd",
]
KEYS = [
    "type",
    "index",
    "message",
    "content_block",
    "delta",
    "usage",
    "content",
    "text",
    "thinking",
    "signature",
    "input",
    "id",
    "name",
    "partial_json",
    "citation",
    "error",
    "code",
    "response",
    "output",
    "output_index",
    "item",
    "item_id",
    "summary",
    "encrypted_content",
    "arguments",
    "call_id",
    "action",
    "status",
    "incomplete_details",
    "choices",
    "finish_reason",
    "tool_calls",
    "function",
    "custom",
    "reasoning_content",
    "refusal",
    "prompt_tokens",
    "input_tokens",
    "cache_creation",
]

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 10)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(TYPES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=12,
)
objects = st.dictionaries(st.sampled_from(KEYS), values, max_size=8)
events = st.builds(lambda body, kind: {**body, "type": kind}, objects, st.sampled_from(TYPES))
WIRES: list[WireName] = ["anthropic", "responses", "chat"]
CARD = card("gpt-5")


@pytest.mark.parametrize("wire", WIRES)
@given(st.lists(events, max_size=6))
def test_whatever_a_server_streams_is_a_reply_or_an_error_of_ours(wire: WireName, stream: list[dict[str, object]]) -> None:
    decoding = decoder(wire, CARD)
    try:
        decoding.feed("".join(f"data: {json.dumps(event)}\n\n" for event in stream).encode())
        reply = decoding.finish()
    except PalimpsestError:
        reply = decoding.partial()
    assert isinstance(reply, ModelReplied)


@pytest.mark.parametrize("wire", WIRES)
@given(objects)
def test_whatever_a_server_answers_is_a_reply_or_an_error_of_ours(wire: WireName, answer: dict[str, object]) -> None:
    outcome: ModelReplied | PalimpsestError
    try:
        outcome = decode_response(wire, json.dumps(answer).encode(), CARD)
    except PalimpsestError as error:
        outcome = error
    assert isinstance(outcome, ModelReplied) or "\n" not in str(outcome)


USED = {"input_tokens": 9, "prompt_tokens": 9, "output_tokens": 1, "completion_tokens": 1}
SAID = {"type": "message", "content": [], "output": [], "choices": [{"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"}]}


@every_case(("word", "tier"), [("flex", "service_tier=flex"), ("default", ""), ("standard", ""), (None, "")])
@every_case("wire", WIRES)
def test_a_reply_says_the_tier_that_the_provider_gave_it_if_that_has_another_price(wire: WireName, word: str | None, tier: str) -> None:
    said = SAID | {"usage": USED | {"service_tier": word}} if wire == "anthropic" else SAID | {"usage": USED, "service_tier": word}
    assert decode_response(wire, json.dumps(said).encode(), CARD).tier == tier
    start, end = {"type": "message_start", "message": said}, {"type": "message_stop"}
    chunk = {**said, "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]}
    streams: dict[str, list[object]] = {
        "anthropic": [start, end],
        "responses": [{"type": "response.completed", "response": said}],
        "chat": [chunk],
    }
    decoding = decoder(wire, CARD)
    decoding.feed("".join(f"data: {json.dumps(event)}\n\n" for event in streams[wire]).encode())
    assert decoding.finish().tier == tier


def _blocks_and_usage(blocks: list[object], usage: dict[str, object]) -> dict[str, object]:
    return SAID | {"content": blocks, "usage": USED | usage}


BILLED_TOOLS: list[tuple[WireName, dict[str, object], str]] = [
    ("anthropic", _blocks_and_usage([], {"server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 1}}), "tool=web_search"),
    ("anthropic", _blocks_and_usage([], {"server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 3}}), ""),
    ("anthropic", _blocks_and_usage([{"type": "server_tool_use", "id": "a", "name": "code_execution"}], {}), "tool=code_execution"),
    ("anthropic", _blocks_and_usage([{"type": "server_tool_use", "id": "a", "name": "tool_search_tool_bm25"}], {}), ""),
    ("responses", SAID | {"usage": USED, "output": [{"type": "web_search_call", "id": "ws_1"}]}, "tool=web_search"),
    ("responses", SAID | {"usage": USED, "output": [{"type": "code_interpreter_call", "id": "ci_1"}]}, "tool=code_interpreter"),
    ("responses", SAID | {"usage": USED, "output": [{"type": "shell_call", "environment": {"type": "container_reference"}}]}, "tool=shell"),
    ("responses", SAID | {"usage": USED, "output": [{"type": "mcp_call", "id": "m"}, {"type": "shell_call", "call_id": "s"}]}, ""),
    ("chat", SAID | {"usage": USED | {"num_sources_used": 4}}, "tool=num_sources_used"),
    ("chat", SAID | {"usage": USED | {"num_sources_used": 0}}, ""),
]


@pytest.mark.parametrize(("wire", "said", "tier"), BILLED_TOOLS)
def test_a_reply_names_the_tools_that_its_provider_ran_and_bills_beside_the_tokens(
    wire: WireName, said: dict[str, object], tier: str
) -> None:
    assert decode_response(wire, json.dumps(said).encode(), CARD).tier == tier
