"""Queued user input: typed, but not yet part of the conversation."""

from typing import ClassVar

from palimpsest.core.events import Event
from palimpsest.core.events.calls import InputWithdrawn, UserSaid, UserTyped
from palimpsest.core.projections.projection import Scope, StateProjection


class InboxProjection(StateProjection):
    """Sequence numbers of queued input, oldest first. A rewind keeps them."""

    name: ClassVar = "inbox"
    version: ClassVar = 1
    watches: ClassVar = frozenset({UserTyped, UserSaid, InputWithdrawn})
    scope: ClassVar[Scope] = "file"
    state_type: ClassVar = tuple[int, ...]

    def __init__(self) -> None:
        self._queued: dict[int, None] = {}

    def take(self, event: Event) -> None:
        """Queue typed input, and remove input that entered the conversation or was withdrawn."""
        body = event.body
        if isinstance(body, UserTyped):
            self._queued[event.seq] = None
        elif isinstance(body, UserSaid | InputWithdrawn) and body.typed is not None:
            self._queued.pop(body.typed, None)

    def value(self) -> tuple[int, ...]:
        """Return the sequence numbers of queued input, oldest first."""
        return tuple(self._queued)

    def start_from(self, queued: tuple[int, ...]) -> None:
        """Replace the queue."""
        self._queued = dict.fromkeys(queued)
