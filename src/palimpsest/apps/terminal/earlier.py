"""What of an earlier conversation is shown again when a session is opened: its last turns."""

from typing import Final

from palimpsest.core.events import (
    Event,
    Interrupted,
    ModelReplied,
    ToolRefused,
    ToolReturned,
    ToolStarted,
    TurnEnded,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.log.log import Log

# Events at the end of the log that are looked at, whatever its length, and events that are shown.
_LOOKED_AT: Final = 2_000
MOST_SHOWN: Final = 200
_SHOWN: Final = UserSaid | ModelReplied | Interrupted | ToolStarted | ToolReturned | ToolRefused | ViewEdited | TurnEnded


def earlier_pieces(log: Log) -> tuple[Event, ...]:
    """Return the newest events of the current path that the screen shows, oldest first, from a message of the user on."""
    first = max(1, log.tip - _LOOKED_AT)
    path = log.path
    shown = [event for event in log.reader.run(first, log.tip) if event.seq in path and isinstance(event.body, _SHOWN)]
    shown = shown[-MOST_SHOWN:]
    start = next((place for place, event in enumerate(shown) if isinstance(event.body, UserSaid)), 0)
    return tuple(shown[start:])
