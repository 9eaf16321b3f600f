"""Limits in dollars and tokens: kept by what calls really cost, and refused where that cannot be known."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from families import Family, spawn, wait

from palimpsest.core.errors import BadInput, ConnectionLost
from palimpsest.core.events import JobRan, ModelReplied, ToolReturned, Usage
from palimpsest.core.items import Text, ToolCall, text_of
from palimpsest.core.policy import Ask, JobLimits, JobPlan
from palimpsest.core.situation import JobMoment, JobSituation
from palimpsest.engine.agent import Agent
from palimpsest.engine.hooks.hook import Hook, HookResult
from palimpsest.engine.loop.limits import Limits
from palimpsest.providers.retrying import RetryPolicy
from palimpsest.providers.scripted import BrokenReply, Scripted
from palimpsest.stores.home import Home
from palimpsest.wire.models.card_file import parse_cards

LARGE = Usage(input=10_000_000, output=10)


def looping(model: str, usage: Usage, calls: int = 4) -> Scripted:
    replies = [ModelReplied((ToolCall(f"c{number}", "nothing", "{}"),), usage=usage, model=model) for number in range(calls)]
    return Scripted(*replies, "done")


def nothing() -> str:
    """Do nothing."""
    return "done"


def stop_of(provider: Scripted, limits: Limits, model: str = "claude-sonnet-4-5") -> tuple[str, int]:
    async def run() -> str:
        async with Agent(model, provider=provider, tools=[nothing], limits=limits) as agent:
            return (await agent.ask("go")).stop

    return asyncio.run(run()), len(provider.requests)


@pytest.mark.parametrize("named", ["", "sonnet-latest", "whatever-9", "claude-sonnet-4-5-20250929"])
def test_a_limit_in_dollars_holds_whatever_name_the_reply_gives_its_model(named: str) -> None:
    assert stop_of(looping(named, LARGE), Limits(usd=0.01)) == ("max_usd", 1)


@pytest.mark.parametrize("model", ["openai-compatible/mine", "local/mine"])
def test_a_limit_in_dollars_is_refused_before_anything_is_made_if_no_price_is_known(model: str) -> None:
    home = Home.in_memory()
    with pytest.raises(BadInput, match=f"the limit of \\$2 cannot be kept, because no price is known for {model}; limit tokens instead"):
        Agent(model, home=home, provider=Scripted(), limits=Limits(usd=2))
    assert list(home.store.stats()) == []


def test_a_model_that_its_card_calls_free_takes_a_limit_in_dollars() -> None:
    (free,) = parse_cards('[cards.mine]\nlike = "local/mine"\nwindow = 100000\nprices = {input = 0, output = 0}')

    async def run() -> str:
        async with Agent(free, provider=looping("", Usage(input=9_000, output=10)), tools=[nothing], limits=Limits(usd=0.01)) as agent:
            return (await agent.ask("go")).stop

    assert asyncio.run(run()) == "done"


def test_under_a_limit_in_dollars_a_switch_to_a_model_of_unknown_price_is_refused() -> None:
    async def run() -> str:
        async with Agent("claude-sonnet-4-5", provider=Scripted("hi"), limits=Limits(usd=2)) as agent:
            with pytest.raises(BadInput, match="no price is known for openai-compatible/mine"):
                await agent.switch("openai-compatible/mine")
            return agent.session.card.name

    assert asyncio.run(run()) == "claude-sonnet-4-5"


def test_a_turn_stops_when_a_call_under_a_limit_in_dollars_reports_no_usage() -> None:
    unmeasured = Usage(reasoning=1)
    assert stop_of(looping("claude-sonnet-4-5", unmeasured), Limits(usd=5)) == ("price_unknown", 1)


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "openai-compatible/mine"])
def test_a_limit_of_tokens_needs_no_price(model: str) -> None:
    assert stop_of(looping("", Usage(input=400, output=100)), Limits(tokens=1_000), model) == ("max_total_tokens", 2)
    # What a server does not report is estimated.
    assert stop_of(looping("", Usage(reasoning=1), calls=200), Limits(tokens=1_000), model)[0] == "max_total_tokens"


def test_what_sub_agents_use_counts_to_the_limit_of_tokens_and_one_of_unknown_price_is_not_started_under_dollars(tmp_path: Path) -> None:
    family = Family(tmp_path)
    steps = ((spawn("Ada"),), (wait("Ada"),), *["never"] * 3)

    async def run(limits: Limits, *given: object) -> tuple[str, str]:
        async with family.agent(*given, children={"Ada": ("found it",)}, limits=limits) as agent:  # type: ignore[arg-type]
            return agent.id, (await agent.ask("go")).stop

    assert asyncio.run(run(Limits(tokens=6_000), *steps))[1] == "max_total_tokens"
    session, _ = asyncio.run(run(Limits(usd=50), (spawn("Ada", model="openai-compatible/mine"),), "gave up"))
    (refused,) = [text_of(body.result) for body in family.bodies(session) if isinstance(body, ToolReturned)]
    assert "the sub-agent cannot be opened: the limit of $50 cannot be kept" in refused
    assert len(family.ends(session)) == 0


class Asking:
    """A job that asks a model after each turn."""

    name = "asking"
    moments: frozenset[JobMoment] = frozenset({"turn_ends"})

    def __init__(self, limits: JobLimits) -> None:
        self.limits = limits

    def plan(self, situation: JobSituation) -> JobPlan:
        yield Ask((), "say a word", "summary")
        return ()


def test_a_job_with_a_budget_in_dollars_asks_no_model_of_unknown_price_and_says_why() -> None:
    async def run(limits: JobLimits) -> list[tuple[str, str]]:
        async with Agent("openai-compatible/mine", provider=Scripted("hi", "word"), jobs=[Asking(limits)]) as agent:
            await agent.ask("go")
            await agent.jobs.close()
            return [(event.body.status, event.body.why) for event in agent.session.log.events() if isinstance(event.body, JobRan)]

    advice = "write its prices into cards.toml, or turn the job off"
    why = f"no price is known for openai-compatible/mine, so that $1 cannot be kept; {advice}"
    assert asyncio.run(run(JobLimits(1.0, 1, 5.0))) == [("skipped", why)]
    assert asyncio.run(run(JobLimits(None, 1, 5.0))) == [("done", "")]


@pytest.mark.parametrize(
    # The first stream breaks before the first word, after the length of the prompt was reported; the second after a word, before that.
    ("usage", "calls", "estimated"),
    [(Usage(input=1_000_000, output=9), 3, 0), (Usage(reasoning=1), 1, 1)],
)
def test_what_a_server_has_read_is_paid_also_if_its_reply_breaks(usage: Usage, calls: int, estimated: int) -> None:
    broken = BrokenReply(ModelReplied((Text("I begin, and then", "assistant"),), usage=usage), after=1)
    provider = Scripted(*[broken] * 3)

    async def sleep(_: float) -> None:
        return

    async def run() -> tuple[int, float | None]:
        async with Agent("claude-sonnet-4-5", provider=provider) as agent:
            agent.session.environment = dataclasses.replace(agent.session.environment, retries=RetryPolicy(retries=2), sleep=sleep)
            with pytest.raises(ConnectionLost):
                await agent.ask("Look at the parser again. " * 500)
            (spending,) = agent.session.log.ledger.spendings
            return spending.estimated, agent.cost_usd()

    found, usd = asyncio.run(run())
    assert (len(provider.requests), found) == (calls, estimated)
    # The prompt has about 3,000 tokens.
    assert usd == pytest.approx(9.0) if not estimated else usd is not None and 0.009 < usd < 0.02


@pytest.mark.parametrize(
    ("limits", "stop"), [(Limits(usd=1), "max_usd"), (Limits(calls=1), "max_calls"), (Limits(tokens=9_000), "max_total_tokens")]
)
def test_a_hook_that_lets_a_finished_turn_go_on_does_not_lift_its_limits(limits: Limits, stop: str) -> None:
    provider = Scripted(*[ModelReplied((Text("done", "assistant"),), usage=LARGE)] * 4)

    async def run() -> str:
        hook = Hook("turn_end", lambda _: HookResult(block="go on"), "greedy")
        async with Agent("claude-sonnet-4-5", provider=provider, limits=limits, hooks=[hook]) as agent:
            return (await agent.ask("go")).stop

    assert (asyncio.run(run()), len(provider.requests)) == (stop, 1)


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "5"])
@pytest.mark.parametrize("name", ["usd", "tokens", "calls", "seconds"])
def test_a_limit_that_is_no_number_above_zero_is_refused(name: str, value: Any) -> None:
    with pytest.raises(BadInput, match=f"the limit {name} must be a number above 0"):
        Limits(**{name: value})
