"""The memory tools that an agent offers to its model."""

from msgspec import Struct

from palimpsest.agent.tool import AgentTool, ToolOutput
from palimpsest.memory.session_memory import SessionMemory
from palimpsest.memory.tool_calls import RememberArguments, remember_tool


def memory_tools(memory: SessionMemory | None) -> tuple[AgentTool, ...]:
    """Return `remember`, or with the setting `memory.tool` the tool `memory` in its place; none without memory, and none for a sub-agent.

    Notes that are plain files need none: the model has tools for files.
    Two tools for one thing would cost tokens in each request. What a sub-agent learns goes into its report, and its parent decides what
    to keep.
    """
    if memory is None or memory.in_files or memory.agent.session.log.opened.opener is not None:
        return ()
    return (_memory_tool(memory),) if memory.config.tool else (remember_tool(_Keeper(memory)),)


class _Keeper(Struct, frozen=True):
    """Opens the notes with the first call: a session that saves none does not look for them."""

    memory: SessionMemory

    async def remember(self, given: RememberArguments) -> ToolOutput:
        """Save a note, see `SessionKeeper.remember`."""
        from palimpsest.memory.remembering import SessionKeeper

        agent = self.memory.agent
        return await SessionKeeper(agent.session, agent.toolbox.workspace.root, self.memory.memories).remember(given)


def _memory_tool(memory: SessionMemory) -> AgentTool:
    from palimpsest.memory.tool_calls import memory_tool
    from palimpsest.memory.tree import SessionTree

    return memory_tool(SessionTree(memory.agent.session, memory.agent.toolbox.workspace.root, memory))
