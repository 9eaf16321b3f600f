"""The official clients' own types read the replies that we recorded, and know each field of those of the strict double."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.beta import BetaMessage, BetaMessageTokensCount, BetaRawMessageStreamEvent
from anthropic.types.beta.message_create_params import MessageCreateParamsBase
from official_types import accept, undeclared
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import CompactedResponse, Response, ResponseStreamEvent
from openai.types.responses.response_create_params import ResponseCreateParamsBase
from strict_requests import HEADERS, Body, asked, user, went_on

from palimpsest.testing.strict.provider import StrictProvider, calls, says, thinks

STREAMS = Path(__file__).parents[1] / "golden" / "streams"
BETAS = "thinking-binding-controls-2026-08-01,context-management-2025-06-27,message-threads-2026-08-12"
DROP: Body = {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}}
CLEAR = {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 1}, "keep": {"type": "tool_uses", "value": 0}}
COMPACT = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 100}}


def events(stream: bytes) -> Iterator[Any]:
    """The events of a stream but pings, which the clients drop before they type them."""
    for line in stream.decode().splitlines():
        if line.startswith("data: ") and line != "data: [DONE]" and (event := json.loads(line[6:])) != {"type": "ping"}:
            yield event


@pytest.mark.states("PV-90")
def test_the_recorded_replies_are_read_by_the_types_of_the_official_clients() -> None:
    streamed = {
        "anthropic.sse": RawMessageStreamEvent,
        "anthropic_search.sse": RawMessageStreamEvent,
        "responses.sse": ResponseStreamEvent,
        "chat.sse": ChatCompletionChunk,
    }
    whole = {"anthropic.json": Message, "responses.json": Response, "chat.json": ChatCompletion}
    assert {*streamed, *whole} == {path.name for path in STREAMS.iterdir()}
    for name, kind in streamed.items():
        for event in events((STREAMS / name).read_bytes()):
            accept(kind, event)
    for name, kind in whole.items():
        accept(kind, json.loads((STREAMS / name).read_bytes()))


@pytest.mark.states("PV-90", "PV-91")
def test_what_the_double_answers_on_messages_has_no_field_that_the_types_do_not_have() -> None:
    provider = StrictProvider([[thinks("hm"), says("I look."), calls("ls", path=".")], "Done."])
    betas = {**HEADERS, "anthropic-beta": BETAS}
    demand = {**HEADERS, "anthropic-beta": "compact-2026-09-04"}
    threshold = {**HEADERS, "anthropic-beta": "compact-2026-01-12"}
    made = went_on(provider, asked(user("look"), thread={"type": "create"}), headers=betas) | {"thread": None}
    moved = {**made, "messages": [user("look away"), *made["messages"][1:]]}
    first = provider.answer(asked(user("x" * 4_000), diagnostics={"previous_message_id": None})).json["id"]
    tried: tuple[tuple[Body, dict[str, str]], ...] = (
        ({**moved, **DROP, "context_management": {"edits": [CLEAR]}}, betas),
        (asked(user("y" * 4_000), diagnostics={"previous_message_id": first}), HEADERS),
        ({**made, "compaction": {"type": "summarize", "instructions": "Be brief."}}, demand),
        (asked(user("x" * 4_000), context_management={"edits": [COMPACT]}), threshold),
    )
    for body, headers in tried:
        accept(MessageCreateParamsBase, {key: value for key, value in body.items() if value is not None})
        reply = provider.answer(body, headers=headers)
        assert reply.status == 200, reply.json
        assert [*undeclared(accept(BetaMessage, reply.json))] == []
        for event in events(b"".join(provider.answer({**body, "stream": True}, headers=headers).pieces)):
            assert [*undeclared(accept(BetaRawMessageStreamEvent, event))] == []
    counted = provider.answer(made, path="/v1/messages/count_tokens", headers=HEADERS).json
    assert [*undeclared(accept(BetaMessageTokensCount, counted))] == []


@pytest.mark.states("PV-90", "PV-91")
def test_what_the_double_answers_on_responses_and_completions_has_no_field_that_the_types_do_not_have() -> None:
    provider = StrictProvider([[thinks("hm"), says("I look."), calls("ls", path=".")]])
    key = {"authorization": "Bearer key"}
    tools = [{"type": "function", "name": "ls", "parameters": {"type": "object"}, "strict": False}]
    body: Body = {"model": "gpt-6-sol", "input": [{"role": "user", "content": "look"}], "tools": tools, "reasoning": {"effort": "low"}}
    accept(ResponseCreateParamsBase, body)
    whole = provider.answer(body, path="/v1/responses", headers=key).json
    assert [*undeclared(accept(Response, whole))] == []
    for event in events(b"".join(provider.answer({**body, "stream": True}, path="/v1/responses", headers=key).pieces)):
        assert [*undeclared(accept(ResponseStreamEvent, event))] == []
    compacted = provider.answer({"model": "gpt-6-sol", "input": body["input"]}, path="/v1/responses/compact", headers=key).json
    # The type has no form for the messages of the user, which its own words put there.
    assert [*undeclared(accept(CompactedResponse, compacted | {"output": compacted["output"][1:]}))] == []
    chat = {"model": "gpt-5.5", "messages": body["input"]}
    said = provider.answer(chat, path="/v1/chat/completions", headers=key).json
    assert [*undeclared(accept(ChatCompletion, said))] == []
    for chunk in events(b"".join(provider.answer({**chat, "stream": True}, path="/v1/chat/completions", headers=key).pieces)):
        assert [*undeclared(accept(ChatCompletionChunk, chunk))] == []
