import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from itertools import chain, repeat

import pytest
from loopback import serving

from palimpsest.agent.agent import Agent
from palimpsest.core.deltas import Delta
from palimpsest.core.errors import ProviderError, ReplyTooLong
from palimpsest.core.events import Interrupted, ModelReplied
from palimpsest.core.items import text_of
from palimpsest.core.ports import Provider
from palimpsest.core.verify import verify
from palimpsest.providers.clients import ClientProvider
from palimpsest.providers.http import HttpProvider, ReplyLimits
from palimpsest.providers.retrying import is_transient
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.home import Home
from palimpsest.wire.models import ModelCard, card

SONNET, GPT, QWEN = card("claude-sonnet-4-5"), card("gpt-5.5"), card("openai-compatible/qwen3-coder")


@dataclass(frozen=True)
class Letter:
    wire: str
    body: bytes = b'{"model":"m","max_tokens":9,"messages":[],"stream":true}'


@contextmanager
def endless(first: bytes, again: bytes, *, kind: str = "text/event-stream", status: int = 200, pause: float = 0.0) -> Iterator[str]:
    """The address of a server whose answer never ends: `first`, then `again` until the connection is closed."""
    done = threading.Event()

    class Endless(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", "0")))
            self.send_response(status)
            self.send_header("content-type", kind)
            self.end_headers()
            try:
                for piece in chain([first], repeat(again)):
                    self.wfile.write(piece)
                    if done.wait(pause) if pause else done.is_set():
                        return
            except OSError:
                return

        def log_message(self, *_: object) -> None:
            return

    try:
        with serving(Endless) as url:
            yield url
    finally:
        done.set()


def sent(**event: object) -> bytes:
    return f"data: {json.dumps(event)}\n\n".encode()


START = sent(type="message_start", message={"id": "m", "role": "assistant", "model": "m", "content": [], "usage": {"input_tokens": 1}})
BLOCK = sent(type="content_block_start", index=0, content_block={"type": "text", "text": ""})


def said(words: str) -> bytes:
    return sent(type="content_block_delta", index=0, delta={"type": "text_delta", "text": words})


def ask(provider: Provider, wire: str) -> tuple[int, ProviderError]:
    """The number of pieces that arrived, and the error that ended the call."""
    arrived: list[Delta | ModelReplied] = []

    async def count() -> None:
        async for each in provider.stream(Letter(wire)):
            arrived.append(each)  # noqa: PERF401 - what arrived before the error counts

    with pytest.raises(ProviderError) as raised:
        asyncio.run(count())
    return len(arrived), raised.value


def over_http(url: str, limits: ReplyLimits) -> Provider:
    return HttpProvider(SONNET, url, "k", limits=limits, timeout=20.0, environment={})


def over_sdk(url: str, limits: ReplyLimits) -> Provider:
    anthropic = pytest.importorskip("anthropic", reason="the official client comes with the extra `sdk`")
    return ClientProvider(anthropic.AsyncAnthropic(api_key="k", base_url=url), SONNET, limits=limits)


PROVIDERS = pytest.mark.parametrize("provider", [over_http, over_sdk])
Provide = Callable[[str, ReplyLimits], Provider]


@PROVIDERS
def test_tiny_deltas_without_end_stop_at_the_limit_of_events(provider: Provide) -> None:
    with endless(START + BLOCK, said("x")) as url:
        arrived, error = ask(provider(url, ReplyLimits(events=500)), "anthropic")
    assert arrived >= 490
    assert (error.kind, error.message, error.where) == (
        "reply_too_long",
        "the reply was stopped because it did not end: more than 500 events arrived; ask again, or raise reply_events",
        "anthropic",
    )


@PROVIDERS
def test_huge_deltas_without_end_stop_at_the_limit_of_bytes(provider: Provide) -> None:
    with endless(START + BLOCK, said("x" * 50_000)) as url:
        arrived, error = ask(provider(url, ReplyLimits(bytes=2_000_000)), "anthropic")
    assert 30 <= arrived <= 40
    assert error.message == "the reply was stopped because it did not end: more than 2 MB arrived; ask again, or raise reply_megabytes"


@PROVIDERS
def test_one_event_that_never_ends_stops_at_the_limit_of_bytes(provider: Provide) -> None:
    with endless(b"data: ", b"x" * 50_000) as url:
        assert ask(provider(url, ReplyLimits(bytes=2_000_000)), "anthropic")[0] == 0


@PROVIDERS
def test_a_slow_drip_that_is_never_silent_stops_at_the_limit_of_seconds(provider: Provide) -> None:
    with endless(b": wait\n", b":\n", pause=0.02) as url:
        arrived, error = ask(provider(url, ReplyLimits(seconds=0.2)), "anthropic")
    assert (arrived, error.message) == (
        0,
        "the reply was stopped because it did not end: it took more than 0.2 seconds; ask again, or raise reply_seconds",
    )


def test_a_body_that_is_not_streamed_and_never_ends_stops_too() -> None:
    with endless(b"{", b" " * 50_000, kind="application/json") as url:
        assert isinstance(ask(over_http(url, ReplyLimits(bytes=1_000_000)), "anthropic")[1], ReplyTooLong)


def test_the_page_of_an_error_is_read_in_part_only() -> None:
    with endless(b"overloaded ", b"." * 50_000, status=529) as url:
        _, error = ask(over_http(url, ReplyLimits()), "anthropic")
    assert (type(error), error.status) == (ProviderError, 529)


@pytest.mark.parametrize(("named", "wire"), [(GPT, "responses"), (QWEN, "chat")])
def test_the_other_wires_have_the_same_limits(named: ModelCard, wire: str) -> None:
    with endless(b"", sent(type="response.in_progress", object="chat.completion.chunk", choices=[])) as url:
        provider = HttpProvider(named, url, "k", limits=ReplyLimits(events=100), environment={})
        assert isinstance(ask(provider, wire)[1], ReplyTooLong)


def test_a_reply_without_end_is_not_asked_for_again() -> None:
    assert not is_transient(ReplyTooLong("it did not end"))


def test_after_an_endless_reply_the_session_verifies_and_goes_on() -> None:
    home = Home.in_memory()

    async def work(url: str) -> str:
        endless_model = over_http(url, ReplyLimits(events=50))
        async with Agent(SONNET, provider=endless_model, home=home) as agent:
            with pytest.raises(ReplyTooLong):
                await agent.ask("go")
        async with Agent(SONNET, provider=Scripted("Done."), home=home, resume=agent.id) as agent:
            assert (await agent.ask("go on")).text == "Done."
        return agent.id

    with endless(START + BLOCK, said("x")) as url:
        session = asyncio.run(work(url))
    with home.open(session, write=False) as log:
        (cut,) = [event.body for event in log.events() if isinstance(event.body, Interrupted)]
        # What had arrived is kept, with the reason.
        why = "the reply was stopped because it did not end: more than 50 events arrived; ask again, or raise reply_events"
        assert ({text_of(part).strip("x") for part in cut.parts}, cut.why) == ({""}, why)
    assert verify(home.store, session, home.blobs).findings == ()
