"""Due notes: those of a person with a deadline soon after today, or after a date that the query names; no word has to match."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from palimpsest.core.items import Value
from palimpsest.memory.note import Note
from palimpsest.memory.recall.terms import fold, has_cjk
from palimpsest.memory.recall.texts.dates import MONTHS, DateSpan, dates_in, day_of

DUE_DAYS: Final = 60
# Notes that are due for one query, the soonest.
MOST_DUE: Final = 8
USER: Final = "user"
# A month alone in a query: the next one of that name. `May` and `March` are words too, so a capital inside the sentence is asked for.
_MONTH: Final = re.compile(
    rf"(?<!^)\b({'|'.join(name.capitalize() for name in MONTHS)})\b(?!\s+\d)|(?<![\d年])(1[0-2]|[1-9])\s?月(?!\s?\d)"
)


class DueNote(Value, frozen=True):
    """A note, and the ordinal of the day on which it is due."""

    name: str
    day: int


def due_notes(notes: Iterable[Note], query: str, now: str, *, days: int = DUE_DAYS) -> tuple[DueNote, ...]:
    """Return the active notes that are due for a query, the soonest first, at most `MOST_DUE`; none without a valid `now`.

    A note is due if its end of validity, or a date in its text, lies within `days` after `now`, an ISO date, or within a date that the
    query names or `days` after it, and not before today. It has to be about a person whom the query names; a query that names none is
    about the user.
    """
    today = day_of(now)
    if today is None:
        return ()
    active = [note for note in notes if note.status == "active" and note.trust != "quarantined"]
    persons = persons_named(query, active)
    named = query_dates(query, now)
    found: list[DueNote] = []
    for note in active:
        if fold(note.person).strip() not in persons:
            continue
        coming = [day for day in deadlines(note) if day >= today and _is_near(day, today, named, days)]
        if coming:
            found.append(DueNote(note.name, min(coming)))
    return tuple(sorted(found, key=lambda due: (due.day, due.name))[:MOST_DUE])


def _is_near(day: int, today: int, named: Sequence[DateSpan], days: int) -> bool:
    return day <= today + days or any(span.first <= day <= span.last + days for span in named)


def deadlines(note: Note) -> tuple[int, ...]:
    """Return the days that a note names, as ordinals: the end of its validity and the dates in its texts."""
    spans = dates_in(f"{note.about}\n{note.body}", note.when)
    last = day_of(note.valid_to)
    return tuple(dict.fromkeys((*(() if last is None else (last,)), *(span.last for span in spans))))


def query_dates(query: str, now: str) -> tuple[DateSpan, ...]:
    """Return the dates that a query names, months without a year included: the next ones from `now`, an ISO date."""
    alone: list[DateSpan] = []
    for name, number in _MONTH.findall(query[:4_000]):
        month = MONTHS.index(name.lower()) + 1 if name else int(number)
        alone += (span for year in range(2) if (span := _month_from(now, month, year)) is not None)
    return tuple(dict.fromkeys((*dates_in(query[:4_000], now), *alone[:1])))


def _month_from(now: str, month: int, years: int) -> DateSpan | None:
    """Return a month of the year of `now`, or a year later, unless it is over."""
    today = day_of(now)
    spans = dates_in(f"{int(now[:4]) + years}年{month}月") if today is not None else ()
    return next((span for span in spans if today is not None and span.last >= today), None)


def persons_named(query: str, notes: Iterable[Note]) -> frozenset[str]:
    """Return the persons of notes whose name or relationship the query has as words, folded; the user if there is none."""
    folded = fold(query)
    found = {
        fold(note.person).strip()
        for note in notes
        if fold(note.person).strip() != USER and any(_has_words(folded, fold(name).strip()) for name in (note.person, note.relationship))
    }
    return frozenset(found) or frozenset({USER})


def _has_words(folded: str, name: str) -> bool:
    if not name or name == "self":
        return False
    return name in folded if has_cjk(name) else re.search(rf"(?<!\w){re.escape(name)}(?!\w)", folded) is not None
