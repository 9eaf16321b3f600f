"""The clients of the anthropic and openai SDKs with their lists followed, against a model on the loopback."""

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
from palimpsest.core.events import Failed, ModelReplied, Rewound
from palimpsest.follow.conversation import Conversation
from palimpsest.wire.models import WireName

SMALL = {"PAL_COMPACT_AT": "20000"}
READ = ("Read", '{"file_path":"src/part_99.py"}')
WIRES: tuple[WireName, ...] = ("anthropic", "responses", "chat")


@pytest.fixture
def server() -> Iterator[WireServer]:
    with wire_server(Said("Reading.", (READ,)), Said("Done.")) as running:
        yield running


def sync_client(wire: WireName, url: str) -> Any:
    if wire == "anthropic":
        return followed_anthropic(anthropic.Anthropic(api_key="k", base_url=url, max_retries=0), settings=SMALL)
    return followed_openai(openai.OpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0), settings=SMALL)


def async_client(wire: WireName, url: str) -> Any:
    if wire == "anthropic":
        return followed_anthropic(anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0), settings=SMALL)
    return followed_openai(openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0), settings=SMALL)


def create(client: Any, wire: WireName, messages: list[Any], **more: Any) -> Any:
    match wire:
        case "anthropic":
            return client.messages.create(model="claude-sonnet-4-6", max_tokens=100, messages=messages, **more)
        case "responses":
            return client.responses.create(model="gpt-5", input=messages, **more)
        case "chat":
            return client.chat.completions.create(model="gpt-5", messages=messages, **more)


def added(wire: WireName, reply: Any) -> list[Any]:
    """What a loop appends to its list after a reply with one call."""
    result = "x = 1\n"
    match wire:
        case "anthropic":
            call = next(block for block in reply.content if block.type == "tool_use")
            answer = {"type": "tool_result", "tool_use_id": call.id, "content": result}
            return [{"role": "assistant", "content": reply.content}, {"role": "user", "content": [answer]}]
        case "responses":
            call = next(item for item in reply.output if item.type == "function_call")
            return [*reply.output, {"type": "function_call_output", "call_id": call.call_id, "output": result}]
        case "chat":
            message = reply.choices[0].message
            return [message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": result}]


def check_record(client: Any, server: WireServer, wire: WireName) -> None:
    """The model got a folded list twice, both replies are in the log with their usage, and nothing was taken back."""
    field = "input" if wire == "responses" else "messages"
    (conversation,) = client.conversations.all()
    sizes = [len(json.dumps(body[field])) for _, body in server.requests]
    assert len(sizes) == 2
    assert all(2 * size < len(json.dumps(tool_loop(wire, 14))) for size in sizes)
    bodies = [event.body for event in conversation.session.log.events()]
    observed = [body for body in bodies if isinstance(body, ModelReplied) and body.message]
    assert [(body.usage.prompt, body.usage.output) for body in observed] == [(20, 7), (20, 7)]
    assert [body for body in bodies if isinstance(body, Failed | Rewound)] == []
    assert {edit.by for edit in conversation.audit()} == {"fold"}


@pytest.mark.parametrize("wire", WIRES)
def test_a_loop_over_a_followed_client_sends_a_folded_list_and_its_replies_are_recorded(wire: WireName, server: WireServer) -> None:
    client, messages = sync_client(wire, server.url), tool_loop(wire, 14)
    messages += added(wire, create(client, wire, messages))
    create(client, wire, messages)
    check_record(client, server, wire)


@pytest.mark.parametrize("wire", WIRES)
def test_an_async_client_does_the_same(wire: WireName, server: WireServer) -> None:
    client, messages = async_client(wire, server.url), tool_loop(wire, 14)

    async def loop() -> None:
        messages.extend(added(wire, await create(client, wire, messages)))
        await create(client, wire, messages)
        await client.close()

    asyncio.run(loop())
    check_record(client, server, wire)


ARGUMENTS = {"file_path": "src/part_99.py"}
# What a loop that put the streamed reply together by itself appends to its list.
REREAD: dict[WireName, list[Any]] = {
    "anthropic": [
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "Reading."}, {"type": "tool_use", "id": "call_0_0", "name": "Read", "input": ARGUMENTS}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_0_0", "content": "x = 1"}]},
    ],
    "chat": [
        {
            "role": "assistant",
            "content": "Reading.",
            "tool_calls": [{"id": "call_0_0", "type": "function", "function": {"name": "Read", "arguments": READ[1]}}],
        },
        {"role": "tool", "tool_call_id": "call_0_0", "content": "x = 1"},
    ],
    "responses": [
        {"role": "assistant", "content": "Reading."},
        {"type": "function_call", "call_id": "call_0_0", "name": "Read", "arguments": READ[1]},
        {"type": "function_call_output", "call_id": "call_0_0", "output": "x = 1"},
    ],
}


