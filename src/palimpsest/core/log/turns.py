"""The turns of a session, and the event to which one goes back to take a turn back."""

from collections.abc import Mapping

from palimpsest.core.events import ContextStated, HookRan, Recalled, TurnStarted, UserSaid, UserTyped
from palimpsest.core.log.log import Log


def turns_of(log: Log) -> Mapping[int, int]:
    """Return the last event before each turn of the current path, by the event of the user's message that the turn answers.

    Queued input, statements and recalls belong to the turn that follows, and so does what happens from the start of a turn to its message,
    such as a fold.
    """
    turns: dict[int, int] = {}
    before = 0
    is_open = False
    for event in log.events():
        if isinstance(event.body, UserSaid) and not event.body.steering:
            turns[event.seq] = before
            is_open = False
        is_open = is_open or isinstance(event.body, TurnStarted)
        if not is_open and not isinstance(event.body, UserTyped | ContextStated | Recalled | HookRan):
            before = event.seq
    return turns
