"""A soak of the agent: turns in one session on disk, and the growth of memory and time."""

from pathlib import Path

from pal_lab.bench.processes import Soak, SoakRow, soak, soak_of


def rows(memory: list[int], times: list[float]) -> list[SoakRow]:
    return [SoakRow(100 * tenth, ms, kb, 40) for tenth, (kb, ms) in enumerate(zip(memory, times, strict=True), 1)]


def test_memory_is_flat_if_it_grows_by_a_tenth_after_the_first_fifth() -> None:
    found = rows([30_000, 40_000, *[41_000] * 7, 44_000], [8.0, 12.0, *[10.0] * 6, 12.0, 13.0])
    assert soak_of(found) == Soak(tuple(found), memory_growth=0.1, memory_is_flat=True, time_growth=0.25)


def test_memory_is_not_flat_if_it_grows_by_more() -> None:
    found = rows([30_000, 40_000, *[41_000] * 7, 44_200], [10.0] * 10)
    assert soak_of(found) == Soak(tuple(found), memory_growth=0.105, memory_is_flat=False, time_growth=0.0)


def test_a_soak_reports_each_tenth_of_its_turns(tmp_path: Path) -> None:
    announced: list[str] = []
    found = soak(tmp_path, 10, announced.append)
    assert [(row.turns, row.view_items) for row in found.rows] == [(turns, 4 * turns) for turns in range(1, 11)]
    assert len(announced) == 10
    assert min(row.turn_ms for row in found.rows) > 0
    assert (tmp_path / "sessions" / "soak.jsonl").stat().st_size > 10_000
