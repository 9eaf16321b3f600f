"""Tokens of background work, counted for each day."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from palimpsest.core.errors import StoreError
from palimpsest.stores.notes.spending import DaySpending, Tokens


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
    with pytest.raises(StoreError, match="cannot count the tokens of memory: file is not a database"):
        DaySpending(tmp_path).used("2026-05-04")
