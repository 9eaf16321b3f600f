"""Where Codex cuts a session that is forked."""

from palimpsest.core.events import UserSaid
from palimpsest.core.log import Log


def fork_point(log: Log, message: int) -> int | None:
    """The event right before the user's message of that number, counted from 0 along the path; none if there are not so many."""
    before = log.reader.first
    for event in log.reader.along(log.path):
        if isinstance(event.body, UserSaid):
            if not message:
                return before
            message -= 1
        before = event.seq
    return None
