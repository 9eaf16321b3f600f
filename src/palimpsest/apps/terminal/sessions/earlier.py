"""What of an earlier conversation is shown again when a session is opened: its last turns."""

from typing import Final

from palimpsest.apps.terminal.screen.tool_titles import one_line
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
from palimpsest.core.items import Content, Text
from palimpsest.core.log.log import Log

# Events at the end of the log that are looked at, whatever its length, and events that are shown.
_LOOKED_AT: Final = 2_000
MOST_SHOWN: Final = 200
# Lines of a preview, and characters of a line.
_MOST_WORDS: Final = 4
_LINE: Final = 160
_SHOWN: Final = UserSaid | ModelReplied | Interrupted | ToolStarted | ToolReturned | ToolRefused | ViewEdited | TurnEnded


def earlier_pieces(log: Log) -> tuple[Event, ...]:
    """Return the newest events of the current path that the screen shows, oldest first, from a message of the user on."""
    first = max(1, log.tip - _LOOKED_AT)
    path = log.path
    shown = [event for event in log.reader.run(first, log.tip) if event.seq in path and isinstance(event.body, _SHOWN)]
    shown = shown[-MOST_SHOWN:]
    start = next((place for place, event in enumerate(shown) if isinstance(event.body, UserSaid)), 0)
    return tuple(shown[start:])


def last_words(log: Log) -> tuple[str, ...]:
    """Return the last messages and replies of a session, a line each, oldest first; at most four."""
    lines: list[str] = []
    for event in earlier_pieces(log):
        match event.body:
            case UserSaid(parts=parts):
                lines += _line("❯", parts)
            case ModelReplied(parts=parts, purpose="turn"):
                lines += _line("·", parts)
            case Interrupted(parts=parts, purpose="turn"):
                lines += _line("· (interrupted)", parts)
            case _:
                continue
    return tuple(lines[-_MOST_WORDS:])


def _line(mark: str, parts: tuple[Content, ...]) -> list[str]:
    text = " ".join(part.text for part in parts if isinstance(part, Text))
    return [f"{mark} {one_line(text, _LINE)}"] if text.strip() else []
