import asyncio
import gc
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from provider_server import Provider, Reply, Sent, messages_stream, provider
from running_gateway import RunningGateway, gateway_running

from pal.gateway.gateway import CacheKeeper, SentCall, is_billed_by_token, reading_request
from pal.gateway.hosting import ConversationHost
from pal.gateway.routing import ConversationName
from pal.gateway.workers import OpenConversations
from palimpsest.core.errors import StoreError
from palimpsest.core.events import CallStarted, ModelReplied
from palimpsest.stores.home import FolderHome, Home
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.models import PriceBook, card, simulated_cost

KEY = {"x-api-key": "k", "x-claude-code-session-id": "one"}
MARK = {"cache_control": {"type": "ephemeral"}}


class Afternoon:
    """Minutes that pass at once after the last request: two pauses move the clock, and then `over` is set."""

    def __init__(self) -> None:
        self.clock = FixedClock(1_932_800_400_000)
        self.left = 2
        self.over = threading.Event()
        self.sent: list[Sent] = []

    async def pause(self, seconds: float) -> None:
        if len(self.sent) < 24 or self.left == 0:
            if self.left == 0:
                self.over.set()
            await asyncio.Event().wait()
        self.left -= 1
        self.clock.time += round(seconds * 1_000)


def ask(url: str, messages: list[Any], headers: dict[str, str]) -> None:
    blocks = [{"type": "text", "text": "An agent. " * 400, **MARK}]
    last = {**messages[-1], "content": [{"type": "text", "text": messages[-1]["content"], **MARK}]}
    body = {"model": "claude-sonnet-4-6", "max_tokens": 100, "stream": True, "system": blocks, "messages": [*messages[:-1], last]}
    httpx.post(f"{url}/v1/messages", json=body, headers=headers, trust_env=False)


