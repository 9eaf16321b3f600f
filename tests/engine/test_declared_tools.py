"""Tools with names that say nothing count by what they were declared to do: for pins, stubs, restoration, evidence and folds."""

import asyncio
from collections.abc import Callable
from typing import Any

from palimpsest.agent.agent import Agent
from palimpsest.agent.tool import tool_from
from palimpsest.audit.fold_texts import evidence_block
from palimpsest.audit.gate import pinned
from palimpsest.audit.uses import stub_text
from palimpsest.audit.working_state import known_paths
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import ToolCall
from palimpsest.core.log import Log
from palimpsest.peers.clearing import maskable
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.home import Home, MemoryHome
from palimpsest.stores.in_memory import FixedClock


def peek(path: str) -> str:
    """Show a drawing."""
    return f"the drawing {path}"


def touch_up(path: str) -> str:
    """Improve a drawing."""
    return f"{path} is better now"


def roll(sides: int) -> int:
    """Roll a die."""
    return sides


PEEK, TOUCH_UP, ROLL = tool_from(peek, kind="reads"), tool_from(touch_up, kind="edits"), tool_from(roll)
CALLS = (
    ToolCall("c1", "peek", '{"path":"art/cat.svg"}'),
    ToolCall("c2", "touch_up", '{"path":"art/dog.svg"}'),
    ToolCall("c3", "roll", '{"sides":6}'),
    ToolCall("c4", "roll", '{"sides":8}'),
)


def worked(check: Callable[[Agent], None]) -> MemoryHome:
    """Let an agent make the calls, check it, and return the home of its session."""
    home = Home.in_memory()

    async def work() -> None:
        tools = (PEEK, TOUCH_UP, ROLL)
        async with Agent("claude-sonnet-4-5", tools=tools, provider=Scripted(ModelReplied(CALLS), "Done."), home=home) as agent:
            await agent.ask("Improve the pictures.")
            check(agent)

    asyncio.run(work())
    return home


def test_a_call_is_recorded_with_the_class_that_only_the_declaration_tells() -> None:
    def check(agent: Agent) -> None:
        calls = [item.content for item in agent.session.log.view.items if isinstance(item.content, ToolCall)]
        assert [(call.tool, call.kind) for call in calls] == [("peek", "read"), ("touch_up", "edit"), ("roll", ""), ("roll", "")]

    worked(check)


def test_pins_restoration_masks_and_stubs_go_by_the_declared_class() -> None:
    def check(agent: Agent) -> None:
        session = agent.session
        session.pin(paths=("cat.svg",))
        view = session.log.view
        names = {item.content.call_id: item.id for item in view.items if isinstance(item.content, ToolCall)}
        call = view[names["c1"]].content
        assert names["c1"] in pinned(view)
        assert names["c2"] not in pinned(view)
        assert known_paths(view) == {"art/cat.svg", "art/dog.svg"}
        assert len(maskable(view)) == 2
        assert isinstance(call, ToolCall)
        assert stub_text(call, 900, "9.0", 1.0) == "[peek art/cat.svg: 900 tokens, id 9.0]"

    worked(check)


def test_the_evidence_lists_files_by_the_declared_class_and_names_the_other_tools() -> None:
    def check(agent: Agent) -> None:
        evidence = agent.session.derived.evidence.value()
        assert (evidence.read, evidence.edited, evidence.other_tools) == (("art/cat.svg",), ("art/dog.svg",), (("roll", 2),))
        assert "Other tools that were called:\n- roll: 2 calls" in evidence_block(evidence)

    worked(check)


def test_a_later_reader_without_the_tools_finds_the_same() -> None:
    views: list[Any] = []
    home = worked(lambda agent: views.append((agent.id, known_paths(agent.session.log.view))))
    session, paths = views[0]
    with Log.open(home.store, session, FixedClock(0)) as log:
        assert known_paths(log.view) == paths == {"art/cat.svg", "art/dog.svg"}
