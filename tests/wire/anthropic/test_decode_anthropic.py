import json
from pathlib import Path

import pytest
from msgspec import Raw
from msgspec.structs import replace

from palimpsest.core.deltas import CallDelta, TextDelta, ThinkingDelta, UsageDelta
from palimpsest.core.errors import PromptTooLong, ProviderError, WireError
from palimpsest.core.events import CacheDiagnosis, InputTransformation, ModelReplied, Usage, UsageBeside
from palimpsest.core.items import Item, Opaque, Signature, Text, Thinking, ToolCall
from palimpsest.wire.encode import Encoder
from palimpsest.wire.models import card
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
            Text(
                "A page written over.",
                role="assistant",
                citations='[{"type":"web_search_result_location","cited_text":"a page","url":"https://example.org/p","title":"Palimpsest",'
                '"encrypted_index":"Eo9B"}]',
            ),
        ),
        usage=Usage(input=2050, output=33),
        stop="end_turn",
        model="claude-sonnet-4-5",
        message="msg_02Ws",
        tier="tool=web_search",
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


def test_the_output_of_a_reply_whose_end_reports_none_is_not_the_one_token_of_its_start() -> None:
    def event(kind: str, **rest: object) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **rest})}\n\n".encode()

    decoding = decoder("anthropic", SONNET)
    decoding.feed(event("message_start", message={"id": "m", "usage": {"input_tokens": 50, "output_tokens": 1}}))
    decoding.feed(event("content_block_start", index=0, content_block={"type": "text", "text": ""}))
    decoding.feed(event("content_block_delta", index=0, delta={"type": "text_delta", "text": "long " * 300}))
    decoding.feed(event("message_delta", delta={"stop_reason": "end_turn"}) + event("message_stop"))
    assert decoding.finish().usage == Usage(input=50)


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


def message(usage: dict[str, object], **more: object) -> ModelReplied:
    return decode_response("anthropic", json.dumps({"type": "message", "content": [], "usage": usage, **more}).encode(), SONNET)


def entry(kind: str, prompt: int, output: int, **more: object) -> dict[str, object]:
    return {"type": kind, "input_tokens": prompt, "output_tokens": output, "cache_read_input_tokens": 0, **more}


@pytest.mark.states("PV-35")
def test_a_reply_of_several_steps_has_the_usage_of_its_last_message_and_the_others_beside_it() -> None:
    usage = {
        "input_tokens": 300,
        "output_tokens": 30,
        "output_tokens_details": {"thinking_tokens": 25},
        "iterations": [
            entry("compaction", 9_000, 900),
            entry("message", 100, 10),
            entry("advisor_message", 70, 7, model="claude-opus-5-5"),
            entry("message", 200, 20),
        ],
    }
    reply = message(usage)
    assert reply.usage == Usage(200, output=20, reasoning=20)
    assert reply.beside == (
        UsageBeside(Usage(9_000, output=900)),
        UsageBeside(Usage(100, output=10)),
        UsageBeside(Usage(70, output=7), "claude-opus-5-5"),
    )
    alone = message({"input_tokens": 0, "output_tokens": 0, "iterations": [entry("compaction", 5, 6)]}, stop_reason="compaction")
    assert (alone.usage, alone.beside, alone.provider_stop) == (Usage(), (UsageBeside(Usage(5, output=6)),), "compaction")


@pytest.mark.states("PV-66")
def test_a_reply_of_a_fallback_is_a_reply_of_the_model_that_gave_it() -> None:
    usage: dict[str, object] = {
        "iterations": [entry("message", 10, 1, model=SONNET.name), entry("fallback_message", 20, 2, model="claude-opus-4-8")]
    }
    thought = {"type": "thinking", "thinking": "", "signature": "s"}
    reply = message(usage, content=[thought], model="claude-opus-4-8")
    assert (reply.model, reply.usage, reply.beside) == (
        "claude-opus-4-8",
        Usage(20, output=2),
        (UsageBeside(Usage(10, output=1), SONNET.name),),
    )
    assert reply.parts == (Thinking("", Signature("anthropic", "claude-opus-4-8", "s"), "sealed"),)


