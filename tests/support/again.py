"""A recorded session told once more into a new one, without the edits it had, so that a profile can make its own."""

from collections.abc import Iterator

from msgspec.structs import replace
from real_work import CLAUDE, Place

from palimpsest.core.events import Body, EditUndone, ModelReplied, Rewound, SessionOpened, UserSaid, ViewEdited
from palimpsest.core.log import Log
from palimpsest.engine.environment import Environment, inline
from palimpsest.engine.session import Session
from palimpsest.profiles.profile import Profile
from palimpsest.providers.retrying import NO_RETRIES
from palimpsest.stores.ephemeral import FixedClock, MemorySessions
from palimpsest.wire.cards import ModelCard


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
            case UserSaid():
                yield replace(body, typed=None)
            case _:
                yield body


def again(place: Place, profile: Profile, model: ModelCard = CLAUDE) -> Session:
    """A new session that can see the blobs of the recorded ones."""
    around = Environment(MemorySessions(), place.blobs, FixedClock(1_700_000_000_000, 1_000), offload=inline, retries=NO_RETRIES)
    return Session.create(SessionOpened("again"), profile, model, around)
