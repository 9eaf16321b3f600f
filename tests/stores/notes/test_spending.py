"""Tokens of background work by day."""

from pathlib import Path

from palimpsest.stores.notes.spending import DaySpending, Tokens


def test_tokens_of_a_day_add_up_and_other_days_are_apart(tmp_path: Path) -> None:
    spending = DaySpending(tmp_path)
    assert spending.used("2026-05-01") == Tokens()
    spending.add("2026-05-01", Tokens(10, 2))
    DaySpending(tmp_path).add("2026-05-01", Tokens(5, 1))
    assert (spending.used("2026-05-01"), spending.used("2026-05-02")) == (Tokens(15, 3), Tokens())


def test_me_20_a_reservation_that_would_exceed_the_day_is_refused_and_counts_nothing(tmp_path: Path) -> None:
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
