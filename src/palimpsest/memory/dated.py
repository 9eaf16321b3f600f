"""Due notes, whose deadline bears on a query."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from palimpsest.core.items import Value
from palimpsest.memory.note import Note
from palimpsest.memory.recall_terms import MONTHS, DateSpan, dates_in, day_of, fold, has_cjk

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


class OngoingWork(Value, frozen=True):
    """What a query is part of.

    said: what was asked before it, what is being worked on, and what the notes are about that words of the query found.
    persons, dates: persons, folded, and dates of these notes.
    sharing: names of notes that share a rare word with the query or with what was said.
    """

    said: str = ""
    persons: frozenset[str] = frozenset()
    dates: tuple[DateSpan, ...] = ()
    sharing: frozenset[str] = frozenset()


NO_WORK: Final = OngoingWork()


def due_notes(notes: Iterable[Note], query: str, now: str, *, days: int = DUE_DAYS, work: OngoingWork = NO_WORK) -> tuple[DueNote, ...]:
    """Return the active notes that are due for a query, the soonest first, at most `MOST_DUE`; none without a valid `now`.

    A note is due if its end of validity, or a date in its text, is not before `now`, an ISO date, and bears on the query or the work:
    - It is about a person of theirs, or shares a rare word with them, and lies within `days` after today, or of a date that they name. A
      query that names no person is about the user.
    - Or it lies between the first and the last date that the query names, whomever it is about.
    """
    today = day_of(now)
    if today is None:
        return ()
    active = [note for note in notes if note.status == "active" and note.trust != "quarantined"]
    persons = persons_named(query, active) | _others_named(work.said, active) | work.persons
    asked = query_dates(query, now)
    named = (*asked, *dates_in(work.said, now), *work.dates)
    found: list[DueNote] = []
    for note in active:
        is_of_work = fold(note.person).strip() in persons or note.name in work.sharing
        ahead = (day for day in deadlines(note) if day >= today)
        coming = [day for day in ahead if _is_between(day, asked) or (is_of_work and _is_near(day, today, named, days))]
        if coming:
            found.append(DueNote(note.name, min(coming)))
    return tuple(sorted(found, key=lambda due: (due.day, due.name))[:MOST_DUE])


def _is_near(day: int, today: int, named: Sequence[DateSpan], days: int) -> bool:
    return day <= today + days or any(span.first - days <= day <= span.last + days for span in named)


def _is_between(day: int, asked: Sequence[DateSpan]) -> bool:
    return bool(asked) and min(span.first for span in asked) <= day <= max(span.last for span in asked)


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
    return _others_named(query, notes) or frozenset({USER})


def _others_named(text: str, notes: Iterable[Note]) -> frozenset[str]:
    folded = fold(text)
    return frozenset(
        fold(note.person).strip()
        for note in notes
        if fold(note.person).strip() != USER and any(_has_words(folded, fold(name).strip()) for name in (note.person, note.relationship))
    )


def _has_words(folded: str, name: str) -> bool:
    if not name or name == "self":
        return False
    return name in folded if has_cjk(name) else re.search(rf"(?<!\w){re.escape(name)}(?!\w)", folded) is not None
