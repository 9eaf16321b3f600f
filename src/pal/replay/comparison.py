"""Replays sessions under several profiles and cards, and finds the card and the bill of a session as it was recorded."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec
from msgspec.structs import replace

from pal.replay.outcome import (
    NO_MODEL,
    OWN_CARDS,
    RECORDED,
    BilledCall,
    CardRun,
    Comparison,
    Outcome,
    Purpose,
    ReplayedEdit,
    ReplayedSession,
    figures,
)
from pal.replay.probes import ProbedSession, SummarySource, probed
from pal.replay.recording import LoadedSession, RecordingIndex
from pal.replay.replay import kind_of, replay
from pal.replay.rereads import OFFICIAL, DefinitionName
from pal.replay.simulation import CountedSummaries, RealSummaries, for_replay
from palimpsest.core.events import TURN, Event, ModelReplied, ViewEdited
from palimpsest.core.items import Value
from palimpsest.core.ledger import LedgerProjection
from palimpsest.policies.profile import Profile
from palimpsest.wire.models import CARDS, ModelCard, PriceBook, card, find_card, resized, simulated_cost, stand_in

# Bills sessions that name no model, or one of which not even the family is known.
DEFAULT_CARD = "claude-sonnet-4-5"
_LONG_WINDOW = 1_000_000
Ttl = Literal["5m", "1h"]


class OwnCard(Value, frozen=True):
    """The card that bills a session by default; `stand_in_for` says whose place it takes, and is empty if the card is the session's own."""

    card: ModelCard
    stand_in_for: str = ""


def own_card(loaded: LoadedSession, cards: Iterable[ModelCard] = CARDS, *, window: int | None = None) -> OwnCard:
    """Return the card of the model that made most replies of a session, with its own window unless another one is given.

    A session that had longer prompts than the window of the card had a larger one, so it gets that.
    """
    known = tuple(cards)
    models = Counter(step.reply.model for step in loaded.recording.steps if step.reply.model)
    name = max(models, key=lambda each: models[each], default=loaded.recording.model)
    found, missing = _priced_card(name, known)
    longest = max((step.reply.usage.prompt for step in loaded.recording.steps), default=0)
    if window is None and longest > found.window:
        found = card(f"{found.name}[1m]", known) if found.family == "claude" and longest <= _LONG_WINDOW else resized(found, longest)
    return OwnCard(for_replay(found, found.window if window is None else window), missing)


def own_ttl(events: Iterable[Event]) -> Ttl:
    """Return the cache lifetime with which a session wrote most tokens; five minutes if its file does not tell."""
    usages = [event.body.usage for event in events if isinstance(event.body, ModelReplied)]
    return "1h" if sum(usage.cache_write_long for usage in usages) > sum(usage.cache_write for usage in usages) else "5m"


def recorded_outcome(events: Sequence[Event], cards: Iterable[ModelCard] = CARDS) -> Outcome | None:
    """Return what a session really did: its calls with the recorded usage, each at its own price, and its edits.

    Returns None if no reply has usage. A model without known prices is billed by its stand-in.
    """
    known = tuple(cards)
    book, ledger = PriceBook(known), LedgerProjection()
    calls: list[BilledCall] = []
    edits: list[ReplayedEdit] = []
    for event in events:
        body = event.body
        before = ledger.value()
        ledger.take(event)
        for spent in ledger.value().since(before):
            if spent.usage.prompt:
                purpose: Purpose = "turn" if spent.purpose == TURN else "summary"
                bill = book.bill(spent) or simulated_cost(spent.usage, _priced_card(spent.model, known)[0])
                calls.append(BilledCall(len(calls), event.at, purpose, spent.usage, bill))
        if isinstance(body, ViewEdited):
            edits.append(ReplayedEdit(len(calls), event.at, event.seq, kind_of(body.edits), body.by, body.why))
    return Outcome(RECORDED, tuple(calls), tuple(edits)) if calls else None


def _priced_card(name: str, cards: tuple[ModelCard, ...]) -> tuple[ModelCard, str]:
    """Return the card for a model's bill, and the model if that card is a stand-in: without prices nothing can be compared."""
    own = find_card(name, cards)
    if own is not None and own.prices.are_known:
        return own, ""
    if own is not None:
        return resized(card(DEFAULT_CARD), own.window), name
    other = stand_in(name, cards) if name else None
    return replace(other if other is not None and other.prices.are_known else card(DEFAULT_CARD), api_name=""), name or NO_MODEL


