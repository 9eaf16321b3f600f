"""Limits in dollars and tokens: kept by what calls really cost, and refused where that cannot be known."""

import asyncio
import dataclasses
import gc
from collections.abc import Generator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from every_case import every_case
from families import Family, routed, spawn, wait
from msgspec.structs import replace

from palimpsest.agent.agent import Agent
from palimpsest.agent.hooks import Hook, HookResult
from palimpsest.agent.limits import Limits, session_usd
from palimpsest.agent.named_profiles import profile
from palimpsest.core.errors import BadInput, ConnectionLost
from palimpsest.core.events import Failed, JobRan, ModelReplied, ToolReturned, Usage, UsageBeside
from palimpsest.core.items import Text, ToolCall, text_of
from palimpsest.core.plans import Answer, Ask, JobLimits, JobMoment, JobPlan, JobSituation, Moment, Proposal, Situation, Want
from palimpsest.policies.profile import Profile
from palimpsest.providers.retrying import RetryPolicy
from palimpsest.providers.scripted import BrokenReply, Scripted
from palimpsest.stores.home import Home
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.card_files import parse_cards
from palimpsest.wire.models import card
from palimpsest.wire.request import Params

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


@pytest.mark.parametrize("tier", ["fast", "flex", "standard"])
def test_a_limit_in_dollars_is_refused_if_requests_ask_for_a_tier_of_unknown_price(tier: str) -> None:
    home, way = Home.in_memory(), profile("codex", {"service_tier": tier})
    if tier == "standard":
        assert Agent("gpt-5.5", profile=way, home=home, provider=Scripted(), limits=Limits(usd=2)).parts.limits.usd == 2
        return
    with pytest.raises(BadInput, match=r"the limit of \$2 cannot be kept, because no price is known for the tier, .* ask for the standard"):
        Agent("gpt-5.5", profile=way, home=home, provider=Scripted(), limits=Limits(usd=2))
    assert list(home.store.stats()) == []


@pytest.mark.parametrize("field", ["web_search_options", "search_parameters", "plugins"])
def test_a_limit_in_dollars_is_refused_if_requests_offer_a_search_that_is_billed_beside_the_tokens(field: str) -> None:
    params = Params(extra=msgspec.Raw(msgspec.json.encode({field: {}})))
    with pytest.raises(BadInput, match=r"the limit of \$2 cannot be kept, because no price is known for the tier, speed, place or search"):
        Limits(usd=2).check(card("gpt-5.5"), params)


def test_a_turn_with_a_limit_in_dollars_ends_after_a_call_in_which_the_provider_ran_a_tool_that_it_bills() -> None:
    searched = ModelReplied((ToolCall("call", "nothing", "{}"),), usage=Usage(100, output=1), stop="tool_use", tier="tool=web_search")

    async def run() -> tuple[str, int, float | None]:
        provider = Scripted(searched, searched)
        async with Agent("claude-sonnet-4-5", provider=provider, tools=[nothing], limits=Limits(usd=9)) as agent:
            stop = (await agent.ask("go")).stop
            return stop, len(provider.requests), session_usd(agent.session)

    assert asyncio.run(run()) == ("price_unknown", 1, None)


@pytest.mark.states("PV-78")
def test_an_agent_that_runs_over_midnight_prices_each_call_by_its_own_day() -> None:
    clock = FixedClock(int(datetime.fromisoformat("2026-11-30T23:59:00+00:00").timestamp() * 1_000))
    million = Usage(input=1_000_000, output=1)

    async def run() -> list[float | None]:
        provider = Scripted(*(ModelReplied((Text("hi"),), usage=million, stop="end_turn") for _ in range(2)))
        async with Agent("gemini-4-argon", home=Home.in_memory(clock), provider=provider) as agent:
            costs = []
            for _ in range(2):
                await agent.ask("go")
                costs.append(session_usd(agent.session))
                clock.time += 120_000
            return costs

    assert asyncio.run(run()) == pytest.approx([2, 6], abs=0.001)


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
    async def run(limits: JobLimits, model: str = "openai-compatible/mine", way: str | Profile = "palimpsest") -> list[tuple[str, str]]:
        async with Agent(model, profile=way, provider=Scripted("hi", "word"), jobs=[Asking(limits)]) as agent:
            await agent.ask("go")
            await agent.jobs.close()
            return [(event.body.status, event.body.why) for event in agent.session.log.events() if isinstance(event.body, JobRan)]

    advice = "write its prices into cards.toml, or turn the job off"
    fast = "no price is known for the tier, speed, place or search that requests ask for, so that $1 cannot be kept"
    assert asyncio.run(run(JobLimits(1.0, 1, 5.0), "gpt-5.5", profile("codex", {"service_tier": "fast"}))) == [
        ("skipped", f"{fast}; {advice}")
    ]
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


@every_case("value", [0, -1, float("nan"), float("inf"), "5"])
@every_case("name", ["usd", "tokens", "calls", "seconds"])
def test_a_limit_that_is_no_number_above_zero_is_refused(name: str, value: Any) -> None:
    with pytest.raises(BadInput, match=f"the limit {name} must be a number above 0"):
        Limits(**{name: value})


@pytest.mark.parametrize("limits", [Limits(usd=5), Limits(tokens=1_500_000)])
def test_a_call_that_breaks_and_is_paid_each_time_is_sent_again_only_as_long_as_the_limit_allows(limits: Limits) -> None:
    broken = BrokenReply(ModelReplied((Text("I begin, and then", "assistant"),), usage=Usage(input=1_000_000, output=9)), after=1)
    provider = Scripted(*[broken] * 9, "never")

    async def sleep(_: float) -> None:
        return

    async def run() -> str:
        async with Agent("claude-sonnet-4-5", provider=provider, limits=limits) as agent:
            agent.session.environment = dataclasses.replace(agent.session.environment, sleep=sleep)
            return (await agent.ask("go")).stop

    assert (asyncio.run(run()), len(provider.requests)) == ("max_usd" if limits.usd else "max_total_tokens", 2)


