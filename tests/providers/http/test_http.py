import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from palimpsest.core.deltas import Delta, TextDelta, deltas_of
from palimpsest.core.errors import BadInput, PromptTooLong, ProviderError, WireError
from palimpsest.core.events import ModelReplied
from palimpsest.core.ports import Provider
from palimpsest.providers.http import HttpProvider
from palimpsest.wire.models import WireName, card
from palimpsest.wire.stream import decode_response, decoder

STREAMS = Path(__file__).parents[2] / "golden" / "streams"
SONNET = card("claude-sonnet-4-5")
GPT = card("gpt-5.5")
QWEN = card("openai-compatible/qwen3-coder")

Serve: TypeAlias = Callable[..., tuple[str, list[tuple[str, dict[str, str], bytes]]]]


@dataclass(frozen=True)
class Letter:
    wire: str
    body: bytes = b'{"stream":true}'
    betas: tuple[str, ...] = ()


def ask(provider: Provider, letter: Letter) -> list[Delta | ModelReplied]:
    async def collect() -> list[Delta | ModelReplied]:
        return [each async for each in provider.stream(letter)]

    return asyncio.run(collect())


@dataclass(frozen=True)
class Case:
    name: str
    wire: WireName
    base: str
    path: str
    auth: tuple[str, str]
    pieces: tuple[str, ...]


CASES = [
    Case("claude-sonnet-4-5", "anthropic", "", "/v1/messages", ("x-api-key", "k-1"), ("I read ", "the file – 读取。")),
    Case("gpt-5.5", "responses", "/v1", "/v1/responses", ("authorization", "Bearer k-1"), ("I patch ", "it – 修补。")),
    Case(
        "openai-compatible/qwen3-coder",
        "chat",
        "/v1/",
        "/v1/chat/completions",
        ("authorization", "Bearer k-1"),
        ("Reading ", "both – 两个。"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.wire)
def test_a_request_is_sent_to_the_path_of_its_wire_and_its_stream_is_decoded(case: Case, serve: Serve) -> None:
    stream = (STREAMS / f"{case.wire}.sse").read_bytes()
    url, seen = serve(stream)
    decoding = decoder(case.wire, card(case.name))
    deltas = decoding.feed(stream)
    got = ask(HttpProvider(card(case.name), url + case.base, "k-1"), Letter(case.wire))
    assert got == [*deltas, decoding.finish()]
    assert tuple(each.text for each in got if isinstance(each, TextDelta)) == case.pieces
    ((path, headers, body),) = seen
    assert (path, body, headers[case.auth[0]]) == (case.path, b'{"stream":true}', case.auth[1])
    assert headers.get("anthropic-version") == ("2023-06-01" if case.wire == "anthropic" else None)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.wire)
def test_a_complete_response_is_returned_as_deltas_and_reply(case: Case, serve: Serve) -> None:
    body = (STREAMS / f"{case.wire}.json").read_bytes()
    url, _ = serve(body, kind="application/json")
    reply = decode_response(case.wire, body, card(case.name))
    assert ask(HttpProvider(card(case.name), url + case.base, "k-1"), Letter(case.wire)) == [*deltas_of(reply.parts), reply]


def test_connections_are_kept_while_it_is_open(serve: Serve) -> None:
    url, seen = serve((STREAMS / "chat.sse").read_bytes())

    async def twice() -> int:
        async with HttpProvider(QWEN, url) as provider:
            for _ in range(2):
                async for _piece in provider.stream(Letter("chat")):
                    pass
        return len(seen)

    assert asyncio.run(twice()) == 2
    assert "authorization" not in seen[0][1]


def test_keys_and_addresses_come_from_the_environment_under_their_usual_names(serve: Serve) -> None:
    url, seen = serve((STREAMS / "anthropic.sse").read_bytes())
    ask(HttpProvider(SONNET, environment={"ANTHROPIC_API_KEY": "k-2", "ANTHROPIC_BASE_URL": url + "/"}), Letter("anthropic"))
    url, also = serve((STREAMS / "responses.sse").read_bytes())
    ask(HttpProvider(GPT, environment={"OPENAI_API_KEY": "k-3", "OPENAI_BASE_URL": f"{url}/v1"}), Letter("responses"))
    assert (seen[0][0], seen[0][1]["x-api-key"]) == ("/v1/messages", "k-2")
    assert (also[0][0], also[0][1]["authorization"]) == ("/v1/responses", "Bearer k-3")


def test_a_key_that_is_not_set_is_named() -> None:
    with pytest.raises(BadInput, match=r"^claude-sonnet-4-5: ANTHROPIC_API_KEY is not set"):
        HttpProvider(SONNET, environment={})
    with pytest.raises(BadInput, match=r"^gpt-5\.5: OPENAI_API_KEY is not set"):
        HttpProvider(GPT, environment={})


@pytest.mark.states("PV-56")
def test_only_the_address_of_the_maker_of_the_model_is_direct() -> None:
    for name, address, direct in (
        ("claude-opus-5-5", "", True),
        ("claude-opus-5-5", "https://api.anthropic.com/v1/", True),
        ("claude-opus-5-5", "https://api.anthropic.com.example.org", False),
        ("claude-opus-5-5", "http://127.0.0.1:4000", False),
        ("gpt-6-sol", "", True),
        ("gpt-6-sol", "https://gateway.example.org/v1", False),
        ("openai-compatible/qwen", "https://api.openai.com/v1", False),
    ):
        assert (name, address, HttpProvider(card(name), address, "k", environment={}).is_direct) == (name, address, direct)


def test_a_local_model_takes_nothing_from_the_environment() -> None:
    with pytest.raises(BadInput, match="a local model needs the address of its server"):
        HttpProvider(card("local/x"), environment={"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://127.0.0.1:1"})


def test_an_address_without_a_scheme_and_an_unknown_wire_are_refused() -> None:
    with pytest.raises(BadInput, match="does not begin with http"):
        HttpProvider(QWEN, "localhost:80")
    with pytest.raises(BadInput, match="no wire is called 'soap'"):
        ask(HttpProvider(QWEN, "http://127.0.0.1:1"), Letter("soap"))


def test_a_refusal_is_one_line_that_never_shows_the_key(serve: Serve) -> None:
    body = b'{"error":{"type":"authentication_error","message":"the key sk-secret-1 is not known"}}'
    url, _ = serve(body, status=401, kind="application/json")
    with pytest.raises(ProviderError) as caught:
        ask(HttpProvider(SONNET, url, "sk-secret-1"), Letter("anthropic"))
    assert (str(caught.value), caught.value.status) == (
        "anthropic: HTTP 401: authentication_error: the key *** is not known",
        401,
    )


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [({"retry-after": "7"}, 7.0), ({"Retry-After-Ms": "1500"}, 1.5), ({"x-ratelimit-reset-tokens": "6m0s"}, 360.0), ({}, None)],
)
def test_a_provider_that_asks_to_wait_says_for_how_long(headers: dict[str, str], seconds: float | None, serve: Serve) -> None:
    url, _ = serve(b'{"error":{"message":"slow down"}}', status=429, kind="application/json", more=headers)
    with pytest.raises(ProviderError) as caught:
        ask(HttpProvider(QWEN, url), Letter("chat"))
    assert (caught.value.status, caught.value.retry_after) == (429, seconds)


