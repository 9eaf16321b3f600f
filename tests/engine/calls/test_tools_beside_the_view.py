"""Tool declarations stand beside the view in a request: they must not change how its text is counted."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from palimpsest.agent.agent import Agent
from palimpsest.agent.tool import AgentTool, tool_from
from palimpsest.coding.build import equip
from palimpsest.coding.settings import CodingSettings, refuse_all
from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.items import Text, ToolCall
from palimpsest.core.ports import Sendable
from palimpsest.stores.home import Home


class CountingModel:
    """A model that reads one file after the other, and counts a token for every four bytes of a request."""

    def __init__(self, files: int) -> None:
        self._left = list(range(files))

    async def stream(self, request: Sendable) -> AsyncIterator[ModelReplied]:
        usage = Usage(input=len(request.body) // 4, output=20)
        if not self._left:
            yield ModelReplied((Text("done", "assistant"),), usage=usage, stop="end_turn")
            return
        number = self._left.pop(0)
        call = ToolCall(f"c{number}", "read", json.dumps({"path": f"{number}.txt"}))
        yield ModelReplied((call,), usage=usage, stop="tool_use")


def offered(number: int) -> AgentTool:
    def tool(text: str) -> str:
        return text

    tool.__name__, tool.__doc__ = f"tool_{number}", "Reads the table of a service and returns its rows as text. " * 20
    return tool_from(tool)


def work(folder: Path, model: str, tools: int, files: int) -> tuple[str, float]:
    """How a turn that reads files ends, and the factor of its token counter after it."""
    project = folder / f"{tools}"
    project.mkdir()
    for number in range(files):
        (project / f"{number}.txt").write_text(f"line of file {number} with some words in it\n" * 25)

    async def run() -> tuple[str, float]:
        home = Home.in_memory()
        more = [offered(number) for number in range(tools)]
        async with Agent(model, provider=CountingModel(files), cwd=project, home=home) as agent:
            equip(agent, home, CodingSettings(mode="auto", sandbox="off", snapshots=False), refuse_all)
            tools_by_name = {**agent.toolbox.tools, **{tool.name: tool for tool in more}}
            agent.offer(replace(agent.toolbox, tools=tools_by_name))
            return (await agent.ask("read all files")).stop, agent.session.counter.factor

    return asyncio.run(run())


def test_a_run_with_the_default_card_of_a_local_model_goes_on_for_many_calls(tmp_path: Path) -> None:
    assert work(tmp_path, "local/mine", 0, 12)[0] == "done"


def test_the_factor_of_the_text_is_the_same_with_many_tools_of_servers(tmp_path: Path) -> None:
    (stop, alone), (other, beside) = (work(tmp_path, "claude-sonnet-4-5", tools, 40) for tools in (0, 60))
    assert (stop, other) == ("done", "done")
    assert beside == pytest.approx(alone, rel=0.05)
