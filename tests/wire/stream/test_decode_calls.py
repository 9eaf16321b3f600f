"""Parallel calls of servers that omit index or id, and invalid numbers."""

import json

import pytest

from palimpsest.core.errors import WireError
from palimpsest.core.events import Usage
from palimpsest.core.items import Content, Text, ToolCall
from palimpsest.wire.models import ModelCard, WireName, card
from palimpsest.wire.stream import decode_response, decoder

CHAT = card("openai-compatible/qwen3-coder")
CLAUDE = card("claude-sonnet-4-5")
GPT = card("gpt-5.5")
BOTH = (ToolCall("call_0", "a", "{}"), ToolCall("call_1", "b", "{}"))


def entry(tool: str = "", args: str = "", **more: object) -> dict[str, object]:
    return {**more, "function": {**({"name": tool} if tool else {}), "arguments": args}}


def whole(*calls: dict[str, object]) -> tuple[Content, ...]:
    body = {"choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}
    return decode_response("chat", json.dumps(body).encode(), CHAT).parts


def streamed(*chunks: list[dict[str, object]]) -> tuple[Content, ...]:
    decoding = decoder("chat", CHAT)
    for calls in chunks:
        decoding.feed(b"data: " + json.dumps({"choices": [{"delta": {"tool_calls": calls}}]}).encode() + b"\n\n")
    decoding.feed(b'data: {"choices":[{"finish_reason":"tool_calls"}]}\n\n')
    return decoding.finish().parts


def test_in_a_whole_answer_every_entry_is_a_call_of_its_own() -> None:
    assert whole(entry("a", "{}"), entry("b", "{}")) == BOTH
    assert whole(entry("a", "{}", id=""), entry("b", "{}", id="")) == BOTH
    assert whole(entry("a", "{}", index=0), entry("b", "{}", index=0)) == BOTH
    assert whole(entry("a", "{}", id="x"), entry("a", "{}", id="x")) == (ToolCall("x", "a", "{}"), ToolCall("x", "a", "{}"))


def test_a_new_id_in_the_same_place_of_a_stream_is_a_new_call() -> None:
    parts = streamed(
        [entry("a", '{"k"', index=0, id="1")],
        [entry(args=":1}", index=0)],
        [entry("b", "{", index=0, id="2")],
        [entry(args="}", index=0, id="2")],
    )
    assert parts == (ToolCall("1", "a", '{"k":1}'), ToolCall("2", "b", "{}"))


def test_an_id_made_up_for_every_piece_does_not_split_a_call() -> None:
    assert streamed([entry("a", "{", index=0, id="1")], [entry(args="}", index=0, id="2")]) == (ToolCall("1", "a", "{}"),)


def test_calls_of_one_chunk_without_index_and_id_are_several() -> None:
    assert streamed([entry("a", "{}"), entry("b", "{}")]) == BOTH
    assert streamed([entry("a", "{}", id=""), entry("b", "{}", id="")]) == BOTH


def test_without_index_and_id_a_name_after_whole_arguments_is_a_new_call() -> None:
    assert streamed([entry("a", "{")], [entry(args="}")], [entry("b", "{}")]) == BOTH
    assert streamed([entry("a", "{}")], [entry("a", "{}")]) == (ToolCall("call_0", "a", "{}"), ToolCall("call_1", "a", "{}"))
    assert streamed([entry("a", "{")], [entry("a", "}")]) == (ToolCall("call_0", "a", "{}"),)


def test_a_sole_choice_is_the_reply_whatever_its_number() -> None:
    body = b'{"choices":[{"index":1,"message":{"content":"hi"},"finish_reason":"stop"}]}'
    assert decode_response("chat", body, CHAT).parts == (Text("hi", "assistant"),)
    decoding = decoder("chat", CHAT)
    decoding.feed(b'data: {"choices":[{"index":1,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n')
    assert decoding.finish().parts == (Text("hi", "assistant"),)


def test_of_several_choices_the_one_numbered_zero_is_the_reply() -> None:
    body = b'{"choices":[{"index":1,"message":{"content":"no"}},{"index":0,"message":{"content":"yes"},"finish_reason":"stop"}]}'
    assert decode_response("chat", body, CHAT).parts == (Text("yes", "assistant"),)


@pytest.mark.parametrize("given", [True, -5, 1e300, "7", None, [1]], ids=str)
def test_a_count_that_is_no_number_of_tokens_is_zero(given: object) -> None:
    body = {"usage": {"prompt_tokens": 3, "completion_tokens": given}, "choices": [{"message": {"content": "x"}}]}
    assert decode_response("chat", json.dumps(body).encode(), CHAT).usage == Usage(input=3)


def test_a_long_lived_part_above_the_total_leaves_nothing_for_the_short_one() -> None:
    usage = b'{"input_tokens":1,"cache_creation_input_tokens":10,"cache_creation":{"ephemeral_1h_input_tokens":30}}'
    reply = decode_response("anthropic", b'{"type":"message","content":[],"usage":' + usage + b"}", CLAUDE)
    assert reply.usage == Usage(input=1, cache_write_long=30)


def test_arguments_given_as_an_object_are_its_text() -> None:
    body = b'{"output":[{"type":"function_call","call_id":"c","name":"n","arguments":{"a":1}}]}'
    assert decode_response("responses", body, GPT).parts == (ToolCall("c", "n", '{"a":1}'),)


@pytest.mark.parametrize(("wire", "model"), [("chat", CHAT), ("anthropic", CLAUDE), ("responses", GPT)])
def test_an_answer_nested_too_deep_is_an_error_that_says_so(wire: WireName, model: ModelCard) -> None:
    with pytest.raises(WireError, match="nested too deep"):
        decode_response(wire, b"[" * 100_000, model)
