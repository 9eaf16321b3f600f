"""Search by a person: notes for a query, best first, with what they replaced below them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from palimpsest.core.tokens.estimate import estimate
from palimpsest.engine.memory.access.evidence import changed_files
from palimpsest.engine.memory.notebook import Notebook
from palimpsest.engine.memory.recall.notes.index import NoteIndex
from palimpsest.memory.note import Note, redacted, time_of
from palimpsest.memory.recall.index import RecallIndex
from palimpsest.memory.recall.ranking import RankingOptions, Standing, rank
from palimpsest.memory.recall.units import RecallUnit
from palimpsest.memory.showing.newer import newest_first
from palimpsest.memory.showing.note_units import NoteStanding, not_to_show, unit_of
from palimpsest.memory.weighing.importance import DEFAULT_WEIGHING, importance

FoundStatus: TypeAlias = Literal["active", "superseded", "retracted", "said", "summary"]
# Notes that are ranked before those that cite changed files go behind the others.
_MOST_RANKED: Final = 200


class FoundMemory(Struct, frozen=True):
    """A note or a passage of a past session that matches a query. `note` is empty for a passage, whose `status` is `said`.

    A summary of a session has the status `summary`, and its file as `note`.

    `when` is the time of the newest evidence, `tokens` the size of the text, `stale` says that a file which the note cites has changed.
    """

    note: str
    score: float
    text: str
    evidence: tuple[str, ...]
    status: FoundStatus
    tokens: int
    about: str = ""
    when: str = ""
    until: str = ""
    scope: str = ""
    stale: bool = False


class _Candidate(Struct, frozen=True):
    """An active note, or a past one without an active successor, and the versions that it replaced, newest first."""

    scope: str
    note: Note
    past: tuple[Note, ...] = ()


def search_notes(
    notebooks: Iterable[Notebook], query: str, now: int, *, root: Path, history: bool = False, most: int = 20
) -> tuple[FoundMemory, ...]:
    """Return the notes that match a query, at most `most`; `now` is in milliseconds since 1970.

    Without `history` only notes that hold now are found, by the index that is kept beside them. With it a note is found by the words of
    its past versions too, and these follow it: what was corrected never stands before its correction.
    """
    moment = datetime.fromtimestamp(now / 1000, UTC)
    ranked = _ranked_with_history(notebooks, query, moment) if history else _ranked_by_index(notebooks, query, moment)
    stale = [bool(changed_files(root, candidate.note)) for candidate, _ in ranked]
    # A sort is stable, so that notes whose files changed come in their own order behind the others.
    order = sorted(range(len(ranked)), key=stale.__getitem__)[:most]
    return tuple(found for place in order for found in _found(*ranked[place], stale=stale[place]))[:most]


def _ranked_by_index(notebooks: Iterable[Notebook], query: str, now: datetime) -> list[tuple[_Candidate, float]]:
    """Return the notes that hold now with their scores, best first; only those that were found are read."""
    index = NoteIndex(notebooks)
    joined = index.refresh()
    index.save()
    options = RankingOptions(
        now=now.date().isoformat(),
        standing=NoteStanding(index.entries, index.uses, index.newer().alike, now),
        excluded=not_to_show(index.entries, now, ()),
    )
    hits = rank(joined, query, most=_MOST_RANKED, options=options)
    newer, asked = index.newer(), index.asked(query)
    ordered = newest_first(hits, lambda hit: hit.unit.id, {hit.unit.id: newer.after(hit.unit.id, asked, options.excluded) for hit in hits})
    found = ((index.located(hit.unit.id), hit.score) for hit in ordered)
    return [(_Candidate(*each), score) for each, score in found if each is not None]


def _ranked_with_history(notebooks: Iterable[Notebook], query: str, now: datetime) -> list[tuple[_Candidate, float]]:
    """Return notes with their chains and scores, best first; all versions of all notes are read."""
    candidates = {each.note.revision: each for notebook in notebooks for each in _candidates(notebook)}
    units, heads = RecallIndex(), dict[str, str]()
    for revision, each in candidates.items():
        for note in (each.note, *each.past):
            # A version may be reached by two chains; its first one counts.
            if note.revision not in heads:
                heads[note.revision] = revision
                units.add(_unit(note))
    standing = {
        revision: Standing(importance(each.note, now, 0, DEFAULT_WEIGHING), each.note.uses) for revision, each in candidates.items()
    }
    hits = rank(units, query, most=_MOST_RANKED, options=RankingOptions(now=now.date().isoformat(), standing=standing))
    scores: dict[str, float] = {}
    for hit in hits:
        scores.setdefault(heads[hit.unit.id], hit.score)
    return [(candidates[revision], score) for revision, score in scores.items()]


def _candidates(notebook: Notebook) -> Iterator[_Candidate]:
    notes = notebook.notes()
    earlier: dict[str, list[Note]] = {}
    for note in notes.past.values():
        earlier.setdefault(note.superseded_by, []).append(note)
    reached: set[str] = set()
    for note in notes.active.values():
        chain = tuple(_chain(note, notes.past, earlier))
        reached.update(each.revision for each in chain)
        yield _Candidate(notebook.scope, note, chain)
    for note in sorted(notes.past.values(), key=lambda each: (time_of(each.when), each.rev), reverse=True):
        if note.revision not in reached:
            chain = tuple(each for each in _chain(note, notes.past, earlier) if each.revision not in reached)
            reached.update((note.revision, *(each.revision for each in chain)))
            yield _Candidate(notebook.scope, note, chain)


def _chain(note: Note, past: Mapping[str, Note], earlier: Mapping[str, Sequence[Note]]) -> Iterator[Note]:
    """Yield what a note replaced, directly or through others, newest first; `earlier` are past versions by what they name as successor."""
    waiting, seen = [note], {note.revision}
    found: list[Note] = []
    while waiting:
        current = waiting.pop()
        for each in (*(past[link] for link in current.supersedes if link in past), *earlier.get(current.revision, ())):
            if each.revision not in seen:
                seen.add(each.revision)
                found.append(each)
                waiting.append(each)
    yield from sorted(found, key=lambda each: (time_of(each.when), each.rev), reverse=True)


def _unit(note: Note) -> RecallUnit:
    unit = unit_of(note)
    return RecallUnit(note.revision, unit.text, who=unit.who, date=unit.date, kind=unit.kind, paths=unit.paths)


def _found(candidate: _Candidate, score: float, *, stale: bool) -> Iterator[FoundMemory]:
    for place, note in enumerate((candidate.note, *candidate.past)):
        clean = redacted(note)
        text = clean.body.strip()
        yield FoundMemory(
            note.name if not place or note.name != candidate.note.name else note.revision,
            round(score, 6),
            text,
            note.evidence,
            note.status,
            estimate(text),
            clean.about,
            note.when,
            note.valid_to,
            candidate.scope,
            stale and not place,
        )
