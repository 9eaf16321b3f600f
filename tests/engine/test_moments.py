"""Another model takes over."""

import asyncio
import json
from typing import Any

import pytest
from codex_work import BOTH, CONTEXT, OTHER, SMALL, codex_session, shows, state, turn
from msgspec.structs import replace
from workplace import online, say

from palimpsest.core.errors import ProviderError
from palimpsest.core.events import ModelSwitched, Usage, ViewEdited
from palimpsest.engine.moments import switch
from palimpsest.engine.policies import PolicyRun
from palimpsest.engine.session import Session
from palimpsest.providers.scripted import Scripted


def worked(name: str, used: int) -> Session:
    session = codex_session(name)
    state(session)
    turn(session, "ask 0", 0)
    turn(session, "ask 1", 1, usage=Usage(input=used - 10, output=10))
    return session


def models(provider: Scripted) -> list[Any]:
    return [json.loads(request.body)["model"] for request in provider.requests]


def moments(looked: PolicyRun) -> list[str]:
    return [event.body.moment for event in looked.edited if isinstance(event.body, ViewEdited)]


@pytest.mark.parametrize("name", BOTH)
def test_cx_40_a_downshift_compacts_with_the_previous_model_before_the_new_one_is_called(name: str) -> None:
    session = worked(name, 120_000)
    provider = Scripted("the summary")
    looked = online(session, switch(session, SMALL), provider)
    assert models(provider) == ["other"]
    assert moments(looked) == ["switched"]
    # Neither version moves the context with this fold: the next turn states it for the new model.
    assert shows(session) == ["ask 0", "ask 1", "the summary"]
    assert session.log.view.facts == {}
    state(session)
    say(session, "ask 2")
    assert shows(session) == ["ask 0", "ask 1", "the summary", *CONTEXT, "ask 2"]
    assert session.card.name == "small"
    assert any(isinstance(event.body, ModelSwitched) for event in session.log.reader.run(0, session.log.tip))


@pytest.mark.parametrize("name", BOTH)
def test_cx_40_the_old_report_decides_and_must_pass_the_new_level(name: str) -> None:
    for used, folds in ((90_000, False), (90_001, True)):
        session = worked(name, used)
        provider = Scripted("the summary")
        assert online(session, switch(session, SMALL), provider).folded is folds
        assert len(provider.requests) == folds


@pytest.mark.parametrize("name", BOTH)
def test_cx_40_an_upshift_does_not_compact(name: str) -> None:
    session = worked(name, 199_000)
    for model in (replace(OTHER, name="large", window=400_000), replace(OTHER, name="equal")):
        assert asyncio.run(switch(session, model)).events == ()


@pytest.mark.parametrize("name", BOTH)
def test_cx_40_if_the_previous_model_is_gone_the_new_one_is_asked_once(name: str) -> None:
    session = worked(name, 120_000)
    provider = Scripted(ProviderError("no such model", status=404), "the summary")
    assert online(session, switch(session, SMALL), provider).folded
    assert models(provider) == ["other", "small"]
    session = worked(name, 120_000)
    first = ProviderError("no such model", status=404)
    looked = online(session, switch(session, SMALL), Scripted(first, ProviderError("down", status=500)))
    assert looked.failure is first
