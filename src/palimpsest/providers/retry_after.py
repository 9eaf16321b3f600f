"""Parses what the response headers of a provider say of its limits: the delay before a retry, and how much of each limit is used."""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from itertools import islice

from palimpsest.core.events.calls import RateLimit

_DURATION = re.compile(r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m(?!s))?(?:(?P<s>\d+(?:\.\d+)?)s)?(?:(?P<ms>\d+(?:\.\d+)?)ms)?")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_ANTHROPIC = "anthropic-ratelimit-"
_OPENAI = "x-ratelimit-"
_CODEX = "x-codex-"
_MOST_LIMITS = 12


def retry_after(status: int, headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds until the request may be retried, or `None` if the headers do not say; header names are in lower case.

    Absolute times are compared with the `date` header, because the local clock may be wrong; `now`, in seconds since 1970, is the
    fallback. The reset times of rate limits are used only for status 429.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    clock = _date(headers.get("date", ""))
    clock = now if clock is None else clock
    given = headers.get("retry-after", "")
    seconds = _number(given)
    if seconds is not None:
        return seconds
    moment = _date(given)
    if moment is not None:
        return max(0.0, moment - clock)
    return _seconds_until_reset(headers, clock) if status == HTTPStatus.TOO_MANY_REQUESTS else None


def _seconds_until_reset(headers: Mapping[str, str], clock: float) -> float | None:
    """Return the seconds until all exhausted limits are reset; until all limits are if none is reported as exhausted."""
    resets = list(_limit_resets(headers, clock))
    used_up = [seconds for seconds, remaining in resets if remaining == 0]
    return max(used_up or [seconds for seconds, _ in resets], default=None)


def _limit_resets(headers: Mapping[str, str], clock: float) -> Iterator[tuple[float, float | None]]:
    """Yield, for each limit, the seconds until its reset and what remains of it."""
    for name, value in headers.items():
        if name.startswith(_ANTHROPIC) and name.endswith("-reset"):
            limit = name.removeprefix(_ANTHROPIC).removesuffix("-reset")
            moment = _timestamp(value)
            if moment is not None:
                yield max(0.0, moment - clock), _number(headers.get(f"{_ANTHROPIC}{limit}-remaining", ""))
        elif name.startswith(f"{_OPENAI}reset-"):
            limit = name.removeprefix(f"{_OPENAI}reset-")
            seconds = _duration(value)
            if seconds is not None:
                yield seconds, _number(headers.get(f"{_OPENAI}remaining-{limit}", ""))


def rate_limits(headers: Mapping[str, str], now: float) -> tuple[RateLimit, ...]:
    """Return the limits that the headers of a response report, at most 12: of Codex by use, of OpenAI and Anthropic by what is left."""
    return tuple(islice(_limits(headers, now), _MOST_LIMITS))


def _limits(headers: Mapping[str, str], now: float) -> Iterator[RateLimit]:
    clock = _date(headers.get("date", ""))
    clock = now if clock is None else clock
    for name in ("primary", "secondary"):
        used, reset = _number(headers.get(f"{_CODEX}{name}-used-percent", "")), _number(headers.get(f"{_CODEX}{name}-reset-at", ""))
        if used is not None:
            minutes, reset = (
                _number(headers.get(f"{_CODEX}{name}-window-minutes", "")),
                _number(headers.get(f"{_CODEX}{name}-reset-at", "")),
            )
            yield RateLimit(name, used, None if reset is None else int(reset), None if minutes is None else int(minutes))
    for header, value in headers.items():
        openai, anthropic = header.startswith(f"{_OPENAI}limit-"), header.startswith(_ANTHROPIC) and header.endswith("-limit")
        if not (openai or anthropic):
            continue
        name = header.removeprefix(f"{_OPENAI}limit-") if openai else header.removeprefix(_ANTHROPIC).removesuffix("-limit")
        left = headers.get(f"{_OPENAI}remaining-{name}" if openai else f"{_ANTHROPIC}{name}-remaining", "")
        most, remaining = _number(value), _number(left)
        if most and remaining is not None:
            seconds = _duration(headers.get(f"{_OPENAI}reset-{name}", "")) if openai else None
            moment = _timestamp(headers.get(f"{_ANTHROPIC}{name}-reset", "")) if anthropic else None if seconds is None else clock + seconds
            yield RateLimit(name, round(100 * max(0.0, 1 - remaining / most), 1), None if moment is None else int(moment))


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _date(value: str) -> float | None:
    """Parse an HTTP date into seconds since 1970; `None` if it is invalid."""
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return _since_1970(moment)


def _timestamp(value: str) -> float | None:
    """Parse an RFC 3339 timestamp into seconds since 1970; `None` if it is invalid."""
    try:
        return _since_1970(datetime.fromisoformat(value))
    except ValueError:
        return None


def _since_1970(moment: datetime) -> float | None:
    try:
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _duration(value: str) -> float | None:
    """Parse a duration such as `6m0s`, `1.5s` or `20ms` into seconds; `None` if it is invalid."""
    found = _DURATION.fullmatch(value.strip())
    if found is None or not found.group(0):
        return _number(value)
    return sum(float(amount) * _SECONDS[unit] for unit, amount in found.groupdict().items() if amount)