@pytest.mark.states("PV-33")
def test_stop_details_and_unknown_blocks_are_kept_whole() -> None:
    kinds = (
        "compaction",
        "fallback",
        "mcp_tool_listing",
        "tool_search_tool_result",
        "advisor_tool_result",
        "container_upload",
        "unheard_of",
    )
    blocks = [{"type": kind, "x": {"y": [kind]}} for kind in kinds]
    reply = message({}, content=blocks, stop_reason="refusal", stop_details={"category": "cyber", "explanation": None})
    assert [json.loads(part.data) for part in reply.parts if isinstance(part, Opaque)] == blocks
    assert (reply.stop, json.loads(bytes(reply.stop_details))) == ("refusal", {"category": "cyber", "explanation": None})


@pytest.mark.states("PV-13")
def test_an_empty_text_between_two_thoughts_stays_and_others_do_not() -> None:
    thought, empty = {"type": "thinking", "thinking": "", "signature": "s"}, {"type": "text", "text": ""}
    reply = message({}, content=[empty, thought, empty, thought, empty])
    assert [type(part) for part in reply.parts] == [Thinking, Text, Thinking]
    reply = message({}, content=[empty, thought, empty, {"type": "redacted_thinking", "data": "d"}, empty, thought])
    assert [type(part) for part in reply.parts] == [Thinking, Text, Opaque, Text, Thinking]


@pytest.mark.states("PV-56", "PV-90")
def test_what_a_message_says_of_the_cache_is_decoded_whole_and_streamed_and_unknown_words_stay_unknown() -> None:
    changed = {"type": "messages_changed", "cache_missed_input_tokens": 1_234}
    for said, found in (
        ({"diagnostics": None}, CacheDiagnosis("same")),
        ({"diagnostics": {"cache_miss_reason": None}}, CacheDiagnosis("unknown")),
        ({"diagnostics": {"cache_miss_reason": changed}}, CacheDiagnosis("changed", "messages_changed", 1_234)),
        ({"diagnostics": {"cache_miss_reason": {"type": "unavailable"}}}, CacheDiagnosis("unknown", "unavailable")),
        ({"diagnostics": {"cache_miss_reason": {"type": "w" * 200}}}, CacheDiagnosis("unknown", "w" * 100)),
        ({"diagnostics": {"cache_miss_reason": {"type": "tools_changed"}}}, CacheDiagnosis("changed", "tools_changed")),
        (
            {"diagnostics": {"cache_miss_reason": {**changed, "cache_missed_input_tokens": -5}}},
            CacheDiagnosis("changed", "messages_changed", 0),
        ),
        ({"diagnostics": "words"}, CacheDiagnosis("unknown")),
        ({}, None),
    ):
        message: dict[str, object] = {"type": "message", "content": [], "stop_reason": "end_turn", **said}
        streaming = decoder("anthropic", SONNET)
        streaming.feed(f"data: {json.dumps({'type': 'message_start', 'message': message})}\n\n".encode())
        streaming.feed(b'data: {"type":"message_stop"}\n\n')
        whole = decode_response("anthropic", json.dumps(message).encode(), SONNET)
        assert (said, whole.diagnosis, streaming.finish().diagnosis) == (said, found, found)


def _transformed(*given: object) -> list[object]:
    return [{"type": "thinking_dropped", "path": "messages.1.content.0", "reason": "prefix_binding_mismatch"}, *given]


@pytest.mark.states("PV-08")
def test_what_became_of_the_thinking_that_was_sent_is_kept_also_in_words_that_nobody_knows() -> None:
    told = [*_transformed({"type": "new_kind", "path": 7}, "not an object", {"type": "x" * 300})]
    whole = {"type": "message", "id": "m", "content": [], "stop_reason": "end_turn", "input_transformations": told}
    assert decode_response("anthropic", json.dumps(whole).encode(), SONNET).transformations == (
        InputTransformation("thinking_dropped", "messages.1.content.0", "prefix_binding_mismatch"),
        InputTransformation("new_kind"),
        InputTransformation("x" * 100),
    )
    odd_values: list[object] = [None, {}, "all", 3]
    for odd in odd_values:
        assert decode_response("anthropic", json.dumps({**whole, "input_transformations": odd}).encode(), SONNET).transformations == ()


