"""The feed of a session: its new events and stream deltas, in order, for user interfaces."""

from collections.abc import Callable
from typing import TypeAlias

from palimpsest.core.deltas import Delta
from palimpsest.core.events import Event
from palimpsest.core.log import Log

Piece: TypeAlias = Event | Delta
"""What a user interface follows."""


class Feed:
    """Publishes what happens in a session to one follower, or to none if `publish` is `None`.

    Events are read back from the log, so the follower gets each recorded event exactly once and in order, regardless of what recorded it.
    `cursor` is the newest event that was published; it starts with the newest of the log, or where an earlier feed stopped.
    """

    def __init__(self, log: Log, publish: Callable[[Piece], None] | None, cursor: int | None = None) -> None:
        self._log = log
        self._publish = publish
        self.cursor = log.tip if cursor is None else cursor

    def delta(self, delta: Delta) -> None:
        """Publish the events so far, then one stream delta."""
        self.events()
        if self._publish is not None:
            self._publish(delta)

    def events(self) -> None:
        """Publish the events that were recorded since the last time."""
        if self._publish is not None:
            for event in self.unpublished():
                self._publish(event)

    def unpublished(self) -> tuple[Event, ...]:
        """Return the events that were recorded since the last time, as published ones."""
        first, self.cursor = self.cursor + 1, self._log.tip
        return tuple(self._log.reader.run(first, self.cursor)) if first <= self.cursor else ()


def unfollowed(log: Log) -> Feed:
    """Return the feed of a session that has no follower."""
    return Feed(log, None)
