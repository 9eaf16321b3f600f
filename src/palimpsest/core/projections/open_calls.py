"""Open model calls: during a turn call, only its outcome may change the view."""

from typing import ClassVar

from palimpsest.core.events import Body, Event
from palimpsest.core.events.calls import TURN, CallStarted, Failed, Interrupted, ModelReplied, SessionOpened, UserSaid
from palimpsest.core.events.context import (
    ContextStated,
    EditUndone,
    ModeChanged,
    ModelSwitched,
    Pinned,
    ProfileChanged,
    Rewound,
    ViewEdited,
)
from palimpsest.core.events.records import Recalled
from palimpsest.core.events.tools import ToolReturned, ToolsChanged
from palimpsest.core.projections.projection import Scope, StateProjection

_ENTERS_VIEW = frozenset({UserSaid, ToolReturned, ToolsChanged, ContextStated, Recalled, ViewEdited, EditUndone, Rewound})
_CHANGES_VIEW = _ENTERS_VIEW | {ModelSwitched, ProfileChanged, ModeChanged, Pinned}
# The most open calls that are remembered; crashes leave side calls without an outcome.
_MOST_OPEN = 64


class OpenCalls(StateProjection):
    """The calls without an outcome, as the events that started them, with their purposes; `turn` is the open turn call."""

    name: ClassVar = "open_calls"
    watches: ClassVar = _ENTERS_VIEW | {CallStarted, ModelReplied, Interrupted, Failed, SessionOpened}
    version: ClassVar = 1
    # A call ends on whatever branch the session is by then.
    scope: ClassVar[Scope] = "file"
    state_type: ClassVar = dict[int, str]

    def __init__(self) -> None:
        self._open: dict[int, str] = {}
        self.turn: int | None = None

    def forbids(self, body: Body) -> bool:
        """Whether a body would change the view during a turn call without being its outcome."""
        if self.turn is None or self._ends_turn(body):
            return False
        return type(body) in _CHANGES_VIEW or (isinstance(body, CallStarted | ModelReplied | Interrupted) and body.purpose == TURN)

    def ended(self, body: Body) -> int | None:
        """Return the call that a body claims to be the outcome of if that call is not open, else `None`."""
        if isinstance(body, ModelReplied | Interrupted | Failed) and body.call is not None and body.call not in self._open:
            return body.call
        return None

    def take(self, event: Event) -> None:
        """Apply one event. Imported files and forks may continue without an outcome; that ends a turn call too."""
        body = event.body
        if isinstance(body, CallStarted):
            self._open[event.seq] = body.purpose
            if body.purpose == TURN:
                self._end(self.turn)
                self.turn = event.seq
            elif len(self._open) > _MOST_OPEN:
                del self._open[next(seq for seq in self._open if seq != self.turn)]
        elif isinstance(body, ModelReplied | Interrupted | Failed) and body.call is not None and body.call != self.turn:
            self._open.pop(body.call, None)
        elif self.turn is not None and (self._ends_turn(body) or type(body) in _ENTERS_VIEW or isinstance(body, SessionOpened)):
            self._end(self.turn)

    def _end(self, turn: int | None) -> None:
        if turn is not None:
            self._open.pop(turn, None)
            self.turn = None

    def _ends_turn(self, body: Body) -> bool:
        match body:
            case ModelReplied(call=call, purpose=purpose) | Interrupted(call=call, purpose=purpose):
                return purpose == TURN and call in (None, self.turn)
            case Failed(what="call", call=call, purpose=purpose):
                return purpose in ("", TURN) and call in (None, self.turn)
            case _:
                return False

    def value(self) -> dict[int, str]:
        """Return the open calls with their purposes."""
        return self._open

    def start_from(self, calls: dict[int, str]) -> None:
        """Replace the open calls."""
        self._open = calls
        self.turn = next((seq for seq, purpose in calls.items() if purpose == TURN), None)
