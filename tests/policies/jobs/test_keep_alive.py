"""Keep-alive of the prompt cache: when it pays, how often in a row, and what it sends."""

import asyncio
import json
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest
from job_stubs import MODEL, PlainJob, after_turns

from palimpsest.agent.agent import Agent
from palimpsest.core.calls import Health
from palimpsest.core.events import CallStarted, ModelReplied, Usage
from palimpsest.core.items import Text, ToolCall
from palimpsest.core.ledger import JobState
from palimpsest.core.plans import Ask, Cache, CacheAccount, CachedPrefix, JobSituation
from palimpsest.policies.jobs import KeepAlive
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.home import Home
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.models import card

TTL = 300_000
RICH = CacheAccount(1_000_000, 1_000_000, 1_200_000)


@pytest.fixture(scope="module")
def idle() -> JobSituation:
    """A session after one turn that has cost a million input tokens; its first message was cached at time 0 for five minutes."""
    job = PlainJob(lambda _: ())
    after_turns("go", jobs=(job,))
    found = job.situations[0]
    cache = Cache((CachedPrefix(found.view.items[0].id, 50_000, 0, TTL),))
    return replace(found, cache=cache, now=250_000, job=JobState(), card=card(MODEL), health=Health(), account=RICH)


def with_prefix(given: JobSituation, tokens: int, last: str = "") -> JobSituation:
    return replace(given, cache=Cache((CachedPrefix(last or given.cache.prefixes[0].last, tokens, 0, TTL),)))


@pytest.mark.parametrize(
    ("changes", "reads"),
    [
        pytest.param({}, True, id="shortly before the prefix expires"),
        pytest.param({"now": 20_000}, False, id="it lives until the next moment"),
        pytest.param({"now": TTL}, False, id="it has expired"),
        pytest.param({"job": JobState(repeats=1)}, True, id="the second in a row"),
        pytest.param({"job": JobState(repeats=2)}, False, id="the third in a row, for a user of whom nothing is known"),
        pytest.param({"job": JobState(repeats=2), "health": Health(turn=4)}, True, id="the third in a row while a tool runs"),
        pytest.param({"job": JobState(repeats=11), "health": Health(turn=4)}, False, id="never the twelfth"),
        pytest.param({"earlier": CacheAccount(ends=30)}, False, id="a user who leaves"),
        pytest.param(
            {"earlier": CacheAccount(waiting=(600_000,) * 30), "job": JobState(repeats=1)}, True, id="one who is back after ten minutes"
        ),
        pytest.param({"account": CacheAccount(90_000, 90_000, 99_000)}, False, id="more than a twentieth of the cost"),
        pytest.param({"account": CacheAccount(80_000, 90_000, 99_000)}, True, id="paid by what was saved"),
        pytest.param(
            {"account": CacheAccount(1_000_000, 900_000, 1_000_000), "lifetime": 3_600_000}, False, id="a write for an hour is not covered"
        ),
        pytest.param({"account": CacheAccount(1_000_000, 900_000, 1_100_000), "lifetime": 3_600_000}, True, id="both are covered"),
        pytest.param({"card": card("local/qwen3-0.6b")}, False, id="a model that costs nothing"),
        pytest.param({"card": card("gpt-5")}, False, id="a cache that promises no lifetime"),
    ],
)
def test_the_prefix_is_read_when_it_is_about_to_expire_and_that_pays(idle: JobSituation, changes: dict[str, Any], reads: bool) -> None:
    assert (KeepAlive().plan(replace(idle, **changes)) is not None) is reads


def test_a_small_prefix_and_one_that_the_view_no_longer_has_are_not_read(idle: JobSituation) -> None:
    assert KeepAlive().plan(with_prefix(idle, 7_999)) is None
    assert KeepAlive().plan(with_prefix(idle, 50_000, "77.0")) is None
    assert KeepAlive().plan(with_prefix(idle, 50_000, "head:0")) is None


