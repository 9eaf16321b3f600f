"""A session with notes, and the tools of memory in it."""

import asyncio
from pathlib import Path

import msgspec

from palimpsest.agent.agent import Agent
from palimpsest.agent.tool import CURRENT_CALL, ToolOutput
from palimpsest.core.events import Body, ModelReplied, ToolReturned, UserSaid
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.memory.session_memory import SessionMemory, session_memory
from palimpsest.memory.tools import memory_tools
from palimpsest.memory.tree import SessionTree
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.home import FolderHome
from palimpsest.stores.in_memory import FixedClock
from palimpsest.stores.memory_config import MemoryConfig

MODEL = "claude-sonnet-4-5"
NOW = 1_780_000_000_000


class MemorySession:
    """An agent in a home of its own, whose events a test writes and whose memory tool it calls."""

    def __init__(self, folder: Path, *, tool: bool = True) -> None:
        (folder / "project").mkdir(exist_ok=True)
        self.home = FolderHome(folder / "home", FixedClock(NOW, 1_000))
        self.agent = Agent(MODEL, provider=Scripted(), cwd=folder / "project", home=self.home)
        found = session_memory(self.agent.session, self.agent.toolbox.workspace.root, self.home, MemoryConfig(tool=tool))
        assert found is not None
        self.memory: SessionMemory = found
        (self.tool,) = memory_tools(found)
        self.calls = 0

    @property
    def id(self) -> str:
        return self.agent.id

    def user(self, text: str) -> str:
        """Let the user say something; returns the id of the event."""
        return self._append(UserSaid((Text(text),)))

    def result(self, text: str, tool: str) -> str:
        """Record a result of a tool; returns the id of the event."""
        self.calls += 1
        call = f"r{self.calls}"
        self._append(ModelReplied((ToolCall(call, tool, "{}"),)))
        return self._append(ToolReturned(ToolResult(call, (Text(text),)), tool))

    def call(self, **arguments: object) -> ToolOutput:
        """Call the tool as a model does: the reply is recorded, and so are the events of the result."""
        return self.run(msgspec.json.encode(arguments).decode())

    def run(self, arguments: str) -> ToolOutput:
        """Call the tool with arguments as JSON."""
        self.calls += 1
        call = f"c{self.calls}"
        self._append(ModelReplied((ToolCall(call, self.tool.name, arguments),)))
        token = CURRENT_CALL.set(call)
        try:
            output = asyncio.run(self.tool.run(arguments, self.agent.toolbox.workspace))
        finally:
            CURRENT_CALL.reset(token)
        for body in output.events:
            self._append(body)
        self._append(ToolReturned(ToolResult(call, (Text(output.text),), error=output.error), self.tool.name))
        return output

    def names(self) -> list[str]:
        """The names of all active notes."""
        return sorted(note.name for _, note in self.memory.memories.active())

    @staticmethod
    def files_of(session: "MemorySession") -> dict[str, str]:
        """The files that a new tree over the same notes shows, sorted by path."""
        tree = SessionTree(session.agent.session, session.agent.toolbox.workspace.root, lambda: session.memory.memories)
        return dict(sorted(tree.files().items()))

    def _append(self, body: Body) -> str:
        event = self.agent.session.log.append(body, foreign=True)
        return f"{self.id}:{event.seq}"
