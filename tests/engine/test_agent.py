"""The agent as a library: prompts in, events and deltas out, sessions that go on later."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from loops import ECHO, calls

from palimpsest.agent.agent import Agent, Answer
from palimpsest.agent.feed import Piece
from palimpsest.agent.tool import AgentTool
from palimpsest.agent.tool_calls import Toolbox
from palimpsest.core.budget import Budget
from palimpsest.core.deltas import TextDelta
from palimpsest.core.errors import BadInput, ProviderError
from palimpsest.core.events import Event, ToolReturned, ToolsOffered, TurnEnded, UserSaid
from palimpsest.core.items import Text, text_of
from palimpsest.core.plans import Ask, Moment, Plan, Situation, Steps, ask
from palimpsest.policies.profile import Profile
from palimpsest.providers.scripted import Scripted, StalledReply
from palimpsest.stores.home import FolderHome


async def run_all(agent: Agent, *prompt: str) -> list[Piece]:
    return [piece async for piece in agent.run(*prompt)]


def test_a_prompt_brings_events_and_deltas_and_ends_with_the_turn() -> None:
    async def told() -> None:
        async with Agent("claude-sonnet-4-5", tools=(ECHO,), provider=Scripted(calls(("a", "echo", "{}")), "done")) as agent:
            pieces = await run_all(agent, "go")
        assert "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)) == "done"
        last = pieces[-1]
        assert isinstance(last, Event)
        assert last.body == TurnEnded("done")

    asyncio.run(told())


def test_ask_returns_the_text_of_the_last_reply_and_the_reason() -> None:
    async def asked() -> Answer:
        async with Agent("claude-sonnet-4-5", tools=(ECHO,), provider=Scripted(calls(("a", "echo", "{}"), text="hm"), "4")) as agent:
            return await agent.ask("2 + 2?")

    assert asyncio.run(asked()) == Answer("4", "done")


def test_the_same_session_is_opened_later_and_goes_on(tmp_path: Path) -> None:
    async def first() -> str:
        async with Agent("claude-sonnet-4-5", provider=Scripted("one"), home=FolderHome(tmp_path)) as agent:
            await agent.ask("first")
            return agent.id

    async def second(session: str) -> list[tuple[str, str]]:
        provider = Scripted("two")
        async with Agent("gpt-5.5", provider=provider, home=FolderHome(tmp_path), resume=session, profile="codex") as agent:
            await agent.ask("second")
            view = agent.session.log.view
            assert (view.model, view.profile) == ("gpt-5.5", "codex")
            return [(item.kind, text_of(item.content)) for item in view.items if item.kind in ("user", "assistant")]

    session = asyncio.run(first())
    assert asyncio.run(second(session)) == [("user", "first"), ("assistant", "one"), ("user", "second"), ("assistant", "two")]


def test_leaving_the_loop_over_a_run_interrupts_the_turn() -> None:
    async def left() -> list[str]:
        stalled = StalledReply("a very long answer", after=2)
        async with Agent("claude-sonnet-4-5", provider=Scripted(stalled)) as agent:
            run = agent.run("go")
            async for piece in run:
                if isinstance(piece, TextDelta):
                    break
            await run.aclose()
            return [type(event.body).__name__ for event in agent.session.log.events()][-2:]

    assert asyncio.run(left()) == ["Interrupted", "TurnEnded"]


def test_a_second_prompt_steers_the_running_turn() -> None:
    async def steered() -> list[bool]:
        stalled = StalledReply("first answer", after=1)
        async with Agent("claude-sonnet-4-5", provider=Scripted(stalled, "second answer")) as agent:
            task = asyncio.ensure_future(run_all(agent, "go"))
            await stalled.reached.wait()
            agent.say("and shorter")
            with pytest.raises(BadInput, match="a turn is running"):
                await run_all(agent, "x")
            stalled.released.set()
            await task
            return [event.body.steering for event in agent.session.log.events() if isinstance(event.body, UserSaid)]

    assert asyncio.run(steered()) == [False, True]


def test_a_failed_turn_is_raised_and_the_next_one_works() -> None:
    async def failed() -> Answer:
        async with Agent("claude-sonnet-4-5", provider=Scripted(ProviderError("no", status=400), "yes")) as agent:
            with pytest.raises(ProviderError, match="no"):
                await agent.ask("go")
            return await agent.ask(Text("again"))

    assert asyncio.run(failed()) == Answer("yes", "done")


@dataclass(frozen=True)
class Titling:
    """A policy that asks the model for a title after each turn, and does nothing with it."""

    name: str = "titling"
    moments: frozenset[Moment] = frozenset({"turn_ends"})
    shrinks: bool = False

    def plan(self, situation: Situation) -> Plan:
        def steps() -> Steps:
            yield from ask(Ask((), "Give it a title", purpose="title"))
            return ()

        return steps()


def test_the_answer_is_the_last_reply_of_the_turn_and_not_that_of_a_side_call() -> None:
    titling = Profile("titling", (Titling(),), lambda card: Budget(card.window))

    async def asked() -> Answer:
        async with Agent("claude-sonnet-4-5", profile=titling, provider=Scripted("the answer", "a title")) as agent:
            return await agent.ask("go")

    assert asyncio.run(asked()) == Answer("the answer", "done")


def test_tools_are_recorded_when_they_change_and_not_when_a_session_is_resumed_with_the_same(tmp_path: Path) -> None:
    async def one_turn(resume: str = "", *tools: AgentTool) -> str:
        async with Agent("claude-sonnet-4-5", provider=Scripted("ok"), home=FolderHome(tmp_path), resume=resume) as agent:
            agent.offer(Toolbox({tool.name: tool for tool in tools}, agent.toolbox.workspace))
            await agent.ask("go")
            return agent.id

    session = asyncio.run(one_turn("", ECHO))
    asyncio.run(one_turn(session, ECHO))
    asyncio.run(one_turn(session))
    with FolderHome(tmp_path).open(session, write=False) as log:
        offered = [event.body.names for event in log.events() if isinstance(event.body, ToolsOffered)]
    assert offered == [("echo",), ()]


def word_count(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


async def greeting(name: str = "you") -> str:
    """Greet by name."""
    return f"hello {name}"


def test_typed_functions_are_tools_of_the_agent() -> None:
    provider = Scripted(calls(("a", "word_count", '{"text": "to be or not"}'), ("b", "greeting", "{}")), "four words")

    async def asked() -> list[tuple[str, str]]:
        async with Agent("claude-sonnet-4-5", tools=[word_count, greeting, ECHO], provider=provider) as agent:
            await agent.ask("go")
            returned = [event.body for event in agent.session.log.events() if isinstance(event.body, ToolReturned)]
            return [(body.tool, text_of(body.result)) for body in returned]

    assert asyncio.run(asked()) == [("word_count", "4"), ("greeting", "hello you")]
    declared = json.loads(provider.requests[0].body)["tools"]
    assert [(tool["name"], tool["description"]) for tool in declared[:2]] == [
        ("word_count", "Count the words of a text."),
        ("greeting", "Greet by name."),
    ]
    assert declared[0]["input_schema"] == {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    }


def test_two_tools_with_one_name_are_refused() -> None:
    with pytest.raises(BadInput, match="two tools are called 'word_count'"):
        Agent("claude-sonnet-4-5", tools=[word_count, word_count])


def test_a_function_without_a_docstring_is_no_tool() -> None:
    def silent(text: str) -> str:
        return text

    with pytest.raises(BadInput, match="the function silent has no docstring"):
        Agent("claude-sonnet-4-5", tools=[silent])
