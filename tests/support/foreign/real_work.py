"""Sessions that policies can be tried on: made-up ones, ours in the golden folder, and the public ones where they are at hand."""

from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from corpus import CORPUS, GOLDEN
from generated import generate
from msgspec.structs import replace
from readings import CARDS

from palimpsest.agent.session import Environment, Session, inline
from palimpsest.core.deltas import Delta
from palimpsest.core.events import ModelReplied, SessionOpened
from palimpsest.core.log import Log, recover
from palimpsest.core.ports import Sendable
from palimpsest.core.tokens import palimpsest_size
from palimpsest.exchange.finding import find_sources
from palimpsest.exchange.formats import FORMATS, format_named
from palimpsest.exchange.importing import import_session
from palimpsest.policies.profile import Profile
from palimpsest.providers.retrying import NO_RETRIES
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.wire.encode import encode
from palimpsest.wire.models import ModelCard, card
from palimpsest.wire.request import DEFAULTS
from palimpsest.wire.wires import check_request

CLAUDE = card("claude-sonnet-4-5")


class Place(NamedTuple):
    """Where logs and blobs are."""

    store: MemorySessions
    blobs: MemoryBlobs
    sessions: tuple[str, ...]


class Always:
    """A model that gives the same answer whatever it is asked; an error is raised."""

    def __init__(self, answer: ModelReplied | Exception) -> None:
        self.answer = answer
        self.asked = 0

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        yield self.answer


@cache
def generated() -> Place:
    """Three synthetic sessions, the longest of more tokens than a window holds."""
    store = MemorySessions()
    names = []
    for seed, events in ((1, 40), (2, 150), (3, 500)):
        log = Log.create(store, SessionOpened(f"made{seed}", model=CLAUDE.name), FixedClock(1_700_000_000_000, 2_000))
        log.extend(list(generate(seed, events, fold_at=None)))
        log.close()
        names.append(f"made{seed}")
    return Place(store, MemoryBlobs(), tuple(names))


@cache
def recorded(folder: Path) -> Place:
    """The sessions of other programs below a folder."""
    place = Place(MemorySessions(), MemoryBlobs(), ())
    names = []
    for source in find_sources(FORMATS, [folder]).sources:
        done = import_session(format_named(source.format), source, place.store, place.blobs, FixedClock(1_700_000_000_000, 10))
        names.append(done.session)
    return place._replace(sessions=tuple(dict.fromkeys(names)))


def places() -> Iterator[Place]:
    """All that is at hand."""
    yield generated()
    yield recorded(GOLDEN)
    if CORPUS.is_dir():
        yield recorded(CORPUS)


_forks = iter(range(1_000_000))


def at_work(place: Place, session: str, profile: Profile, model: ModelCard = CLAUDE, *, seq: int | None = None) -> Session:
    """A fork of a session at one of its events, under a profile."""
    base = Log.open(place.store, session, FixedClock(1_800_000_000_000, 1_000))
    try:
        log = base.fork(place.store, f"fork{next(_forks)}", seq)
    finally:
        base.close()
    recover(log)
    return Session(
        log, profile, model, Environment(place.store, place.blobs, FixedClock(1_800_000_000_000, 1_000), offload=inline, retries=NO_RETRIES)
    )


def cramped(place: Place, session: str, share: float = 1.0) -> ModelCard:
    """A card whose window is a share of what a session shows, so that it must give something up; never less than 6,000 tokens."""
    log = Log.open(place.store, session, FixedClock(1))
    tokens = sum(palimpsest_size(item.content) for item in (*log.view.head, *log.view.items))
    log.close()
    window = max(6_000, int(tokens * share))
    return replace(CLAUDE, window=window, reply=min(CLAUDE.reply, window // 8))


def faults(session: Session) -> list[str]:
    """What three providers would refuse in the request for the view as it is."""
    found = []
    for model in CARDS:
        request = encode(session.log.view, model, session.tools, DEFAULTS, session.environment.blobs.get)
        found += [f"{model.wire}: {fault}" for fault in check_request(model.wire, request.body)]
    return found
