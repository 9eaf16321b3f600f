"""Bars of cost, re-reads, survival and probes: sessions replayed under each profile without a model."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from pal.replay.comparison import BASELINE, COMPARED
from pal.replay.outcome import SURVIVALS, Figures, Outcome, ProbeScores, figures, ratio
from pal.replay.probes import CYCLES, ProbedSession, SummarySource, probed
from pal.replay.recording import LoadedSession, RecordingIndex, load_all, load_log
from pal.replay.replay import replay
from pal.replay.rereads import OFFICIAL
from pal.replay.simulation import replay_card
from pal_lab.bench.bars import Bar, ProfileRow, SessionCostRow, bar, without_limit
from pal_lab.bench.workspace import BenchWorkspace
from pal_lab.halves import split_halves
from palimpsest.core.errors import BadInput
from palimpsest.policies.named import profile
from palimpsest.stores.in_memory import MemoryBlobs, MemorySessions
from palimpsest.testing.synthetic import synthetic_session

OURS: Final = "palimpsest"
PEERS: Final = COMPARED[2:]
SURVIVAL_BARS: Final = {f"survival_{name}" for name in SURVIVALS}
PROBE_BARS: Final = {f"probes_{number}" for number in CYCLES}
COST_BARS: Final = {"cost_anthropic", "cost_anthropic_1h", "cost_openai", "cost_worst", "rereads", "rereads_strings", "invalid"}


class PricingRun(NamedTuple):
    """A way of pricing: its bar, the card, and the lifetime of cache entries."""

    bar: str
    card: str
    ttl: Literal["5m", "1h"] = "5m"


RUNS: Final = (
    PricingRun("cost_anthropic", "claude-sonnet-4-5"),
    PricingRun("cost_anthropic_1h", "claude-sonnet-4-5", "1h"),
    PricingRun("cost_openai", "gpt-5.5"),
)


def measure_costing(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """`cost_*`, `rereads`, `invalid`, `survival_*` and `probes_*`."""
    names = (OURS, BASELINE, *(PEERS if workspace.sizes.peers else ()))
    cycles = CYCLES if wanted & PROBE_BARS else ()
    table = _CostTable(names, cycles)
    for loaded in sessions_of(workspace):
        workspace.announce(f"replaying {loaded.id} ({loaded.recording.tokens:,} tokens)")
        table.take(loaded)
    if not table.sessions:
        raise BadInput("there is no session to replay", where=str(workspace.recorded))
    workspace.rows, workspace.session_rows = table.rows(), table.session_rows()
    for each in table.bars():
        if each.name in wanted:
            # Synthetic sessions cause too few re-reads for a meaningful ratio.
            is_reported_only = workspace.recorded is None and each.name in ("rereads", "rereads_strings") and each.value is not None
            yield without_limit(each) if is_reported_only else each


def sessions_of(workspace: BenchWorkspace) -> Iterator[LoadedSession]:
    """Yield the sessions below the given folder, or synthetic ones."""
    if workspace.recorded is not None:
        yield from load_all([workspace.recorded])
        return
    for seed, tokens in workspace.sizes.replayed:
        with synthetic_session(seed, tokens, MemorySessions()) as log:
            yield load_log(log, MemoryBlobs(), "made up", "made up")


class _CostTable:
    """Collects the outcomes of all sessions, by profile and pricing run."""

    def __init__(self, names: tuple[str, ...], cycles: tuple[int, ...]) -> None:
        self._profiles = tuple(profile(name) for name in names)
        self._cycles = cycles
        self._outcomes: dict[tuple[str, str], list[Outcome]] = {}
        self.sessions: list[tuple[str, str, int]] = []

    def take(self, loaded: LoadedSession) -> None:
        """Replay one session under every profile and pricing run."""
        recording, index = loaded.recording, RecordingIndex(loaded.recording.steps)
        rounds = ProbedSession(loaded.events) if self._cycles else None
        self.sessions.append((loaded.id, loaded.format, recording.tokens))
        for each in self._profiles:
            for run in RUNS:
                if run.ttl == "1h" and each.name not in (OURS, BASELINE):
                    continue
                model = replay_card(run.card)
                outcome = replay(recording, each, model, ttl=run.ttl, index=index)
                if rounds is not None and run is RUNS[0]:
                    summary_source = SummarySource(recording.calibration.factor)
                    outcome = replace(outcome, probes=probed(rounds, each, model, self._cycles, summary_source))
                self._outcomes.setdefault((each.name, run.bar), []).append(outcome)

    def _figures(self, name: str, run: str) -> Figures:
        return figures(self._outcomes[name, run])

    def rows(self) -> tuple[ProfileRow, ...]:
        """Return one row for each profile."""
        found = []
        for each in self._profiles:
            by_run = {run.bar: self._figures(each.name, run.bar) for run in RUNS if (each.name, run.bar) in self._outcomes}
            first = by_run[RUNS[0].bar]
            against = {run.bar: self._figures(BASELINE, run.bar) for run in RUNS}
            found.append(
                ProfileRow(
                    each.name,
                    {name: round(total.usd, 4) for name, total in by_run.items()},
                    {name: ratio(total.usd, against[name].usd) for name, total in by_run.items()},
                    first.calls,
                    first.rereads,
                    first.folds,
                    first.folds_per_100,
                    first.mean,
                    sum(total.invalid for total in by_run.values()),
                    first.survival,
                    dict(first.probes["cycles"]),
                    dict(first.rereads_by),
                )
            )
        return tuple(found)

    def session_rows(self) -> tuple[SessionCostRow, ...]:
        """Return one row for each session: our cost against the baseline."""
        found = []
        for place, session in enumerate(self.sessions):
            pairs = {run.bar: [self._outcomes[name, run.bar][place] for name in (OURS, BASELINE)] for run in RUNS}
            ratios = {name: ratio(ours.cost.total, theirs.cost.total) for name, (ours, theirs) in pairs.items()}
            found.append(SessionCostRow(*session, ratios, *(len(outcome.rereads) for outcome in pairs[RUNS[0].bar])))
        return tuple(found)

    def _ratios_by_half(self, run: str) -> dict[str, float]:
        """Return the cost ratio over each half of the sessions; numbers tuned on one half are judged by the other."""
        found: dict[str, float] = {}
        for half, names in split_halves({session: tokens for session, _, tokens in self.sessions}).items():
            places = [place for place, (session, _, _) in enumerate(self.sessions) if session in names]
            ours, theirs = (sum(self._outcomes[name, run][place].cost.total for place in places) for name in (OURS, BASELINE))
            if theirs:
                found[half] = ours / theirs
        return found

    def bars(self) -> Iterator[Bar]:
        """Yield all bars of this module."""
        rows = {row.profile: row for row in self.rows()}
        ours, theirs = rows[OURS], rows[BASELINE]
        for run in RUNS:
            dollars = {"ours_usd": ours.usd[run.bar], "theirs_usd": theirs.usd[run.bar]}
            yield bar(run.bar, ours.ratios[run.bar], None, **dollars, **self._ratios_by_half(run.bar))
        worst = {run.bar: max((row.ratios[run.bar] or 0.0 for row in self.session_rows()), default=0.0) for run in RUNS}
        yield bar("cost_worst", max(worst.values()), None, **worst)
        for name, definition in (("rereads", OFFICIAL), ("rereads_strings", "strings")):
            counts = {run.bar: [self._figures(each, run.bar).rereads_by[definition] for each in (OURS, BASELINE)] for run in RUNS}
            yield reread_bar(counts, name)
        yield bar("invalid", sum(row.invalid for row in rows.values()))
        for name in SURVIVALS:
            yield bar(f"survival_{name}", 100 * getattr(ours.survival, name), theirs=100 * getattr(theirs.survival, name))
        for number, share in ours.probes.items():
            yield _probe_bar(number, share, theirs.probes[number])


def reread_bar(counts: Mapping[str, Sequence[int]], name: str = "rereads") -> Bar:
    """Return the bar of re-reads against the baseline: the worse of the two kinds of cache with five-minute entries."""
    detail: dict[str, float] = {}
    judged: list[float] = []
    for run in RUNS:
        ours, theirs = counts[run.bar]
        detail |= {f"ours_{run.bar}": ours, f"theirs_{run.bar}": theirs}
        found = ratio(ours, theirs)
        if found is not None:
            detail[run.bar] = found
            judged += [found] if run.ttl == "5m" else []
    return bar(name, max(judged, default=None), None, **detail)


def _probe_bar(number: str, ours: ProbeScores, theirs: ProbeScores) -> Bar:
    """Return the bar of probes answered after so many forced folds; without a value if nothing was folded."""
    return bar(
        f"probes_{number}",
        100 * ours.visible if ours.sessions else None,
        None,
        with_recall=100 * ours.with_recall,
        theirs=100 * theirs.visible,
        theirs_with_recall=100 * theirs.with_recall,
        forced=ours.forced,
        folds=ours.folds,
        theirs_folds=theirs.folds,
        sessions=ours.sessions,
        theirs_sessions=theirs.sessions,
        **{kind: 100 * scores.visible for kind, scores in ours.kinds.items()},
    )
