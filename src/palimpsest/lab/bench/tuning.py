"""Tunes the numbers of our profile on half of the recorded sessions, and compares synthetic sessions with recorded ones."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from palimpsest.core.errors import BadInput
from palimpsest.lab.bench.costing import RUNS, PricingRun
from palimpsest.lab.bench.tables import HALVES, split_halves
from palimpsest.lab.comparison import BASELINE
from palimpsest.lab.outcome import Figures, figures
from palimpsest.lab.simulation.loading import LoadedSession, load_all
from palimpsest.lab.simulation.recording_index import RecordingIndex
from palimpsest.lab.simulation.replay import replay
from palimpsest.lab.simulation.simulation import replay_card
from palimpsest.lab.synthetic.sessions import synthetic_session
from palimpsest.lab.synthetic.statistics import SessionStatistics, StatisticsCollector
from palimpsest.profiles.named import profile
from palimpsest.profiles.palimpsest import THRIFT, ThriftNumbers, with_numbers
from palimpsest.profiles.profile import Profile
from palimpsest.stores.ephemeral import MemorySessions

# Number and length of the recorded sessions that the distributions were fitted to.
SESSIONS, TOKENS = 32, 130_000
_STATISTICS = ("median", "p90", "mean")


class Fit(Struct, frozen=True):
    """Statistics of recorded sessions, and of synthetic ones."""

    recorded: SessionStatistics
    synthetic: SessionStatistics = field(name="made_up")


def fit(folder: Path, *, sessions: int = SESSIONS, tokens: int = TOKENS, announce: Callable[[str], None] = print) -> Fit:
    """Collect statistics of all sessions below a folder, and of synthetic ones with seeds from 1. Raises `BadInput` without sessions."""
    recorded, synthetic = StatisticsCollector(), StatisticsCollector()
    announce(f"reading {folder}")
    for loaded in load_all([folder]):
        recorded.take(loaded.events)
    if not recorded.sessions:
        raise BadInput("there is no session to measure", where=str(folder))
    announce(f"generating {sessions} sessions")
    for seed in range(1, sessions + 1):
        synthetic.take(synthetic_session(seed, tokens, MemorySessions()).events())
    return Fit(recorded.statistics(), synthetic.statistics())


def fit_markdown(found: Fit) -> str:
    """Return the table of docs/benchmark.md."""
    rows = [f"| | {found.recorded.sessions} recorded | {found.synthetic.sessions} synthetic |", "|---|---:|---:|"]
    for name in dict.fromkeys(_figure_name(name) for name in found.recorded.figures):
        title = name if name in found.recorded.figures else f"{name} (median / p90 / mean)"
        rows.append(f"| {title} | {_cell(found.recorded, name)} | {_cell(found.synthetic, name)} |")
    return "\n".join(rows)


def _figure_name(name: str) -> str:
    """Return the name of a figure without `median`, `p90` or `mean`."""
    start, _, last = name.rpartition(", ")
    return start if last in _STATISTICS else name


def _cell(shape: SessionStatistics, name: str) -> str:
    if name in shape.figures:
        return _format_number(shape.figures[name])
    return " / ".join(_format_number(shape.figures[f"{name}, {part}"]) for part in _STATISTICS if f"{name}, {part}" in shape.figures) or "-"


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


# What a setting may do on the sessions that it is chosen on, as ratios to the baseline with each kind of cache: the bars of `pal bench`,
# and as many folds as a person accepts.
LIMITS: Final = {"rereads": 1.0, "strings": 1.2, "folds": 1.5, "worst": 1.1}
# Tokens from which on a view is folded early, warm and cold; the other numbers are not tuned.
_EARLY: Final = (110_000, 120_000, 130_000, 140_000, 150_000, 160_000)
_COLD: Final = (60_000, 80_000, 100_000)
SETTINGS: Final = tuple(replace(THRIFT["balanced"], early_at=early, cold_at=cold) for early in _EARLY for cold in _COLD)
_PRICING_RUNS: Final = tuple(run for run in RUNS if run.ttl == "5m")
ALL: Final = "all"


class SettingResult(Struct, frozen=True):
    """Ratios of one setting to the baseline on some sessions, by pricing run, and the largest ratio of cost of a single session."""

    setting: str
    half: str
    cost: dict[str, float]
    rereads: dict[str, float]
    strings: dict[str, float]
    folds: dict[str, float]
    worst: float

    @property
    def mean_cost(self) -> float:
        """Mean of the cost ratios of all pricing runs."""
        return sum(self.cost.values()) / len(self.cost)

    @property
    def excess(self) -> float:
        """The largest ratio of a figure to its limit; at most 1 if all limits are kept."""
        by_run = {"rereads": self.rereads, "strings": self.strings, "folds": self.folds, "worst": {"": self.worst}}
        return max(value / LIMITS[name] for name, values in by_run.items() for value in values.values())


class TuningChoice(Struct, frozen=True):
    """The setting chosen on some sessions, and its result on those that were held out, if any were."""

    chosen: SettingResult
    held_out: SettingResult | None = None


class TuningResult(Struct, frozen=True):
    """Results of every setting on each half and on all sessions, and the setting chosen on each."""

    sessions: dict[str, int]
    measured: tuple[SettingResult, ...]
    choices: tuple[TuningChoice, ...]


def tune(folder: Path, *, settings: Sequence[ThriftNumbers] = SETTINGS, announce: Callable[[str], None] = print) -> TuningResult:
    """Replay all sessions below a folder under every setting, and choose the best setting on each half, and on all sessions.

    Raises `BadInput` if there are too few sessions for two halves.
    """
    table = _SettingsTable(settings)
    for loaded in load_all([folder]):
        announce(f"replaying {loaded.id} ({loaded.recording.tokens:,} tokens) under {len(settings)} settings")
        table.take(loaded)
    halves = split_halves(table.tokens)
    if not all(halves.values()):
        raise BadInput("there are too few sessions for two halves", where=str(folder))
    measured = {half: tuple(table.measured(half, sessions)) for half, sessions in halves.items()}
    measured[ALL] = tuple(table.measured(ALL, tuple(table.tokens)))
    choices = (*(_choice(measured[here], measured[there]) for here, there in (HALVES, HALVES[::-1])), _choice(measured[ALL]))
    all_results = tuple(each for part in measured.values() for each in part)
    return TuningResult({half: len(sessions) for half, sessions in halves.items()}, all_results, choices)


def best_setting(measured: Iterable[SettingResult]) -> SettingResult:
    """Return the cheapest setting within all limits, else the one that comes closest to keeping them."""
    many = tuple(measured)
    allowed = [each for each in many if each.excess <= 1]
    return min(allowed, key=lambda each: each.mean_cost) if allowed else min(many, key=lambda each: each.excess)


def _choice(here: Sequence[SettingResult], there: Iterable[SettingResult] = ()) -> TuningChoice:
    chosen = best_setting(here)
    return TuningChoice(chosen, next((each for each in there if each.setting == chosen.setting), None))


def tuning_markdown(found: TuningResult) -> str:
    """Return the table of docs/benchmark.md."""
    runs = tuple(found.choices[0].chosen.cost)
    head = f"| chosen on | numbers | measured on | {' | '.join(runs)} | re-reads | *strings* | folds | worst |"
    lines = [head, f"|---|---|---|{'---:|' * (len(runs) + 4)}"]
    for choice in found.choices:
        for result in (choice.chosen, choice.held_out):
            if result is None:
                continue
            costs = " | ".join(f"{result.cost[run]:.3f}x" for run in runs)
            parts = (result.rereads, result.strings, result.folds)
            counts = " | ".join(" / ".join(f"{part[run]:.2f}x" for run in runs) for part in parts)
            held = "" if result is choice.chosen else " (held out)"
            lines.append(f"| {choice.chosen.half} | {result.setting} | {result.half}{held} | {costs} | {counts} | {result.worst:.2f}x |")
    count = " and ".join(f"{number} {half}" for half, number in found.sessions.items())
    return "\n".join([*lines, "", f"{len(found.measured) // (len(found.sessions) + 1)} settings; {count} sessions."])


def name_of(numbers: ThriftNumbers) -> str:
    """Return a readable name for a setting."""
    return f"patience {numbers.patience:g}, from {numbers.early_at:,}, cold {numbers.cold_at:,}, in use {numbers.in_use:,}"


class _SettingsTable:
    """Collects dollars, re-reads and folds of every session under the baseline and each setting."""

    def __init__(self, settings: Sequence[ThriftNumbers]) -> None:
        self.tokens: dict[str, int] = {}
        self._profiles: dict[str, Profile] = {BASELINE: profile(BASELINE)}
        self._profiles |= {name_of(numbers): with_numbers(numbers, {}) for numbers in settings}
        self._found: dict[tuple[str, str, str], Figures] = {}

    def take(self, loaded: LoadedSession) -> None:
        """Replay one session under the baseline and every setting."""
        index = RecordingIndex(loaded.recording.steps)
        self.tokens[loaded.id] = loaded.recording.tokens
        for name, each in self._profiles.items():
            for run in _PRICING_RUNS:
                outcome = replay(loaded.recording, each, replay_card(run.card), ttl=run.ttl, index=index)
                self._found[name, run.bar, loaded.id] = figures([outcome])

    def measured(self, half: str, sessions: Sequence[str]) -> Iterator[SettingResult]:
        """Yield the ratios of each setting to the baseline, over some sessions."""
        for name in self._profiles:
            if name != BASELINE:
                worst = max(self._against(_usd, name, run, (session,)) for run in _PRICING_RUNS for session in sessions)
                cost, text, strings, folds = (
                    {run.bar: self._against(figure, name, run, sessions) for run in _PRICING_RUNS}
                    for figure in (_usd, _text, _strings, _folds)
                )
                yield SettingResult(name, half, cost, text, strings, folds, worst)

    def _against(self, figure: Callable[[Figures], float], name: str, run: PricingRun, sessions: Sequence[str]) -> float:
        """Return the sum of a figure over sessions, divided by that of the baseline."""
        ours, theirs = (sum(figure(self._found[each, run.bar, session]) for session in sessions) for each in (name, BASELINE))
        return ours / theirs if theirs else float(ours > 0)


def _usd(found: Figures) -> float:
    return found.usd


def _text(found: Figures) -> float:
    return found.rereads_by["text"]


def _strings(found: Figures) -> float:
    return found.rereads_by["strings"]


def _folds(found: Figures) -> float:
    return found.folds
