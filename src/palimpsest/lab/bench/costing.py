"""What sessions cost and lose under each profile, replayed without a model: the bars of money, re-reads, survival and probes."""

from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

from msgspec import structs

from palimpsest.core.errors import BadInput
from palimpsest.lab.bench.bars import Bar, bar
from palimpsest.lab.bench.tables import ProfileRow, SessionCostRow, split_halves
from palimpsest.lab.bench.workspace import Workspace
from palimpsest.lab.comparison import BASELINE, COMPARED
from palimpsest.lab.outcome import SURVIVALS, Figures, Outcome, ProbeScores, figures, mean_scores, ratio
from palimpsest.lab.probes.cycles import CYCLES, ProbedSession, SummarySource, probed
from palimpsest.lab.simulation.environment import replay_card
from palimpsest.lab.simulation.loading import LoadedSession, load_all, load_log
from palimpsest.lab.simulation.replay import replay
from palimpsest.lab.simulation.rereads import NameIndex
from palimpsest.lab.synthetic.sessions import synthetic_session
from palimpsest.profiles.named import profile
from palimpsest.stores.ephemeral import MemoryBlobs, MemorySessions

OURS: Final = "palimpsest"
PEERS: Final = COMPARED[2:]
SURVIVAL_BARS: Final = {f"survival_{name}" for name in SURVIVALS}
PROBE_BARS: Final = {f"probes_{number}" for number in CYCLES}
COST_BARS: Final = {"cost_anthropic", "cost_anthropic_1h", "cost_openai", "cost_worst", "rereads", "invalid"}


class PricingRun(NamedTuple):
    """A way to price: the bar that it is for, the card, and how long its entries last."""

    bar: str
    card: str
    ttl: Literal["5m", "1h"] = "5m"


RUNS: Final = (
    PricingRun("cost_anthropic", "claude-sonnet-4-5"),
    PricingRun("cost_anthropic_1h", "claude-sonnet-4-5", "1h"),
    PricingRun("cost_openai", "gpt-5.5"),
)


