"""The ways in which followed clients of the SDKs are called beside `create`: raw, parsed, streamed, with other options, and failing."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from message_lists import tool_loop
from wire_server import Said, WireServer, wire_server

from palimpsest.adapters.anthropic import followed as followed_anthropic
from palimpsest.adapters.openai import followed as followed_openai
from palimpsest.core.errors import BadInput
from palimpsest.core.events import Failed, ModelReplied, Rewound
from palimpsest.follow.conversation import Conversation
from palimpsest.wire.models import WireName

SMALL = {"PAL_COMPACT_AT": "20000"}
WIRES: tuple[WireName, ...] = ("anthropic", "responses", "chat")
each_wire = pytest.mark.parametrize("wire", WIRES)


@pytest.fixture
def server() -> Iterator[WireServer]:
    with wire_server(Said("Done.", prompt=9_000)) as running:
        yield running


def client_of(wire: WireName, server: WireServer, *, asynchronous: bool = False, **options: Any) -> Any:
    options = {"settings": SMALL} | options
    if wire == "anthropic":
        made: Any = (anthropic.AsyncAnthropic if asynchronous else anthropic.Anthropic)(api_key="k", base_url=server.url, max_retries=0)
        return followed_anthropic(made, **options)
    made = (openai.AsyncOpenAI if asynchronous else openai.OpenAI)(api_key="k", base_url=f"{server.url}/v1", max_retries=0)
    return followed_openai(made, **options)


def resource_of(wire: WireName, client: Any) -> Any:
    return {"anthropic": lambda: client.messages, "responses": lambda: client.responses, "chat": lambda: client.chat.completions}[wire]()


def request_of(wire: WireName, messages: list[Any]) -> dict[str, Any]:
    if wire == "anthropic":
        return {"model": "claude-sonnet-4-6", "max_tokens": 100, "messages": messages}
    return {"model": "gpt-5", ("input" if wire == "responses" else "messages"): messages}


def text_in(wire: WireName, reply: Any) -> str:
    match wire:
        case "anthropic":
            return str(reply.content[0].text)
        case "responses":
            return str(reply.output_text)
        case "chat":
            return str(reply.choices[0].message.content)


def observed(client: Any) -> list[int]:
    """The prompt tokens of the replies that were observed in the one conversation, in which nothing failed."""
    (conversation,) = client.conversations.all()
    bodies = [event.body for event in conversation.session.log.events()]
    assert [body for body in bodies if isinstance(body, Failed | Rewound)] == []
    return [body.usage.prompt for body in bodies if isinstance(body, ModelReplied) and body.message]


def check_folded(server: WireServer, wire: WireName, count: int = 1) -> None:
    """The model got a list that is less than half of the given one, each time."""
    field = "input" if wire == "responses" else "messages"
    whole = len(json.dumps(tool_loop(wire, 14)))
    assert [2 * len(json.dumps(body[field])) < whole for _, body in server.requests] == [True] * count


@each_wire
def test_a_raw_response_is_the_clients_own_and_its_reply_is_observed(wire: WireName, server: WireServer) -> None:
    client = client_of(wire, server)
    raw = resource_of(wire, client).with_raw_response.create(**request_of(wire, tool_loop(wire, 14)))
    assert raw.headers["content-type"] == "application/json"
    assert text_in(wire, raw.parse()) == "Done."
    assert observed(client) == [9_000]
    check_folded(server, wire)


@each_wire
def test_a_raw_response_of_an_async_client_is_observed_too(wire: WireName, server: WireServer) -> None:
    client = client_of(wire, server, asynchronous=True)

    async def run() -> str:
        async with client as entered:
            raw = await resource_of(wire, entered).with_raw_response.create(**request_of(wire, tool_loop(wire, 14)))
            parsed = raw.parse()
            return text_in(wire, await parsed if asyncio.iscoroutine(parsed) else parsed)

    assert asyncio.run(run()) == "Done."
    assert observed(client) == [9_000]
    check_folded(server, wire)


@each_wire
def test_a_response_whose_body_the_caller_reads_gets_a_prepared_list(wire: WireName, server: WireServer) -> None:
    client = client_of(wire, server)
    with resource_of(wire, client).with_streaming_response.create(**request_of(wire, tool_loop(wire, 14))) as response:
        assert b"Done." in b"".join(response.iter_bytes())
    assert observed(client) == []
    check_folded(server, wire)


@each_wire
def test_clients_with_other_options_share_the_conversations_and_are_followed(wire: WireName, server: WireServer) -> None:
    with client_of(wire, server) as client:
        other = client.with_options(timeout=7.0)
        assert other.timeout == 7.0
        resource_of(wire, other).create(**request_of(wire, tool_loop(wire, 14)))
        assert other.copy().conversations is client.conversations
    assert observed(client) == [9_000]
    check_folded(server, wire)


@each_wire
def test_the_stream_helpers_of_the_sdks_are_followed_sync_and_async(wire: WireName, server: WireServer) -> None:
    client, other = client_of(wire, server), client_of(wire, server, asynchronous=True)
    request = request_of(wire, tool_loop(wire, 14))
    if wire == "chat":
        request["stream_options"] = {"include_usage": True}
    with resource_of(wire, client).stream(**request) as stream:
        assert len(list(stream)) > 3

    async def run() -> int:
        async with other, resource_of(wire, other).stream(**request) as stream:
            return len([event async for event in stream])

    assert asyncio.run(run()) > 3
    assert [observed(client), observed(other)] == [[9_000], [9_000]]
    check_folded(server, wire, 2)


@each_wire
def test_a_stream_that_is_left_early_is_not_observed_and_one_event_can_be_asked_for(wire: WireName, server: WireServer) -> None:
    client = client_of(wire, server)
    with resource_of(wire, client).create(**request_of(wire, tool_loop(wire, 14)), stream=True) as stream:
        assert next(stream) is not None
    assert observed(client) == []
    check_folded(server, wire)


@each_wire
def test_an_async_stream_is_passed_on_event_by_event_and_is_observed(wire: WireName, server: WireServer) -> None:
    client = client_of(wire, server, asynchronous=True)
    options = {"stream": True} | ({"stream_options": {"include_usage": True}} if wire == "chat" else {})

    async def run() -> int:
        async with client:
            return len(
                [event async for event in await resource_of(wire, client).create(**request_of(wire, tool_loop(wire, 14)), **options)]
            )

    assert asyncio.run(run()) > 3
    assert observed(client) == [9_000]
    check_folded(server, wire)


@each_wire
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_an_error_of_the_provider_reaches_the_caller_and_the_next_call_goes_on(wire: WireName, *, asynchronous: bool) -> None:
    error: Any = (anthropic if wire == "anthropic" else openai).RateLimitError
    messages = tool_loop(wire, 14)
    with wire_server(Said(status=429, message="slow down"), Said("Done.", prompt=9_000)) as server:
        client = client_of(wire, server, asynchronous=asynchronous)

        def create() -> Any:
            reply = resource_of(wire, client).create(**request_of(wire, messages))
            return asyncio.run(reply) if asynchronous else reply

        with pytest.raises(error, match="slow down"):
            create()
        assert text_in(wire, create()) == "Done."
        check_folded(server, wire, 2)
        assert server.requests[0] == server.requests[1]
    assert observed(client) == [9_000]


def test_parsed_and_beta_calls_are_followed(server: WireServer) -> None:
    claude, gpt = client_of("anthropic", server), client_of("responses", server)
    claude.beta.messages.create(**request_of("anthropic", tool_loop("anthropic", 14)))
    gpt.responses.parse(**request_of("responses", tool_loop("responses", 14)))
    assert [observed(claude), observed(gpt)] == [[9_000], [9_000]]
    sizes = [len(json.dumps(body.get("messages") or body["input"])) for _, body in server.requests]
    assert [2 * size < len(json.dumps(tool_loop("anthropic", 14))) for size in sizes] == [True, True]


def test_a_session_that_another_process_has_open_does_not_stop_the_loop(server: WireServer, tmp_path: Path) -> None:
    messages = tool_loop("anthropic", 14)
    clients = [client_of("anthropic", server, name="work", home=tmp_path) for _ in range(2)]
    for client in clients:
        assert client.messages.create(**request_of("anthropic", messages)).content[0].text == "Done."
    ids = [client.conversations.all()[0].id for client in clients]
    assert [name.startswith("work-") for name in ids] == [True, False]
    assert [ids[0] in client.conversations.reason for client in clients] == [False, True]
    check_folded(server, "anthropic", 2)
    clients[0].conversations.close()


def test_an_unknown_profile_is_refused_before_any_call() -> None:
    with pytest.raises(BadInput, match="no such"):
        followed_openai(openai.OpenAI(api_key="k"), profile="no such")


@each_wire
def test_a_conversation_is_used_without_blocking_as_it_is_otherwise(wire: WireName) -> None:
    messages = tool_loop(wire, 14)
    model = "claude-sonnet-4-6" if wire == "anthropic" else "gpt-5"
    with (
        Conversation.open(model=model, shape=wire, settings=SMALL) as one,
        Conversation.open(model=model, shape=wire, settings=SMALL) as other,
    ):
        assert asyncio.run(one.aprepare(messages)) == other.prepare(messages)
        asyncio.run(one.aobserve({"no": "reply"}))
        other.observe({"no": "reply"})
        assert one.reason == other.reason
