import json
import re
from pathlib import Path

import pytest

from palimpsest.core.deltas import CallDelta, TextDelta, ThinkingDelta
from palimpsest.core.errors import PromptTooLong, ProviderError, WireError
from palimpsest.core.events import CacheDiagnosis, ModelReplied, Usage
from palimpsest.core.items import Content, Opaque, Signature, Text, Thinking, ToolCall
from palimpsest.wire.models import card
from palimpsest.wire.stream import decode_response, decoder

STREAMS = Path(__file__).parents[2] / "golden" / "streams"
GPT = card("gpt-5.5")
RECORDED = (STREAMS / "responses.sse").read_bytes()

REPLY = ModelReplied(
    parts=(
        Thinking("**Looking** at the file", form="digest", ref="rs_1"),
        Thinking("Then patching it", Signature("openai", "gpt-5.5", "gAAAAABo"), "digest", "rs_1"),
        Text("I patch it – 修补。", role="assistant", phase="commentary", ref="msg_1"),
        ToolCall("call_1", "read", '{"path": "a.py"}', ref="fc_1"),
        ToolCall("call_2", "apply_patch", "*** Begin Patch\n*** End Patch", form="free", ref="ctc_1"),
        ToolCall(
            "call_3",
            "local_shell",
            '{"type":"exec","command":["ls","-a"],"env":{},"timeout_ms":null,"user":null,"working_directory":null}',
            form="shell",
            ref="lsh_1",
        ),
        Thinking("", Signature("openai", "gpt-5.5", "gAAAAABp"), "sealed", "rs_2"),
        Opaque(
            "openai",
            "gpt-5.5",
            '{"id":"ws_1","type":"web_search_call","status":"completed","action":{"type":"search","query":"palimpsest","sources":null}}',
            "[web_search_call: palimpsest]",
            "ws_1",
        ),
        Opaque(
            "openai",
            "gpt-5.5",
            '{"id":"cmp_1","type":"compaction","encrypted_content":"gAAAAABq"}',
            "[a summary of earlier turns that only its model can read]",
            "cmp_1",
        ),
    ),
    usage=Usage(input=904, cache_read=4096, output=250, reasoning=128),
    stop="tool_use",
    provider_stop="completed",
    model="gpt-5.5",
    message="resp_1",
    # The search of the web is billed beside the tokens.
    tier="tool=web_search",
)


def arrived(stream: bytes, end: bytes) -> tuple[Content, ...]:
    """The parts of a stream that broke off right before `end`."""
    decoding = decoder("responses", GPT)
    decoding.feed(stream[: stream.index(end)])
    return decoding.partial().parts


def test_a_stream_becomes_a_reply() -> None:
    decoding = decoder("responses", GPT)
    deltas = decoding.feed(RECORDED)
    assert deltas == (
        ThinkingDelta("**Looking**"),
        ThinkingDelta(" at the file"),
        ThinkingDelta("Then pat"),
        ThinkingDelta("ching it"),
        TextDelta("I patch "),
        TextDelta("it – 修补。"),
        CallDelta("call_1", "read", ""),
        CallDelta("call_1", "read", '{"path'),
        CallDelta("call_1", "read", '": "a.py"}'),
        CallDelta("call_2", "apply_patch", ""),
        CallDelta("call_2", "apply_patch", "*** Begin "),
        CallDelta("call_2", "apply_patch", "Patch\n*** End Patch"),
    )
    assert decoding.finish() == REPLY


def test_a_whole_answer_becomes_the_same_reply() -> None:
    assert decode_response("responses", (STREAMS / "responses.json").read_bytes(), GPT) == REPLY


