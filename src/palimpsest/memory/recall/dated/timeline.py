"""Timeline: notes, session titles and turns about a person or an attribute, in the order of time and within a token budget."""

from collections.abc import Iterable
from typing import Final

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Value
from palimpsest.core.tokens.estimate import estimate
from palimpsest.memory.note import ORIGINS, Note
from palimpsest.memory.recall.dated.dates import day_of
from palimpsest.memory.recall.selection import RECALL_TOKENS, RecalledLines, one_line
from palimpsest.memory.recall.terms import fold, query_terms
from palimpsest.memory.recall.units import RecallUnit

# Characters of one entry that are shown.
LONGEST_ENTRY: Final = 300


class TimelineEntry(Value, frozen=True):
    """Something that was the case, or was said, at a time.

    id: evidence id or name of a note; date: ISO date or time; until: when it ceased to hold, empty if it holds.
    person, attribute: whom and what a note is about; empty for what was said.
    """

    id: str
    date: str
    text: str
    person: str = ""
    attribute: str = ""
    until: str = ""


def note_entries(notes: Iterable[Note]) -> list[TimelineEntry]:
    """Return entries of notes, superseded ones included, so that a chain of values can be read; retracted ones were never true."""
    return [
        TimelineEntry(
            note.name if note.status == "active" else note.revision,
            note.valid_from or note.when,
            f"{note.about} ({ORIGINS[note.trust]})" if ORIGINS[note.trust] else note.about,
            person=note.person,
            attribute=note.attribute,
            until=note.valid_to if note.status == "superseded" else "",
        )
        for note in notes
        if note.status != "retracted" and note.trust != "quarantined"
    ]


def unit_entries(units: Iterable[RecallUnit]) -> list[TimelineEntry]:
    """Return entries of titles of sessions, or of turns; those without a date have no place in time and are left out."""
    return [TimelineEntry(unit.id, unit.date, unit.text, person=unit.who) for unit in units if unit.date]


def timeline(
    entries: Iterable[TimelineEntry], about: str, *, start: str = "", end: str = "", tokens: int = RECALL_TOKENS, factor: float = 1.0
) -> RecalledLines:
    """Return the entries about a person, an attribute or words, oldest first, from `start` to `end`, ISO dates, both included.

    An entry is about a person or attribute that is called so; about words if it has all of them; an empty `about` is about everything.
    If not all fit, the newest are kept, and the first line counts the earlier ones. Raises `BadInput` if a bound is no date.
    """
    first, last = _bound(start, "from"), _bound(end, "to")
    wanted = fold(about).strip()
    terms = frozenset(query_terms(about))
    chosen = sorted(
        (entry for entry in entries if _is_about(entry, wanted, terms) and _is_within(entry.date, first, last)),
        key=lambda entry: (entry.date[:10], entry.date, entry.id),
    )
    left = tokens - estimate(_earlier_line(len(chosen), about) + "\n", factor)
    lines: list[str] = []
    for entry in reversed(chosen):
        line = _line(entry)
        size = estimate(line + "\n", factor)
        if size > left:
            break
        left -= size
        lines.append(line)
    found = _told(chosen, lines[::-1], about, factor)
    while found.tokens > tokens:
        # The estimate of a text may exceed the sum of the estimates of its lines by a little.
        lines.pop()
        found = _told(chosen, lines[::-1], about, factor)
    return found


def _told(chosen: list[TimelineEntry], lines: list[str], about: str, factor: float) -> RecalledLines:
    left_out = len(chosen) - len(lines)
    ids = tuple(entry.id for entry in chosen[left_out:])
    if left_out and lines:
        lines = [_earlier_line(left_out, about), *lines]
    return RecalledLines(tuple(lines), ids, (0.0,) * len(ids), estimate("\n".join(lines), factor) if lines else 0, left_out=left_out)


def _is_about(entry: TimelineEntry, wanted: str, terms: frozenset[str]) -> bool:
    if not wanted or fold(entry.person).strip() == wanted:
        return True
    attribute = fold(entry.attribute).strip()
    if attribute and (attribute == wanted or attribute.startswith(f"{wanted}.")):
        return True
    return bool(terms) and terms <= frozenset(query_terms(entry.text))


def _is_within(when: str, first: int | None, last: int | None) -> bool:
    day = day_of(when)
    return day is not None and (first is None or day >= first) and (last is None or day <= last)


def _bound(text: str, name: str) -> int | None:
    if not text:
        return None
    day = day_of(text)
    if day is None:
        raise BadInput(f"`{name}` is a date such as 2026-05-04", where=f"timeline {text[:40]!r}")
    return day


def _line(entry: TimelineEntry) -> str:
    text = one_line(entry.text)
    short = text if len(text) <= LONGEST_ENTRY else text[: LONGEST_ENTRY - 1] + "…"
    until = f" (until {entry.until[:10]})" if entry.until else ""
    return f"{entry.date[:10]} [{entry.id}]{until} {short}"


def _earlier_line(count: int, about: str) -> str:
    return f"+{count} earlier, recall(timeline={one_line(about)[:60]!r}, to=…)"