def test_only_what_is_cached_is_sent(idle: JobSituation) -> None:
    plan = KeepAlive().plan(idle)
    assert isinstance(plan, Generator)
    want = next(plan)
    assert isinstance(want, Ask)
    assert want.items == idle.view.items[:1] != idle.view.items


@pytest.mark.states("PA-28")
def test_reads_have_the_cached_bytes_of_the_turn_and_stop_after_their_number() -> None:
    clock = FixedClock(1_000_000, 0)
    wrote = ModelReplied((Text("done", "assistant"),), usage=Usage(cache_write=50_000, output=50_000), model=MODEL)
    read = ModelReplied((Text("ok", "assistant"),), usage=Usage(cache_read=50_000, output=1), model=MODEL)
    provider, home = Scripted(wrote, *[read] * 9), Home.in_memory(clock)

    async def run() -> str:
        awake = asyncio.Event()
        job = KeepAlive()
        async with Agent(MODEL, provider=provider, jobs=(job,), home=home, profile="none") as agent:
            moments: list[float] = []

            async def sleep(seconds: float) -> None:
                await agent.jobs.wait()
                moments.append(seconds)
                clock.time += int(seconds * 1_000)
                if len(moments) == 8:
                    awake.set()
                    await asyncio.Event().wait()

            agent.session.environment = replace(agent.session.environment, sleep=sleep)
            await agent.ask("go " * 4_000)
            await awake.wait()
            return agent.id

    log = home.open(asyncio.run(run()), write=False)
    purposes = [event.body.purpose for event in log.events() if isinstance(event.body, CallStarted)]
    assert purposes == ["turn", *["job:keep_alive"] * 2]
    bodies = [json.loads(request.body) for request in provider.requests]
    assert [{key: value for key, value in body.items() if key != "messages"} for body in bodies[1:]] == [
        {key: value for key, value in bodies[0].items() if key != "messages"}
    ] * 2
    texts = [[block["text"] for message in body["messages"] for block in message["content"]] for body in bodies]
    assert [text[:-1] for text in texts[1:]] == [texts[0]] * 2
    assert log.view.items[-1].content == Text("done", "assistant")


def test_the_cache_is_kept_alive_while_a_tool_of_an_open_turn_runs() -> None:
    clock = FixedClock(1_000_000, 0)
    call = ModelReplied((ToolCall("c1", "build", "{}"),), usage=Usage(cache_write=50_000, output=50_000), stop="tool_use", model=MODEL)
    read = ModelReplied((Text("ok", "assistant"),), usage=Usage(cache_read=50_000, output=1), model=MODEL)
    done = ModelReplied((Text("done", "assistant"),), usage=Usage(cache_read=50_000, cache_write=100), model=MODEL)
    provider, home = Scripted(call, *[read] * 3, done), Home.in_memory(clock)

    async def run() -> str:
        built = asyncio.Event()

        async def build() -> str:
            """Build everything, which takes long."""
            await built.wait()
            return "built"

        async with Agent(MODEL, tools=(build,), provider=provider, jobs=(KeepAlive(),), home=home, profile="none") as agent:
            moments: list[float] = []

            async def sleep(seconds: float) -> None:
                await agent.jobs.wait()
                if len(moments) == 3:
                    built.set()
                    await asyncio.Event().wait()
                moments.append(seconds)
                clock.time += int(seconds * 1_000)

            agent.session.environment = replace(agent.session.environment, sleep=sleep)
            await agent.ask("go " * 4_000)
            return agent.id

    log = home.open(asyncio.run(run()), write=False)
    purposes = [event.body.purpose for event in log.events() if isinstance(event.body, CallStarted)]
    assert purposes == ["turn", *["job:keep_alive"] * 3, "turn"]
    # Nothing of the open call is sent: its result is not there yet.
    bodies = [json.loads(request.body) for request in provider.requests]
    assert [[message["role"] for message in body["messages"]] for body in bodies[1:4]] == [["user"]] * 3
    assert log.view.items[-1].content == Text("done", "assistant")
