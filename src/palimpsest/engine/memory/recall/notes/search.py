"""Finds the notes that have enough to do with a prompt to be shown unasked, by words and without a model."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from palimpsest.engine.memory.recall.notes.index import NoteIndex
from palimpsest.engine.memory.recall.stale_files import StaleFiles
from palimpsest.memory.note import trust_rank
from palimpsest.memory.recall.ranking import RankingOptions, RecallHit, rank, with_due
from palimpsest.memory.recall.selection import NEAR_DUPLICATE
from palimpsest.memory.showing.newer import newest_first
from palimpsest.memory.showing.note_block import ScoredNote, near_duplicates_once
from palimpsest.memory.showing.note_units import NoteStanding, due_names, is_showable, not_to_show, ongoing_work
from palimpsest.memory.showing.pick import MOST_OFFERED
from palimpsest.memory.showing.relevance import relevant
from palimpsest.memory.weighing.staleness import STALE_LOSS


def fitting_hits(notes: NoteIndex, text: str, now: datetime, excluded: frozenset[str], said: str = "") -> list[RecallHit]:
    """Return the notes that have enough to do with a prompt to be shown unasked, best first and near-duplicates once.

    `said` is what was asked before it and is being worked on, on which notes that are due may bear.
    """
    index, entries = notes.refresh(), notes.entries
    standing = NoteStanding(entries, notes.uses, notes.newer().alike, now)
    options = RankingOptions(now=now.date().isoformat(), standing=standing, excluded=excluded)
    ranked = rank(index, text, most=MOST_OFFERED, options=options, similar=notes.similar(index, text))
    fitting = relevant(index, text, [index.numbers[hit.unit.id] for hit in ranked])
    found = tuple(hit for hit, fits in zip(ranked, fitting, strict=True) if fits)
    work = ongoing_work(index, entries, text, said, (hit.unit.id for hit in ranked))
    hits = with_due(index, found, replace(options, due=due_names(entries, text, now, work)), MOST_OFFERED)
    # Of notes that say the same, the one of the highest trust stays, and of these the newest.
    known = notes.newer().known
    names = sorted((hit.unit.id for hit in hits), key=lambda name: (trust_rank(known[name].trust), known[name].moment), reverse=True)
    # What is said of another person is another fact.
    terms = [known[name].words | {f"about {known[name].person.casefold()}"} for name in names]
    same = near_duplicates_once(names, terms, NEAR_DUPLICATE)
    return [hit for hit in hits if hit.unit.id not in same]


def scored_notes(
    notes: NoteIndex, files: StaleFiles, hits: Sequence[RecallHit], now: datetime, *, text: str, excluded: frozenset[str]
) -> list[ScoredNote]:
    """Return the notes of hits for a prompt as their files state them now, best first; stale ones have less score.

    Newer notes about the same stand before an older one, and come along if no word of the prompt found them, unless they are `excluded`.
    """
    over = not_to_show(notes.entries, now, ())
    known = notes.newer()
    scores = {hit.unit.id: hit.score for hit in hits}
    for hit in hits:
        for name in known.companions(hit.unit.id, over | excluded):
            scores.setdefault(name, hit.score)
    asked = notes.asked(text)
    newer = {name: known.after(name, asked, over) for name in scores}
    found = sorted(_read(notes, files, scores, newer), key=lambda each: -each.score)
    return newest_first(found, lambda each: each.note.name, newer)


def _read(notes: NoteIndex, files: StaleFiles, scores: Mapping[str, float], newer: Mapping[str, tuple[str, ...]]) -> Iterator[ScoredNote]:
    for name, score in scores.items():
        note = notes.note(name)
        if note is not None and is_showable(note):
            stale = bool(files.changed(note))
            yield ScoredNote(note, score - (STALE_LOSS if stale else 0.0), stale, newer.get(name, ()))
