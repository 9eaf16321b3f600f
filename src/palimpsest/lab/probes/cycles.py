"""Probes over forced compaction: a session is cut into parts, folded after each, and then asked what it still knows."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from msgspec import structs

from palimpsest.core.errors import TooFull
from palimpsest.core.events import (
    TURN,
    Body,
    ContextStated,
    EditRefused,
    Event,
    ModeChanged,
    ModelReplied,
    SessionOpened,
    TaskChanged,
    ToolReturned,
    TurnEnded,
    Usage,
    UserSaid,
)
from palimpsest.core.items import ToolCall, Value
from palimpsest.engine.environment import Environment, inline
from palimpsest.engine.moments import compact
from palimpsest.engine.plans import carry_out_now
from palimpsest.engine.session import Session
from palimpsest.lab.outcome import Kept, Probed
from palimpsest.lab.probes.probes import Probe, probes_of
from palimpsest.lab.probes.score import Score, answerable, score
from palimpsest.lab.probes.seen import Recorded, visible
from palimpsest.lab.simulation.imitation import Summariser, manner_of
from palimpsest.lab.simulation.unsent import RealSummaries, Summaries, UnsentEncoder
from palimpsest.profiles.profile import Profile
from palimpsest.providers.retrying import NO_RETRIES
from palimpsest.stores.ephemeral import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.wire.encoding.media import Fetch
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.request import Params, Tool

CYCLES: Final = (1, 2, 5, 10)
NOTHING: Final = "there was nothing to fold, or a fold would not have made it much smaller"
_TOLD = (UserSaid, ModelReplied, ToolReturned, ContextStated, TaskChanged, ModeChanged, TurnEnded)


@dataclass(frozen=True, slots=True)
class Summarised:
    """How summaries are made where a profile asks for them: by a real model, else imitated with this factor of the token estimate."""

    factor: float
    real: RealSummaries | None = None


class Asked(Value, frozen=True, omit_defaults=False):
    """What a session still knew after so many parts, a fold being forced after each.

    `forced` is how many parts there were, `folds` how many of the forced folds were made, and `rested` why the others were not, each
    reason with how often.
    """

    cycles: int
    forced: int
    folds: int
    visible: Score
    with_recall: Score
    rested: Mapping[str, int] = {}

    @property
    def probed(self) -> Probed:
        """As a replay reports it."""
        folded = self.folds > 0
        shares: dict[str, Kept] = {kind: Kept(share, self.with_recall.kinds[kind], 1) for kind, share in self.visible.kinds.items()}
        return Probed(
            self.visible.total, self.with_recall.total, self.folds, self.forced, int(folded), int(not folded), self.rested, shares
        )


class Material:
    """A recorded session, ready to be asked about under any profile: what was said and done, without anybody's edits."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.events: Sequence[Event] = tuple(event for event in events if isinstance(event.body, _TOLD) and not is_aside(event.body))
        self.recorded = Recorded(self.events)
        self.probes: tuple[Probe, ...] = answerable(probes_of(self.events), self.recorded.pieces)

    def parts(self, number: int) -> list[Sequence[Event]]:
        """The session in so many parts of as many replies each, cut only where every call has its result; fewer if it is too short."""
        safe, replies = _safe_places(self.events)
        if not replies:
            return []
        cuts = [next((place for place, done in safe if done * number >= part * replies), len(self.events)) for part in range(1, number)]
        edges = sorted({0, *cuts, len(self.events)})
        return [self.events[first:last] for first, last in pairwise(edges)]


def ask_after(material: Material, profile: Profile, model: ModelCard, cycles: int, summarised: Summarised | None = None) -> Asked:
    """Feed a session part by part, fold after each part as if the user had asked for it, and put the questions at the end."""
    clock = FixedClock()
    blobs = MemoryBlobs()
    came_from: dict[int, int] = {}
    why: Counter[str] = Counter()
    environment = Environment(MemorySessions(), blobs, clock, offload=inline, retries=NO_RETRIES)
    with Session.create(SessionOpened("probed"), profile, model, environment) as session:
        if summarised is not None:
            _summarise(session, summarised)
        for part in material.parts(cycles):
            for event in part:
                clock.time = event.at
                came_from[session.log.append(_arriving(session, event.body)).seq] = event.seq
            why[_resting(session)] += 1
        view, drops = session.log.view, session.card.cache_edits
        seen = visible(view, came_from, drops_cached=drops)
        reached = material.recorded.reachable(view, came_from)
    folds, forced = why.pop("", 0), len(material.parts(cycles))
    return Asked(cycles, forced, folds, score(material.probes, seen), score(material.probes, seen, reached), dict(why))


def probed(
    material: Material, profile: Profile, model: ModelCard, cycles: Iterable[int] = CYCLES, summarised: Summarised | None = None
) -> dict[str, Probed]:
    """The same for several numbers of folds, as a replay reports it."""
    found: dict[str, Probed] = {}
    for number in cycles:
        # A profile without policies folds nothing, however often it is asked.
        if profile.policies or not found:
            last = ask_after(material, profile, model, number, summarised).probed
        found[str(number)] = last
    return found


def _arriving(session: Session, body: Body) -> Body:
    """A fact as this profile records it: results bounded, and no usage that was measured on another view."""
    match body:
        case ModelReplied():
            return structs.replace(body, call=None, usage=Usage())
        case ToolReturned():
            return carry_out_now(session.profile.limiter(session.card)(body), session)
        case _:
            return body


def _summarise(session: Session, summarised: Summarised) -> None:
    """Give a session the summaries of a replay; its requests are laid out and never sent."""
    manner = manner_of(session.profile.name)
    summariser = None if manner is None else Summariser(manner, summarised.factor, session)
    summaries = Summaries(session.card, summariser, session.environment.blobs.get, real=summarised.real)

    def encoder(card: ModelCard, tools: tuple[Tool, ...], params: Params, _: Fetch) -> UnsentEncoder:
        return UnsentEncoder(card, lambda: session.log.view, tools=tools, params=params)

    session.environment = replace(session.environment, provider=summaries.provider, encoder=encoder)


def _resting(session: Session) -> str:
    """Ask for a fold, and tell why none was made; nothing where one was."""
    try:
        ran = asyncio.run(compact(session))
    except TooFull as error:
        return error.message
    if ran.folded:
        return ""
    refused = next((event.body.why for event in ran.events if isinstance(event.body, EditRefused)), "")
    return refused or (ran.failure.message if ran.failure is not None else NOTHING)


def is_aside(body: Body) -> bool:
    """Whether a body is a reply beside the conversation."""
    return isinstance(body, ModelReplied) and body.purpose != TURN


def _safe_places(events: Sequence[Event]) -> tuple[list[tuple[int, int]], int]:
    """The places after which a session may be cut, each with how many replies came before it; and how many there are in all."""
    waiting: set[str] = set()
    found: list[tuple[int, int]] = []
    replies = 0
    for place, event in enumerate(events, 1):
        if isinstance(event.body, ModelReplied):
            replies += 1
            waiting = {part.call_id for part in event.body.parts if isinstance(part, ToolCall)}
        elif isinstance(event.body, ToolReturned):
            waiting.discard(event.body.result.call_id)
        if not waiting and isinstance(event.body, ModelReplied | ToolReturned):
            found.append((place, replies))
    return found, replies