class Gate(threading.Event):
    """A gate of which it is known when something waits at it."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.reached.set()
        return super().wait(timeout)


READ = {"input_tokens": 0, "cache_read_input_tokens": 30_000, "cache_creation_input_tokens": 0, "output_tokens": 1}


def read_reply(*before: threading.Event, usage: dict[str, int] = READ) -> Reply:
    message = {"id": "r", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": "max_tokens", "usage": usage}
    return Reply((*before, json.dumps(message).encode()), "application/json")


def conversation(tmp_path: Path, headers: dict[str, str], *, keeps_alive: bool, waits: bool) -> tuple[Provider, FolderHome, RunningGateway]:
    """Twenty-four requests at once, and then eight minutes without one."""
    afternoon = Afternoon()
    home = FolderHome(tmp_path, afternoon.clock)
    replies = [Reply(messages_stream(number, "Yes.", tokens=30_000 + 20 * number, cached=29_900 + 20 * number)) for number in range(24)]
    options = {"keeps_alive": keeps_alive, "pause": afternoon.pause}
    with provider(*replies, read_reply()) as model, gateway_running(home, "lossless", model.url, **options) as gateway:
        afternoon.sent = model.sent
        messages = [{"role": "user", "content": "Is it done?"}]
        for number in range(24):
            ask(gateway.url, messages, headers)
            messages += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": f"And part {number}?"}]
        assert not waits or afternoon.over.wait(20)
    return model, home, gateway


@pytest.mark.states("MI-22")
def test_a_read_is_sent_before_the_cache_expires_and_is_billed_and_never_again_once_the_client_is_gone(tmp_path: Path) -> None:
    model, home, gateway = conversation(tmp_path, KEY, keeps_alive=True, waits=True)
    reads = [json.loads(each.body) for each in model.sent[24:]]
    with home.open(home.store.sessions()[0], write=False) as log:
        kept = [event.body for event in log.events() if isinstance(event.body, ModelReplied) and event.body.purpose == "job:keep_alive"]
    assert (len(reads), len(kept)) == (1, 1)
    assert {(read["max_tokens"], read["stream"]) for read in reads} == {(1, False)}
    assert reads[0]["messages"] == json.loads(model.sent[23].body)["messages"]
    assert {body.usage.cache_read for body in kept} == {30_000}
    # The line at the end has what all calls of the log cost together, and directly there would have been no read.
    assert gateway.total is not None
    assert gateway.total.usd == pytest.approx(PriceBook().ledger_usd(log.ledger))
    assert gateway.total.usd_without == pytest.approx(gateway.reports[-1].usd_without)


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.states("MI-22")
def test_a_read_that_is_on_its_way_when_the_user_goes_on_is_billed(tmp_path: Path, *, is_told: bool) -> None:
    afternoon, gate = Afternoon(), Gate()
    afternoon.left = 1
    home = FolderHome(tmp_path, afternoon.clock)
    replies = [Reply(messages_stream(number, "Yes.", tokens=30_000 + 20 * number, cached=29_900 + 20 * number)) for number in range(25)]
    options = {"keeps_alive": True, "pause": afternoon.pause}
    with (
        provider(*replies[:24], read_reply(gate, usage=READ if is_told else {}), replies[24]) as model,
        gateway_running(home, "lossless", model.url, **options) as gateway,
    ):
        afternoon.sent = model.sent
        messages = [{"role": "user", "content": "Is it done?"}]
        for number in range(24):
            ask(gateway.url, messages, KEY)
            messages += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": f"And part {number}?"}]
        assert gate.reached.wait(20)
        ask(gateway.url, messages, KEY)
        gate.set()
    with home.open(home.store.sessions()[0], write=False) as log:
        found = [event.body for event in log.events() if getattr(event.body, "purpose", "") == "job:keep_alive"]
        known = [event.body.usage for event in log.events() if isinstance(event.body, ModelReplied)]
    assert [(type(body), body.usage.cache_read if isinstance(body, ModelReplied) else 0) for body in found] == [
        (CallStarted, 0),
        (ModelReplied, 30_000 if is_told else 0),
    ]
    # What it cost takes nothing off the bill where it is not told.
    assert gateway.total is not None
    assert gateway.total.usd == pytest.approx(sum(simulated_cost(usage, card("claude-sonnet-4-6")).total for usage in known))
    assert gateway.total.unpriced == (0 if is_told else 1)


@pytest.mark.parametrize("reason", ["not opted in", "a subscription", "a sub-agent"])
@pytest.mark.states("MI-22")
def test_nothing_is_sent_without_the_user_having_asked_for_it_and_a_key_that_is_billed_by_the_token(tmp_path: Path, reason: str) -> None:
    headers = {
        "not opted in": KEY,
        "a subscription": {"authorization": "Bearer t", "x-claude-code-session-id": "one"},
        "a sub-agent": KEY | {"x-claude-code-agent-id": "a1"},
    }[reason]
    model, _, _ = conversation(tmp_path, headers, keeps_alive=reason != "not opted in", waits=False)
    assert len(model.sent) == 24


def test_a_request_whose_cache_depends_on_its_limits_is_not_read_again() -> None:
    assert reading_request(b'{"max_tokens":9000,"thinking":{"type":"enabled","budget_tokens":8000},"messages":[]}') is None
    assert reading_request(b'{"max_tokens":9000,"thinking":{"type":"adaptive"},"messages":[]}') == (
        b'{"max_tokens":1,"thinking":{"type":"adaptive"},"messages":[],"stream":false}'
    )
    assert reading_request(b"[]") is None
    assert [is_billed_by_token(headers) for headers in ([(b"x-api-key", b"k")], [(b"X-Api-Key", b"k"), (b"Authorization", b"t")], [])] == [
        True,
        False,
        False,
    ]


class _DeadWorkers:
    """Workers whose processes die."""

    async def run(self, place: int, work: Callable[[ConversationHost], Any]) -> Any:
        raise StoreError("a process of the gateway ended (exit code -9)", where="pal gateway")

    async def close(self) -> None:
        return


def test_a_cache_whose_conversation_has_lost_its_process_is_not_kept_and_nothing_is_printed_about_it(tmp_path: Path) -> None:
    printed: list[dict[str, Any]] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: printed.append(context))
        conversations = OpenConversations(_DeadWorkers(), Home.at(tmp_path).store)
        async with httpx.AsyncClient() as client:
            keeper = CacheKeeper(conversations, client)
            lane = await conversations.lane(ConversationName("s"))
            keeper.ended(lane, SentCall("http://127.0.0.1:9", [(b"x-api-key", b"k")], b'{"messages":[]}'))
            await asyncio.wait([task for task in asyncio.all_tasks() if task is not asyncio.current_task()])
        gc.collect()

    asyncio.run(run())
    assert printed == []