@pytest.mark.states("PV-08")
def test_a_stream_says_it_at_its_start_and_what_its_end_says_replaces_that() -> None:
    allowed = {"type": "thinking_mismatch_allowed", "path": "messages.3.content.0", "reason": "prefix_binding_mismatch"}
    first = InputTransformation("thinking_dropped", "messages.1.content.0", "prefix_binding_mismatch")
    last = InputTransformation("thinking_mismatch_allowed", "messages.3.content.0", "prefix_binding_mismatch")
    ends: list[tuple[dict[str, object], tuple[InputTransformation, ...]]] = [
        ({}, (first,)),
        ({"input_transformations": [allowed]}, (last,)),
        ({"input_transformations": []}, ()),
    ]
    for end, expected in ends:
        events = [
            {"type": "message_start", "message": {"id": "m", "content": [], "input_transformations": _transformed()}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, **end},
            {"type": "message_stop"},
        ]
        decoding = decoder("anthropic", SONNET)
        decoding.feed("".join(f"data: {json.dumps(event)}\n\n" for event in events).encode())
        assert decoding.finish().transformations == expected


@pytest.mark.states("PV-65")
def test_what_called_a_tool_goes_back_as_it_came() -> None:
    caller = '{"type":"code_execution_20260521","tool_id":"srvtoolu_01"}'
    block = f'{{"type":"tool_use","id":"toolu_1","name":"read","input":{{"a":1}},"caller":{caller}}}'
    whole = f'{{"id":"m","type":"message","role":"assistant","content":[{block}],"stop_reason":"tool_use","usage":{{}}}}'
    started = block.replace('{"a":1}', "{}")
    events = (
        '{"type":"message_start","message":{"id":"m","usage":{}}}',
        f'{{"type":"content_block_start","index":0,"content_block":{started}}}',
        '{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\\"a\\":1}"}}',
        '{"type":"content_block_stop","index":0}',
        '{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{}}',
        '{"type":"message_stop"}',
    )
    decoding = decoder("anthropic", SONNET)
    decoding.feed("".join(f"data: {event}\n\n" for event in events).encode())
    called = ToolCall("toolu_1", "read", '{"a":1}', caller=caller)
    for reply in (decode_response("anthropic", whole.encode(), SONNET), decoding.finish()):
        assert reply.parts == (called,)
    item = Item("1.0", "call", called)
    assert Encoder(SONNET).reply_blocks([item]) == (Raw(block.encode()),)
    other = Encoder(replace(SONNET, provider="kimi")).reply_blocks([item])
    assert other == (Raw(block.replace(f',"caller":{caller}', "").encode()),)


@pytest.mark.states("PV-66")
def test_a_fallback_whose_entry_names_no_model_is_of_the_one_that_the_reply_names_and_what_came_before_it_of_the_asked_one() -> None:
    usage: dict[str, object] = {"iterations": [entry("message", 10, 1), entry("fallback_message", 20, 2)]}
    reply = message(usage, model="claude-opus-4-8")
    assert (reply.model, reply.usage, reply.beside) == (
        "claude-opus-4-8",
        Usage(20, output=2),
        (UsageBeside(Usage(10, output=1), SONNET.name),),
    )


@pytest.mark.states("PV-35")
def test_a_step_that_says_nothing_of_its_usage_is_kept_as_unknown_and_one_that_cost_nothing_is_left_out() -> None:
    odd: list[object] = [{"type": "advisor_message", "model": "m"}, {"type": "compaction", "input_tokens": -5, "output_tokens": "x"}]
    reply = message({"iterations": [entry("message", 0, 0), *odd, entry("message", 20, 2)]})
    assert (reply.usage, reply.beside) == (Usage(20, output=2), (UsageBeside(Usage(), "m"), UsageBeside(Usage())))
