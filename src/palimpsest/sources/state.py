"""Business state: a state machine that the developer of an agent declares, and the source that states where the task is."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from palimpsest.core.errors import BadInput
from palimpsest.core.format.tags import without_tags
from palimpsest.core.view import View
from palimpsest.sources.reconcile import stated_value
from palimpsest.sources.source import Fields, Source, World

KEY: Final = "business_state"


class StateMachine(Struct, frozen=True):
    """The states of a task with one line of meaning each, the state at the start, and the allowed transitions.

    Without `transitions` every state can follow every other. Raises `BadInput` if a state has no name, a meaning spans lines, or the start
    or a transition names an unknown state.
    """

    states: Mapping[str, str]
    start: str
    transitions: Mapping[str, frozenset[str]] | None = None

    def __post_init__(self) -> None:
        for name, meaning in self.states.items():
            if not name.strip() or len(f"{name}{meaning}".splitlines()) > 1:
                raise BadInput(f"the state {name!r} needs a name and a meaning of one line", where=KEY)
        self.check(self.start)
        for origin, targets in (self.transitions or {}).items():
            for name in (origin, *sorted(targets)):
                self.check(name)

    def check(self, name: str) -> None:
        """Raise `BadInput` if there is no such state."""
        if name not in self.states:
            raise BadInput(f"there is no state {name!r}; declared are {', '.join(self.states)}", where=KEY)

    def transition(self, current: str, target: str) -> str:
        """Return the target state; staying is always allowed. Raises `BadInput` for an unknown state or a forbidden transition."""
        self.check(current)
        self.check(target)
        if target == current or self.transitions is None:
            return target
        allowed = self.transitions.get(current, frozenset())
        if target not in allowed:
            options = ", ".join(sorted(allowed)) or "no other state"
            raise BadInput(f"{current!r} cannot become {target!r}; it can become {options}", where=KEY)
        return target

    def stated(self, name: str) -> tuple[str, str]:
        """Return name and meaning of a state, as `SessionState.business` holds them. Raises `BadInput` if there is no such state."""
        self.check(name)
        return name, self.states[name]

    def current(self, view: View) -> str:
        """Return the state that the view states, the start if it states none; for a session that is resumed."""
        fields = stated_value(view, KEY)
        name = self.start if fields is None else fields.get("state", self.start)
        return name if name in self.states else self.start


def business_state() -> Source:
    """Return the source of the business state; its value comes from the developer's code and never from a model."""

    def observed(world: World) -> Fields | None:
        business = world.state.business
        return None if business is None else {"state": business[0], "meaning": business[1]}

    def baseline(fields: Fields) -> str:
        meaning = f" — {fields['meaning']}" if fields["meaning"] else ""
        return f"<business_state>{without_tags(fields['state'] + meaning, KEY)}</business_state>"

    return Source(KEY, observed, baseline, role="system", removal="<business_state>none</business_state>")
