"""The moments outside of calls: start and end of a turn, switch to another model."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from codex_work import BOTH, CONTEXT, OTHER, SMALL, codex_session, shows, state, turn
from msgspec.structs import replace
from workplace import answered_by, online, say, work

from palimpsest.agent.calls import at_moment, call, compact, end_turn, resumed, start_turn, switch
from palimpsest.agent.editing import PolicyRun
from palimpsest.agent.session import Session
from palimpsest.core.errors import ProviderError
from palimpsest.core.events import (
    CallStarted,
    ModelReplied,
    ModelSwitched,
    SessionOpened,
    TurnEnded,
    TurnStarted,
    Usage,
    UserSaid,
    UserTyped,
    ViewEdited,
)
from palimpsest.core.items import Text
from palimpsest.core.plans import Moment, Plan, Situation
from palimpsest.policies.named import profile
from palimpsest.policies.profile import Profile
from palimpsest.providers.scripted import Scripted


@dataclass(frozen=True)
class Seeing:
    """A policy that remembers when it was asked for a plan, and how many incoming tokens it was given."""

    seen: list[tuple[Moment, int, str]] = field(default_factory=list)
    name: str = "seeing"
    moments: frozenset[Moment] = frozenset({"turn_starts", "turn_ends", "idle", "resumed", "asked", "before_call", "after_call"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        self.seen.append((situation.moment, situation.incoming, situation.asked))
        return ()


def test_a_turn_from_its_start_to_its_end_fires_its_moments_in_order_and_is_recorded() -> None:
    policy = Seeing()
    session = answered_by(work(Profile("seeing", (policy,), profile("none").budget)), Scripted("done"))

    async def turn() -> None:
        typed = session.log.append(UserTyped((Text("go"),)))
        await start_turn(session, incoming=7, typed=(typed.seq,))
        assert session.log.health.turn == 2
        session.log.append(UserSaid((Text("go"),), typed=typed.seq))
        await call(session)
        await end_turn(session)
        await at_moment(session, "idle")
        await compact(session, "the tests")
        await resumed(session)

    asyncio.run(turn())
    assert policy.seen == [
        ("turn_starts", 7, ""),
        ("before_call", 0, ""),
        ("after_call", 0, ""),
        ("turn_ends", 0, ""),
        ("idle", 0, ""),
        ("asked", 0, "the tests"),
        ("resumed", 0, ""),
    ]
    bodies = [event.body for event in session.log.events()]
    assert [type(body) for body in bodies] == [SessionOpened, UserTyped, TurnStarted, UserSaid, CallStarted, ModelReplied, TurnEnded]
    assert (bodies[2], bodies[6], session.log.health.turn) == (TurnStarted((1,)), TurnEnded("done"), None)


def worked(name: str, used: int) -> Session:
    session = codex_session(name)
    state(session)
    turn(session, "ask 0", 0)
    turn(session, "ask 1", 1, usage=Usage(input=used - 10, output=10))
    return session


def models(provider: Scripted) -> list[Any]:
    return [json.loads(request.body)["model"] for request in provider.requests]


def moments(policy_run: PolicyRun) -> list[str]:
    return [event.body.moment for event in policy_run.edited if isinstance(event.body, ViewEdited)]


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-40")
def test_a_downshift_compacts_with_the_previous_model_before_the_new_one_is_called(name: str) -> None:
    session = worked(name, 120_000)
    provider = Scripted("the summary")
    policy_run = online(session, switch(session, SMALL), provider)
    assert models(provider) == ["other"]
    assert moments(policy_run) == ["switched"]
    # Neither version moves the context with this fold: the next turn states it for the new model.
    assert shows(session) == ["ask 0", "ask 1", "the summary"]
    assert session.log.view.facts == {}
    state(session)
    say(session, "ask 2")
    assert shows(session) == ["ask 0", "ask 1", "the summary", *CONTEXT, "ask 2"]
    assert session.card.name == "small"
    assert any(isinstance(event.body, ModelSwitched) for event in session.log.reader.run(0, session.log.tip))


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-40")
def test_the_old_report_decides_and_must_pass_the_new_level(name: str) -> None:
    for used, folds in ((90_000, False), (90_001, True)):
        session = worked(name, used)
        provider = Scripted("the summary")
        assert online(session, switch(session, SMALL), provider).folded is folds
        assert len(provider.requests) == folds


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-40")
def test_an_upshift_does_not_compact(name: str) -> None:
    session = worked(name, 199_000)
    for model in (replace(OTHER, name="large", window=400_000), replace(OTHER, name="equal")):
        assert asyncio.run(switch(session, model)).events == ()


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-40")
def test_if_the_previous_model_is_gone_the_new_one_is_asked_once(name: str) -> None:
    session = worked(name, 120_000)
    provider = Scripted(ProviderError("no such model", status=404), "the summary")
    assert online(session, switch(session, SMALL), provider).folded
    assert models(provider) == ["other", "small"]
    session = worked(name, 120_000)
    first = ProviderError("no such model", status=404)
    policy_run = online(session, switch(session, SMALL), Scripted(first, ProviderError("down", status=500)))
    assert policy_run.failure is first
