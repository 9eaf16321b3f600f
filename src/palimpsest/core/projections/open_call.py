"""The turn call that is under way: while there is one, nothing but its outcome may enter the view."""

from typing import ClassVar

import msgspec

from palimpsest.core.bodies.calls import TURN, CallStarted, Failed, Interrupted, ModelReplied, SessionOpened, UserSaid
from palimpsest.core.bodies.context import ContextStated, EditUndone, Rewound, ViewEdited
from palimpsest.core.bodies.records import Recalled
from palimpsest.core.bodies.tools import ToolReturned
from palimpsest.core.events import Body, Event
from palimpsest.core.projections.projection import Scope

_ENTERS = frozenset({UserSaid, ToolReturned, ContextStated, Recalled, ViewEdited, EditUndone, Rewound})
_numbers = msgspec.json.Decoder(int | None)
_encode = msgspec.json.Encoder().encode


class OpenTurnCall:
    """The event that started the turn call which has no outcome yet, if there is one."""

    name: ClassVar = "open_turn_call"
    watches: ClassVar = _ENTERS | {CallStarted, ModelReplied, Interrupted, Failed, SessionOpened}
    version: ClassVar = 1
    scope: ClassVar[Scope] = "path"

    def __init__(self) -> None:
        self.seq: int | None = None

    def forbids(self, body: Body) -> bool:
        """Whether a body would change the view while the call is under way, and is not its outcome."""
        if self.seq is None or self._ends(body):
            return False
        kind = type(body)
        return kind in _ENTERS or (isinstance(body, CallStarted | ModelReplied | Interrupted) and body.purpose == TURN)

    def take(self, event: Event) -> None:
        """Follow one event. Files of other programs and forks go on without an outcome, which ends the call too."""
        body = event.body
        if isinstance(body, CallStarted):
            if body.purpose == TURN:
                self.seq = event.seq
        elif self.seq is not None and (self._ends(body) or type(body) in _ENTERS or isinstance(body, SessionOpened)):
            self.seq = None

    def _ends(self, body: Body) -> bool:
        match body:
            case ModelReplied(call=call, purpose=purpose) | Interrupted(call=call, purpose=purpose):
                return purpose == TURN and call in (None, self.seq)
            case Failed(what="call", call=call, purpose=purpose):
                return purpose in ("", TURN) and call in (None, self.seq)
            case _:
                return False

    def snapshot(self) -> bytes:
        """The event as JSON."""
        return _encode(self.seq)

    def restore(self, data: bytes) -> None:
        """Go on from a snapshot."""
        self.seq = _numbers.decode(data)

    def reset(self) -> None:
        """Go back to no call."""
        self.seq = None