BASELINE = "claude-code-2.1.325"
COMPARED = ("palimpsest", BASELINE, "codex-0.166", "opencode-1.18", "classroom", "none")
_BASELINE_NAMES = (BASELINE, "claude-code")


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """Options of a comparison: profiles, cards, the lifetime of cache entries, and whether to measure time and to probe.

    Without `cards`, each session is billed by the card of its own model, found among `known_cards`, with its own window or `window`;
    without `ttl`, its cache entries live as long as they did.
    `cycles` are the numbers of forced folds after which probes are asked. With `real`, a model writes the summaries instead of
    an imitation. `settings` are the environment settings that change a profile, by profile. `rereads` is the definition that is billed.
    """

    profiles: tuple[Profile, ...]
    cards: tuple[ModelCard, ...]
    ttl: Ttl | None = "5m"
    timing: bool = False
    cycles: tuple[int, ...] = ()
    real: RealSummaries | None = None
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    known_cards: tuple[ModelCard, ...] = CARDS
    window: int | None = None
    rereads: DefinitionName = OFFICIAL

    @property
    def against(self) -> str:
        """Name of the baseline profile for ratios; empty if none is replayed."""
        names = [profile.name for profile in self.profiles]
        return next((name for name in _BASELINE_NAMES if name in names), "")

    @property
    def replays(self) -> int:
        """Number of replays of each session."""
        return len(self.profiles) * max(1, len(self.cards))


def replay_session(
    loaded: LoadedSession, plan: ReplayPlan, on_progress: Callable[[float], None] = lambda _: None
) -> dict[str, ReplayedSession]:
    """Replay one session under every card and profile. Returns results by card name, or as `OWN_CARDS` if the plan names none.

    `on_progress` gets the number of replays done.
    """
    recording, index = loaded.recording, RecordingIndex(loaded.recording.steps, plan.rereads)
    probed_session = ProbedSession(loaded.events) if plan.cycles else None
    by_card: dict[str, ReplayedSession] = {}
    done, parts = 0, 1 + len(plan.cycles)

    def report_step(steps: int, total: int) -> None:
        on_progress(done + steps / max(1, total) / parts)

    def reported_cycles() -> Iterator[int]:
        """Yield the cycles one by one; report progress each time the caller asks for the next."""
        for number, cycle in enumerate(plan.cycles, 2):
            yield cycle
            on_progress(done + number / parts)

    ttl = plan.ttl or own_ttl(loaded.events)
    recorded = recorded_outcome(loaded.events, plan.known_cards)
    own = () if plan.cards else (own_card(loaded, plan.known_cards, window=plan.window),)
    for billed_by in own or [OwnCard(each) for each in plan.cards]:
        card = billed_by.card
        outcomes: dict[str, Outcome] = {}
        for profile in plan.profiles:
            real = None if plan.real is None else CountedSummaries(plan.real)
            outcome = replay(recording, profile, card, ttl=ttl, index=index, timing=plan.timing, real=real, on_progress=report_step)
            if probed_session is not None:
                summary_source = SummarySource(recording.calibration.factor, real)
                outcome = replace(outcome, probes=probed(probed_session, profile, card, reported_cycles(), summary_source))
            if real is not None:
                outcome = replace(outcome, asked=real.requests, failed=real.failed, failure=real.failure)
            outcomes[profile.name] = outcome
            done += 1
        facts = (recording.events, recording.title, recording.model, recording.tokens)
        terms = (card.name, ttl if card.cache == "breakpoints" else "", card.window, billed_by.stand_in_for)
        key = OWN_CARDS if own else card.name
        by_card[key] = ReplayedSession(loaded.id, loaded.source, loaded.format, *facts, outcomes, (), *terms, recorded)
    return by_card


def compared(sessions: Sequence[Mapping[str, ReplayedSession]], plan: ReplayPlan) -> Comparison:
    """Collect replayed sessions into one result for each card."""
    names = [card.name for card in plan.cards] or [OWN_CARDS]
    runs = [_card_run(tuple(each[name] for each in sessions)) for name in names]
    return Comparison(tuple(runs), tuple(profile.name for profile in plan.profiles), plan.against, plan.settings, plan.rereads)


def _card_run(sessions: tuple[ReplayedSession, ...]) -> CardRun:
    """Return the run of some sessions, with what all of them have in common."""
    cards, ttls, windows = ({getattr(each, name) for each in sessions} for name in ("card", "ttl", "window"))
    return CardRun(
        cards.pop() if len(cards) == 1 else OWN_CARDS,
        ttls.pop() if len(ttls) == 1 else "",
        windows.pop() if len(windows) == 1 else 0,
        sessions,
    )


def as_builtins(comparison: Comparison) -> dict[str, object]:
    """Return the value that `pal replay --json` prints: sessions and totals, keyed by card if there are several."""
    cards: dict[str, dict[str, object]] = msgspec.to_builtins({run.card: _card_results(run, comparison) for run in comparison.runs})
    return {"cards": cards} if len(cards) > 1 else next(iter(cards.values()))


def _card_results(run: CardRun, comparison: Comparison) -> dict[str, object]:
    return {
        "sessions": [
            {
                "id": session.id,
                "source": session.source,
                "format": session.format,
                "events": session.events,
                "model": session.model,
                "card": session.card,
                "ttl": session.ttl,
                "window": session.window,
                "stand_in_for": session.stand_in_for,
                "profiles": {name: figures([outcome]) for name, outcome in session.outcomes.items()},
            }
            for session in run.sessions
        ],
        "total": {name: figures(outcomes) for name, outcomes in run.outcomes.items()},
        "card": run.card,
        "ttl": run.ttl,
        "window": run.window,
        "settings": comparison.settings,
        "billed_rereads": comparison.rereads,
    }