def test_a_server_that_leaves_the_output_out_at_the_end_loses_nothing() -> None:
    head, _, _ = RECORDED.rpartition(b"event: response.completed")
    usage = b'{"input_tokens":5000,"input_tokens_details":{"cached_tokens":4096},"output_tokens":250,'
    usage += b'"output_tokens_details":{"reasoning_tokens":128}}'
    decoding = decoder("responses", GPT)
    decoding.feed(head)
    decoding.feed(
        b'data: {"type":"response.completed","response":{"id":"resp_1","status":"completed","output":[],"usage":' + usage + b"}}\n\n"
    )
    assert decoding.finish() == REPLY


def test_a_server_that_numbers_nothing_names_items_by_their_ids() -> None:
    stream = re.sub(rb'"output_index":\d+,', b"", RECORDED)
    assert arrived(stream, b"event: response.completed") == REPLY.parts


def test_every_item_that_had_begun_is_in_what_arrived() -> None:
    assert arrived(RECORDED, b"event: response.function_call_arguments.done") == REPLY.parts[:4]
    assert arrived(RECORDED, b"event: response.output_text.done") == REPLY.parts[:3]
    assert arrived(RECORDED, b"event: response.reasoning_summary_text.done") == REPLY.parts[:1]


def test_reasoning_in_the_open_is_whole_and_a_digest_comes_before_it() -> None:
    body = (
        b'{"output":[{"type":"reasoning","id":"r","summary":[{"type":"summary_text","text":"D"}],'
        b'"content":[{"type":"reasoning_text","text":"W"}],"encrypted_content":null}]}'
    )
    assert decode_response("responses", body, GPT).parts == (Thinking("D", form="digest", ref="r"), Thinking("W", form="whole", ref="r"))


def test_a_tool_search_is_a_call_when_the_client_must_answer_it() -> None:
    body = (
        b'{"output":[{"type":"tool_search_call","id":"ts_1","call_id":"call_9","execution":"client","arguments":{"query":"mail"}},'
        b'{"type":"tool_search_call","id":"ts_2","call_id":null,"execution":"server","arguments":{"query":"mail"}}]}'
    )
    assert decode_response("responses", body, GPT).parts == (
        ToolCall("call_9", "tool_search", '{"query":"mail"}', form="search", ref="ts_1"),
        Opaque(
            "openai",
            "gpt-5.5",
            '{"type":"tool_search_call","id":"ts_2","call_id":null,"execution":"server","arguments":{"query":"mail"}}',
            "[tool_search_call]",
            "ts_2",
        ),
    )


def test_a_refusal_is_text_and_a_strange_part_keeps_its_whole_message() -> None:
    body = (
        b'{"output":[{"type":"message","id":"m1","content":[{"type":"refusal","refusal":"I will not."}]},'
        b'{"type":"message","id":"m2","content":[{"type":"output_audio","transcript":"hm"},{"type":"output_text","text":"x"}]}]}'
    )
    assert decode_response("responses", body, GPT).parts == (
        Text("I will not.", role="assistant", ref="m1"),
        Opaque(
            "openai",
            "gpt-5.5",
            '{"type":"message","id":"m2","content":[{"type":"output_audio","transcript":"hm"},{"type":"output_text","text":"x"}]}',
            "x",
            "m2",
        ),
    )


def test_a_response_with_a_refusal_stopped_for_it() -> None:
    body = b'{"status":"completed","output":[{"type":"message","id":"m1","content":[{"type":"refusal","refusal":"I will not."}]}]}'
    assert decode_response("responses", body, GPT) == ModelReplied(
        (Text("I will not.", role="assistant", ref="m1"),), stop="refusal", model="gpt-5.5", provider_stop="completed"
    )


def test_an_incomplete_response_stops_for_the_reason_it_gives() -> None:
    decoding = decoder("responses", GPT)
    decoding.feed(
        b'data: {"type":"response.incomplete","response":{"id":"r","status":"incomplete",'
        b'"incomplete_details":{"reason":"max_output_tokens"},"output":[]}}\n\n'
    )
    whole = decoding.finish()
    assert (whole.stop, whole.provider_stop) == ("max_tokens", "max_output_tokens")


