"""The calls that have no outcome yet: while a turn call is under way, nothing but its outcome may change the view."""

from typing import ClassVar

import msgspec

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
from palimpsest.core.events.tools import ToolReturned
from palimpsest.core.projections.projection import Scope

_ENTERS = frozenset({UserSaid, ToolReturned, ContextStated, Recalled, ViewEdited, EditUndone, Rewound})
_CHANGES = _ENTERS | {ModelSwitched, ProfileChanged, ModeChanged, Pinned}
# Side calls that are remembered as open; a crash leaves some without an outcome, and they are of no use then.
_MOST_OPEN = 64
_calls = msgspec.json.Decoder(dict[int, str])
_encode = msgspec.json.Encoder().encode


class OpenCalls:
    """The events that started the calls which have no outcome yet, with their purposes; `turn` is the one of the conversation."""

    name: ClassVar = "open_calls"
    watches: ClassVar = _ENTERS | {CallStarted, ModelReplied, Interrupted, Failed, SessionOpened}
    version: ClassVar = 1
    scope: ClassVar[Scope] = "path"

    def __init__(self) -> None:
        self._open: dict[int, str] = {}
        self.turn: int | None = None

    def forbids(self, body: Body) -> bool:
        """Whether a body would change the view while a turn call is under way, and is not its outcome."""
        if self.turn is None or self._ends_turn(body):
            return False
        return type(body) in _CHANGES or (isinstance(body, CallStarted | ModelReplied | Interrupted) and body.purpose == TURN)

    def ended(self, body: Body) -> int | None:
        """The call that a body claims to be the outcome of, if that call is not under way."""
        if isinstance(body, ModelReplied | Interrupted | Failed) and body.call is not None and body.call not in self._open:
            return body.call
        return None

    def take(self, event: Event) -> None:
        """Follow one event. Files of other programs and forks go on without an outcome, which ends a turn call too."""
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
        elif self.turn is not None and (self._ends_turn(body) or type(body) in _ENTERS or isinstance(body, SessionOpened)):
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

    def snapshot(self) -> bytes:
        """The calls as JSON."""
        return _encode(self._open)

    def restore(self, data: bytes) -> None:
        """Go on from a snapshot."""
        self._open = _calls.decode(data)
        self.turn = next((seq for seq, purpose in self._open.items() if purpose == TURN), None)

    def reset(self) -> None:
        """Go back to no call."""
        self._open = {}
        self.turn = None
