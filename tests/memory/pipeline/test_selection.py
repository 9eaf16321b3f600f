"""Which summaries a consolidation reads, and which are deleted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.memory.summaries import MOST_PRUNED, RolloutUse, pruned, selected

DAY = 86_400_000
NOW = 100 * DAY


def use(session: str, source: int, made: int, uses: int = 0, last: int = 0, *, is_selected: bool = False) -> RolloutUse:
    return RolloutUse(session, f"stem-{session}", source * DAY, made * DAY, uses, last * DAY, is_selected)


@pytest.mark.states("CX-61")
def test_selection_ranks_by_use_then_recency_and_is_written_in_the_order_of_sessions() -> None:
    often, lately, new, old = use("d", 80, 80, 5, 90), use("c", 80, 80, 1, 99), use("b", 95, 95), use("a", 90, 90)
    assert selected((old, new, lately, often), NOW, 30 * DAY, 3) == (new, lately, often)
    assert selected((old, new, lately, often), NOW, 30 * DAY, 1) == (often,)
    assert selected((old, new, lately, often), NOW, 30 * DAY, 9) == (old, new, lately, often)


@pytest.mark.states("CX-61")
def test_what_was_unused_for_thirty_days_is_left_out_and_an_imported_old_session_is_not() -> None:
    unused, used, imported = use("a", 60, 60), use("b", 60, 60, 1, 75), use("c", 1, 99)
    assert selected((unused, used, imported), NOW, 30 * DAY, 9) == (used, imported)


@pytest.mark.states("CX-61")
def test_pruning_takes_the_stalest_and_never_a_selected_row() -> None:
    rows = (use("a", 60, 60), use("b", 50, 50), use("c", 40, 40, is_selected=True), use("d", 99, 99))
    assert pruned(rows, NOW, 30 * DAY) == (rows[1], rows[0])


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100), st.booleans()), max_size=300))
@pytest.mark.states("CX-61")
def test_no_row_is_both_read_and_deleted(rows: list[tuple[int, int, int, bool]]) -> None:
    uses = [use(f"{place:03}", source, made, 1, last, is_selected=chosen) for place, (source, made, last, chosen) in enumerate(rows)]
    read, deleted = set(selected(uses, NOW, 30 * DAY, 256)), set(pruned(uses, NOW, 30 * DAY))
    assert not read & deleted
    assert len(deleted) <= MOST_PRUNED
    assert not any(each.is_selected for each in deleted)
