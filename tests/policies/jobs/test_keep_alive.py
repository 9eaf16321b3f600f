"""Keep-alive of the prompt cache: when it pays, how often in a row, and what it sends."""

import asyncio
import json
from dataclasses import replace

import pytest
from job_stubs import MODEL, PlainJob, after_turns

from palimpsest.audit.pricing.price import Rates
from palimpsest.core.events import CallStarted, ModelReplied, Usage
from palimpsest.core.items import Text
from palimpsest.core.projections.health import Health
from palimpsest.core.projections.jobs import JobState
from palimpsest.core.situation import Cache, CachedPrefix, JobSituation
from palimpsest.engine.agent import Agent
from palimpsest.policies.jobs.keep_alive import KeepAlive
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.ephemeral import FixedClock
from palimpsest.stores.home import Home
from palimpsest.wire.models.cards import card

TTL = 300_000


def situation(*, tokens: int = 50_000, now: int = 250_000, repeats: int = 0, model: str = MODEL, turn: int | None = None) -> JobSituation:
    """An idle session whose prefix was cached at time 0 for five minutes."""
    job = PlainJob(lambda _: ())
    after_turns("go", jobs=(job,))
    cache = Cache((CachedPrefix("1.0", tokens, 0, TTL),))
    return replace(job.situations[0], cache=cache, now=now, job=JobState(repeats=repeats), card=card(model), health=Health(turn=turn))


@pytest.mark.parametrize(
    ("given", "reads"),
    [
        pytest.param(situation(), True, id="shortly before the prefix expires"),
        pytest.param(situation(now=50_000), False, id="it lives until the next moment"),
        pytest.param(situation(now=TTL), False, id="it has expired"),
        pytest.param(situation(tokens=7_999), False, id="too small"),
        pytest.param(situation(repeats=2), True, id="the third in a row"),
        pytest.param(situation(repeats=3), False, id="the fourth in a row"),
        pytest.param(situation(turn=4), False, id="during a turn"),
        pytest.param(situation(model="local/qwen3-0.6b"), False, id="a model that costs nothing"),
    ],
)
def test_the_prefix_is_read_when_it_is_about_to_expire_and_that_pays(given: JobSituation, reads: bool) -> None:
    assert (KeepAlive().plan(given) is not None) is reads


@pytest.mark.parametrize(
    ("rates", "reads"),
    [
        pytest.param(Rates(1.25, 0.1), 11, id="five minutes at Anthropic"),
        pytest.param(Rates(2.0, 0.1), 19, id="an hour at Anthropic"),
        pytest.param(Rates(1.0, 0.25), 3, id="automatic"),
        pytest.param(Rates(1.0, 1.0), 0, id="no cache"),
        pytest.param(Rates(1.0, 0.0), 0, id="reads for nothing need no keeping"),
    ],
)
def test_all_reads_in_a_row_cost_at_most_one_write(rates: Rates, reads: int) -> None:
    assert reads_that_pay(rates) == reads
    assert reads * rates.read <= max(0.0, rates.write - rates.read) + 1e-9


def test_pa_28_pings_have_the_cached_bytes_of_the_turn_and_stop_after_their_number() -> None:
    clock = FixedClock(1_000_000, 0)
    wrote = ModelReplied((Text("done", "assistant"),), usage=Usage(cache_write=50_000, output=1), model=MODEL)
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
    assert purposes == ["turn", *["job:keep_alive"] * 3]
    bodies = [json.loads(request.body) for request in provider.requests]
    assert [{key: value for key, value in body.items() if key != "messages"} for body in bodies[1:]] == [
        {key: value for key, value in bodies[0].items() if key != "messages"}
    ] * 3
    texts = [[block["text"] for message in body["messages"] for block in message["content"]] for body in bodies]
    assert [text[:1] for text in texts[1:]] == [texts[0]] * 3
    assert log.view.items[-1].content == Text("done", "assistant")
