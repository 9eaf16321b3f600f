"""Replays sessions under several profiles and cards, and converts the results to JSON values."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from palimpsest.lab.outcome import OWN_CARDS, CardRun, Comparison, Outcome, ReplayedSession, figures
from palimpsest.lab.probes.cycles import ProbedSession, SummarySource, probed
from palimpsest.lab.recorded_bill import OwnCard, Ttl, own_card, own_ttl, recorded_outcome
from palimpsest.lab.rereads.definitions import OFFICIAL, DefinitionName
from palimpsest.lab.simulation.loading import LoadedSession
from palimpsest.lab.simulation.recording_index import RecordingIndex
from palimpsest.lab.simulation.replay import replay
from palimpsest.lab.simulation.simulated_requests import CountedSummaries, RealSummaries
from palimpsest.profiles.profile import Profile
from palimpsest.wire.models.cards import CARDS, ModelCard

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
