"""When a provider may be asked again, read from the headers of its answer."""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

_DURATION = re.compile(r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m(?!s))?(?:(?P<s>\d+(?:\.\d+)?)s)?(?:(?P<ms>\d+(?:\.\d+)?)ms)?")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_ANTHROPIC = "anthropic-ratelimit-"
_OPENAI = "x-ratelimit-"


def retry_after(status: int, headers: Mapping[str, str], now: float) -> float | None:
    """Seconds until the provider may be asked again, or `None` where it does not say; names of headers are in lower case.

    Times of day are compared with the `date` header, for the clock of this machine may be wrong; `now`, in seconds since 1970, stands
    in where there is none. The reset of a rate limit counts only when that limit is the reason, which is the status 429.
    """
    told = _number(headers.get("retry-after-ms", ""))
    if told is not None:
        return told / 1000
    clock = _date(headers.get("date", ""))
    clock = now if clock is None else clock
    given = headers.get("retry-after", "")
    seconds = _number(given)
    if seconds is not None:
        return seconds
    moment = _date(given)
    if moment is not None:
        return max(0.0, moment - clock)
    return _reset(headers, clock) if status == HTTPStatus.TOO_MANY_REQUESTS else None


def _reset(headers: Mapping[str, str], clock: float) -> float | None:
    """Seconds until the limits that are used up are reset, or all of them where none is said to be."""
    resets = list(_resets(headers, clock))
    used_up = [seconds for seconds, remaining in resets if remaining == 0]
    return max(used_up or [seconds for seconds, _ in resets], default=None)


def _resets(headers: Mapping[str, str], clock: float) -> Iterator[tuple[float, float | None]]:
    """Seconds until each limit is reset, and what remains of it."""
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


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _date(value: str) -> float | None:
    """Seconds since 1970 of a date as HTTP writes it."""
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return _since_1970(moment)


def _timestamp(value: str) -> float | None:
    """Seconds since 1970 of a date as RFC 3339 writes it."""
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
    """Seconds of a duration such as `6m0s`, `1.5s` or `20ms`."""
    found = _DURATION.fullmatch(value.strip())
    if found is None or not found.group(0):
        return _number(value)
    return sum(float(amount) * _SECONDS[unit] for unit, amount in found.groupdict().items() if amount)
