"""Times as texts, also those that no calendar has."""

import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.events import numbers_of
from palimpsest.core.text import counted, dollars, is_date, iso_time, percent_of, price_facts, utc_text, whole_number


@pytest.mark.parametrize(
    ("at", "iso", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z", "1970-01-01 00:00"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z", "9999-12-31 23:59"),
        (253_402_300_800_000, "253402300800000 ms", "253402300800000 ms"),
        (-1, "-1 ms", "-1 ms"),
        (10**40, f"{10**40} ms", f"{10**40} ms"),
    ],
)
def test_a_time_is_a_date_in_the_years_1970_to_9999_and_else_the_number_that_was_recorded(at: int, iso: str, text: str) -> None:
    assert (iso_time(at), utc_text(at), is_date(at)) == (iso, text, text[-1] != "s")


@given(st.integers(0, 10**18 - 1))
def test_a_number_of_up_to_18_digits_is_read_as_it_was_written(number: int) -> None:
    assert whole_number(str(number)) == number


@every_case("text", ["", " 1", "+1", "-1", "1.0", "1_000", "x", "²", "٣", "9" * 19, "9" * 5_000])
def test_any_other_text_is_no_number(text: str) -> None:
    assert whole_number(text) is None


@pytest.mark.parametrize(
    ("item", "numbers"),
    [("7.0", (7, 0)), ("7.1.12", (7, 1, 12)), ("7", None), ("07.0", None), ("7.x", None), ("1.2.3.4", None), (f"{'9' * 5_000}.0", None)],
)
def test_an_item_id_has_two_or_three_numbers_without_leading_zeros(item: str, numbers: tuple[int, ...] | None) -> None:
    assert numbers_of(item) == numbers


def test_a_share_is_in_whole_percent_with_halves_rounded_up() -> None:
    assert [percent_of(tokens, 200_000) for tokens in (0, 999, 1_000, 24_999, 25_000, 200_000, 401_000)] == [0, 0, 1, 12, 13, 100, 201]
    assert percent_of(5, 0) == 0


@pytest.mark.parametrize(
    ("usd", "text"),
    [(None, "unknown"), (0.0, "$0.00"), (1e-9, "<$0.0001"), (0.0004, "$0.0004"), (0.72, "$0.72"), (1234.5, "$1,234.50"), (-0.72, "-$0.72")],
)
def test_dollars_are_never_shown_as_zero_unless_they_are(usd: float | None, text: str) -> None:
    assert dollars(usd) == text


@pytest.mark.parametrize(
    ("price", "saved", "facts"),
    [
        (-0.72, 0.01, ("saves $0.01 a call", "saves $0.72 at once")),
        (0.72, -0.01, ("adds $0.01 a call", "costs $0.72 once")),
        (None, 0.0, ()),
    ],
)
def test_an_edit_that_makes_the_next_call_cheaper_saves_and_does_not_cost_a_negative_amount(
    price: float | None, saved: float | None, facts: tuple[str, ...]
) -> None:
    assert price_facts(price, saved) == facts


def test_one_of_a_kind_is_in_the_singular() -> None:
    assert [counted(number, "call") for number in (0, 1, 2_000)] == ["0 calls", "1 call", "2,000 calls"]
