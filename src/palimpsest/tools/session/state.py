"""The tool `set_state`: the model moves the task to another business state, if the developer of the agent offers it."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw, Struct

from palimpsest.core.events import TaskChanged
from palimpsest.tools.tool import AgentTool, ToolOutput, define
from palimpsest.tools.workspace import Workspace

BUSINESS_STATE: Final = "business_state"
"""The name of the state in `TaskChanged.task`."""


class StateRecord(Struct, frozen=True):
    """The state of a `TaskChanged` of `BUSINESS_STATE`."""

    state: str


def state_event(state: str) -> TaskChanged:
    """The event that records a new state."""
    return TaskChanged(BUSINESS_STATE, "moved", Raw(msgspec.json.encode(StateRecord(state))))


def recorded_state(event: TaskChanged) -> str:
    """The state that an event records; empty if it records none."""
    if event.task != BUSINESS_STATE:
        return ""
    try:
        return msgspec.json.decode(event.state, type=StateRecord).state
    except msgspec.DecodeError:
        return ""


def state_tool(states: Mapping[str, str], transition: Callable[[str], TaskChanged]) -> AgentTool:
    """The tool over declared states with their meanings.

    `transition` checks a transition and returns the event that records it; it raises `PalimpsestError` if the transition is not
    allowed, which the model gets as an error result.
    """
    # The names are declared, so that a model which obeys the schema cannot invent one; `transition` checks them in any case.
    name_type: Any = Annotated[str, Meta(extra_json_schema={"enum": list(states)})]
    arguments: type[Struct] = msgspec.defstruct("StateArguments", [("state", name_type)], frozen=True, forbid_unknown_fields=True)

    async def set_state(given: Struct, _: Workspace) -> ToolOutput:
        state: str = msgspec.structs.astuple(given)[0]
        event = transition(state)
        meaning = f" — {states[state]}" if states[state] else ""
        return ToolOutput(f"The state is now {state}{meaning}.", events=(event,))

    listed = "; ".join(f"{name}: {meaning}" if meaning else name for name, meaning in states.items())
    return define(
        arguments,
        set_state,
        name="set_state",
        description=f"Say in which state the task is now, when that changes. The states are: {listed}.",
        kind="reports",
    )
