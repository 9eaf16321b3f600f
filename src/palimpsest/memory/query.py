"""Answers queries of the tool `recall` from notes and past sessions, and searches notes and past sessions for a person."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import accumulate, islice
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from palimpsest.core.ports import SessionArchive
from palimpsest.core.text import counted
from palimpsest.core.tokens import estimate
from palimpsest.memory.index_text import newest_first
from palimpsest.memory.note import Note, redacted, time_of
from palimpsest.memory.note_evidence import changed_files
from palimpsest.memory.note_index import NoteIndex, note_index
from palimpsest.memory.notebook import Memories, Notebook
from palimpsest.memory.past_sessions import event_id, unit_events
from palimpsest.memory.recall_index import RecallIndex, term_character
from palimpsest.memory.recall_ranking import RankingOptions, RecallHit, Standing, rank, read_query
from palimpsest.memory.recall_selection import (
    RECALL_TOKENS,
    Correction,
    corrections,
    digest,
    note_entries,
    one_line,
    select,
    timeline,
    unit_entries,
    with_corrections,
)
from palimpsest.memory.recall_terms import FIX, RecallUnit
from palimpsest.memory.session_index import SessionIndexes, forgotten_events, open_sessions
from palimpsest.memory.session_memory import ProjectMemory
from palimpsest.memory.shown import (
    TAG,
    NoteStanding,
    bare_note,
    due_names,
    is_showable,
    least_relevance,
    not_to_show,
    relevance,
    unit_of,
    weigh_prompt,
    without_tags,
)
from palimpsest.memory.store import MOST_FILES
from palimpsest.memory.vectors import embedding_of
from palimpsest.memory.weigh import DEFAULT_WEIGHING, chain_of, importance

# Notes of one answer, and the tokens that they may take; the rest is for past sessions.
MOST_NOTES: Final = 10
NOTE_TOKENS: Final = 2_048
# Cosine from which a note is shown that shares no word with the query. Chosen by hand, not measured.
NEAR_ENOUGH: Final = 0.5
# Seconds that one call reads logs which are new to the index.
REFRESH_SECONDS: Final = 10.0
# Hits of one project; those of this session are left out of them.
_MOST_HITS: Final = 100
_MOST_SUMMARIES: Final = 3
_NOTHING: Final = "nothing was found in notes and past sessions of this project; `all_projects` looks in the sessions of all"


class MemorySearch:
    """What the tool `recall` asks of memory; `own` is the session that asks, whose turns are left out. Several threads may use it."""

    def __init__(self, memory: ProjectMemory, own: str = "") -> None:
        self._memory = memory
        self._own = own
        self._sessions: SessionIndexes | None = None

    def query(self, text: str, *, history: bool, all_projects: bool) -> str:
        """Return the best notes and turns of past sessions for a query. Raises `PalimpsestError` if they cannot be read."""
        notes = self._notes()
        corrected = corrections(notes)
        shown, needed = self._shown_notes(text, notes, history=history), dict[str, Note]()
        sections: list[str] = []
        left = RECALL_TOKENS
        found, waiting = self._past(text, all_projects=all_projects)
        ordered = [(index, self._corrected(index, hits, corrected, notes, needed)) for index, hits in found]
        known = {note.name for note, _ in shown}
        block = self._block(text, [*((note, ()) for name, note in needed.items() if name not in known), *shown])
        if block:
            sections.append(block)
            left -= estimate(block) + 2
        folder = self._memory.home.local_folder
        forgotten = frozenset[str]() if folder is None else forgotten_events(folder)
        if listed := self._summary_lines(text):
            sections.append(listed)
            left -= estimate(listed) + 2
        for place, (index, hits) in enumerate(ordered, 1):
            # Of several projects none takes all of the room.
            room = left if place == len(ordered) else left // 2
            lines = select(index, hits, text, tokens=room)
            if lines.left_out and not any(hit.unit.paths or hit.unit.kind == FIX for hit in hits):
                # Of long conversations, the sentences of several sessions say more than a few turns; work on files needs its whole turns.
                lines = digest(index, hits, text, tokens=room, excluded=forgotten, corrected=corrected)
            if lines.lines:
                sections.append(_in_order(lines.lines, lines.ids, corrected))
                left -= lines.tokens + 2
        if beyond := sum(notebook.beyond() for notebook in self._memory.memories.notebooks):
            sections.append(f"(not searched: {counted(beyond, 'note')} beyond the first {MOST_FILES:,} of a scope)")
        if waiting:
            sections.append(f"(not in the index yet: {counted(waiting, 'session')}; ask again for what they say)")
        return "\n\n".join(sections) or _NOTHING

    def file(self, name: str) -> str | None:
        """Return the text of a summary of a session, or of a file of two-stage memory, by its path; `None` if there is none."""
        from palimpsest.memory.recalled_handbook import memory_file  # few sessions open one

        return memory_file(self._memory, name) if self._memory.is_used() else None

    def _summary_lines(self, text: str) -> str:
        """Return the summaries of sessions that match a query, one line each with the path by which `recall` opens it."""
        from palimpsest.memory.recalled_handbook import found_summaries, summaries

        found = found_summaries(summaries(self._memory), text, _MOST_SUMMARIES) if self._memory.is_used() else ()
        lines = (f"- {each.path} ({each.date}): {without_tags(one_line(each.title))}" for each in found)
        return "\n".join(("Summaries of sessions, which `recall` opens by their path as `id`:", *lines)) if found else ""

    def timeline(self, about: str, start: str, end: str) -> str:
        """Return notes and turns about a person, an attribute or words in the order of time. Raises `BadInput` if a bound is no date."""
        entries = note_entries(self._notes())
        found, _ = self._past(about, all_projects=False)
        entries += unit_entries(hit.unit for _, hits in found for hit in hits)
        lines = timeline(entries, about, start=start, end=end)
        return lines.text or "nothing was found; a timeline is about a person, an attribute or words that all occur"

    def close(self) -> None:
        """Close the database."""
        if self._sessions is not None:
            self._sessions.close()
            self._sessions = None

    def _notes(self) -> tuple[Note, ...]:
        """Return all versions of all notes that may be shown, active ones first."""
        if not self._memory.is_used():
            return ()
        found = [notebook.notes() for notebook in self._memory.memories.notebooks]
        active = (note for notes in found for note in notes.active.values() if is_showable(note))
        return (*active, *(note for notes in found for note in notes.past.values() if note.trust != "quarantined"))

    def _shown_notes(self, text: str, notes: Sequence[Note], *, history: bool) -> list[tuple[Note, tuple[Note, ...]]]:
        """Return the best notes, each with the versions that it replaced if history is asked for, newest first."""
        index = note_index(self._memory)
        if index is None:
            return []
        joined = index.refresh()
        best = [hit.unit.id for hit in self._ranked(index, joined, text)]
        over, newer = not_to_show(index.entries, self._now(), ()), index.newer()
        best = list(dict.fromkeys(each for name in best for each in (name, *newer.companions(name, over))))
        asked = index.asked(text)
        best = newest_first(best, str, {name: newer.after(name, asked, over) for name in best})
        if not history:
            return [(note, ()) for name in best if (note := index.note(name)) is not None and is_showable(note)]
        versions = {note.revision: note for note in notes}
        chains = {note.name: chain_of(note, versions) for note in notes if note.status == "active"}
        # A query may have the words of an old version only; its chain stands behind those that were found by what holds.
        past = RecallIndex(_numbered(note for note in notes if note.status == "superseded"))
        old = [hit.unit.id for hit in rank(past, text, most=MOST_NOTES)]
        by_old = [name for each in old for name, chain in chains.items() if each in {note.revision for note in chain[1:]}]
        names = [name for name in dict.fromkeys((*best, *by_old)) if name in chains]
        return [(chains[name][0], tuple(note for note in chains[name][1:] if note.status == "superseded")) for name in names]

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._memory.home.clock.now() / 1000, UTC)

    def _ranked(self, index: NoteIndex, joined: RecallIndex, text: str) -> Iterator[RecallHit]:
        now = self._now()
        options = RankingOptions(
            now=now.date().isoformat(),
            standing=NoteStanding(index.entries, index.uses, index.newer().alike, now),
            excluded=not_to_show(index.entries, now, ()),
            due=due_names(index.entries, text, now),
        )
        prompt = weigh_prompt(joined, text)
        # Asked for by words, a note need not have as much to do with them as one that is shown unasked.
        least = least_relevance(len(joined.numbers)) / 2
        similar = index.similar(joined, text)
        for hit in rank(joined, text, most=MOST_NOTES, options=options, similar=similar):
            number = joined.numbers[hit.unit.id]
            is_near = similar is not None and similar.similarities((number,))[0] >= NEAR_ENOUGH
            if hit.unit.id in options.due or number in prompt.named or is_near or relevance(joined, prompt, number) >= least:
                yield hit

    def _block(self, text: str, found: Sequence[tuple[Note, tuple[Note, ...]]]) -> str:
        """Return notes between tags, as many as fit, each above what it replaced."""
        texts: list[str] = []
        room = NOTE_TOKENS
        index = note_index(self._memory)
        over = frozenset[str]() if index is None else not_to_show(index.entries, self._now(), ())
        for note, past in found:
            newer = () if index is None else index.newer().after(note.name, index.asked(text), over)
            shown = "\n".join((bare_note(note, newer=newer), *(f"  was: {_old_line(each)}" for each in past)))
            size = estimate(f"{shown}\n\n")
            if size <= room:
                room -= size
                texts.append(shown)
        return "\n".join((f"<{TAG}>", "\n\n".join(texts), f"</{TAG}>")) if texts else ""

    def _past(self, text: str, *, all_projects: bool) -> tuple[list[tuple[RecallIndex, tuple[RecallHit, ...]]], int]:
        """Return the hits in past sessions, by project and best first, and how many sessions could not be read in time."""
        folder = self._memory.home.local_folder
        if folder is None:
            return [], 0
        own = self._own
        if self._sessions is None:
            self._sessions = open_sessions(folder, self._memory.home.store, embedding_of(self._memory))
        waiting = self._sessions.refresh(REFRESH_SECONDS, without=frozenset((own,))).left
        project = self._memory.memories.project.scope
        parts = self._sessions.parts() if all_projects else (project,)
        forgotten = forgotten_events(folder)
        found: list[tuple[RecallIndex, tuple[RecallHit, ...]]] = []
        for part in parts:
            index = self._sessions.index(part)
            similar = self._sessions.similar(part, text) if len(index) else None
            ranked = rank(index, text, most=_MOST_HITS, similar=similar) if len(index) else ()
            hits = tuple(hit for hit in ranked if hit.unit.session != own and forgotten.isdisjoint(unit_events(hit.unit)))
            if hits:
                found.append((index, hits))
        return sorted(found, key=lambda each: -_best_cover(each[0], each[1], text)), waiting

    def _corrected(
        self,
        index: RecallIndex,
        hits: tuple[RecallHit, ...],
        corrected: Mapping[str, Correction],
        notes: Sequence[Note],
        needed: dict[str, Note],
    ) -> tuple[RecallHit, ...]:
        """Return hits with corrected ones behind what replaced them; of what is in no session here, the note itself is `needed` above."""
        ordered = with_corrections(index, hits, corrected)
        for hit in ordered:
            correction = corrected.get(event_id(hit.unit.id))
            if correction is not None and not any(event in index.numbers for event in correction.successors):
                holding = (note for note in notes if note.status == "active" and set(correction.successors) & set(note.evidence))
                needed |= {note.name: note for note in holding}
        return ordered


def _numbered(notes: Iterator[Note]) -> Iterator[RecallUnit]:
    """Yield units of past versions, named by their revision."""
    for note in notes:
        yield msgspec.structs.replace(unit_of(note), id=note.revision)


def _old_line(note: Note) -> str:
    until = f" until {note.valid_to[:10]}" if note.valid_to else ""
    return f"{without_tags(one_line(note.about))}{until}"


def _best_cover(index: RecallIndex, hits: Sequence[RecallHit], text: str) -> float:
    """Return how many words of a query the best hit has; unlike scores, it can be compared between indexes."""
    query = read_query(index, text)
    characters = [term_character(term) for term in query.terms]
    return max(sum(character in index.sequences[index.numbers[hit.unit.id]] for character in characters) for hit in hits[:5])


def _in_order(lines: Sequence[str], ids: Sequence[str], corrected: Mapping[str, Correction]) -> str:
    """Return the lines without a corrected turn that stands before what replaced it, which a question brought along."""
    kept: list[str] = []
    for place, line in enumerate(lines):
        correction = corrected.get(event_id(ids[place])) if place < len(ids) else None
        later = {event_id(each) for each in ids[place + 1 :]}
        if correction is None or not later.intersection(correction.successors):
            kept.append(line)
    return "\n".join(kept)


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
