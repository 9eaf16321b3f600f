"""One scripted conversation through all three wires, over our transport and over the official clients: one log but for ids and times."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from every_case import every_case
from loops import tool
from msgspec import structs
from wire_server import Said, wire_server

from palimpsest.agent.agent import Agent
from palimpsest.agent.session import Environment
from palimpsest.core.errors import BadInput, ConnectionLost, PalimpsestError, PromptTooLong, ProviderError, StreamCut
from palimpsest.core.ports import Provider
from palimpsest.providers.clients import ClientProvider
from palimpsest.providers.http import HttpProvider
from palimpsest.providers.retrying import NO_RETRIES
from palimpsest.testing.strict.provider import StrictProvider
from palimpsest.wire.encode import past_request
from palimpsest.wire.models import ModelCard, WireName, card

anthropic = pytest.importorskip("anthropic", reason="the official client comes with the extra `sdk`")
openai = pytest.importorskip("openai", reason="the official client comes with the extra `sdk`")

WIRES: list[WireName] = ["anthropic", "responses", "chat"]
CARDS: dict[WireName, ModelCard] = {
    "anthropic": card("claude-sonnet-4-6"),
    "responses": card("gpt-5.5"),
    "chat": card("openai-compatible/qwen3-coder"),
}
CONVERSATION = (
    Said("I look at both files.", (("read", '{"path":"a.py"}'), ("read", '{"path":"b.py"}'))),
    Said("", (("read", '{"path":"c.py"}'),)),
    Said("All three are short.\n一共三个文件。"),
)
KEY = "sk-secret-key-of-the-user"


async def read(args: str) -> str:
    return f"the text of {json.loads(args)['path']}"


def over_http(wire: WireName, url: str) -> Provider:
    return HttpProvider(CARDS[wire], url if wire == "anthropic" else f"{url}/v1", KEY, timeout=20)


def over_client(wire: WireName, url: str) -> Provider:
    if wire == "anthropic":
        return ClientProvider(anthropic.AsyncAnthropic(api_key=KEY, base_url=url), CARDS[wire])
    return ClientProvider(openai.AsyncOpenAI(api_key=KEY, base_url=f"{url}/v1"), CARDS[wire])


def conversation(provider_of: Callable[[WireName, str], Provider], wire: WireName) -> list[Any]:
    """The log of the scripted conversation without ids, times, and what names the model."""
    with wire_server(*CONVERSATION) as server:

        async def talk() -> list[Any]:
            provider = provider_of(wire, server.url)
            async with Agent(CARDS[wire], tools=(tool("read", read, parallel=True),), provider=provider, profile="none") as agent:
                await agent.ask("What is in the files?")
                return [_comparable(event.body) for event in agent.session.log.events()]

        return asyncio.run(talk())


def _comparable(body: Any) -> Any:
    """The body as plain JSON values; ids, digests, sizes and the words of the provider differ by wire."""
    plain = msgspec.json.decode(msgspec.json.encode(body))
    dropped = {
        "session",
        "cwd",
        "model",
        "wire",
        "params",
        "tools",
        "digest",
        "size",
        "estimate",
        "marks",
        "message",
        "took_ms",
        "ref",
        "provider_stop",
    }

    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: clean(each) for key, each in value.items() if key not in dropped}
        return [clean(each) for each in value] if isinstance(value, list) else value

    return clean(plain)


def test_the_same_conversation_gives_the_same_log_over_every_wire_and_client() -> None:
    logs = {(name, wire): conversation(of, wire) for name, of in (("http", over_http), ("client", over_client)) for wire in WIRES}
    expected = logs["http", "anthropic"]
    assert [body["type"] for body in expected] == [
        *("session_opened", "tools_offered", "user_typed", "turn_started", "user_said", "call_started", "model_replied"),
        *("permitted", "permitted", "tool_started", "tool_started", "tool_returned", "tool_returned"),
        *("call_started", "model_replied", "permitted", "tool_started", "tool_returned"),
        *("call_started", "model_replied", "turn_ended"),
    ]
    assert expected[-2]["parts"][0]["text"] == "All three are short.\n一共三个文件。"
    for name, log in logs.items():
        assert log == expected, name


@pytest.mark.parametrize("wire", WIRES)
def test_a_client_sends_the_value_that_our_transport_sends(wire: WireName) -> None:
    def sent(provider_of: Callable[[WireName, str], Provider]) -> list[tuple[str, Any]]:
        with wire_server(Said("ok")) as server:

            async def ask() -> None:
                async with Agent(CARDS[wire], provider=provider_of(wire, server.url), profile="none") as agent:
                    await agent.ask("hello")

            asyncio.run(ask())
            return [(path, {**body, "prompt_cache_key": "", "metadata": ""}) for path, body in server.requests]

    assert sent(over_client) == sent(over_http)


@every_case("wire", WIRES)
@every_case(
    ("answer", "kind", "said"),
    [
        (Said(status=429, message=f"slow down {KEY}", headers=(("retry-after", "7"),)), ProviderError, "HTTP 429"),
        (Said(status=529, message="overloaded"), ProviderError, "HTTP 529"),
        (Said(status=400, message="prompt is too long: 210000 tokens > 200000 maximum"), PromptTooLong, "too long"),
        (Said("cut in the middle of this", cut_after=3), StreamCut, "ended"),
    ],
)
def test_errors_of_a_client_are_ours_and_hold_no_key(wire: WireName, answer: Said, kind: type[PalimpsestError], said: str) -> None:
    with wire_server(answer) as server:

        async def fail() -> tuple[PalimpsestError, bytes]:
            async with Agent(CARDS[wire], provider=over_client(wire, server.url), profile="none") as agent:
                agent.session.environment = without_retries(agent)
                with pytest.raises(kind, match=said) as raised:
                    await agent.ask("hello")
                log = b"".join(msgspec.json.encode(event) for event in agent.session.log.events())
                return raised.value, log

        error, log = asyncio.run(fail())
    assert KEY not in str(error)
    assert KEY.encode() not in log
    assert getattr(error, "retry_after", None) == (7.0 if answer.status == 429 else None)


def without_retries(agent: Agent) -> Environment:
    """The environment of an agent that does not wait and ask again."""
    return replace(agent.session.environment, retries=NO_RETRIES)


def test_a_server_that_is_not_there_is_a_lost_connection() -> None:
    async def fail() -> None:
        async with Agent(CARDS["chat"], provider=over_client("chat", "http://127.0.0.1:9"), profile="none") as agent:
            agent.session.environment = without_retries(agent)
            with pytest.raises(ConnectionLost, match="cannot be reached"):
                await agent.ask("hello")

    asyncio.run(fail())


def test_a_client_of_another_maker_is_refused_at_once() -> None:
    with pytest.raises(BadInput, match="the client AsyncOpenAI has no messages, which the wire anthropic needs"):
        ClientProvider(openai.AsyncOpenAI(api_key=KEY), CARDS["anthropic"])


@pytest.mark.states("PV-60")
@pytest.mark.parametrize("over", ["http", "client"])
def test_an_agent_asks_as_the_version_of_its_provider_wants_it_and_its_requests_can_be_shown_again(over: str) -> None:
    model, version = card("claude-opus-4-6"), {"anthropic-version": "2026-10-21"}
    with StrictProvider() as double:
        client = anthropic.AsyncAnthropic(api_key=KEY, base_url=double.url, default_headers=version)
        provider = HttpProvider(model, double.url, KEY, headers=version) if over == "http" else ClientProvider(client, model)

        async def talk() -> list[bool]:
            async with Agent(model, provider=provider, profile="none") as agent:
                agent.session.params = structs.replace(agent.session.params, temperature=0.5)
                await agent.ask("Hello.")
                await agent.ask("Once more.")
                session = agent.session
                return [past_request(session.log, number, session.environment.blobs.get).verified for number in (1, 2)]

        assert asyncio.run(talk()) == [True, True]
        assert {body["anthropic-version"] for body in (record.request.headers for record in double.records)} == {"2026-10-21"}
    assert double.counts.refused == {}
    assert not any("temperature" in body for body in double.bodies)
