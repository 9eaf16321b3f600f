"""Queued user input: typed, but not yet part of the conversation."""

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
        """Queue typed input, and remove input that entered the conversation."""
        body = event.body
        if isinstance(body, UserTyped):
            self._queued[event.seq] = None
        elif isinstance(body, UserSaid) and body.typed is not None:
            self._queued.pop(body.typed, None)

    def value(self) -> tuple[int, ...]:
        """Return the sequence numbers of queued input, oldest first."""
        return tuple(self._queued)

    def snapshot(self) -> bytes:
        """Return the queue as JSON."""
        return _encode(self.value())

    def restore(self, data: bytes) -> None:
        """Replace the queue by a snapshot. Raises `msgspec.DecodeError` if it is invalid."""
        self._queued = dict.fromkeys(_queues.decode(data))

    def reset(self) -> None:
        """Empty the queue."""
        self._queued = {}
