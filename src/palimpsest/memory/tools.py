"""The memory tools that an agent offers to its model."""

import asyncio

from palimpsest.agent.tool import AgentTool, ToolOutput, define
from palimpsest.agent.workspace import Workspace
from palimpsest.memory.session_memory import SessionMemory
from palimpsest.memory.tool_calls import REMEMBER, RememberArguments


def memory_tools(memory: SessionMemory | None) -> tuple[AgentTool, ...]:
    """Return `remember`, or with the setting `memory.tool` the tool `memory` in its place; none without memory, and none for a sub-agent.

    Notes that are plain files need none: the model has tools for files.
    Two tools for one thing would cost tokens in each request. What a sub-agent learns goes into its report, and its parent decides what
    to keep.
    """
    if memory is None or memory.in_files or memory.session.log.opened.opener is not None:
        return ()
    return (_memory_tool(memory),) if memory.config.tool else (_remember_tool(memory),)


def _remember_tool(memory: SessionMemory) -> AgentTool:
    """The tool. What becomes of a call is decided by whose words it quotes, not by what it says about itself."""

    async def remember(given: RememberArguments, _: Workspace) -> ToolOutput:
        # Loaded and opened with the first call: a session that saves no note does not look for any.
        from palimpsest.memory.remembering import remember_in_session

        return await asyncio.to_thread(remember_in_session, memory.memories, given, memory.root, memory.session.log)

    return define(
        RememberArguments,
        remember,
        name=REMEMBER,
        description=(
            "Save one fact for later sessions, when the user asks for it or says something that will still matter then: a preference, a "
            "correction, a decision with its reason, where something is found. Give the user's own words in `quote`, and keep to them in "
            "`text` and `about`; without them only project and reference notes can be saved. Do not save what code, history or instruction "
            "files say, the state of the present task, or secrets. To correct a note, name it in `replaces`. Write dates in full."
        ),
        kind="remembers",
    )


def _memory_tool(memory: SessionMemory) -> AgentTool:
    from palimpsest.memory.tree import SessionTree, memory_tool

    return memory_tool(SessionTree(memory.session, memory.root, lambda: memory.memories))
