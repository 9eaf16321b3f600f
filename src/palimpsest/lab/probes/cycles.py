"""Probes after forced folds: feeds a session in parts, folds after each part, then scores the probes."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
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
from palimpsest.core.events.event_items import items_of
from palimpsest.core.items import ToolCall
from palimpsest.engine.calls.moments import compact
from palimpsest.engine.calls.plans import carry_out_now
from palimpsest.engine.environment import Environment, inline
from palimpsest.engine.session import Session
from palimpsest.engine.ways_back import name_whole
from palimpsest.lab.outcome import KindScores, ProbeScores
from palimpsest.lab.probes.phrases import NEXT_REPLIES
from palimpsest.lab.probes.probes import Probe, next_probe, probes_of
from palimpsest.lab.probes.score import ProbedText, RecordedTexts, answerable, model_text, score, visible
from palimpsest.lab.simulation.simulated_requests import RealSummaries, SummaryProvider, simulated_encoder
from palimpsest.policies.limiters.preview import PreviewLimiter
from palimpsest.profiles.profile import Profile
from palimpsest.providers.retrying import NO_RETRIES
from palimpsest.stores.ephemeral import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.wire.models.cards import ModelCard

CYCLES: Final = (1, 2, 5, 10)
NOTHING_TO_FOLD: Final = "there was nothing to fold, or a fold would not have made it much smaller"
# In a shorter session, holding replies back would leave little to fold.
_LEAST_TIMES_FED: Final = 2
_PROBED_BODIES = (UserSaid, ModelReplied, ToolReturned, ContextStated, TaskChanged, ModeChanged, TurnEnded)


@dataclass(frozen=True, slots=True)
class SummarySource:
    """Source of summaries: a real model, else imitation with this factor of the token estimate."""

    factor: float
    real: RealSummaries | None = None


class ProbedSession:
    """A recorded session without its edits, with its probes; reusable under any profile.

    The last replies of a long session are not fed: what their calls use is a probe.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        all_events = tuple(
            event
            for event in events
            if isinstance(event.body, _PROBED_BODIES) and not (isinstance(event.body, ModelReplied) and event.body.purpose != TURN)
        )
        safe, replies = _safe_cuts(all_events)
        fed = replies - NEXT_REPLIES
        is_long = fed >= _LEAST_TIMES_FED * NEXT_REPLIES
        cut = next((place for place, done in safe if done >= fed), len(all_events)) if is_long else len(all_events)
        self.events: Sequence[Event] = all_events[:cut]
        self.recorded = RecordedTexts(self.events)
        texts = self.recorded.texts
        probes = (*probes_of(self.events), *next_probe(all_events[cut:], [each.text for each in texts]))
        stated = [ProbedText(model_text(item.content)) for each in self.events for item in items_of(each.seq, each.body)]
        self.probes: tuple[Probe, ...] = answerable(probes, texts, stated)

    def parts(self, number: int) -> list[Sequence[Event]]:
        """Return the session in `number` parts with equal numbers of replies, cut where no call is pending; fewer if it is too short."""
        safe, replies = _safe_cuts(self.events)
        if not replies:
            return []
        cuts = [next((place for place, done in safe if done * number >= part * replies), len(self.events)) for part in range(1, number)]
        edges = sorted({0, *cuts, len(self.events)})
        return [self.events[first:last] for first, last in pairwise(edges)]


def probe_after(
    probed_session: ProbedSession, profile: Profile, model: ModelCard, cycles: int, summary_source: SummarySource | None = None
) -> ProbeScores:
    """Feed a session part by part, force a fold after each part, and score the probes at the end."""
    clock = FixedClock()
    blobs = MemoryBlobs()
    recorded_seqs: dict[int, int] = {}
    reasons: Counter[str] = Counter()
    environment = Environment(MemorySessions(), blobs, clock, offload=inline, retries=NO_RETRIES)
    with Session.create(SessionOpened("probed"), profile, model, environment) as session:
        if summary_source is not None:
            _provide_summaries(session, summary_source)
        for part in probed_session.parts(cycles):
            for event in part:
                clock.time = event.at
                recorded_seqs[session.log.append(_as_recorded_by(session, event.body)).seq] = event.seq
            reasons[_force_fold(session)] += 1
        view, drops = session.log.view, session.card.cache_edits
        visible_texts = visible(view, recorded_seqs, drops_cached=drops)
        reachable_texts = probed_session.recorded.reachable(view, recorded_seqs)
    folds, forced = reasons.pop("", 0), len(probed_session.parts(cycles))
    alone, with_recall = score(probed_session.probes, visible_texts), score(probed_session.probes, visible_texts, reachable_texts)
    kinds: dict[str, KindScores] = {kind: KindScores(share, with_recall.kinds[kind], 1) for kind, share in alone.kinds.items()}
    return ProbeScores(alone.total, with_recall.total, folds, forced, int(folds > 0), int(not folds), dict(reasons), kinds)


def probed(
    probed_session: ProbedSession,
    profile: Profile,
    model: ModelCard,
    cycles: Iterable[int] = CYCLES,
    summary_source: SummarySource | None = None,
) -> dict[str, ProbeScores]:
    """Score the probes for several numbers of forced folds. Returns the scores by that number."""
    scores: dict[str, ProbeScores] = {}
    for number in cycles:
        # A profile without policies never folds, so one run is enough.
        if profile.policies or not scores:
            last = probe_after(probed_session, profile, model, number, summary_source)
        scores[str(number)] = last
    return scores


def _as_recorded_by(session: Session, body: Body) -> Body:
    """Return a body as this profile records it: results shortened, and without usage that was measured on another view."""
    match body:
        case ModelReplied():
            return structs.replace(body, call=None, usage=Usage())
        case ToolReturned():
            limiter = session.profile.limiter(session.card)
            bounded = carry_out_now(limiter(body), session)
            # As the agent shows it, which has the tool `recall`; other programs have none.
            return name_whole(bounded) if isinstance(limiter, PreviewLimiter) else bounded
        case _:
            return body


def _provide_summaries(session: Session, summary_source: SummarySource) -> None:
    """Connect a session to simulated requests and to the provider of summaries."""
    summaries = SummaryProvider(session, summary_source.factor, summary_source.real)
    session.environment = replace(session.environment, provider=summaries.provider, encoder=simulated_encoder(session))


def _force_fold(session: Session) -> str:
    """Force a fold. Returns the reason why none was made, or an empty string if one was."""
    try:
        policy_run = asyncio.run(compact(session))
    except TooFull as error:
        return error.message
    if policy_run.folded:
        return ""
    refused = next((event.body.why for event in policy_run.events if isinstance(event.body, EditRefused)), "")
    return refused or (policy_run.failure.message if policy_run.failure is not None else NOTHING_TO_FOLD)


def _safe_cuts(events: Sequence[Event]) -> tuple[list[tuple[int, int]], int]:
    """Return the positions without pending calls, each with the number of replies before it, and the number of all replies."""
    pending: set[str] = set()
    scores: list[tuple[int, int]] = []
    replies = 0
    for place, event in enumerate(events, 1):
        if isinstance(event.body, ModelReplied):
            replies += 1
            pending = {part.call_id for part in event.body.parts if isinstance(part, ToolCall)}
        elif isinstance(event.body, ToolReturned):
            pending.discard(event.body.result.call_id)
        if not pending and isinstance(event.body, ModelReplied | ToolReturned):
            scores.append((place, replies))
    return scores, replies
