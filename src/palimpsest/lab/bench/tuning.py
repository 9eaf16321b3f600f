"""Chooses the numbers of our profile on one half of recorded sessions, and holds synthetic sessions against recorded ones."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from palimpsest.core.errors import BadInput
from palimpsest.lab.bench.costing import RUNS, PricingRun
from palimpsest.lab.bench.tables import HALVES, split_halves
from palimpsest.lab.comparison import BASELINE
from palimpsest.lab.outcome import Outcome
from palimpsest.lab.simulation.environment import replay_card
from palimpsest.lab.simulation.loading import LoadedSession, load_all
from palimpsest.lab.simulation.replay import replay
from palimpsest.lab.simulation.rereads import NameIndex
from palimpsest.lab.synthetic.sessions import synthetic_session
from palimpsest.lab.synthetic.statistics import SessionStatistics, StatisticsCollector
from palimpsest.policies.fold.bounds import Bounds
from palimpsest.profiles.named import profile
from palimpsest.profiles.palimpsest import with_numbers
from palimpsest.profiles.profile import Profile
from palimpsest.profiles.thrift import Numbers
from palimpsest.stores.ephemeral import MemorySessions

# As many sessions, and about as long, as those that the numbers were fitted to.
SESSIONS, TOKENS = 32, 130_000
_SPREAD = ("median", "p90", "mean")


class Fit(Struct, frozen=True):
    """The shape of recorded sessions, and of as many made-up ones."""

    recorded: SessionStatistics
    synthetic_session: SessionStatistics


def fit(folder: Path, *, sessions: int = SESSIONS, tokens: int = TOKENS, tell: Callable[[str], None] = print) -> Fit:
    """Measure all sessions below a folder, and made-up ones from the seeds 1, 2, 3 and so on."""
    recorded, made = StatisticsCollector(), StatisticsCollector()
    tell(f"reading {folder}")
    for taken in load_all([folder]):
        recorded.take(taken.events)
    if not recorded.sessions:
        raise BadInput("there is no session to be measured", where=str(folder))
    tell(f"making {sessions} sessions up")
    for seed in range(1, sessions + 1):
        made.take(synthetic_session(seed, tokens, MemorySessions()).events())
    return Fit(recorded.statistics(), made.statistics())


def fit_markdown(found: Fit) -> str:
    """The table that stands in docs/benchmark.md."""
    rows = [f"| | {found.recorded.sessions} recorded | {found.synthetic_session.sessions} made up |", "|---|---:|---:|"]
    names = dict.fromkeys(_plain(name) for name in found.recorded.figures)
    return "\n".join(
        [*rows, *(f"| {_title(found, name)} | {_cell(found.recorded, name)} | {_cell(found.synthetic_session, name)} |" for name in names)]
    )


def _plain(name: str) -> str:
    """A figure without what it says of a spread."""
    start, _, last = name.rpartition(", ")
    return start if last in _SPREAD else name


def _title(found: Fit, name: str) -> str:
    return name if name in found.recorded.figures else f"{name} (median / p90 / mean)"


def _cell(shape: SessionStatistics, name: str) -> str:
    if name in shape.figures:
        return _shown(shape.figures[name])
    return " / ".join(_shown(shape.figures[f"{name}, {part}"]) for part in _SPREAD if f"{name}, {part}" in shape.figures) or "-"


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


# A choice must stay below this on its own half, so that sessions nobody looked at still cause no more re-reads than the baseline.
MOST_REREADS: Final = 0.9
WORST: Final = 1.1
# Ages are given by the table of what is dead; what a fold keeps is ours to choose within its bounds.
_KEPT: Final = ((15_000, 15_000), (12_000, 9_000), (8_000, 8_000), (5_000, 4_000))
_SEEN: Final = (5_000, 10_000)
SETTINGS: Final = tuple(Numbers(bounds=Bounds(tail=tail, results=results, seen=seen)) for tail, results in _KEPT for seen in _SEEN)
_PRICED: Final = tuple(run for run in RUNS if run.ttl == "5m")


class SettingResult(Struct, frozen=True):
    """What one setting did on one half, against the baseline: cost by way of pricing, re-reads, and the dearest session."""

    setting: str
    half: str
    cost: dict[str, float]
    rereads: float
    worst: float

    @property
    def mean(self) -> float:
        """The cost over both kinds of cache."""
        return sum(self.cost.values()) / len(self.cost)


class TuningChoice(Struct, frozen=True):
    """What was chosen on one half, and what it does on the other."""

    chosen: SettingResult
    held_out: SettingResult


class TuningResult(Struct, frozen=True):
    """Every setting on each half, and what follows."""

    sessions: dict[str, int]
    measured: tuple[SettingResult, ...]
    choices: tuple[TuningChoice, ...]


def tune(folder: Path, *, settings: Sequence[Numbers] = SETTINGS, tell: Callable[[str], None] = print) -> TuningResult:
    """Replay all sessions below a folder under every setting; on each half the cheapest with few enough re-reads is chosen."""
    table = _SettingsTable(settings)
    for taken in load_all([folder]):
        tell(f"replaying {taken.id} ({taken.recording.tokens:,} tokens) under {len(settings)} settings")
        table.take(taken)
    halves = split_halves(table.tokens)
    if not all(halves.values()):
        raise BadInput("there are too few sessions to be halved", where=str(folder))
    measured = {half: tuple(table.measured(half, sessions)) for half, sessions in halves.items()}
    choices = tuple(_choice(measured[here], measured[there]) for here, there in (HALVES, HALVES[::-1]))
    told = tuple(each for half in HALVES for each in measured[half])
    return TuningResult({half: len(sessions) for half, sessions in halves.items()}, told, choices)


def best_setting(measured: Iterable[SettingResult]) -> SettingResult:
    """The cheapest setting of those within the limits; if none is, the one with the fewest re-reads."""
    many = tuple(measured)
    allowed = [each for each in many if each.rereads <= MOST_REREADS and each.worst <= WORST]
    return min(allowed, key=lambda each: each.mean) if allowed else min(many, key=lambda each: each.rereads)


def _choice(here: Sequence[SettingResult], there: Iterable[SettingResult]) -> TuningChoice:
    chosen = best_setting(here)
    return TuningChoice(chosen, next(each for each in there if each.setting == chosen.setting))


def tuning_markdown(found: TuningResult) -> str:
    """The table that stands in docs/benchmark.md."""
    runs = tuple(found.choices[0].chosen.cost)
    lines = [f"| chosen on | numbers | told of | {' | '.join(runs)} | re-reads | worst |", f"|---|---|---|{'---:|' * (len(runs) + 2)}"]
    for choice in found.choices:
        for told in (choice.chosen, choice.held_out):
            costs = " | ".join(f"{told.cost[run]:.3f}x" for run in runs)
            held = "" if told is choice.chosen else " (held out)"
            lines.append(
                f"| {choice.chosen.half} | {told.setting} | {told.half}{held} | {costs} | {told.rereads:.2f}x | {told.worst:.2f}x |"
            )
    count = " and ".join(f"{number} {half}" for half, number in found.sessions.items())
    return "\n".join([*lines, "", f"{len(found.measured) // 2} settings; {count} sessions."])


def name_of(numbers: Numbers) -> str:
    """A setting in words."""
    bounds = numbers.bounds
    return f"patience {numbers.patience:g}, tail {bounds.tail:,}, results {bounds.results:,}, names {bounds.seen:,}"


class _SettingsTable:
    """Dollars and re-reads of every session under the baseline and each setting."""

    def __init__(self, settings: Sequence[Numbers]) -> None:
        self.tokens: dict[str, int] = {}
        self._profiles: dict[str, Profile] = {BASELINE: profile(BASELINE)}
        self._profiles |= {name_of(numbers): with_numbers(numbers, {}) for numbers in settings}
        self._usd: dict[tuple[str, str, str], float] = {}
        self._rereads: dict[tuple[str, str, str], int] = {}

    def take(self, taken: LoadedSession) -> None:
        """Replay one session under the baseline and every setting."""
        names = NameIndex(taken.recording.steps)
        self.tokens[taken.id] = taken.recording.tokens
        for name, each in self._profiles.items():
            for run in _PRICED:
                outcome = _replayed(taken, each, run, names)
                self._usd[name, run.bar, taken.id] = outcome.cost.total
                self._rereads[name, run.bar, taken.id] = len(outcome.rereads)

    def measured(self, half: str, sessions: Sequence[str]) -> Iterator[SettingResult]:
        """Each setting against the baseline, over some sessions."""
        for name in self._profiles:
            if name != BASELINE:
                cost = {run.bar: self._against(self._usd, name, run, sessions) for run in _PRICED}
                rereads = max(self._against(self._rereads, name, run, sessions) for run in _PRICED)
                worst = max(self._against(self._usd, name, run, (session,)) for run in _PRICED for session in sessions)
                yield SettingResult(name, half, cost, rereads, worst)

    def _against(self, found: Mapping[tuple[str, str, str], float], name: str, run: PricingRun, sessions: Sequence[str]) -> float:
        """A sum over sessions, divided by the same of the baseline."""
        ours, theirs = (sum(found[each, run.bar, session] for session in sessions) for each in (name, BASELINE))
        return ours / theirs if theirs else float(ours > 0)


def _replayed(taken: LoadedSession, each: Profile, run: PricingRun, names: NameIndex) -> Outcome:
    return replay(taken.recording, each, replay_card(run.card), ttl=run.ttl, names=names)
