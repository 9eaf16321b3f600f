"""Prompts of MCP servers, which a user inserts by name: `/mcp__SERVER__PROMPT argument argument`."""

import shlex
from collections.abc import Sequence
from typing import Final

import mcp_types as types

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Part, Text
from palimpsest.tools.mcp.connection import ServerConnection
from palimpsest.tools.mcp.results import blocks_output
from palimpsest.tools.mcp.tools import PREFIX, tool_name
from palimpsest.tools.tool import one_line
from palimpsest.tools.workspace import Workspace

COMMAND: Final = f"/{PREFIX}"


def prompt_commands(connection: ServerConnection) -> tuple[tuple[str, types.Prompt], ...]:
    """The prompts of a server, each with the command that inserts it."""
    return tuple((f"/{tool_name(connection.label, prompt.name)}", prompt) for prompt in connection.catalogue.prompts)


async def expanded_prompt(text: str, connections: Sequence[ServerConnection], workspace: Workspace) -> tuple[Part, ...]:
    """The message that a prompt makes of the user's text: a line that names it, and then the messages of the server.

    The words behind the name are the arguments in their order; the last one takes all words that are left. Raises `BadInput` if there is no
    such prompt or an argument is missing, `ToolError` if the server does not give it.
    """
    command, _, rest = text.strip().partition(" ")
    known = [(name, prompt, each) for each in connections for name, prompt in prompt_commands(each)]
    found = next(((prompt, each) for name, prompt, each in known if name == command), None)
    if found is None:
        names = ", ".join(name for name, _, _ in known) or "none"
        raise BadInput(
            f"there is no prompt {one_line(command, 80)}; the prompts of the connected MCP servers are: {one_line(names, 1_000)}"
        )
    prompt, connection = found
    result = await connection.get_prompt(prompt.name, _arguments(prompt, rest, command))
    parts: list[Part] = [
        Text(f"The prompt {one_line(prompt.name, 100)} of the MCP server {connection.label}, which I inserted:", attached=True)
    ]
    for message in result.messages:
        output = blocks_output((message.content,), workspace.keep)
        # A server may propose replies; they are shown as what they are.
        lead = "" if message.role == "user" else "[proposed reply]\n"
        parts += (Text(f"{lead}{output.text}", attached=True),) if output.text else ()
        parts += output.parts
    return tuple(parts)


def _arguments(prompt: types.Prompt, text: str, command: str) -> dict[str, str]:
    declared = prompt.arguments or []
    try:
        words = shlex.split(text)
    except ValueError:
        # An apostrophe is no open quote to a person.
        words = text.split()
    if len(words) > len(declared) > 0:
        words = [*words[: len(declared) - 1], " ".join(words[len(declared) - 1 :])]
    if words and not declared:
        raise BadInput(f"the prompt {command} has no arguments")
    given = dict(zip((each.name for each in declared), words, strict=False))
    missing = [each.name for each in declared if each.required and each.name not in given]
    if missing:
        raise BadInput(f"the prompt {command} needs the arguments {one_line(', '.join(each.name for each in declared))}")
    return given
