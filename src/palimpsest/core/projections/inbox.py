"""Queued user input: what was typed and has not yet entered the conversation."""

from typing import ClassVar

import msgspec

from palimpsest.core.events import Event
from palimpsest.core.events.calls import UserSaid, UserTyped
from palimpsest.core.projections.projection import Scope

_queues = msgspec.json.Decoder(tuple[int, ...])
_encode = msgspec.json.Encoder().encode


class InboxProjection:
    """Sequence numbers of queued input, oldest first. A rewind keeps them."""

    name: ClassVar = "inbox"
    version: ClassVar = 1
    watches: ClassVar = frozenset({UserTyped, UserSaid})
    scope: ClassVar[Scope] = "file"

    def __init__(self) -> None:
        self._queued: dict[int, None] = {}

    def take(self, event: Event) -> None:
        """Queue what was typed, and take off what has been said."""
        body = event.body
        if isinstance(body, UserTyped):
            self._queued[event.seq] = None
        elif isinstance(body, UserSaid) and body.typed is not None:
            self._queued.pop(body.typed, None)

    def value(self) -> tuple[int, ...]:
        """The queued events."""
        return tuple(self._queued)

    def snapshot(self) -> bytes:
        """The queued events as JSON."""
        return _encode(self.value())

    def restore(self, data: bytes) -> None:
        """Go on from a snapshot."""
        self._queued = dict.fromkeys(_queues.decode(data))

    def reset(self) -> None:
        """Go back to an empty queue."""
        self._queued = {}
