"""Our own ledger of what the provider keeps cached: marks sent, times, lifetimes, corrected by reported reads."""

from typing import Self

from palimpsest.core.events import Event
from palimpsest.core.scale import Scale
from palimpsest.core.situation import Cache, Card
from palimpsest.core.view import View


class CacheTally:
    """A belief about the cache that is being kept, event by event."""

    def __init__(self) -> None:
        self._value = Cache()

    @classmethod
    def of(cls, cache: Cache) -> Self:
        """A tally that goes on from a belief."""
        tally = cls()
        tally._value = cache
        return tally

    def take(self, event: Event, view: View, scale: Scale, card: Card) -> None:
        """Look at one event and the view after it."""

    def value(self) -> Cache:
        """What we believe now."""
        return self._value
