"""The measured statements about recall as gates: what was measured, what is asked for, and which were not measured."""

from collections.abc import Iterable, Iterator
from typing import Final, Literal, TypeAlias

from palimpsest.core.items import Value
from palimpsest.lab.memory.beam import BEAM
from palimpsest.lab.memory.evaluation import FLOORS, MemoryReport
from palimpsest.lab.memory.latency import P95_LIMIT_MS, WORST_LIMIT_MS, Latency
from palimpsest.lab.memory.levels import TOKENS, LevelsReport

GateState: TypeAlias = Literal["pass", "miss", "not measured"]
Comparison: TypeAlias = Literal["at least", "at most", "below", "about"]

# Scores of the floor that the scorer has to reproduce, by the number of main questions: all of LoCoMo, and its open part.
_FLOORS: Final = {1_536: (0.468, 0.606), 883: (0.471, 0.608)}
_FLOOR_TOLERANCE: Final = 0.003
_NO_MODEL: Final = (0.62, 0.77)
_EMBEDDINGS: Final = (0.65, 0.79)
_BEAM_RECALL: Final = 0.60
# Share of the ceiling, by level.
_LEVELS: Final = {"1": 0.95, "2": 0.80, "3": 0.60}


class Gate(Value, frozen=True):
    """A limit for something measured; `value` is None if it was not, and `why` says what is missing."""

    statement: str
    name: str
    comparison: Comparison
    limit: float
    value: float | None = None
    why: str = ""

    @property
    def state(self) -> GateState:
        """Whether the limit holds."""
        if self.value is None:
            return "not measured"
        match self.comparison:
            case "at least":
                holds = self.value >= self.limit
            case "at most":
                holds = self.value <= self.limit
            case "below":
                holds = self.value < self.limit
            case "about":
                holds = abs(self.value - self.limit) <= _FLOOR_TOLERANCE
        return "pass" if holds else "miss"


Measured: TypeAlias = MemoryReport | Latency | LevelsReport


def gates(measured: Iterable[Measured]) -> tuple[Gate, ...]:
    """Return all gates in the order of their statements, with the values of these measurements; of two of one kind the last counts."""
    found = list(measured)
    reports = [each for each in found if isinstance(each, MemoryReport)]
    locomo = next((each for each in reversed(reports) if each.form != BEAM), None)
    beam = next((each for each in reversed(reports) if each.form == BEAM), None)
    latency = next((each for each in reversed(found) if isinstance(each, Latency)), None)
    levels = next((each for each in reversed(found) if isinstance(each, LevelsReport)), None)
    return (*_floor_gates(locomo), *_locomo_gates(locomo), _beam_gate(beam), *_latency_gates(latency), *_level_gates(levels))


def _floor_gates(report: MemoryReport | None) -> Iterator[Gate]:
    known = _FLOORS.get(report.main_questions) if report is not None else None
    ndcg, recall = known or _FLOORS[883]
    if report is None or known is None:
        why = "data absent" if report is None else "neither LoCoMo nor its open part"
        yield Gate("ME-42", "floor nDCG@10", "about", ndcg, why=why)
        yield Gate("ME-42", "floor R@10", "about", recall, why=why)
        return
    floor = next(row for row in report.rows if row.name == FLOORS[1][0])
    yield Gate("ME-42", "floor nDCG@10", "about", ndcg, floor.main.ndcg_10)
    yield Gate("ME-42", "floor R@10", "about", recall, floor.main.recall_10)


def _locomo_gates(report: MemoryReport | None) -> Iterator[Gate]:
    for name, embeddings, (ndcg, recall) in (("no model", False, _NO_MODEL), ("with embeddings", True, _EMBEDDINGS)):
        if report is None or (embeddings and not report.embeddings):
            why = "data absent" if report is None else "needs --embed"
            yield Gate("ME-44", f"{name} nDCG@10", "at least", ndcg, why=why)
            yield Gate("ME-44", f"{name} R@10", "at least", recall, why=why)
        else:
            main = report.row(embeddings=embeddings).main
            yield Gate("ME-44", f"{name} nDCG@10", "at least", ndcg, main.ndcg_10)
            yield Gate("ME-44", f"{name} R@10", "at least", recall, main.recall_10)


def _beam_gate(report: MemoryReport | None) -> Gate:
    if report is None:
        return Gate("ME-45", "BEAM R@10", "at least", _BEAM_RECALL, why="data absent")
    shipped = next(row for row in report.rows if row.name == "ours, shipped weights")
    return Gate("ME-45", "BEAM R@10", "at least", _BEAM_RECALL, shipped.main.recall_10)


def _latency_gates(latency: Latency | None) -> Iterator[Gate]:
    for name, comparison, limit, value in _latency_limits(latency):
        yield Gate("ME-46", name, comparison, limit, value, "" if value is not None else "needs --latency")


def _latency_limits(latency: Latency | None) -> tuple[tuple[str, Comparison, float, float | None], ...]:
    p95, worst = (latency.p95_ms, latency.worst_ms) if latency is not None else (None, None)
    return (("p95 ms", "below", P95_LIMIT_MS, p95), ("worst ms", "at most", WORST_LIMIT_MS, worst))


def _level_gates(report: LevelsReport | None) -> Iterator[Gate]:
    rows = report.levels if report is not None else {}
    for level, limit in _LEVELS.items():
        row = rows.get(level)
        name = f"level {level}, share of the ceiling"
        yield Gate("ME-48", name, "at least", limit, row.ratio if row is not None else None, "" if row is not None else "data absent")
    measured = list(rows.values())
    why = "" if measured else "data absent"
    yield Gate("ME-48", "tokens recalled", "at most", TOKENS, max(row.tokens for row in measured) if measured else None, why)
    yield Gate("ME-48", "stale values given as current", "at most", 0, sum(row.stale for row in measured) if measured else None, why)
