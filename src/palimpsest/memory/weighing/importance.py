"""The importance of a note: how often it was used, how old it is, how much the user cared, and how many notes say nearly the same."""

import math
from datetime import UTC, datetime
from typing import Final

from palimpsest.core.items import Value
from palimpsest.memory.note import Note, NoteKind, time_of

_DAY_SECONDS: Final = 86_400.0


class Weighing(Value, frozen=True):
    """The weights of the four factors, which add up to 1, half-lives in days by kind, and the bound below which a note is compressible."""

    uses: float = 0.35
    age: float = 0.30
    intensity: float = 0.15
    uniqueness: float = 0.20
    uses_scale: float = 3.0
    compressible_below: float = 0.35
    user_days: float = 365.0
    feedback_days: float = 365.0
    project_days: float = 60.0
    reference_days: float = 180.0

    def half_life(self, kind: NoteKind) -> float:
        """Return the half-life of a kind, in days."""
        match kind:
            case "user":
                return self.user_days
            case "feedback":
                return self.feedback_days
            case "project":
                return self.project_days
            case "reference":
                return self.reference_days


DEFAULT_WEIGHING: Final = Weighing()


def importance(note: Note, now: datetime, near_duplicates: int, weighing: Weighing = DEFAULT_WEIGHING) -> float:
    """Return the importance of a note at a time, from 0 to 1. `near_duplicates` counts other active notes that say nearly the same."""
    age = max(0.0, (now - newest_time(note)).total_seconds() / _DAY_SECONDS)
    return (
        weighing.uses * (1 - math.exp(-note.uses / weighing.uses_scale))
        + weighing.age * 2 ** (-age / weighing.half_life(note.kind))
        + weighing.intensity * note.intensity
        + weighing.uniqueness / (1 + near_duplicates)
    )


def is_compressible(note: Note, now: datetime, near_duplicates: int, weighing: Weighing = DEFAULT_WEIGHING) -> bool:
    """Return whether a note may be replaced by one that stands for it; a pinned one never."""
    return not note.pinned and importance(note, now, near_duplicates, weighing) < weighing.compressible_below


def newest_time(note: Note) -> datetime:
    """Return the time of the newest evidence or of the last use, whichever is later."""
    return max(time_of(note.when), time_of(note.last_used) if note.last_used else datetime.min.replace(tzinfo=UTC))
