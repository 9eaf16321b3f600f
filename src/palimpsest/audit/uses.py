"""The life of each tool result in model calls: when it arrived, was last named, was superseded, and died."""

from typing import Self

from palimpsest.core.events import Event
from palimpsest.core.situation import Use
from palimpsest.core.view import View


class UsesTally:
    """Uses that are being followed, event by event."""

    def __init__(self) -> None:
        self._uses: dict[str, Use] = {}

    @classmethod
    def of(cls, uses: dict[str, Use], view: View) -> Self:
        """A tally that goes on from what is known, with the names that a view shows."""
        tally = cls()
        shown = frozenset(view.ids)
        tally._uses = {name: use for name, use in uses.items() if name in shown}
        return tally

    def take(self, event: Event, view: View) -> None:
        """Look at one event and the view after it."""

    def value(self) -> dict[str, Use]:
        """The life of every result that shows."""
        return dict(self._uses)
