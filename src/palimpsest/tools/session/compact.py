"""The tool `compact`: the model asks for a compaction, which the loop carries out after the results of the reply are recorded."""

from typing import Final

from msgspec import Struct

from palimpsest.tools.tool import AgentTool, ToolOutput, define
from palimpsest.tools.workspace import Workspace

COMPACT: Final = "compact"
"""The name by which the engine finds the call; `engine.policies.compact_focus` reads its arguments."""
_RESULT: Final = "The conversation will be compacted after the results of this reply. What leaves it can be fetched again with `recall`."


class CompactArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """`focus` says what the summary should keep above all."""

    focus: str = ""


def compact_tool() -> AgentTool:
    """The tool. It only answers: folding here would part this call from its result."""
    return define(
        CompactArguments,
        _compact,
        name=COMPACT,
        description=(
            "Compact the conversation: earlier messages and results are replaced by a short account. Use it between two pieces of work, "
            "when most of what was read is no longer needed. `focus` names what must be kept."
        ),
        kind="reports",
    )


async def _compact(_: CompactArguments, __: Workspace) -> ToolOutput:
    return ToolOutput(_RESULT)
