"""Search by a person in past sessions: turns for a query, from the index of the home."""

from collections import deque
from collections.abc import Iterator
from contextlib import closing
from itertools import accumulate, islice
from pathlib import Path
from typing import Final

from msgspec import Struct

from palimpsest.core.ports import SessionArchive
from palimpsest.core.tokens.estimate import estimate
from palimpsest.engine.memory.access.searching import FoundMemory
from palimpsest.engine.memory.memories import Memories
from palimpsest.engine.memory.recall.session_index import forgotten_events, open_sessions
from palimpsest.memory.recall.digest.corrections import corrections, with_corrections
from palimpsest.memory.recall.index import RecallIndex
from palimpsest.memory.recall.ranking import RecallHit, rank
from palimpsest.memory.sessions.units import event_id
from palimpsest.memory.showing.relevance import relevance, weigh_prompt

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
        corrected = corrections(notes)
        projects: list[_RankedProject] = []
        for part in sessions.parts() if every else (memories.project.scope,):
            index = sessions.index(part)
            hits = rank(index, query, most=most) if len(index) else ()
            kept = tuple(hit for hit in hits if event_id(hit.unit.id) not in forgotten)
            if kept:
                projects.append(_RankedProject(with_corrections(index, kept, corrected), index, query))
    return PassageSearch(tuple(_passage(hit) for hit in islice(_merged(projects), most)), waiting)


class _RankedProject:
    """The hits of one project in their order, and how much of the query the best of those that are left has."""

    def __init__(self, hits: tuple[RecallHit, ...], index: RecallIndex, query: str) -> None:
        weighed = weigh_prompt(index, query)
        shares = [relevance(index, weighed, index.numbers[hit.unit.id]) for hit in hits]
        best = list(accumulate(reversed(shares), max))[::-1]
        self.left = deque(zip(best, hits, strict=True))


def _merged(projects: list[_RankedProject]) -> Iterator[RecallHit]:
    """Yield the hits of all projects, next the one of the project that has more of the query.

    Scores of several indexes cannot be compared; how much of the query a unit has can. Within a project the order stays.
    """
    waiting = list(projects)
    while waiting:
        project = max(waiting, key=lambda each: each.left[0][0])
        yield project.left.popleft()[1]
        waiting = [each for each in waiting if each.left]


def _passage(hit: RecallHit) -> FoundMemory:
    unit = hit.unit
    evidence = (event_id(unit.id),)
    return FoundMemory("", round(hit.score, 6), unit.text, evidence, "said", estimate(unit.text), unit.who or unit.role, unit.date)