class Summarising:
    """A policy that asks a model before each call, three times at most, and hides nothing."""

    name = "summarising"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks = False

    def plan(self, situation: Situation) -> Generator[Want, Answer, Proposal]:
        for _ in range(3):
            yield Ask((), "say a word", "summary")
        return Proposal()


def test_what_policies_ask_a_model_leaves_no_call_to_a_turn_that_has_reached_its_limit() -> None:
    provider = Scripted(*[ModelReplied((Text("word", "assistant"),), usage=Usage(input=1_000_000, output=9))] * 9)

    async def run() -> tuple[str, dict[str, int]]:
        limited = dataclasses.replace(profile("palimpsest"), policies=(Summarising(),))
        async with Agent("claude-sonnet-4-5", provider=provider, profile=limited, limits=Limits(usd=5)) as agent:
            stop = (await agent.ask("go")).stop
            failed = [event.body for event in agent.session.log.events() if isinstance(event.body, Failed)]
            assert failed == []
            return stop, {each.purpose: each.calls for each in agent.session.log.ledger.spendings}

    assert asyncio.run(run()) == ("max_usd", {"summary": 2})


@pytest.mark.parametrize("usage", [Usage(input=-10_000_000, output=10), Usage(input=10_000, output=-10_000_000)])
def test_a_usage_below_zero_is_no_measurement_and_gives_nothing_back(usage: Usage) -> None:
    assert stop_of(looping("", usage), Limits(usd=5)) == ("price_unknown", 1)
    assert stop_of(looping("", usage, calls=200), Limits(tokens=1_000))[0] == "max_total_tokens"


def test_what_a_call_that_was_broken_off_has_read_from_the_cache_is_estimated_at_the_price_of_the_cache() -> None:
    first = ModelReplied((Text("yes", "assistant"),), usage=Usage(cache_write=3_000, output=9))
    broken = BrokenReply(ModelReplied((Text("I begin, and then", "assistant"),), usage=Usage(reasoning=1)), after=1)

    async def run(*replies: ModelReplied | BrokenReply) -> Usage:
        async with Agent("claude-sonnet-4-5", provider=Scripted(*replies)) as agent:
            for prompt in ("Look at the parser again. " * 500, "And the lexer.")[2 - len(replies) :]:
                before = agent.session.log.ledger
                with suppress(ConnectionLost):
                    await agent.ask(prompt)
            (spending,) = agent.session.log.ledger.since(before)
            return spending.usage

    usage = asyncio.run(run(first, broken))
    assert usage.cache_read == 3_000
    assert 0 < usage.input < 1_500
    # Nothing is cached before the first call.
    assert asyncio.run(run(broken)).cache_read == 0


@pytest.mark.parametrize("named", ["", "claude-sonnet-4-5", "claude-sonnet-4-5-20250929", "claude-haiku-4-5", "whatever-9"])
def test_the_prices_that_the_user_wrote_for_a_model_hold_whatever_name_the_reply_gives_it(named: str) -> None:
    (mine,) = parse_cards('[cards.mine]\nlike = "claude-sonnet-4-5"\nprices = {input = 100, output = 500}')

    async def run() -> float | None:
        async with Agent(
            mine, provider=looping(named, Usage(input=1_000_000, output=10), calls=1), tools=[nothing], limits=Limits(usd=50)
        ) as agent:
            assert (await agent.ask("go")).stop == "max_usd"
            return agent.cost_usd()

    assert asyncio.run(run()) == pytest.approx(100.005)


def test_a_sub_agent_sends_nothing_again_that_the_limit_of_its_parent_does_not_allow(tmp_path: Path) -> None:
    # Three dollars each.
    asked = ModelReplied((spawn("Ada"),), usage=Usage(input=1_000_000, output=9))
    broken = BrokenReply(ModelReplied((Text("I begin", "assistant"),), usage=Usage(input=1_000_000, output=9)), after=1)

    async def sleep(seconds: float) -> None:
        # Retries come at once; the wait for the sub-agent is one that its end cuts short.
        if seconds >= 600:
            await asyncio.Event().wait()

    async def run() -> tuple[str, int]:
        ada, root = Scripted(*[broken] * 9), Scripted(asked, ModelReplied((replace(wait("Ada"), call_id="c2"),)), "never")
        async with Family(tmp_path).root(routed(root, {"Ada": ada}), limits=Limits(usd=5)) as agent:
            agent.session.environment = dataclasses.replace(agent.session.environment, sleep=sleep)
            answer, tasks = await agent.ask("go"), (each for each in gc.get_objects() if isinstance(each, asyncio.Task))
            # Nobody follows the turn of the sub-agent when it fails; asyncio prints a failure that nobody has looked at in the end.
            assert [each for each in tasks if each.get_loop() is asyncio.get_running_loop() and each._log_traceback] == []
            return answer.stop, len(ada.requests)

    assert asyncio.run(run()) == ("max_usd", 1)


@pytest.mark.parametrize("usage", [Usage(input=-10_000_000, output=10), Usage()])
def test_what_was_billed_beside_a_message_in_an_unknown_amount_is_not_free(usage: Usage) -> None:
    replies = [
        ModelReplied((ToolCall(f"c{number}", "nothing", "{}"),), usage=Usage(100, output=1), beside=(UsageBeside(usage),))
        for number in range(4)
    ]
    assert stop_of(Scripted(*replies, "done"), Limits(usd=5)) == ("price_unknown", 1)
