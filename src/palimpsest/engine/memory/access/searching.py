"""Search by a person: notes for a query, best first, with what they replaced below them, and passages of past sessions."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from palimpsest.core.ports import SessionArchive
from palimpsest.core.tokens.estimate import estimate
from palimpsest.engine.memory.access.evidence import changed_files
from palimpsest.engine.memory.index_files import FILE_NAME
from palimpsest.engine.memory.memories import Memories
from palimpsest.engine.memory.notebook import Notebook
from palimpsest.engine.memory.recall.querying import forgotten_events
from palimpsest.engine.memory.recall.session_index import SessionIndexes
from palimpsest.memory.consolidate import is_over
from palimpsest.memory.note import Note, redacted
from palimpsest.memory.recall.digest.corrections import corrections, with_corrections
from palimpsest.memory.recall.index import RecallIndex
from palimpsest.memory.recall.ranking import RankingOptions, RecallHit, Standing, rank
from palimpsest.memory.recall.units import RecallUnit
from palimpsest.memory.sessions.units import event_id
from palimpsest.memory.showing.note_units import unit_of
from palimpsest.memory.weighing.importance import DEFAULT_WEIGHING, importance

FoundStatus: TypeAlias = Literal["active", "superseded", "retracted", "said"]
# Notes that are ranked before those that cite changed files go behind the others.
_MOST_RANKED: Final = 200
_REFRESH_SECONDS: Final = 30.0


class FoundMemory(Struct, frozen=True):
    """A note or a passage of a past session that matches a query. `note` is empty for a passage, whose `status` is `said`.

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

    Without `history` only notes that hold now are found. With it a note is found by the words of its past versions too, and these follow
    it: what was corrected never stands before its correction.
    """
    moment = datetime.fromtimestamp(now / 1000, UTC)
    candidates = {each.note.revision: each for notebook in notebooks for each in _candidates(notebook, moment, history=history)}
    units, heads = RecallIndex(), dict[str, str]()
    for revision, each in candidates.items():
        for note in (each.note, *each.past):
            # A version may be reached by two chains; its first one counts.
            if note.revision not in heads:
                heads[note.revision] = revision
                units.add(_unit(note))
    standing = {
        revision: Standing(importance(each.note, moment, 0, DEFAULT_WEIGHING), each.note.uses) for revision, each in candidates.items()
    }
    hits = rank(units, query, most=_MOST_RANKED, options=RankingOptions(now=moment.date().isoformat(), standing=standing))
    scores: dict[str, float] = {}
    for hit in hits:
        scores.setdefault(heads[hit.unit.id], hit.score)
    stale = {revision: bool(changed_files(root, candidates[revision].note)) for revision in scores}
    # A sort is stable, so that notes whose files changed come in their own order behind the others.
    order = sorted(scores, key=stale.__getitem__)[:most]
    return tuple(found for revision in order for found in _found(candidates[revision], scores[revision], stale=stale[revision]))[:most]


class PassageSearch(Struct, frozen=True):
    """Passages of past sessions that match, best first, and how many sessions are not in the index yet."""

    found: tuple[FoundMemory, ...]
    waiting: int


def search_sessions(folder: Path, store: SessionArchive, memories: Memories, query: str, *, every: bool, most: int) -> PassageSearch:
    """Return the turns of past sessions of this project, or with `every` of all projects, that match a query.

    New logs are read into the index of the home first, for at most 30 seconds. What was forgotten is not found, and what was corrected
    stands behind its correction. Raises `StoreError` if the index cannot be used.
    """

    def forgotten() -> frozenset[str]:
        return forgotten_events(folder)

    notes = [note for notebook in memories.notebooks for note in notebook.notes().all() if note.trust != "quarantined"]
    with closing(SessionIndexes(folder / "memory" / FILE_NAME, store, forgotten)) as sessions:
        waiting = sessions.refresh(_REFRESH_SECONDS).left
        found: list[FoundMemory] = []
        for part in sessions.parts() if every else (memories.project.scope,):
            index = sessions.index(part)
            hits = rank(index, query, most=most) if len(index) else ()
            kept = tuple(hit for hit in hits if event_id(hit.unit.id) not in forgotten())
            found += [_passage(hit) for hit in with_corrections(index, kept, corrections(notes))]
    # The scores of several projects cannot be compared, so that only their order within one means something.
    return PassageSearch(tuple(found[:most]), waiting)


def _passage(hit: RecallHit) -> FoundMemory:
    unit = hit.unit
    evidence = (event_id(unit.id),)
    return FoundMemory("", round(hit.score, 6), unit.text, evidence, "said", estimate(unit.text), unit.who or unit.role, unit.date)


def _candidates(notebook: Notebook, now: datetime, *, history: bool) -> Iterator[_Candidate]:
    notes = notebook.notes()
    reached: set[str] = set()
    for note in notes.active.values():
        if history or not is_over(note, now):
            chain = tuple(_chain(note, notes.past)) if history else ()
            reached.update(each.revision for each in chain)
            yield _Candidate(notebook.scope, note, chain)
    if history:
        for note in sorted(notes.past.values(), key=lambda each: (each.when, each.rev), reverse=True):
            if note.revision not in reached:
                chain = tuple(each for each in _chain(note, notes.past) if each.revision not in reached)
                reached.update((note.revision, *(each.revision for each in chain)))
                yield _Candidate(notebook.scope, note, chain)


def _chain(note: Note, held: Mapping[str, Note]) -> Iterator[Note]:
    """Yield what a note replaced, directly or through others, newest first."""
    waiting, seen = [note], {note.revision}
    found: list[Note] = []
    while waiting:
        current = waiting.pop()
        earlier = (each for each in held.values() if each.revision in current.supersedes or each.superseded_by == current.revision)
        for each in earlier:
            if each.revision not in seen:
                seen.add(each.revision)
                found.append(each)
                waiting.append(each)
    yield from sorted(found, key=lambda each: (each.when, each.rev), reverse=True)


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
