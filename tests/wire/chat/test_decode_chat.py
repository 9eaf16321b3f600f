from pathlib import Path

import pytest

from palimpsest.core.deltas import CallDelta, TextDelta, ThinkingDelta
from palimpsest.core.errors import PromptTooLong, WireError
from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.items import Content, Text, Thinking, ToolCall
from palimpsest.wire.chat import decode_usage
from palimpsest.wire.models import card
from palimpsest.wire.stream import decode_response, decoder

STREAMS = Path(__file__).parents[2] / "golden" / "streams"
QWEN = card("openai-compatible/qwen3-coder")

REPLY = ModelReplied(
    parts=(
        Thinking("Two files to read."),
        Text("Reading both – 两个。", role="assistant"),
        ToolCall("call_a", "read", '{"path": "a.py"}'),
        ToolCall("call_b", "read", '{"path": "b.py"}'),
    ),
    usage=Usage(input=176, cache_read=1024, output=60, reasoning=25),
    stop="tool_use",
    provider_stop="tool_calls",
    model="openai-compatible/qwen3-coder",
    message="chatcmpl-9",
)


def parts(message: bytes) -> tuple[Content, ...]:
    body = b'{"choices":[{"index":0,"message":' + message + b',"finish_reason":"stop"}]}'
    return decode_response("chat", body, QWEN).parts


def test_a_stream_becomes_a_reply_and_calls_may_come_interleaved() -> None:
    decoding = decoder("chat", QWEN)
    deltas = decoding.feed((STREAMS / "chat.sse").read_bytes())
    assert deltas == (
        ThinkingDelta("Two files "),
        ThinkingDelta("to read."),
        TextDelta("Reading "),
        TextDelta("both – 两个。"),
        CallDelta("call_a", "read", ""),
        CallDelta("call_a", "read", '{"path": '),
        CallDelta("call_b", "read", '{"path": "b.py"}'),
        CallDelta("call_a", "read", '"a.py"}'),
    )
    assert decoding.finish() == REPLY


def test_a_whole_answer_becomes_the_same_reply() -> None:
    assert decode_response("chat", (STREAMS / "chat.json").read_bytes(), QWEN) == REPLY


def test_a_refusal_is_text_and_the_reason_to_stop() -> None:
    body = b'{"choices":[{"index":0,"message":{"content":null,"refusal":"I will not."},"finish_reason":"stop"}]}'
    assert decode_response("chat", body, QWEN) == ModelReplied(
        (Text("I will not.", role="assistant"),), stop="refusal", model="openai-compatible/qwen3-coder", provider_stop="stop"
    )


def test_a_server_that_says_stop_beside_a_call_stopped_for_the_tool() -> None:
    body = (
        b'{"choices":[{"index":0,"message":{"tool_calls":[{"id":"x","function":{"name":"a","arguments":"{}"}}]},"finish_reason":"stop"}]}'
    )
    assert decode_response("chat", body, QWEN) == ModelReplied(
        (ToolCall("x", "a", "{}"),), stop="tool_use", model="openai-compatible/qwen3-coder", provider_stop="stop"
    )


def test_content_in_parts_is_text_and_thinking() -> None:
    message = b'{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"yes"}]}'
    assert parts(message) == (Thinking("hm"), Text("yes", role="assistant"))


def test_calls_without_an_index_an_id_or_arguments_are_still_calls() -> None:
    message = b'{"tool_calls":[{"id":"x","function":{"name":"a","arguments":{"k":1}}},{"function":{"name":"b"},"id":"y"}]}'
    assert parts(message) == (ToolCall("x", "a", '{"k":1}'), ToolCall("y", "b", "{}"))
    assert parts(b'{"tool_calls":[{"function":{"name":"a","arguments":"{}"}}]}') == (ToolCall("call_0", "a", "{}"),)


def test_a_custom_call_has_free_text() -> None:
    message = b'{"tool_calls":[{"id":"x","type":"custom","custom":{"name":"patch","input":"*** Begin"}}]}'
    assert parts(message) == (ToolCall("x", "patch", "*** Begin", form="free"),)


def test_only_the_first_choice_is_the_reply() -> None:
    decoding = decoder("chat", QWEN)
    decoding.feed(
        b'data: {"choices":[{"index":1,"delta":{"content":"no"}},{"index":0,"delta":{"content":"yes"},"finish_reason":"stop"}]}\n\n'
    )
    assert decoding.finish().parts == (Text("yes", role="assistant"),)


def test_an_error_in_the_stream_is_raised_with_the_gap_a_local_server_tells() -> None:
    with pytest.raises(PromptTooLong) as caught:
        decoder("chat", QWEN).feed(
            b'data: {"error":{"code":400,"message":"the request exceeds the available context size, try increasing it",'
            b'"type":"exceed_context_size_error","n_prompt_tokens":3000,"n_ctx":2048}}\n\n'
        )
    assert caught.value.gap == 952


def test_an_answer_without_a_choice_is_an_error() -> None:
    with pytest.raises(WireError, match="no choice"):
        decode_response("chat", b'{"choices":[]}', QWEN)


def test_a_stream_that_says_it_is_done_without_a_reason_is_an_error() -> None:
    decoding = decoder("chat", QWEN)
    decoding.feed(b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\ndata: [DONE]\n\n')
    with pytest.raises(WireError, match="the stream ended after it said that it was done, after 1 events"):
        decoding.finish()


@pytest.mark.parametrize(
    ("reported", "written"),
    [
        # The reasoning is part of the completion, stands beside it, or is not told apart.
        ({"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150, "completion_tokens_details": {"reasoning_tokens": 40}}, 50),
        ({"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 150, "completion_tokens_details": {"reasoning_tokens": 40}}, 50),
        ({"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}, 10),
        ({"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 9_999}, 10),
        ({"prompt_tokens": 100, "completion_tokens": "10", "total_tokens": -5}, 0),
    ],
)
def test_reasoning_is_billed_as_output_also_if_a_server_counts_it_in_the_total_alone(reported: dict[str, object], written: int) -> None:
    assert decode_usage(reported).output == written