def measure_costing(workspace: Workspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """`cost_*`, `rereads`, `invalid`, `survival_*` and `probes_*`."""
    names = (OURS, BASELINE, *(PEERS if workspace.sizes.peers else ()))
    cycles = CYCLES if wanted & PROBE_BARS else ()
    table = _CostTable(names, cycles)
    for taken in sessions_of(workspace):
        workspace.tell(f"replaying {taken.id} ({taken.recording.tokens:,} tokens)")
        table.take(taken)
    if not table.sessions:
        raise BadInput("there is no session to be replayed", where=str(workspace.recorded))
    workspace.rows, workspace.session_rows = table.rows(), table.session_rows()
    yield from (
        _without_limit_if_synthetic(each, synthetic_session=workspace.recorded is None) for each in table.bars() if each.name in wanted
    )


def _without_limit_if_synthetic(each: Bar, *, synthetic_session: bool) -> Bar:
    """A bar as it is held to its limit; made-up sessions cause so few re-reads that their ratio is told and not judged."""
    return structs.replace(each, limit=None, ok=True) if synthetic_session and each.name == "rereads" and each.value is not None else each


def sessions_of(workspace: Workspace) -> Iterator[LoadedSession]:
    """The sessions below the folder that was given, or made-up ones."""
    if workspace.recorded is not None:
        yield from load_all([workspace.recorded])
        return
    for seed, tokens in workspace.sizes.replayed:
        with synthetic_session(seed, tokens, MemorySessions()) as log:
            yield load_log(log, MemoryBlobs(), "made up", "made up")


class _CostTable:
    """Outcomes of all sessions, by profile and by run."""

    def __init__(self, names: tuple[str, ...], cycles: tuple[int, ...]) -> None:
        self._profiles = tuple(profile(name) for name in names)
        self._cycles = cycles
        self._outcomes: dict[tuple[str, str], list[Outcome]] = {}
        self._probed: dict[str, list[dict[str, ProbeScores]]] = {}
        self.sessions: list[tuple[str, str, int]] = []

    def take(self, taken: LoadedSession) -> None:
        """Replay one session under everything."""
        recording, names = taken.recording, NameIndex(taken.recording.steps)
        rounds = ProbedSession(taken.events) if self._cycles else None
        self.sessions.append((taken.id, taken.format, recording.tokens))
        for each in self._profiles:
            for run in RUNS:
                if run.ttl == "1h" and each.name not in (OURS, BASELINE):
                    continue
                model = replay_card(run.card)
                outcome = replay(recording, each, model, ttl=run.ttl, names=names)
                self._outcomes.setdefault((each.name, run.bar), []).append(outcome)
            if rounds is not None:
                summarised = SummarySource(recording.calibration.factor)
                found = probed(rounds, each, replay_card(RUNS[0].card), self._cycles, summarised)
                self._probed.setdefault(each.name, []).append(found)

    def _figures(self, name: str, run: str) -> Figures:
        return figures(self._outcomes[name, run])

    def _shares(self, name: str) -> dict[str, ProbeScores]:
        """The mean over the sessions that were folded, by the number of cycles."""
        many = self._probed.get(name, [])
        return {str(number): mean_scores([each[str(number)] for each in many]) for number in self._cycles}

    def rows(self) -> tuple[ProfileRow, ...]:
        """One row a profile."""
        found = []
        for each in self._profiles:
            by_run = {run.bar: self._figures(each.name, run.bar) for run in RUNS if (each.name, run.bar) in self._outcomes}
            first = by_run[RUNS[0].bar]
            against = {run.bar: self._figures(BASELINE, run.bar) for run in RUNS}
            found.append(
                ProfileRow(
                    each.name,
                    {name: round(told.usd, 4) for name, told in by_run.items()},
                    {name: ratio(told.usd, against[name].usd) for name, told in by_run.items()},
                    first.calls,
                    first.rereads,
                    first.folds,
                    sum(told.invalid for told in by_run.values()),
                    first.survival,
                    self._shares(each.name),
                )
            )
        return tuple(found)

    def session_rows(self) -> tuple[SessionCostRow, ...]:
        """One row a session: what ours costs against the baseline."""
        return tuple(
            SessionCostRow(session, form, tokens, self._ratios(place), *self._rereads(place))
            for place, (session, form, tokens) in enumerate(self.sessions)
        )

    def _ratios(self, place: int) -> dict[str, float | None]:
        return {
            run.bar: ratio(self._outcomes[OURS, run.bar][place].cost.total, self._outcomes[BASELINE, run.bar][place].cost.total)
            for run in RUNS
        }

    def _halves(self, run: str) -> dict[str, float]:
        """The ratio over each half of the sessions: numbers that were chosen on one of them are judged by the other."""
        found: dict[str, float] = {}
        for half, names in split_halves({session: tokens for session, _, tokens in self.sessions}).items():
            places = [place for place, (session, _, _) in enumerate(self.sessions) if session in names]
            ours, theirs = (sum(self._outcomes[name, run][place].cost.total for place in places) for name in (OURS, BASELINE))
            if theirs:
                found[half] = ours / theirs
        return found

    def _rereads(self, place: int) -> tuple[int, int]:
        first = RUNS[0].bar
        return len(self._outcomes[OURS, first][place].rereads), len(self._outcomes[BASELINE, first][place].rereads)

    def bars(self) -> Iterator[Bar]:
        """All bars of this family."""
        rows = {row.profile: row for row in self.rows()}
        ours, theirs = rows[OURS], rows[BASELINE]
        for run in RUNS:
            dollars = {"ours_usd": ours.usd[run.bar], "theirs_usd": theirs.usd[run.bar]}
            yield bar(run.bar, ours.ratios[run.bar], None, **dollars, **self._halves(run.bar))
        worst = {run.bar: max((row.ratios[run.bar] or 0.0 for row in self.session_rows()), default=0.0) for run in RUNS}
        yield bar("cost_worst", max(worst.values()), None, **worst)
        yield reread_bar({run.bar: (self._figures(OURS, run.bar).rereads, self._figures(BASELINE, run.bar).rereads) for run in RUNS})
        yield bar("invalid", sum(row.invalid for row in rows.values()))
        for name in SURVIVALS:
            yield bar(f"survival_{name}", 100 * getattr(ours.survival, name), theirs=100 * getattr(theirs.survival, name))
        for number, share in ours.probes.items():
            yield _probe_bar(number, share, theirs.probes[number])


def reread_bar(counts: Mapping[str, tuple[int, int]]) -> Bar:
    """Re-reads of all sessions against the baseline: of the two kinds of cache that have a limit the one that is worse."""
    detail: dict[str, float] = {}
    judged: list[float] = []
    for run in RUNS:
        ours, theirs = counts[run.bar]
        detail |= {f"ours_{run.bar}": ours, f"theirs_{run.bar}": theirs}
        found = ratio(ours, theirs)
        if found is not None:
            detail[run.bar] = found
            judged += [found] if run.ttl == "5m" else []
    return bar("rereads", max(judged, default=None), None, **detail)


def _probe_bar(number: str, ours: ProbeScores, theirs: ProbeScores) -> Bar:
    """What is answered after so many forced folds; nobody knows where nothing was folded."""
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
        **{kind: 100 * kept.visible for kind, kept in ours.kinds.items()},
    )
