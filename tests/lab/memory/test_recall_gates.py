"""Measured statements about recall as gates."""

from pathlib import Path

import pytest

from pal_lab.recall.evaluation import Gate, MeanScores, MemoryReport, ScoreRow, gates
from pal_lab.recall.latency import Latency
from pal_lab.recall.levels import LevelRow, LevelsReport


def row(name: str, ndcg: float, recall: float, note: str = "") -> ScoreRow:
    none = MeanScores(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    return ScoreRow(name, MeanScores(9, ndcg, recall, 0, 0, 0, 0, 0, 0, 0), {}, none, note)


def report(*rows: ScoreRow, questions: int = 883, form: str = "LoCoMo") -> MemoryReport:
    return MemoryReport("data.json", "0", 2, 9, questions, 0, rows, {}, (), form=form)


FLOOR = row("FTS5, without stop words", 0.4725, 0.61)
LEVEL = LevelRow(cases=2, facts=8, recalled=7, score=0.8, ceiling=1.0, ratio=0.8, second_half=0.8, links=1.0, stale=0, passed=1, tokens=990)


def states(found: tuple[Gate, ...], statement: str) -> list[str]:
    return [gate.state for gate in found if gate.statement == statement]


def test_without_data_every_gate_says_that_it_was_not_measured_and_why() -> None:
    found = gates([])

    assert {gate.state for gate in found} == {"not measured"}
    assert sorted({gate.statement for gate in found}) == ["ME-42", "ME-44", "ME-45", "ME-46", "ME-48"]
    assert next(gate for gate in found if gate.statement == "ME-45") == Gate("ME-45", "BEAM R@10", "at least", 0.6, why="data absent")


@pytest.mark.states("ME-42")
def test_the_floor_has_to_be_reproduced_within_three_thousandths_on_data_of_that_size() -> None:
    ours = row("ours, shipped weights", 0.7, 0.8)
    assert states(gates([report(FLOOR, ours)]), "ME-42") == ["pass", "pass"]
    assert states(gates([report(row("FTS5, without stop words", 0.475, 0.604), ours)]), "ME-42") == ["miss", "miss"]
    assert states(gates([report(FLOOR, ours, questions=10)]), "ME-42") == ["not measured", "not measured"]


@pytest.mark.states("ME-44")
def test_conversations_that_were_trained_on_count_as_held_out_and_others_with_the_shipped_weights() -> None:
    seen = report(FLOOR, row("ours, shipped weights", 0.9, 0.9, "these conversations were trained on"), row("ours, held out", 0.61, 0.77))
    unseen = report(FLOOR, row("ours, shipped weights", 0.63, 0.78), row("ours, held out", 0.1, 0.1))

    assert states(gates([seen]), "ME-44") == ["miss", "pass", "not measured", "not measured"]
    assert states(gates([unseen]), "ME-44") == ["pass", "pass", "not measured", "not measured"]
    embedded = report(FLOOR, row("ours, shipped weights", 0.63, 0.78), row("ours with embeddings, shipped weights", 0.66, 0.78))
    assert states(gates([embedded]), "ME-44") == ["pass", "pass", "pass", "miss"]


def test_beam_is_gated_with_the_shipped_weights_and_is_no_measurement_of_locomo() -> None:
    found = gates([report(row("ours, shipped weights", 0.5, 0.61), row("ours, held out", 0.9, 0.9), form="BEAM")])

    assert states(found, "ME-45") == ["pass"]
    assert set(states(found, "ME-44")) == {"not measured"}


@pytest.mark.parametrize(("p95", "worst", "expected"), [(9.9, 50.0, ["pass", "pass"]), (10.0, 50.1, ["miss", "miss"])])
@pytest.mark.states("ME-46")
def test_latency_has_two_gates(p95: float, worst: float, expected: list[str]) -> None:
    assert states(gates([Latency(50_000, 400, 1.0, 1.0, p95, worst, 1.0, 1.0)]), "ME-46") == expected


@pytest.mark.states("ME-48")
def test_levels_are_gated_by_share_tokens_and_stale_values() -> None:
    levels = LevelsReport(Path("cases").name, 6, {"1": LEVEL, "2": LEVEL, "3": LEVEL}, ())
    assert states(gates([levels]), "ME-48") == ["miss", "pass", "pass", "pass", "pass"]
