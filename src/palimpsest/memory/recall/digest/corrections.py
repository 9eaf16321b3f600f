"""Corrections among recalled turns: what notes superseded never stands before what replaced it, and says so."""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from palimpsest.core.items import Value
from palimpsest.memory.note import Note, time_of
from palimpsest.memory.recall.index import RecallIndex
from palimpsest.memory.recall.ranking import RecallHit

_SHOWN_SUCCESSORS: Final = 2
# Links of one chain that are followed; a longer one is a cycle of broken files.
_LONGEST_CHAIN: Final = 100


class Correction(Value, frozen=True):
    """What replaced the evidence of a superseded note.

    successors: event ids of the note that holds now, the newest last; empty if it was retracted. until: when the old one ceased to hold,
    as a date; empty if unknown.
    """

    successors: tuple[str, ...] = ()
    until: str = ""


def corrections(notes: Iterable[Note]) -> dict[str, Correction]:
    """Return, by event id, what replaced the evidence of superseded and retracted notes; `notes` are all versions, active ones included.

    A chain of corrections leads to its last note. An event that supports a note that holds is corrected by nothing.
    """
    known = list(notes)
    versions = {note.revision: note for note in known}
    newest: dict[str, Note] = {}
    for note in known:
        if note.name not in newest or note.rev > newest[note.name].rev:
            newest[note.name] = note
    holding = {event for note in newest.values() if note.status == "active" for event in note.evidence}
    found: dict[str, Correction] = {}
    for note in sorted(known, key=lambda each: (time_of(each.when), each.name, each.rev)):
        if note.status == "active":
            continue
        last = _last(note, versions, newest)
        successors = tuple(event for event in last.evidence if event not in note.evidence) if last is not None else ()
        found |= {event: Correction(successors, note.valid_to[:10]) for event in note.evidence if event not in holding}
    return found


def _last(note: Note, versions: Mapping[str, Note], newest: Mapping[str, Note]) -> Note | None:
    """Return the active note at the end of a chain; None if there is none."""
    current: Note | None = note
    for _ in range(_LONGEST_CHAIN):
        if current is None or current.status == "active":
            return current
        link = current.superseded_by
        # A successor may have been written again since: its name leads to the version that holds.
        following = newest.get(link.partition("@")[0], versions.get(link)) if link else None
        current = following if following is not current else None
    return None


def with_corrections(index: RecallIndex, hits: Iterable[RecallHit], corrected: Mapping[str, Correction]) -> tuple[RecallHit, ...]:
    """Return the hits with corrected ones behind what replaced them, which is fetched if no word of the query found it.

    A corrected hit has a remark that names its successors. What was retracted without a successor has a remark and goes to the end.
    """
    if not corrected:
        return tuple(hits)
    found: dict[str, RecallHit] = {}
    old: list[RecallHit] = []
    for hit in hits:
        correction = corrected.get(event_of(hit.unit.id))
        if correction is None:
            found.setdefault(hit.unit.id, hit)
            continue
        for number in _numbers(index, correction):
            unit = index.units[number]
            found.setdefault(unit.id, RecallHit(unit, hit.score))
        old.append(replace(hit, remark=remark_of(correction)))
    return (*found.values(), *old)


def _numbers(index: RecallIndex, correction: Correction) -> list[int]:
    """Return the units of the successors, the newest first, without hidden ones."""
    known = (index.numbers.get(event, -1) for event in reversed(correction.successors))
    return [number for number in known if number >= 0 and number not in index.hidden]


def remark_of(correction: Correction) -> str:
    """Return what the line of something that was corrected says."""
    until = f" since {correction.until}" if correction.until else ""
    named = ", ".join(f"[{event}]" for event in correction.successors[-_SHOWN_SUCCESSORS:])
    return f"no longer so{until}, see {named}" if named else f"no longer so{until}"


def event_of(unit: str) -> str:
    """Return the event id `session:seq` of the id of a unit, which may be that of a later part, `session:seq.2`."""
    session, colon, place = unit.rpartition(":")
    return f"{session}{colon}{place.partition('.')[0]}"
