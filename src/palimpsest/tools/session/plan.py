"""The tool `exit_plan_mode`: the model hands over a plan, which is kept in a file that the user may change."""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from palimpsest.core.errors import BadInput
from palimpsest.tools.tool import AgentTool, ToolOutput, define
from palimpsest.tools.workspace import Workspace

EXIT_PLAN_MODE: Final = "exit_plan_mode"


class ExitPlanModeArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """`plan` is the whole plan as Markdown."""

    plan: str


def plan_tool(keep: Callable[[str], str], is_planning: Callable[[], bool]) -> AgentTool:
    """Return the tool. `keep` writes a plan to its file and returns the path; outside of plan mode the call is refused."""

    async def hand_over(arguments: ExitPlanModeArguments, _: Workspace) -> ToolOutput:
        if not is_planning():
            raise BadInput("plan mode is not on, so there is no plan to hand over; go on with the work")
        if not arguments.plan.strip():
            raise BadInput("the plan is empty; give the whole plan")
        path = keep(arguments.plan)
        return ToolOutput(f"The plan is kept in {path}. End your turn now: the user reads it, may change it, and decides.")

    return define(
        ExitPlanModeArguments,
        hand_over,
        name=EXIT_PLAN_MODE,
        description=(
            "Only in plan mode: hand over the finished plan. It is kept in a file, shown to the user, who may change it, and stated again "
            "after a compaction. Plan mode ends when the user ends it."
        ),
        kind="reports",
    )
