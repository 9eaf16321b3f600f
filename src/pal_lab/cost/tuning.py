"""Tunes the numbers of our profile on half of the recorded sessions, and compares statistics of synthetic sessions."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec import field as tuning_field

from pal.replay.comparison import BASELINE
from pal.replay.outcome import Figures, figures
from pal.replay.recording import LoadedSession, RecordingIndex, load_all
from pal.replay.replay import replay
from pal.replay.rereads import plain_name
from pal.replay.simulation import replay_card
from pal_lab.bench.costing import RUNS, PricingRun
from pal_lab.halves import HALVES, split_halves
from palimpsest.audit.entities import argument_texts, names_of
from palimpsest.audit.tool_calls import Action, ToolClass, action_of, action_with, exit_of
from palimpsest.audit.visible import names_in_reply, names_in_result, normalized_path, readable_text
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ContextStated, Event, ModelReplied, ToolReturned, UserSaid
from palimpsest.core.items import Content, Text, ToolCall, Value
from palimpsest.core.tokens import palimpsest_size
from palimpsest.policies.named import profile
from palimpsest.policies.profile import Profile
from palimpsest.policies.profiles import THRIFT, ThriftNumbers, with_numbers
from palimpsest.stores.in_memory import MemorySessions
from palimpsest.testing.synthetic import synthetic_session

CLASSES: Final[tuple[ToolClass, ...]] = ("read", "command", "search", "edit", "write", "agent", "plan", "other")
_LARGE_TOKENS: Final = 100
_MOST_NAMES: Final = 400
_DISTANCES: Final = (10, 40, 100)
_MINUTE_MS: Final = 60_000
_LONG_GAP_MS: Final = 5 * _MINUTE_MS


class SessionStatistics(Value, frozen=True):
    """Figures by name, in display order; each is a count or a percentage."""

    sessions: int
    figures: dict[str, float]


@dataclass(slots=True)
class _LargeResult:
    """A large result: its tokens, the number of the reply before it, and of the last reply that used a name from it."""

    tokens: int
    arrived: int
    named: int = -1


@dataclass
class StatisticsCollector:
    """Accumulates statistics over any number of sessions."""

    sessions: int = 0
    tokens: dict[str, int] = field(default_factory=dict)
    sizes: dict[ToolClass, list[int]] = field(default_factory=dict)
    user_tokens: list[int] = field(default_factory=list)
    chinese: int = 0
    replies: list[int] = field(default_factory=list)
    parallel_replies: int = 0
    user_gaps_ms: list[int] = field(default_factory=list)
    call_gaps_ms: list[int] = field(default_factory=list)
    failures: dict[ToolClass, int] = field(default_factory=dict)
    reads: int = 0
    repeated_reads: int = 0
    edits: int = 0
    edits_of_known: int = 0
    results: list[_LargeResult] = field(default_factory=list)
    name_distances: list[int] = field(default_factory=list)

    def take(self, events: Iterable[Event]) -> None:
        """Add one session."""
        self.sessions += 1
        session = _SessionCollector(self)
        for event in events:
            session.take(event)
        session.end()

    def statistics(self) -> SessionStatistics:
        """Return the statistics of all sessions together, rounded to three significant digits."""
        total = sum(self.tokens.values()) or 1
        calls = sum(map(len, self.sizes.values())) or 1
        found: dict[str, float] = {
            **{f"tokens, {kind} %": 100 * self.tokens.get(kind, 0) / total for kind in ("results", "calls", "replies", "user", "context")},
            **_distribution("replies a turn", self.replies),
            "replies with several calls %": _percent(self.parallel_replies, sum(self.replies)),
            **_distribution("user message, tokens", self.user_tokens),
            "user messages in Chinese %": _percent(self.chinese, len(self.user_tokens)),
            **_distribution("user away, minutes", [gap / _MINUTE_MS for gap in self.user_gaps_ms]),
            "user away over 5 minutes %": _percent(sum(gap > _LONG_GAP_MS for gap in self.user_gaps_ms), len(self.user_gaps_ms)),
            **_distribution("between calls, seconds", [gap / 1_000 for gap in self.call_gaps_ms]),
        }
        for kind in CLASSES:
            sizes = self.sizes.get(kind, [])
            found[f"{kind}, of all calls %"] = _percent(len(sizes), calls)
            found |= _distribution(f"{kind}, tokens", sizes)
        found |= {
            "commands that fail %": _percent(self.failures.get("command", 0), len(self.sizes.get("command", ()))),
            "edits that fail %": _percent(self.failures.get("edit", 0), len(self.sizes.get("edit", ()))),
            "reads of a file read before %": _percent(self.repeated_reads, self.reads),
            "edits of a file read or edited before %": _percent(self.edits_of_known, self.edits),
            "results named later %": _percent(sum(each.named >= 0 for each in self.results), len(self.results)),
            "their tokens %": _percent(
                sum(each.tokens for each in self.results if each.named >= 0), sum(each.tokens for each in self.results)
            ),
            **_distribution("last named after, calls", [each.named - each.arrived for each in self.results if each.named >= 0]),
            **{
                f"replies whose calls name what last stood {distance} calls back %": _percent(
                    sum(name_distance > distance for name_distance in self.name_distances), sum(self.replies)
                )
                for distance in _DISTANCES
            },
        }
        return SessionStatistics(self.sessions, {name: float(f"{value:.3g}") for name, value in found.items()})


class _SessionCollector:
    """Adds the events of one session to the totals."""

    def __init__(self, totals: StatisticsCollector) -> None:
        self._totals = totals
        self._calls: dict[str, ToolCall] = {}
        self._touched_paths: set[str] = set()
        self._read_paths: set[str] = set()
        self._results_by_name: dict[str, list[_LargeResult]] = {}
        # The number of the reply at which each name last occurred.
        self._last_mentioned: dict[str, int] = {}
        self._replies = self._turn = 0
        self._last_at: int | None = None

    def take(self, event: Event) -> None:
        match event.body:
            case UserSaid() as body:
                self._user(event.at, body)
            case ModelReplied() as body:
                self._reply(event.at, body)
            case ToolReturned() as body:
                self._result(event.at, body)
            case ContextStated() as body:
                self._count("context", [Text(each.text) for each in (*(body.head or ()), *body.items)])
            case _:
                pass

    def end(self) -> None:
        if self._turn:
            self._totals.replies.append(self._turn)

    def _count(self, kind: str, contents: Iterable[Content]) -> int:
        tokens = sum(map(palimpsest_size, contents))
        self._totals.tokens[kind] = self._totals.tokens.get(kind, 0) + tokens
        return tokens

    def _user(self, at: int, body: UserSaid) -> None:
        totals = self._totals
        totals.user_tokens.append(self._count("user", body.parts))
        self._mention(body.parts)
        texts = "".join(part.text for part in body.parts if isinstance(part, Text))
        totals.chinese += any("\u4e00" <= sign <= "\u9fff" for sign in texts[:2_000])
        if body.steering:
            return
        if self._turn:
            totals.replies.append(self._turn)
            if self._last_at is not None and at >= self._last_at:
                totals.user_gaps_ms.append(at - self._last_at)
        self._turn = 0
        self._last_at = at

    def _reply(self, at: int, body: ModelReplied) -> None:
        calls = [part for part in body.parts if isinstance(part, ToolCall)]
        self._count("calls", calls)
        self._count("replies", [part for part in body.parts if not isinstance(part, ToolCall)])
        self._calls |= {call.call_id: call for call in calls}
        self._replies += 1
        self._turn += 1
        self._totals.parallel_replies += len(calls) > 1
        if self._last_at is not None and self._turn > 1 and at >= self._last_at:
            self._totals.call_gaps_ms.append(at - self._last_at)
        self._last_at = at
        used = {plain_name(name) for call in calls for name in names_of("\n".join(argument_texts(call)))}
        self._totals.name_distances += [
            max((self._replies - self._last_mentioned[name] for name in used if name in self._last_mentioned), default=0)
        ]
        self._mention(body.parts)
        for name in names_in_reply(body.parts):
            for result in self._results_by_name.get(name, ())[-1:]:
                result.named = self._replies

    def _result(self, at: int, body: ToolReturned) -> None:
        totals = self._totals
        call = self._calls.pop(body.result.call_id, None)
        action = action_with(call, body) if call is not None else Action("other")
        tokens = self._count("results", (body.result,))
        self._mention((body.result,))
        totals.sizes.setdefault(action.kind, []).append(tokens)
        failed = body.result.error or (action.kind == "command" and exit_of(body) not in (None, 0))
        totals.failures[action.kind] = totals.failures.get(action.kind, 0) + failed
        if call is not None and not failed:
            self._record_paths(action)
        if tokens > _LARGE_TOKENS and action.kind not in ("edit", "write"):
            result = _LargeResult(tokens, self._replies)
            totals.results.append(result)
            for name in names_in_result(body.result, action_of(call) if call is not None else None)[:_MOST_NAMES]:
                self._results_by_name.setdefault(name, []).append(result)
        self._last_at = at

    def _mention(self, contents: Iterable[Content]) -> None:
        self._last_mentioned.update((plain_name(name), self._replies) for content in contents for name in names_of(readable_text(content)))

    def _record_paths(self, action: Action) -> None:
        totals = self._totals
        for touched in action.paths:
            path = normalized_path(touched.path)
            if touched.how == "read":
                totals.reads += 1
                totals.repeated_reads += path in self._read_paths
                self._read_paths.add(path)
            elif touched.how in ("edit", "write"):
                totals.edits += 1
                totals.edits_of_known += path in self._touched_paths
            self._touched_paths.add(path)


def _percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0


def _distribution(name: str, values: list[int] | list[float]) -> dict[str, float]:
    """Return median, 90th percentile and mean, each under its label; empty without values."""
    ordered = sorted(values)
    if not ordered:
        return {}
    at = {"median": 0.5, "p90": 0.9}
    places = {f"{name}, {label}": float(ordered[min(len(ordered) - 1, int(share * len(ordered)))]) for label, share in at.items()}
    return {**places, f"{name}, mean": sum(ordered) / len(ordered)}


# Number and length of the recorded sessions that the distributions were fitted to.
SESSIONS, TOKENS = 32, 130_000
_STATISTICS = ("median", "p90", "mean")


class Fit(Struct, frozen=True):
    """Statistics of recorded sessions, and of synthetic ones."""

    recorded: SessionStatistics
    synthetic: SessionStatistics = tuning_field(name="made_up")


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
