"""A backend for the memory tool of the anthropic SDK: its files are the notes of a project, which every session of it shares."""

from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec

from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.follow.conversation import Conversation
from palimpsest.memory.notebook import memories_of
from palimpsest.memory.tree import MemoryCommand, SessionTree, carry_out

_COMMANDS: Final = ("view", "create", "str_replace", "insert", "delete", "rename")


def memory_tool(conversation: Conversation, project: str | Path = ".") -> Any:
    """Return a tool for `client.beta.messages.tool_runner(tools=[...])`, or for a loop that calls `tool.call(block.input)`.

    Each change is judged as in a session of `pal`: it must quote what the user or the model said in this conversation, and `pal memory`
    lists, explains and undoes it. Raises `BadInput` for a conversation in memory, `ImportError` without the package `anthropic`.
    """
    tools = import_module("anthropic.lib.tools")
    root = Path(project).resolve()
    memories = memories_of(conversation.home, root)
    if memories is None:
        raise BadInput("a conversation in memory has no notes; open it with a home", where="memory")
    tree, log = SessionTree(conversation.session, root, lambda: memories), conversation.session.log

    def run(_: object, command: Any) -> str:
        try:
            given = msgspec.convert(command.model_dump(exclude_none=True), MemoryCommand)
            output = carry_out(tree, given)
        except (PalimpsestError, msgspec.ValidationError) as error:
            raise tools.ToolError(f"Error: {error}") from error
        for event in output.events:
            log.append(event)
        return output.text

    return type("PalimpsestMemoryTool", (tools.BetaAbstractMemoryTool,), dict.fromkeys(_COMMANDS, run))()
