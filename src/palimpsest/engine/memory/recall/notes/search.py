"""Finds the notes that have enough to do with a prompt to be shown unasked, by words and without a model."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from palimpsest.engine.memory.recall.notes.index import NoteIndex
from palimpsest.engine.memory.recall.stale_files import StaleFiles
from palimpsest.memory.recall.ranking import RankingOptions, RecallHit, rank
from palimpsest.memory.recall.selection import NEAR_DUPLICATE
from palimpsest.memory.showing.note_block import ScoredNote, near_duplicates_once
from palimpsest.memory.showing.note_units import NoteStanding, due_names, is_showable
from palimpsest.memory.showing.pick import MOST_OFFERED
from palimpsest.memory.showing.relevance import relevant
from palimpsest.memory.weighing.staleness import STALE_LOSS


def fitting_hits(notes: NoteIndex, text: str, now: datetime, excluded: frozenset[str]) -> list[RecallHit]:
    """Return the notes that have enough to do with a prompt to be shown unasked, best first and near-duplicates once."""
    index, entries = notes.refresh(), notes.entries
    due = due_names(entries, text, now)
    standing = NoteStanding(entries, notes.uses, now)
    options = RankingOptions(now=now.date().isoformat(), standing=standing, excluded=excluded, due=due)
    ranked = rank(index, text, most=MOST_OFFERED, options=options, similar=notes.similar(index, text))
    fitting = relevant(index, text, [index.numbers[hit.unit.id] for hit in ranked])
    hits = [hit for hit, fits in zip(ranked, fitting, strict=True) if fits or hit.unit.id in due]
    words = [frozenset(index.sequences[index.numbers[hit.unit.id]]) for hit in hits]
    same = near_duplicates_once([hit.unit.id for hit in hits], words, NEAR_DUPLICATE)
    return [hit for hit in hits if hit.unit.id not in same]


def scored_notes(notes: NoteIndex, files: StaleFiles, hits: Sequence[RecallHit]) -> list[ScoredNote]:
    """Return the notes of hits as their files state them now, best first; stale ones have less score."""
    return sorted(_read(notes, files, hits), key=lambda each: -each.score)


def _read(notes: NoteIndex, files: StaleFiles, hits: Sequence[RecallHit]) -> Iterator[ScoredNote]:
    for hit in hits:
        note = notes.note(hit.unit.id)
        if note is not None and is_showable(note):
            stale = bool(files.changed(note))
            yield ScoredNote(note, hit.score - (STALE_LOSS if stale else 0.0), stale)
