from pathlib import Path

import pytest

from palimpsest.core.errors import PromptTooLong, ProviderError, WireError
from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.events.deltas import CallDelta, TextDelta, ThinkingDelta, UsageDelta
from palimpsest.core.items import Opaque, Signature, Text, Thinking, ToolCall
from palimpsest.wire.models.cards import card
from palimpsest.wire.stream import decode_response, decoder

STREAMS = Path(__file__).parents[2] / "golden" / "streams"
SONNET = card("claude-sonnet-4-5")


def reply(args: str) -> ModelReplied:
    return ModelReplied(
        parts=(
            Thinking("The file is small, so I read it whole.", Signature("anthropic", "claude-sonnet-4-5", "EqQBCkYIBxgCKkDs")),
            Opaque(
                "anthropic",
                "claude-sonnet-4-5",
                '{"type":"redacted_thinking","data":"EmwKAhgBEgy3va3p"}',
                "[thinking that only its model can read]",
            ),
            Text("I read the file – 读取。", role="assistant"),
            ToolCall("toolu_01A", "read", args),
            ToolCall("toolu_01B", "todo", "{}"),
        ),
        usage=Usage(input=12, cache_read=4096, cache_write=100, cache_write_long=200, output=87),
        stop="tool_use",
        model="claude-sonnet-4-5",
        message="msg_01Hq",
    )


def test_a_stream_becomes_a_reply_and_the_arguments_stay_as_they_were_written() -> None:
    decoding = decoder("anthropic", SONNET)
    deltas = decoding.feed((STREAMS / "anthropic.sse").read_bytes())
    assert deltas == (
        UsageDelta(Usage(input=12, cache_read=4096, cache_write=100, cache_write_long=200, output=1)),
        ThinkingDelta("The file is small, "),
        ThinkingDelta("so I read it whole."),
        TextDelta("I read "),
        TextDelta("the file – 读取。"),
        CallDelta("toolu_01A", "read", ""),
        CallDelta("toolu_01A", "read", ""),
        CallDelta("toolu_01A", "read", '{"path": "src/'),
        CallDelta("toolu_01A", "read", 'a.py", "limit": 20}'),
        CallDelta("toolu_01B", "todo", ""),
    )
    assert decoding.finish() == reply('{"path": "src/a.py", "limit": 20}')


def test_a_whole_answer_becomes_the_same_reply() -> None:
    assert decode_response("anthropic", (STREAMS / "anthropic.json").read_bytes(), SONNET) == reply('{"path":"src/a.py","limit":20}')


def test_server_side_items_are_kept_verbatim_with_a_text_fallback() -> None:
    decoding = decoder("anthropic", SONNET)
    decoding.feed((STREAMS / "anthropic_search.sse").read_bytes())
    assert decoding.finish() == ModelReplied(
        parts=(
            Opaque(
                "anthropic",
                "claude-sonnet-4-5",
                '{"type":"server_tool_use","id":"srvtoolu_01","name":"web_search","input":{"query":"palimpsest"}}',
                "[server_tool_use: palimpsest]",
            ),
            Opaque(
                "anthropic",
                "claude-sonnet-4-5",
                '{"type":"web_search_tool_result","tool_use_id":"srvtoolu_01","content":[{"type":"web_search_result","title":"Palimpsest",'
                '"url":"https://example.org/p","encrypted_content":"Eo8A","page_age":null}]}',
                "[web_search_tool_result]\nPalimpsest https://example.org/p",
            ),
            Text("A page written over.", role="assistant"),
        ),
        usage=Usage(input=2050, output=33),
        stop="end_turn",
        model="claude-sonnet-4-5",
        message="msg_02Ws",
    )


