"""Replays sessions under several profiles and cards, and tells what was found as programs read it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec
from msgspec.structs import replace

from palimpsest.lab.outcome import CardRun, Comparison, Outcome, Replayed, figures
from palimpsest.lab.probes.cycles import Material, Summarised, probed
from palimpsest.lab.simulation.billing import Asked
from palimpsest.lab.simulation.replay import replay
from palimpsest.lab.simulation.rereads import Names
from palimpsest.lab.simulation.taking import Taken
from palimpsest.lab.simulation.unsent import RealSummaries
from palimpsest.profiles.profile import Profile
from palimpsest.wire.models.cards import ModelCard

BASELINE = "claude-code-2.1.325"
COMPARED = ("palimpsest", BASELINE, "codex-0.166", "opencode-1.18", "classroom", "none")
_BASELINES = (BASELINE, "claude-code")
Ttl = Literal["5m", "1h"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be replayed: profiles and cards in their order, how long caches last, and whether time and probes are wanted.

    `real` writes summaries where they are not imitated, `settings` what profiles were told by the environment.
    """

    profiles: tuple[Profile, ...]
    cards: tuple[ModelCard, ...]
    ttl: Ttl = "5m"
    timing: bool = False
    cycles: tuple[int, ...] = ()
    real: RealSummaries | None = None
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def against(self) -> str:
        """The profile that ratios are taken against."""
        names = [profile.name for profile in self.profiles]
        return next((name for name in _BASELINES if name in names), "")

    @property
    def replays(self) -> int:
        """How often each session is replayed."""
        return len(self.profiles) * len(self.cards)


def replay_session(taken: Taken, plan: Plan, tell: Callable[[float], None] | None = None) -> dict[str, Replayed]:
    """One session under every card and profile, by card; `tell` hears how many replays are done."""
    recording, names = taken.recording, Names(taken.recording.steps)
    material = Material(taken.events) if plan.cycles else None
    found: dict[str, Replayed] = {}
    done, parts = 0, 1 + len(plan.cycles)
    for card in plan.cards:
        outcomes: dict[str, Outcome] = {}
        for profile in plan.profiles:
            asked, told = None if plan.real is None else Asked(plan.real), _part(tell, done, parts)
            outcome = replay(recording, profile, card, ttl=plan.ttl, names=names, timing=plan.timing, real=asked, tell=told)
            if material is not None:
                summarised = Summarised(recording.measure.factor, asked)
                outcome = replace(outcome, probes=probed(material, profile, card, _told(plan.cycles, tell, done), summarised))
            if asked is not None:
                outcome = replace(outcome, asked=asked.requests, failed=asked.failed, failure=asked.failure)
            outcomes[profile.name] = outcome
            done += 1
        found[card.name] = Replayed(
            taken.id,
            taken.source,
            taken.format,
            recording.events,
            recording.title,
            recording.model,
            recording.tokens,
            outcomes,
        )
    return found


def _part(tell: Callable[[float], None] | None, done: int, parts: int) -> Callable[[int, int], None] | None:
    return None if tell is None else lambda steps, total: tell(done + steps / max(1, total) / parts)


def _told(cycles: Sequence[int], tell: Callable[[float], None] | None, done: int) -> Iterator[int]:
    """Cycles one by one; whoever wants the next is done with the one before."""
    for number, cycle in enumerate(cycles, 1):
        yield cycle
        if tell is not None:
            tell(done + (number + 1) / (1 + len(cycles)))


def compared(sessions: Sequence[Mapping[str, Replayed]], plan: Plan) -> Comparison:
    """Everything that was replayed, card by card."""
    runs = [
        CardRun(card.name, plan.ttl if card.cache == "breakpoints" else "", card.window, tuple(each[card.name] for each in sessions))
        for card in plan.cards
    ]
    return Comparison(tuple(runs), tuple(profile.name for profile in plan.profiles), plan.against, plan.settings)


def as_builtins(comparison: Comparison) -> dict[str, object]:
    """What `pal replay --json` prints: sessions and their total, by card where there are several."""
    told = {run.card: _run(run, comparison) for run in comparison.runs}
    return {"cards": told} if len(told) > 1 else next(iter(told.values()))


def _run(run: CardRun, comparison: Comparison) -> dict[str, object]:
    return {
        "sessions": [
            {
                "id": session.id,
                "source": session.source,
                "format": session.format,
                "events": session.events,
                "profiles": {name: _figures([outcome]) for name, outcome in session.profiles.items()},
            }
            for session in run.sessions
        ],
        "total": {name: _figures([session.profiles[name] for session in run.sessions]) for name in comparison.profiles},
        "card": run.card,
        "ttl": run.ttl,
        "window": run.window,
        "settings": comparison.settings,
    }


def _figures(outcomes: list[Outcome]) -> dict[str, object]:
    told: dict[str, object] = msgspec.to_builtins(figures(outcomes))
    return told