@pytest.mark.parametrize("wire", WIRES)
def test_a_streamed_reply_is_passed_on_event_by_event_and_is_recorded(wire: WireName, server: WireServer) -> None:
    client, messages = sync_client(wire, server.url), tool_loop(wire, 14)
    options = {"stream": True} | ({"stream_options": {"include_usage": True}} if wire == "chat" else {})
    events = list(create(client, wire, messages, **options))
    assert len(events) > 5
    messages += REREAD[wire]
    for _ in create(client, wire, messages, **options):
        pass
    check_record(client, server, wire)


def test_the_stream_helper_of_the_anthropic_sdk_is_followed_too(server: WireServer) -> None:
    client, messages = sync_client("anthropic", server.url), tool_loop("anthropic", 14)
    for _ in range(2):
        with client.messages.stream(model="claude-sonnet-4-6", max_tokens=100, messages=messages) as stream:
            assert "".join(stream.text_stream) in ("Reading.", "Done.")
            reply = stream.get_final_message()
        if reply.stop_reason == "tool_use":
            messages += added("anthropic", reply)
    check_record(client, server, "anthropic")


@pytest.mark.states("MI-21")
def test_lists_of_one_client_with_other_beginnings_are_kept_apart(server: WireServer) -> None:
    client = sync_client("anthropic", server.url)
    lists = [tool_loop("anthropic", 1), [{"role": "user", "content": "Give this a title."}]]
    for messages in lists:
        create(client, "anthropic", messages)
    create(client, "anthropic", [*lists[0], {"role": "user", "content": "Go on."}])
    conversations: tuple[Conversation, ...] = client.conversations.all()
    assert [len(conversation.session.log.view.items) for conversation in conversations] == [2, 6]
    client.conversations.close()
    assert client.conversations.all() == ()


def test_what_has_no_list_is_sent_as_it_is_and_all_else_is_the_clients_own(server: WireServer) -> None:
    client = sync_client("responses", server.url)
    create(client, "responses", "Hello")  # type: ignore[arg-type]  # a text is allowed
    client.responses.create(model="gpt-5", input=[{"role": "user", "content": "Hi"}], previous_response_id="resp_0")
    assert [body["input"] for _, body in server.requests] == ["Hello", [{"role": "user", "content": "Hi"}]]
    assert client.conversations.all() == ()
    assert client.api_key == "k"
    assert client.responses.with_raw_response is not None


def test_the_lines_of_the_readme_run_as_they_stand_there(server: WireServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, url in (("ANTHROPIC", server.url), ("OPENAI", f"{server.url}/v1")):
        monkeypatch.setenv(f"{name}_API_KEY", "k")
        monkeypatch.setenv(f"{name}_BASE_URL", url)
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    lines = readme.partition("```py\n")[2].partition("```")[0]
    names = {"anthropic": anthropic, "openai": openai, "messages": [{"role": "user", "content": "Hello"}]}
    exec(lines, names)  # noqa: S102 - the lines of our own page
    assert [path for path, _ in server.requests] == ["/v1/messages", "/v1/responses"]


@pytest.mark.states("PV-21")
@pytest.mark.states("PV-23")
def test_a_request_that_goes_on_from_what_the_provider_holds_is_sent_as_it_is_and_is_no_conversation(server: WireServer) -> None:
    said = [{"role": "user", "content": "go on"}]
    held: list[tuple[WireName, dict[str, Any]]] = [
        ("anthropic", {"extra_body": {"thread": {"type": "continue", "previous_message_id": "msg_1"}}}),
        ("responses", {"previous_response_id": "resp_1"}),
        ("responses", {"conversation": "conv_1"}),
    ]
    for wire, more in held:
        client = sync_client(wire, server.url)
        create(client, wire, said, **more)
        assert (client.conversations.all(), server.requests[-1][1]["input" if wire == "responses" else "messages"]) == ((), said)
