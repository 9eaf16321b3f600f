"""A recorded session told once more into a new one, without the edits it had, so that a profile can make its own."""

from collections.abc import Iterator

from msgspec.structs import replace
from real_work import CLAUDE, Place

from palimpsest.agent.session import Environment, Session, inline
from palimpsest.core.events import Body, CallStarted, EditUndone, ModelReplied, Rewound, SessionOpened, UserSaid, ViewEdited
from palimpsest.core.log import Log
from palimpsest.policies.profile import Profile
from palimpsest.providers.retrying import NO_RETRIES
from palimpsest.stores.in_memory import FixedClock, MemorySessions
from palimpsest.wire.models import ModelCard


def bodies(place: Place, session: str) -> list[Body]:
    """What happened on the path of a session, after its opening; events are not referred to by number, for the numbers change."""
    log = Log.open(place.store, session, FixedClock(1))
    try:
        return list(_told(log))
    finally:
        log.close()


def _told(log: Log) -> Iterator[Body]:
    for event in log.events():
        body = event.body
        match body:
            case SessionOpened() | ViewEdited() | EditUndone() | Rewound():
                continue
            case ModelReplied():
                yield replace(body, call=None)
            case CallStarted():
                # Another model answers here, and what was measured on the recorded view teaches nothing about this one.
                yield replace(body, model=CLAUDE.name, estimate=0)
            case UserSaid():
                yield replace(body, typed=None)
            case _:
                yield body


def pauses(session: Session, told: list[Body]) -> Iterator[int]:
    """Append what happened; yields how many bodies are told wherever no call is under way, so that the view may be edited there.

    A call that comes next is started after the pause, as an engine edits the view before it calls.
    """
    for number, body in enumerate(told, 1):
        if isinstance(body, CallStarted):
            yield number
            session.log.append(body)
            continue
        session.log.append(body)
        if session.log.open_call is None:
            yield number


def again(place: Place, profile: Profile, model: ModelCard = CLAUDE) -> Session:
    """A new session that can see the blobs of the recorded ones."""
    around = Environment(MemorySessions(), place.blobs, FixedClock(1_700_000_000_000, 1_000), offload=inline, retries=NO_RETRIES)
    return Session.create(SessionOpened("again"), profile, model, around)
