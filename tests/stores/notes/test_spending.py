"""Tokens of background work, counted for each day."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from palimpsest.core.errors import StoreError
from palimpsest.memory.work_store import DaySpending, Tokens


def test_a_day_without_use_has_none(tmp_path: Path) -> None:
    assert DaySpending(tmp_path / "memory").used("2026-05-04") == Tokens(0, 0)


def test_uses_of_a_day_add_up_and_other_days_are_apart(tmp_path: Path) -> None:
    spending = DaySpending(tmp_path)
    spending.add("2026-05-04", Tokens(100, 10))
    spending.add("2026-05-04", Tokens(50, 5))
    spending.add("2026-05-05", Tokens(7, 1))
    assert (spending.used("2026-05-04"), spending.used("2026-05-05")) == (Tokens(150, 15), Tokens(7, 1))


def test_workers_that_add_at_once_lose_nothing(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: DaySpending(tmp_path).add("2026-05-04", Tokens(1, 2)), range(80)))
    assert DaySpending(tmp_path).used("2026-05-04") == Tokens(80, 160)


def test_a_damaged_database_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "jobs.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(StoreError, match="cannot use the database of memory's jobs: file is not a database"):
        DaySpending(tmp_path).used("2026-05-04")


@pytest.mark.states("ME-20")
def test_a_reservation_that_would_exceed_the_day_is_refused_and_counts_nothing(tmp_path: Path) -> None:
    spending, most = DaySpending(tmp_path), Tokens(100, 10)
    assert spending.reserve("2026-05-01", Tokens(60, 5), most)
    assert not spending.reserve("2026-05-01", Tokens(41, 5), most)
    assert not spending.reserve("2026-05-01", Tokens(40, 6), most)
    assert spending.used("2026-05-01") == Tokens(60, 5)
    assert spending.reserve("2026-05-01", Tokens(40, 5), most)


def test_a_reservation_is_corrected_by_the_use(tmp_path: Path) -> None:
    spending = DaySpending(tmp_path)
    spending.reserve("2026-05-01", Tokens(60, 5), Tokens(100, 10))
    spending.add("2026-05-01", Tokens(-20, -5))
    assert spending.used("2026-05-01") == Tokens(40, 0)
