"""Consolidation without a model: equal notes are merged, conflicts settled, near duplicates clustered, and what is over expires."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from palimpsest.core.items import Value
from palimpsest.memory.note import Note, time_of
from palimpsest.memory.weighing.conflicts import Contested, begins_later, conflicts, supersede
from palimpsest.memory.weighing.duplicates import Words, claim_of, clusters, merged, near_duplicates
from palimpsest.memory.weighing.importance import DEFAULT_WEIGHING, Weighing, importance, is_compressible, newest_time

UNUSED_DAYS: Final = 90


class ConsolidationStep(Value, frozen=True):
    """One change that consolidation makes: the notes it writes, those that leave as they are then, and why."""

    why: str
    saved: tuple[Note, ...] = ()
    past: tuple[Note, ...] = ()


class Consolidated(Value, frozen=True):
    """The steps of a consolidation in order, the active notes after it by name, and the pairs that only the user can settle."""

    steps: tuple[ConsolidationStep, ...]
    notes: Mapping[str, Note]
    contested: tuple[tuple[str, str], ...] = ()


def consolidate(
    notes: Iterable[Note],
    now: datetime,
    words: Words,
    *,
    corrections: frozenset[str] = frozenset(),
    weighing: Weighing = DEFAULT_WEIGHING,
) -> Consolidated:
    """Return the steps that make the notes of a scope consistent. Doing it again with their result changes nothing.

    `words` returns the stemmed content words of a text; `corrections` are names of notes by which the user corrected another.
    """
    active = {note.name: note for note in notes if note.status == "active"}
    steps: list[ConsolidationStep] = []

    def take(step: ConsolidationStep) -> None:
        for note in step.past:
            active.pop(note.name, None)
        active.update((note.name, note) for note in step.saved)
        steps.append(step)

    for step in _merges(active.values()):
        take(step)
    contested = _settle(active, words, corrections, take)
    for step in expiries(active.values(), now, words, weighing):
        take(step)
    for step in _clusterings(active.values(), now, words, weighing):
        take(step)
    return Consolidated(tuple(steps), dict(active), contested)


def _merges(active: Iterable[Note]) -> list[ConsolidationStep]:
    groups: dict[tuple[str, ...], list[Note]] = {}
    for note in sorted(active, key=lambda each: each.name):
        groups.setdefault(claim_of(note), []).append(note)
    steps = []
    for group in groups.values():
        if len(group) > 1:
            kept = merged(group)
            gone = [note for note in group if note.name != kept.name]
            kept = replace(kept, rev=kept.rev + 1, supersedes=tuple(dict.fromkeys((*kept.supersedes, *(note.revision for note in gone)))))
            past = tuple(replace(note, status="superseded", superseded_by=kept.revision) for note in gone)
            steps.append(ConsolidationStep(f"{len(group)} notes say the same", (kept,), past))
    return steps


def _settle(
    active: dict[str, Note], words: Words, corrections: frozenset[str], take: Callable[[ConsolidationStep], None]
) -> tuple[tuple[str, str], ...]:
    """Settle conflicts one after the other, for a note that lost one has no part in the next. Returns the contested pairs."""
    contested: list[tuple[str, str]] = []
    for conflict in conflicts(active.values(), words, corrections):
        if isinstance(conflict, Contested):
            if conflict.one.name in active and conflict.other.name in active:
                contested.append((conflict.one.name, conflict.other.name))
            continue
        winner, loser = active.get(conflict.winner.name), active.get(conflict.loser.name)
        if winner is not None and loser is not None and begins_later(winner):
            ending = replace(loser, valid_to=winner.valid_from, rev=loser.rev + 1)
            take(ConsolidationStep(f"{loser.name} holds until {winner.name} does: {conflict.reason}", (ending,), ()))
        elif winner is not None and loser is not None:
            saved, past = supersede(winner, loser)
            take(ConsolidationStep(f"{winner.name} holds against {loser.name}: {conflict.reason}", (saved,), (past,)))
    return tuple(pair for pair in contested if pair[0] in active and pair[1] in active)


def expiries(active: Iterable[Note], now: datetime, words: Words, weighing: Weighing = DEFAULT_WEIGHING) -> list[ConsolidationStep]:
    """Retire notes that nothing used for 90 days and that weigh little. One whose validity is over stays, and is recalled as history.

    The least important goes first: the last of several that say nearly the same is unique again.
    """
    steps, gone = [], set[str]()
    listed = list(active)
    near = near_duplicates(listed, words)
    for note in sorted(listed, key=lambda each: (importance(each, now, len(near[each.name]), weighing), each.name)):
        unused = now - newest_time(note) > timedelta(days=UNUSED_DAYS)
        if unused and is_compressible(note, now, len(near[note.name] - gone), weighing):
            gone.add(note.name)
            steps.append(ConsolidationStep(f"{note.name} was not used for {UNUSED_DAYS} days", (), (replace(note, status="superseded"),)))
    return steps


def _clusterings(active: Iterable[Note], now: datetime, words: Words, weighing: Weighing) -> list[ConsolidationStep]:
    listed = list(active)
    near = near_duplicates(listed, words)

    steps = []
    for cluster in clusters(listed, near, words):
        leaving = tuple(note for note in cluster.members if is_compressible(note, now, len(near[note.name]), weighing))
        standing = replace(cluster, members=leaving).standing_for_all() if leaving else cluster.representative
        if leaving:
            past = tuple(replace(note, status="superseded", superseded_by=f"{standing.name}@{standing.rev + 1}") for note in leaving)
            steps.append(
                ConsolidationStep(f"{standing.name} stands for {len(leaving)} notes", (replace(standing, rev=standing.rev + 1),), past)
            )
    return steps


def is_over(note: Note, now: datetime) -> bool:
    """Return whether the validity of a note has ended, so that it is shown only as history."""
    return bool(note.valid_to) and time_of(note.valid_to) <= now
