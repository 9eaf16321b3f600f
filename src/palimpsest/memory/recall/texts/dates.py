"""Dates in a text, by their shape: digits with marks, or digits beside the name of a month."""

import re
from calendar import monthrange
from collections.abc import Iterator
from datetime import date
from typing import Final

from palimpsest.core.items import Value

# Names of the calendar are a closed class; a name counts as a month only beside a day or a year.
MONTHS: Final = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_NUMBERS: Final = {spelling: number for number, name in enumerate(MONTHS, 1) for spelling in (name, name[:3], name[:4])}
_MONTH: Final = rf"(?P<month>{'|'.join(sorted(_NUMBERS, key=len, reverse=True))})\.?"
_DAY: Final = r"(?P<day>3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?"
_YEAR: Final = r"(?P<year>(?:19|20)\d\d)"
_SHAPES: Final = tuple(
    re.compile(shape, re.IGNORECASE)
    for shape in (
        rf"(?<![\w.-]){_YEAR}(?P<mark>[-/.])(?P<number>1[0-2]|0?[1-9])(?P=mark){_DAY}(?![\w-])",
        rf"(?<!\d){_YEAR}\s?年\s?(?P<number>1[0-2]|0?[1-9])\s?月(?:\s?{_DAY}\s?[日号])?",
        rf"(?<![\d年])(?P<number>1[0-2]|0?[1-9])\s?月\s?{_DAY}\s?[日号]",
        rf"\b{_MONTH}\s+{_DAY}(?![\d:%])(?:,?\s+{_YEAR}(?!\d))?",
        rf"(?<![\d:]){_DAY}\s+(?:of\s+)?{_MONTH}\b(?:,?\s+{_YEAR}(?!\d))?",
        rf"\b{_MONTH},?\s+{_YEAR}(?!\d)",
        rf"(?<!\d)(?P<first>\d{{1,2}})(?P<mark>[/.-])(?P<second>\d{{1,2}})(?P=mark){_YEAR}(?!\d)",
    )
)
# Characters that are read for dates, and dates of one text: a log with more is no statement of a deadline.
LONGEST: Final = 20_000
MOST_DATES: Final = 64


class DateSpan(Value, frozen=True):
    """Days that a text names, first and last: one day, or a month without a day; both as ordinals of the calendar."""

    first: int
    last: int


def dates_in(text: str, said: str = "") -> tuple[DateSpan, ...]:
    """Return the dates of a text, in order and each once, at most `MOST_DATES`.

    A date without a year is the first such day on or after the day on which it was said, an ISO date; without that it does not count. Of
    days such as 03/04/2025, which two conventions read differently, none is returned.
    """
    reference = day_of(said)
    found = sorted(_found(text[:LONGEST], reference))
    kept: list[tuple[int, int, DateSpan]] = []
    for start, end, span in found:
        # A longer shape contains shorter ones: `May 2` in `May 2025`.
        if not kept or start >= kept[-1][1]:
            kept.append((start, end, span))
        elif end > kept[-1][1]:
            kept[-1] = (start, end, span)
    return tuple(dict.fromkeys(span for _, _, span in kept))[:MOST_DATES]


def day_of(text: str) -> int | None:
    """Return the ordinal of the day of an ISO date or time; None if it is none."""
    try:
        return date.fromisoformat(text[:10]).toordinal()
    except ValueError:
        return None


def _found(text: str, reference: int | None) -> Iterator[tuple[int, int, DateSpan]]:
    for shape in _SHAPES:
        for match in shape.finditer(text):
            span = _span(match.groupdict(), reference)
            if span is not None:
                yield match.start(), match.end(), span


def _span(parts: dict[str, str | None], reference: int | None) -> DateSpan | None:
    day, year = parts.get("day"), parts.get("year")
    month: int | None
    if (first := parts.get("first")) is not None:
        one, other = int(first), int(parts["second"] or 0)
        if (one > 12) == (other > 12) and one != other:
            return None
        month, day = (other, first) if one > 12 else (one, str(other))
    else:
        name = parts.get("month")
        month = _NUMBERS[name.lower()] if name else int(parts["number"] or 0)
    if year is not None:
        return _in_year(int(year), month, day)
    if reference is None:
        return None
    said_year = date.fromordinal(reference).year
    spans = (_in_year(candidate, month, day) for candidate in range(said_year, said_year + 5))
    return next((span for span in spans if span is not None and span.last >= reference), None)


def _in_year(year: int, month: int, day: str | None) -> DateSpan | None:
    try:
        first = date(year, month, int(day) if day else 1).toordinal()
    except ValueError:
        return None
    return DateSpan(first, first if day else first + monthrange(year, month)[1] - 1)
