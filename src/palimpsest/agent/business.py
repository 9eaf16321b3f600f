"""Business state: the state of a session's task in a declared state machine, and the tool `set_state` that changes it."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw, Struct

from palimpsest.agent.session import Session
from palimpsest.agent.tool import AgentTool, ToolOutput, define
from palimpsest.agent.workspace import Workspace
from palimpsest.core.errors import BadInput
from palimpsest.core.events import TaskChanged
from palimpsest.core.items import seq_of
from palimpsest.core.view import CHANGED
from palimpsest.policies.profile import Profile
from palimpsest.sources.progress import KEY, StateMachine
from palimpsest.sources.source import stated_value

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


class BusinessState:
    """The current state, which the developer's code changes with `transition`; a model can change it only by the tool `set_state`.

    A change is recorded at once and stated to the model at the next safe point of the turn, or with the next turn. Raises `BadInput` if the
    profile of the session does not state it.
    """

    def __init__(self, session: Session, machine: StateMachine) -> None:
        require_source(session.profile)
        self.machine = machine
        self._session = session
        self._unstated = _unstated_move(session)
        self._last = machine.start

    @property
    def current(self) -> str:
        """The state of now: the one that the view states, unless a newer one was not stated yet, or a fold removed the statement."""
        view = self._session.log.view
        if stated_value(view, KEY) is not None:
            self._last = self.machine.current(view)
            if self._unstated == self._last:
                # From here on the view alone tells it, so that going back in the conversation goes back to its state too.
                self._unstated = ""
        return self._unstated if self._unstated in self.machine.states else self._last

    def value(self) -> tuple[str, str]:
        """Name and meaning of the current state, as `SessionState.business` holds them."""
        return self.machine.stated(self.current)

    def transition(self, target: str) -> None:
        """Move to another state and record it. Raises `BadInput` for an unknown state or a forbidden transition."""
        state = self.machine.transition(self.current, target)
        self._session.log.append(state_event(target))
        self._unstated = state

    def tool(self) -> AgentTool:
        """The tool `set_state`, for agents whose model may change the state."""
        return state_tool(self.machine.states, self._moved)

    def _moved(self, target: str) -> TaskChanged:
        self._unstated = self.machine.transition(self.current, target)
        return state_event(target)


def require_source(profile: Profile) -> None:
    """Raise `BadInput` if a profile does not state the business state."""
    if all(source.key != KEY for source in profile.sources.sources):
        raise BadInput(f"the profile {profile.name!r} does not state the business state; use palimpsest or classroom", where=KEY)


def _unstated_move(session: Session) -> str:
    """The newest recorded state that was not stated, as after a crash between the two; empty if there is none."""
    log = session.log
    facts = (fact for key in (KEY, f"{KEY}{CHANGED}") if (fact := log.view.facts.get(key)) is not None)
    first = max((seq_of(fact.id) + 1 for fact in facts), default=1)
    newest = ""
    for event in log.reader.run(first, log.tip):
        if isinstance(event.body, TaskChanged) and event.seq in log.path:
            newest = recorded_state(event.body) or newest
    return newest