def test_a_block_of_a_newer_kind_is_put_together_from_its_pieces() -> None:
    body = (
        b'data: {"type":"content_block_start","index":0,"content_block":{"type":"compaction","content":null}}\n\n'
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"compaction_delta","content":"The user "}}\n\n'
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"compaction_delta","content":"fixed a bug."}}\n\n'
        b'data: {"type":"message_stop"}\n\n'
    )
    decoding = decoder("anthropic", SONNET)
    decoding.feed(body)
    assert decoding.finish().parts == (
        Opaque("anthropic", "claude-sonnet-4-5", '{"type":"compaction","content":"The user fixed a bug."}', "The user fixed a bug."),
    )


def test_thinking_that_is_only_a_signature_stays_and_an_empty_text_does_not() -> None:
    body = b'{"type":"message","content":[{"type":"thinking","thinking":"","signature":"S"},{"type":"text","text":""}]}'
    assert decode_response("anthropic", body, SONNET).parts == (
        Thinking("", Signature("anthropic", "claude-sonnet-4-5", "S"), form="sealed"),
    )


def test_a_message_that_fills_the_window_or_pauses_says_so_in_our_words() -> None:
    body = b'{"type":"message","content":[],"stop_reason":"model_context_window_exceeded"}'
    assert decode_response("anthropic", body, SONNET) == ModelReplied(
        (), stop="context_window", model="claude-sonnet-4-5", provider_stop="model_context_window_exceeded"
    )
    body = b'{"type":"message","content":[],"stop_reason":"pause_turn"}'
    assert decode_response("anthropic", body, SONNET) == ModelReplied(
        (), stop="pause", model="claude-sonnet-4-5", provider_stop="pause_turn"
    )


def test_cache_writes_without_a_split_are_short_ones() -> None:
    body = b'{"type":"message","content":[],"usage":{"input_tokens":1,"cache_creation_input_tokens":70,"cache_read_input_tokens":null}}'
    assert decode_response("anthropic", body, SONNET).usage == Usage(input=1, cache_write=70)


def test_an_error_event_is_raised_and_what_had_arrived_can_still_be_had() -> None:
    stream = (STREAMS / "anthropic.sse").read_bytes()
    decoding = decoder("anthropic", SONNET)
    decoding.feed(stream[: stream.index(b'event: content_block_start\ndata: {"type":"content_block_start","index":3')])
    with pytest.raises(ProviderError, match=r"^anthropic: overloaded_error: Overloaded$"):
        decoding.feed(b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n')
    assert decoding.partial().parts == reply("").parts[:3]


def test_a_prompt_that_is_too_long_says_by_how_much() -> None:
    with pytest.raises(PromptTooLong) as caught:
        decode_response(
            "anthropic",
            b'{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 204123 tokens > 200000 maximum"}}',
            SONNET,
        )
    assert caught.value.gap == 4123


def test_an_input_that_broke_off_is_kept_as_text() -> None:
    stream = (STREAMS / "anthropic_search.sse").read_bytes()
    decoding = decoder("anthropic", SONNET)
    decoding.feed(stream[: stream.index(b'{\\"query')] + b'{\\"que"}}\n\n')
    (block,) = decoding.partial().parts
    assert isinstance(block, Opaque)
    assert block.data == '{"type":"server_tool_use","id":"srvtoolu_01","name":"web_search","input":"{\\"que"}'


def test_a_piece_of_a_block_that_never_began_is_an_error() -> None:
    with pytest.raises(WireError, match="adds to block 4, which never began"):
        decoder("anthropic", SONNET).feed(b'data: {"type":"content_block_delta","index":4,"delta":{}}\n\n')


def test_an_answer_that_is_no_message_is_an_error() -> None:
    with pytest.raises(WireError, match="not a message"):
        decode_response("anthropic", b'{"hello":"world"}', SONNET)
    with pytest.raises(WireError, match="expected JSON and got '<html> gateway"):
        decode_response("anthropic", b"<html>\n gateway", SONNET)
    with pytest.raises(WireError, match="expected a JSON object"):
        decode_response("anthropic", b"[1]", SONNET)
