"""Dates that a text names."""

from datetime import date

from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.memory.recall_terms import MOST_DATES, DateSpan, dates_in, day_of


def day(text: str) -> int:
    return date.fromisoformat(text).toordinal()


def one(text: str) -> DateSpan:
    return DateSpan(day(text), day(text))


@every_case(
    "text",
    [
        "It expires on 2025-02-18.",
        "due 2025/2/18, no later",
        "expires February 18th, 2025",
        "by Feb. 18 2025",
        "the 18th of February 2025",
        "18 feb 2025",
        "2025年2月18日到期",
        "until 18/02/2025",
        "until 02/18/2025",
        "February 18",
        "2月18号",
    ],
)
def test_a_date_is_read_in_every_shape(text: str) -> None:
    assert dates_in(text, "2024-06-15") == (one("2025-02-18"),)


@every_case("text", ["03/04/2025", "1.2.3", "May I ask 20% more", "10:15", "2025-13-40", "room 2025", "February 30, 2025", ""])
def test_what_is_no_date_or_has_two_readings_is_none(text: str) -> None:
    assert dates_in(text, "2024-06-15") == ()


def test_a_month_with_a_year_is_all_of_its_days() -> None:
    assert dates_in("in February 2024") == (DateSpan(day("2024-02-01"), day("2024-02-29")),)
    assert dates_in("2025年12月") == (DateSpan(day("2025-12-01"), day("2025-12-31")),)


def test_a_day_without_a_year_is_the_next_one_after_it_was_said_and_nothing_if_that_is_unknown() -> None:
    assert dates_in("on March 3", "2024-03-03T10:00:00Z") == (one("2024-03-03"),)
    assert dates_in("on March 3", "2024-03-04") == (one("2025-03-03"),)
    assert dates_in("on February 29", "2025-01-01") == (one("2028-02-29"),)
    assert dates_in("on March 3") == ()


def test_dates_are_returned_in_order_and_once() -> None:
    assert dates_in("2025-03-01, then 2025-02-01 and 2025-03-01") == (one("2025-03-01"), one("2025-02-01"))


def test_a_log_full_of_dates_is_bounded() -> None:
    text = " ".join(str(date.fromordinal(day("2025-01-01") + number)) for number in range(200))
    assert len(dates_in(text)) == MOST_DATES


@given(st.dates(date(1950, 1, 1), date(2090, 12, 31)), st.text(alphabet=" .,;abc(", max_size=10))
def test_every_iso_date_is_read_whatever_stands_around_it(when: date, around: str) -> None:
    assert dates_in(f"{around} {when} {around}") == (DateSpan(when.toordinal(), when.toordinal()),)


@given(st.text(max_size=300))
def test_any_text_can_be_read(text: str) -> None:
    assert all(span.first <= span.last for span in dates_in(text, "2025-01-01"))


def test_the_day_of_a_time_is_its_date() -> None:
    assert (day_of("2025-02-18T23:59:00+08:00"), day_of("soon"), day_of("")) == (day("2025-02-18"), None, None)