def test_cache_writes_are_counted_apart() -> None:
    body = (
        b'{"output":[],"usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":10,"cache_write_tokens":60},"output_tokens":1}}'
    )
    assert decode_response("responses", body, GPT).usage == Usage(input=30, cache_read=10, cache_write=60, output=1)


def test_what_had_arrived_before_a_response_failed_can_still_be_had() -> None:
    decoding = decoder("responses", GPT)
    decoding.feed(RECORDED[: RECORDED.index(b"event: response.output_text.done")])
    with pytest.raises(ProviderError, match="server_error: Sorry"):
        decoding.feed(
            b'data: {"type":"response.failed","response":{"id":"resp_1","status":"failed","output":[],'
            b'"error":{"code":"server_error","message":"Sorry"}}}\n\n'
        )
    assert decoding.partial() == ModelReplied(REPLY.parts[:3], stop="error", model="gpt-5.5", message="resp_1", provider_stop="failed")


def test_a_failed_response_says_whether_the_prompt_was_too_long() -> None:
    with pytest.raises(PromptTooLong, match=r"^openai: context_length_exceeded: Your input exceeds the context window"):
        decoder("responses", GPT).feed(
            b'data: {"type":"response.failed","response":{"id":"r","status":"failed","error":{"code":"context_length_exceeded",'
            b'"message":"Your input exceeds the context window of this model."}}}\n\n'
        )
    with pytest.raises(ProviderError, match=r"^openai: server_error: Sorry$"):
        decoder("responses", GPT).feed(b'event: error\ndata: {"type":"error","code":"server_error","message":"Sorry","param":null}\n\n')
    with pytest.raises(ProviderError, match="failed without a reason"):
        decode_response("responses", b'{"status":"failed","output":[]}', GPT)
    with pytest.raises(WireError, match="not a response"):
        decode_response("responses", b'{"object":"list"}', GPT)


@pytest.mark.states("PV-71")
def test_the_encrypted_content_of_an_item_is_that_of_its_end() -> None:
    def event(kind: str, sealed: str) -> bytes:
        item = f'{{"type":"reasoning","id":"r","summary":[],"encrypted_content":"{sealed}"}}'
        return f'data: {{"type":"response.output_item.{kind}","output_index":0,"item":{item}}}\n\n'.encode()

    decoding = decoder("responses", GPT)
    decoding.feed(event("added", "begun"))
    # An item that was cut has none that could go back.
    assert decoding.partial().parts == (Thinking("", None, "sealed", "r"),)
    decoding.feed(event("done", "whole"))
    assert decoding.partial().parts == (Thinking("", Signature("openai", "gpt-5.5", "whole"), "sealed", "r"),)


@pytest.mark.states("PV-57")
def test_what_a_response_says_of_the_cache_is_decoded_and_unknown_words_stay_unknown() -> None:
    missed = {"type": "cache_miss", "reason": "tools_changed", "cache_missed_tokens": 900}
    for said, found in (
        ({"prompt_cache_diagnostics": {"type": "cache_hit"}}, CacheDiagnosis("same", "cache_hit")),
        ({"prompt_cache_diagnostics": missed}, CacheDiagnosis("changed", "tools_changed", 900)),
        (
            {"prompt_cache_diagnostics": {"type": "comparison_response_not_found"}},
            CacheDiagnosis("unknown", "comparison_response_not_found"),
        ),
        ({"prompt_cache_diagnostics": {"type": "w" * 200}}, CacheDiagnosis("unknown", "w" * 100)),
        ({"prompt_cache_diagnostics": None}, None),
        ({}, None),
    ):
        response: dict[str, object] = {"object": "response", "status": "completed", "output": [], **said}
        streaming = decoder("responses", GPT)
        streaming.feed(f"data: {json.dumps({'type': 'response.completed', 'response': response})}\n\n".encode())
        whole = decode_response("responses", json.dumps(response).encode(), GPT)
        assert (said, whole.diagnosis, streaming.finish().diagnosis) == (said, found, found)
