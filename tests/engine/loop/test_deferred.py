"""Deferred tools: which are declared, how a model finds the others, and that a resumed session has them again."""

import asyncio
import json
from pathlib import Path

import pytest
from loops import calls
from msgspec import Raw

from palimpsest.agent.agent import Agent
from palimpsest.agent.tool import AgentTool, ToolOutput
from palimpsest.agent.tool_calls import declared_tokens, within_budget
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.build import equip
from palimpsest.coding.settings import CodingSettings
from palimpsest.core.events import ContextStated, Event, ToolReturned, ToolsOffered
from palimpsest.core.items import text_of
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.home import FolderHome
from palimpsest.wire.request import Tool

MANY = 60


def named(name: str, description: str) -> AgentTool:
    async def run(args: str, _: Workspace) -> ToolOutput:
        return ToolOutput(f"{name} ran with {args}")

    return AgentTool(Tool(name, description, Raw(b'{"type":"object","properties":{}}'), kind="reports"), parallel=False, run=run)


WEATHER = named("weather_forecast", "Tell the weather of a city for the next days.")
# Each declaration has about 400 tokens, so that they exceed a tenth of the window together.
TOOLS = (
    *(named(f"service_{number}", f"Call service number {number}. " + "It has many parameters. " * 70) for number in range(MANY)),
    WEATHER,
)


def session(folder: Path, provider: Scripted, *prompts: str, resume: str = "", profile: str = "palimpsest") -> tuple[str, list[Event]]:
    async def work() -> tuple[str, list[Event]]:
        home = FolderHome(folder / "home")
        async with Agent("claude-sonnet-4-5", provider=provider, profile=profile, cwd=folder, home=home, resume=resume) as agent:
            equip(agent, home, CodingSettings(sandbox="off", tools=TOOLS))
            first = agent.session.log.tip + 1
            for prompt in prompts:
                await agent.ask(prompt)
            return agent.id, list(agent.session.log.reader.run(first, agent.session.log.tip))

    return asyncio.run(work())


def declared(provider: Scripted) -> list[set[str]]:
    return [{tool["name"] for tool in json.loads(request.body)["tools"]} for request in provider.requests]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))


def test_a_deferred_tool_is_listed_found_declared_and_called_in_one_turn(tmp_path: Path) -> None:
    search = calls(("s", "tool_search", '{"query":"weather in a city"}'))
    provider = Scripted(search, calls(("w", "weather_forecast", '{"city":"Berlin"}')), "sunny")
    _, events = session(tmp_path, provider, "will it rain?")
    before, after, last = declared(provider)
    assert "weather_forecast" not in before
    assert {"tool_search", "read", "bash", "service_0"} <= before
    assert after == last == {*before, "weather_forecast"}
    listed = next(
        statement.text
        for event in events
        if isinstance(event.body, ContextStated)
        for statement in event.body.items
        if statement.source == "deferred_tools"
    )
    assert listed.splitlines()[-2:] == ["weather_forecast", "</system-reminder>"]
    assert [text_of(event.body.result) for event in events if isinstance(event.body, ToolReturned)] == [
        "These tools are loaded and can be called from now on:\nweather_forecast: Tell the weather of a city for the next days.",
        'weather_forecast ran with {"city":"Berlin"}',
    ]
    [offered] = [event.body for event in events if isinstance(event.body, ToolsOffered)]
    assert set(offered.names) == after
    # The list is stated once: the result of the search says what was loaded.
    assert sum(b"not loaded. Find one" in request.body for request in provider.requests[2:]) == 1
    assert b"No longer available" not in provider.requests[-1].body


def test_a_resumed_session_has_the_tools_that_its_last_call_had(tmp_path: Path) -> None:
    found = Scripted(calls(("s", "tool_search", '{"query":"select:weather_forecast,service_59"}')), "found")
    name, _ = session(tmp_path, found, "find it")
    later = Scripted("hi")
    _, events = session(tmp_path, later, "hello", resume=name)
    assert declared(later)[0] == declared(found)[1]
    assert [event for event in events if isinstance(event.body, ToolsOffered)] == []


def test_a_search_without_a_match_and_a_call_of_a_tool_that_is_not_loaded_say_what_to_do(tmp_path: Path) -> None:
    provider = Scripted(calls(("s", "tool_search", '{"query":"xylophone"}'), ("w", "weather_forecast", "{}")), "no")
    _, events = session(tmp_path, provider, "go")
    first, second = (text_of(event.body.result) for event in events if isinstance(event.body, ToolReturned))
    assert first.startswith("No tool fits.")
    assert second.startswith("There is no tool 'weather_forecast'. The tools are: ")
    assert "tool_search" in second


@pytest.mark.parametrize("profile", ["codex", "opencode", "classroom", "none"])
def test_a_profile_that_cannot_list_deferred_tools_declares_all_of_them(tmp_path: Path, profile: str) -> None:
    provider = Scripted("hi")
    session(tmp_path, provider, "hello", profile=profile)
    assert {"weather_forecast", "service_59"} <= declared(provider)[0]
    assert "tool_search" not in declared(provider)[0]


def test_our_own_tools_are_declared_whatever_their_size_and_others_in_order_as_long_as_they_fit() -> None:
    own, others = [TOOLS[0]], list(TOOLS[1:5])
    size = declared_tokens(TOOLS[1].declaration)
    assert within_budget(own, others, 0) == (own, others)
    assert within_budget(own, others, 3 * size) == ([*own, *others[:2]], others[2:])
    assert within_budget(own, others, None) == ([*own, *others], [])
    # A small tool behind a large one that does not fit is deferred too.
    assert within_budget([], [TOOLS[0], WEATHER], size // 2) == ([], [TOOLS[0], WEATHER])
