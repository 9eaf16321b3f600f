"""Notes as units of recall: their text and standing, and which of them may be shown at all."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime
from typing import Final

from msgspec.structs import replace

from palimpsest.core.items import Value
from palimpsest.memory.note import TRUSTS, Note, NoteKind, Trust, time_of
from palimpsest.memory.recall.candidates import QUERY_CHARACTERS
from palimpsest.memory.recall.dated.dates import DateSpan
from palimpsest.memory.recall.dated.due import NO_WORK, OngoingWork, deadlines, due_notes
from palimpsest.memory.recall.index import RecallIndex
from palimpsest.memory.recall.ranking import Standing
from palimpsest.memory.recall.terms import fold, query_terms, stems, words
from palimpsest.memory.recall.units import RecallUnit
from palimpsest.memory.showing.newer import ComparedNote
from palimpsest.memory.weighing.importance import DEFAULT_WEIGHING, importance
from palimpsest.memory.weighing.staleness import cited_files

_TOOL_PREFIX: Final = "tool."
# A word that more notes have than these, and than this share of all, is no rare one.
_FEW_NOTES: Final = 2
_RARE_SHARE: Final = 0.05
# Dates of one note by which it can be due.
_MOST_DATES: Final = 16


class IndexedNote(Value, frozen=True):
    """What recall knows of a note beside its words. `stamp` is the state of its file; `unit` says whether the index has a unit of it.

    `tool` is the tool whose use the note describes, if it does; `due` are the dates that it names.
    `terms` counts the terms of the fact, which come first in its unit; those of person and backstory follow.
    """

    stamp: str
    # Without a default: entries that an earlier version stored have none, and are made again.
    trust: Trust
    terms: int
    unit: bool = False
    about: str = ""
    revision: str = ""
    supersedes: tuple[str, ...] = ()
    kind: NoteKind = "project"
    when: str = ""
    valid_from: str = ""
    valid_to: str = ""
    intensity: float = 0.0
    uses: int = 0
    pinned: bool = False
    tool: str = ""
    person: str = ""
    relationship: str = ""
    due: tuple[str, ...] = ()
    last_used: str = ""


def entry_of(note: Note, stamp: str) -> IndexedNote:
    """Return the entry of a note whose file has this stamp; only active notes that are not in quarantine have a unit."""
    return IndexedNote(
        stamp,
        note.trust,
        len(stems(words(_fact(note)))),
        unit=is_showable(note),
        about=note.about,
        revision=note.revision,
        supersedes=note.supersedes,
        kind=note.kind,
        when=note.when,
        valid_from=note.valid_from,
        valid_to=note.valid_to,
        intensity=note.intensity,
        uses=note.uses,
        pinned=note.pinned,
        tool=described_tool(note),
        person=note.person,
        relationship=note.relationship,
        last_used=note.last_used,
        due=tuple(date.fromordinal(day).isoformat() for day in deadlines(note)[:_MOST_DATES]),
    )


def changed_at(entry: IndexedNote) -> int:
    """Return when the file of a note changed last, in milliseconds since 1970, as its stamp states it."""
    return int(entry.stamp.partition(".")[0]) // 1_000_000


def ongoing_work(index: RecallIndex, entries: Mapping[str, IndexedNote], query: str, said: str, found: Iterable[str]) -> OngoingWork:
    """Return what a query is part of: what was `said` before it, and which notes that it `found` share a rare word with it."""
    sharing = _sharing(index, entries, query)
    listed = [entries[name] for name in found if name in sharing]
    days = (date.fromisoformat(day).toordinal() for entry in listed for day in entry.due)
    told = "\n".join((said, *(entry.about for entry in listed)))
    persons = frozenset(fold(entry.person).strip() for entry in listed)
    return OngoingWork(told, persons, tuple(DateSpan(day, day) for day in days), sharing | _sharing(index, entries, said))


def _sharing(index: RecallIndex, entries: Mapping[str, IndexedNote], text: str) -> frozenset[str]:
    """Return the names of the notes that share a rare word with a text. Numbers, of dates among them, are compared as dates."""
    most = max(_FEW_NOTES, _RARE_SHARE * len(index.numbers))
    terms = (index.vocabulary.get(term) for term in query_terms(text[:QUERY_CHARACTERS]) if not term.isdigit())
    rare = (index.postings[term] for term in terms if term is not None and len(index.postings[term]) <= most)
    return frozenset(name for postings in rare for number in postings if (name := index.units[number].id) in entries)


def due_names(entries: Mapping[str, IndexedNote], query: str, now: datetime, work: OngoingWork = NO_WORK) -> tuple[str, ...]:
    """Return the names of notes that are due for a query, the soonest first; no word has to match."""
    dated = (
        replace(_BLANK, name=name, person=entry.person, relationship=entry.relationship, when=entry.when, body=" ".join(entry.due))
        for name, entry in entries.items()
        if entry.due and entry.unit
    )
    return tuple(due.name for due in due_notes(dated, query, now.date().isoformat(), work=work))


_LISTED: Final = ("kind", "trust", "about", "when", "pinned", "person", "relationship")


def listed(entries: Mapping[str, IndexedNote], now: datetime) -> Iterator[Note]:
    """Yield the notes that hold now as far as an index of them needs: all that its line states."""
    hidden = not_to_show(entries, now, ())
    for name, entry in entries.items():
        if entry.unit and name not in hidden:
            yield replace(_BLANK, name=name, **{field: getattr(entry, field) for field in _LISTED})


def compared_note(name: str, entry: IndexedNote, sequence: str) -> ComparedNote:
    """Return a note as it is compared with older and newer ones: by the terms of its fact, the first of its sequence."""
    return ComparedNote(name, frozenset(sequence[: entry.terms]), entry.when, entry.trust, entry.person, int(entry.stamp.partition(".")[0]))


def pinned_names(entries: Mapping[str, IndexedNote]) -> frozenset[str]:
    """Return the names of pinned notes, whose texts stand in the head."""
    return frozenset(name for name, entry in entries.items() if entry.pinned and entry.unit)


def is_showable(note: Note) -> bool:
    """Return whether a note may be shown to a model: it holds, and does not rest on untrusted text alone."""
    return note.status == "active" and note.trust != "quarantined"


def unit_of(note: Note) -> RecallUnit:
    """Return the unit of a note: the fact, then whom it is about and its backstory; files that it cites are its paths.

    The person is a word like others and no speaker: the name of a speaker is taken out of queries.
    """
    text = "\n".join(part for part in (_fact(note), note.whom, note.story) if part)
    return RecallUnit(note.name, text, date=note.when, kind=note.kind, paths=tuple(file.path for file in cited_files(note)))


def _fact(note: Note) -> str:
    return "\n".join(part for part in (note.about, note.body, note.attribute.replace(".", " ")) if part)


def described_tool(note: Note) -> str:
    """Return the tool whose use a note describes; empty if it describes none.

    It holds by structure: a `reference` note whose attribute is `tool.<name>`, or `tool.<name>.` and more. What people asked for or were
    warned of is `feedback`, which is never left out because a tool is in use.
    """
    if note.kind != "reference" or not note.attribute.startswith(_TOOL_PREFIX):
        return ""
    return note.attribute.removeprefix(_TOOL_PREFIX).partition(".")[0]


def not_to_show(entries: Mapping[str, IndexedNote], now: datetime, tools: Iterable[str]) -> frozenset[str]:
    """Return the names of notes that are not recalled now: replaced ones, those that do not hold, and those on the use of these tools."""
    recent = frozenset(tools)
    # A note replaces none of higher trust: a file of a repository may name any.
    replaced = {(link, entry.trust) for entry in entries.values() for link in entry.supersedes}
    return frozenset(
        name
        for name, entry in entries.items()
        if any((entry.revision, trust) in replaced for trust in TRUSTS[: TRUSTS.index(entry.trust) + 1])
        or (entry.tool and entry.tool in recent)
        or not holds_at(now, entry.valid_from, entry.valid_to)
    )


def holds_at(now: datetime, valid_from: str, valid_to: str) -> bool:
    """Return whether a note with these bounds, each empty if open, holds at a time."""
    return not (valid_from and time_of(valid_from) > now) and not (valid_to and time_of(valid_to) <= now)


class NoteStanding(Mapping[str, Standing]):
    """The standing of notes by name, computed when it is asked for.

    `uses` returns how often a note was cited, and `alike` how many others say nearly the same.
    """

    def __init__(self, entries: Mapping[str, IndexedNote], uses: Callable[[str], int], alike: Callable[[str], int], now: datetime) -> None:
        self._entries = entries
        self._uses = uses
        self._alike = alike
        self._now = now

    def __getitem__(self, name: str) -> Standing:
        entry = self._entries[name]
        uses = self._uses(name)
        return Standing(importance(_weighed(entry, uses), self._now, self._alike(name), DEFAULT_WEIGHING), uses)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _weighed(entry: IndexedNote, uses: int) -> Note:
    return replace(_BLANK, kind=entry.kind, when=entry.when, last_used=entry.last_used, intensity=entry.intensity, uses=uses)


_BLANK: Final = Note(name="", kind="project", about="", backstory="", when="", evidence=(), trust="observed", body="")
