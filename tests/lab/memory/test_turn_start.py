"""What recall adds to the start of a turn is measured over real files and a real session."""

from pathlib import Path

from msgspec import structs

from pal_lab.recall.latency import TurnStart, measure_turn_start

DATA = Path(__file__).parent / "data" / "chinese.json"


def test_each_figure_is_measured_over_as_many_notes_prompts_and_units_as_asked_for() -> None:
    measured = measure_turn_start(DATA, notes=30, prompts=4, units=80)
    assert (measured.notes, measured.prompts, measured.units) == (30, 4, 80)
    figures = structs.astuple(measured)
    assert all(figure > 0 for figure in figures)


def test_the_limit_is_one_of_processor_time() -> None:
    within = TurnStart(1_000, 100, first_ms=99.0, p50_ms=99.0, p95_ms=99.0, cpu_ms=15.0, load_notes_ms=1.0, units=1, load_units_ms=1.0)
    assert within.ok
    assert not structs.replace(within, cpu_ms=15.1).ok