def test_a_wait_until_a_date_is_counted_from_the_servers_own_clock(serve: Serve) -> None:
    url, _ = serve(b"{}", status=503, kind="application/json", more={"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"})
    with pytest.raises(ProviderError) as caught:
        ask(HttpProvider(QWEN, url), Letter("chat"))
    assert caught.value.retry_after is not None
    assert caught.value.retry_after > 1e9


def test_a_prompt_that_is_too_long_has_its_own_error(serve: Serve) -> None:
    body = b'{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 200007 tokens > 200000 maximum"}}'
    url, _ = serve(body, status=400, kind="application/json")
    with pytest.raises(PromptTooLong) as caught:
        ask(HttpProvider(SONNET, url, "k"), Letter("anthropic"))
    assert caught.value.gap == 7


def test_a_stream_that_is_cut_says_so(serve: Serve) -> None:
    url, _ = serve((STREAMS / "anthropic.sse").read_bytes()[:1500])
    with pytest.raises(WireError, match="the stream ended before the reply was whole"):
        ask(HttpProvider(SONNET, url, "k"), Letter("anthropic"))


def test_a_connection_that_breaks_within_the_stream_is_the_providers_fault(serve: Serve) -> None:
    stream = (STREAMS / "anthropic.sse").read_bytes()
    url, _ = serve(stream[:1500], more={"content-length": str(len(stream))})
    with pytest.raises(ProviderError, match=r"^anthropic: http://127.0.0.1:\d+ cannot be reached: "):
        ask(HttpProvider(SONNET, url, "k"), Letter("anthropic"))


def test_an_unreachable_address_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ProviderError, match=f"^openai-compatible: {url} cannot be reached: "):
            ask(HttpProvider(QWEN, url), Letter("chat"))


def test_a_server_that_never_answers_runs_into_the_time_limit() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ProviderError, match=f"^openai-compatible: {url} did not answer in time"):
            ask(HttpProvider(QWEN, url, timeout=0.1), Letter("chat"))


@pytest.mark.states("PV-48")
def test_a_maker_is_reached_at_its_own_address_with_its_own_key_and_one_without_an_address_is_refused() -> None:
    HttpProvider(card("grok-4.7"), environment={"XAI_API_KEY": "k"})
    with pytest.raises(BadInput, match="XAI_API_KEY is not set"):
        HttpProvider(card("grok-4.7"), environment={"OPENAI_API_KEY": "k"})
    with pytest.raises(BadInput, match=r"no address is known for google; set providers\.google\.base_url"):
        HttpProvider(card("gemini-4-argon"), environment={"OPENAI_API_KEY": "k"})


@pytest.mark.states("PV-60", "PV-61")
def test_version_and_betas_are_headers_that_a_user_may_set_in_any_spelling(serve: Serve) -> None:
    wanted = ("context-management-2025-06-27", "thinking-binding-controls-2026-08-01")
    needed = ",".join(wanted)
    for own, version, betas in (
        ({}, "2023-06-01", needed),
        ({"Anthropic-Version": "2026-10-21", "Anthropic-Beta": "mine, context-management-2025-06-27"}, "2026-10-21", f"mine,{needed}"),
    ):
        url, seen = serve((STREAMS / "anthropic.sse").read_bytes())
        ask(HttpProvider(SONNET, url, "k", headers=own), Letter("anthropic", betas=wanted))
        assert (seen[0][1]["anthropic-version"], seen[0][1]["anthropic-beta"]) == (version, betas)
