"""Times as texts, also those that no calendar has."""

import pytest

from palimpsest.core.format.times import is_date, iso_time, utc_text


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
