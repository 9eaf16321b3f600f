"""The tool `tool_search`: finds tools that are not declared to the model yet, and loads those that fit a query."""

from collections.abc import Callable
from typing import Annotated, Final

from msgspec import Meta, Struct

from palimpsest.tools.tool import AgentTool, ToolOutput, define, one_line
from palimpsest.tools.workspace import Workspace
from palimpsest.wire.request import Tool

SEARCH: Final = "tool_search"
LONGEST_DESCRIPTION: Final = 500
"""Characters of a description in a result; the whole description is part of the declaration."""


class ToolQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Words about what is needed, or `select:NAME,NAME` for tools whose names are known."""

    query: Annotated[str, Meta(min_length=1, max_length=500)]


def tool_search_tool(load: Callable[[str], tuple[Tool, ...]]) -> AgentTool:
    """The tool. `load` returns the tools that fit a query, best first, and has them declared from the next call on."""

    async def search(arguments: ToolQuery, _: Workspace) -> ToolOutput:
        found = load(arguments.query)
        if not found:
            return ToolOutput("No tool fits. Use other words, or `select:NAME` with a name from the list of tools that are not loaded.")
        lines = [f"{tool.name}: {one_line(tool.description, LONGEST_DESCRIPTION)}" for tool in found]
        return ToolOutput("\n".join(("These tools are loaded and can be called from now on:", *lines)))

    return define(
        ToolQuery,
        search,
        name=SEARCH,
        description=(
            "Find and load tools that exist but are not loaded; the context lists their names. Describe what you need in a few words, or "
            "give the names as `select:NAME,NAME`. The tools that fit best can be called after this."
        ),
        kind="reports",
    )
