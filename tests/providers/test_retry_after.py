from collections.abc import Mapping

import pytest
from every_case import every_case

from palimpsest.providers.http import retry_after

NOW = 1_761_030_000.0  # Tue, 21 Oct 2025 07:00:00 GMT


@every_case(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
        ({"retry-after": "Tue, 21 Oct 2025 07:01:30 GMT"}, 90.0),
        ({"retry-after": "Tue, 21 Oct 2025 06:59:00 GMT"}, 0.0),
        ({"retry-after": "Tue, 21 Oct 2025 09:01:30 GMT", "date": "Tue, 21 Oct 2025 09:01:00 GMT"}, 30.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Tue, 99 Oct 2025 07:01:30 GMT"}, None),
        ({}, None),
    ],
)
def test_the_delay_is_given_in_seconds_milliseconds_or_as_a_date(headers: Mapping[str, str], seconds: float | None) -> None:
    assert retry_after(503, headers, NOW) == seconds
    assert retry_after(429, headers, NOW) == seconds


@every_case(
    ("headers", "seconds"),
    [
        ({"anthropic-ratelimit-requests-reset": "2025-10-21T07:00:12Z"}, 12.0),
        (
            {
                "anthropic-ratelimit-requests-reset": "2025-10-21T07:00:50Z",
                "anthropic-ratelimit-requests-remaining": "40",
                "anthropic-ratelimit-input-tokens-reset": "2025-10-21T07:00:12Z",
                "anthropic-ratelimit-input-tokens-remaining": "0",
            },
            12.0,
        ),
        ({"anthropic-ratelimit-tokens-reset": "2025-10-21T07:00:20Z", "date": "Tue, 21 Oct 2025 07:00:05 GMT"}, 15.0),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s"}, 360.0),
        (
            {
                "x-ratelimit-reset-requests": "1.5s",
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-tokens": "6m0s",
                "x-ratelimit-remaining-tokens": "149984",
            },
            1.5,
        ),
        ({"x-ratelimit-reset-tokens": "1h2m3s"}, 3_723.0),
        ({"x-ratelimit-reset-tokens": "20ms"}, 0.02),
        ({"x-ratelimit-reset-tokens": "12"}, 12.0),
        ({"x-ratelimit-reset-tokens": "tomorrow"}, None),
        ({"anthropic-ratelimit-tokens-reset": "tomorrow"}, None),
        ({"retry-after": "3", "x-ratelimit-reset-tokens": "6m0s"}, 3.0),
    ],
)
def test_the_reset_of_a_rate_limit_counts_without_another_header(headers: Mapping[str, str], seconds: float | None) -> None:
    assert retry_after(429, headers, NOW) == pytest.approx(seconds)


def test_the_reset_of_a_rate_limit_does_not_count_for_server_errors() -> None:
    assert retry_after(500, {"x-ratelimit-reset-tokens": "6m0s", "anthropic-ratelimit-tokens-reset": "2025-10-21T07:00:20Z"}, NOW) is None
