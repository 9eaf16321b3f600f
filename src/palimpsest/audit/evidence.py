"""What the log proves about the work so far: paths, commands, tests, errors, the user's words, tasks and names."""

from typing import Self

from palimpsest.core.events import Event
from palimpsest.core.situation import Evidence


class EvidenceTally:
    """Evidence that is being gathered, event by event."""

    def __init__(self) -> None:
        self._value = Evidence()

    @classmethod
    def of(cls, evidence: Evidence) -> Self:
        """A tally that goes on from what is known."""
        tally = cls()
        tally._value = evidence
        return tally

    def take(self, event: Event) -> None:
        """Look at one event."""

    def value(self) -> Evidence:
        """What is proven up to the last event taken."""
        return self._value
