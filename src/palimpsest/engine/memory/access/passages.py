"""Search by a person in past sessions: turns for a query, from the index of the home."""

from contextlib import closing
from pathlib import Path
from typing import Final

from msgspec import Struct

from palimpsest.core.ports import SessionArchive
from palimpsest.core.tokens.estimate import estimate
from palimpsest.engine.memory.access.searching import FoundMemory
from palimpsest.engine.memory.memories import Memories
from palimpsest.engine.memory.recall.session_index import forgotten_events, open_sessions
from palimpsest.memory.recall.digest.corrections import corrections, with_corrections
from palimpsest.memory.recall.ranking import RecallHit, rank
from palimpsest.memory.sessions.units import event_id

_REFRESH_SECONDS: Final = 30.0


class PassageSearch(Struct, frozen=True):
    """Passages of past sessions that match, best first, and how many sessions are not in the index yet."""

    found: tuple[FoundMemory, ...]
    waiting: int


def search_sessions(folder: Path, store: SessionArchive, memories: Memories, query: str, *, every: bool, most: int) -> PassageSearch:
    """Return the turns of past sessions of this project, or with `every` of all projects, that match a query.

    New logs are read into the index of the home first, for at most 30 seconds. What was forgotten is not found, and what was corrected
    stands behind its correction. Raises `StoreError` if the index cannot be used.
    """
    forgotten = forgotten_events(folder)
    notes = [note for notebook in memories.notebooks for note in notebook.notes().all() if note.trust != "quarantined"]
    with closing(open_sessions(folder, store)) as sessions:
        waiting = sessions.refresh(_REFRESH_SECONDS).left
        found: list[FoundMemory] = []
        for part in sessions.parts() if every else (memories.project.scope,):
            index = sessions.index(part)
            hits = rank(index, query, most=most) if len(index) else ()
            kept = tuple(hit for hit in hits if event_id(hit.unit.id) not in forgotten)
            found += [_passage(hit) for hit in with_corrections(index, kept, corrections(notes))]
    # The scores of several projects cannot be compared, so that only their order within one means something.
    return PassageSearch(tuple(found[:most]), waiting)


def _passage(hit: RecallHit) -> FoundMemory:
    unit = hit.unit
    evidence = (event_id(unit.id),)
    return FoundMemory("", round(hit.score, 6), unit.text, evidence, "said", estimate(unit.text), unit.who or unit.role, unit.date)
