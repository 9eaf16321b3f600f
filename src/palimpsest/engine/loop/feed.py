"""The feed of a session: its new events and stream deltas, in order, for user interfaces."""

from collections.abc import Callable
from typing import TypeAlias

from palimpsest.core.events import Event
from palimpsest.core.events.deltas import Delta
from palimpsest.core.log.log import Log

Piece: TypeAlias = Event | Delta
"""What a user interface follows."""


class Feed:
    """Publishes what happens in a session to one follower, or to none if `publish` is `None`.

    Events are read back from the log, so the follower gets each recorded event exactly once and in order, regardless of what recorded it.
    """

    def __init__(self, log: Log, publish: Callable[[Piece], None] | None) -> None:
        self._log = log
        self._publish = publish
        self._cursor = log.tip

    def delta(self, delta: Delta) -> None:
        """Publish the events so far, then one stream delta."""
        self.events()
        if self._publish is not None:
            self._publish(delta)

    def events(self) -> None:
        """Publish the events that were recorded since the last time."""
        publish, tip = self._publish, self._log.tip
        if publish is not None and tip > self._cursor:
            first, self._cursor = self._cursor + 1, tip
            for event in self._log.reader.run(first, tip):
                publish(event)


def unfollowed(log: Log) -> Feed:
    """Return the feed of a session that has no follower."""
    return Feed(log, None)
