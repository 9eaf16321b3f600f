"""Proposed changes of the notes, and the check that each is supported by a quotation of the events that it cites."""

import unicodedata
from collections.abc import Mapping, Sequence
from hashlib import sha256
from hmac import new as keyed_digest
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Value
from palimpsest.memory.note import LONGEST_ABOUT, Author, Note, NoteKind, Trust, ValuePolicy, check_note, name_of
from palimpsest.memory.weighing.conflicts import supersede
from palimpsest.memory.weighing.duplicates import claim_of
from palimpsest.memory.weighing.importance import time_of

Speaker: TypeAlias = Literal["user", "assistant", "tool", "untrusted"]
"""Who an event quotes: `tool` is a tool in the workspace, `untrusted` one that brings text from elsewhere, such as a web page."""

LONGEST_QUOTE_WORDS: Final = 25


class QuotableEvent(Value, frozen=True):
    """An event that a change may cite. `at` is its time, with a zone."""

    id: str
    speaker: Speaker
    text: str
    at: str


class Draft(Struct, frozen=True, kw_only=True):
    """What a note is to say; the engine adds name, time, evidence and trust."""

    kind: NoteKind
    about: str
    body: str
    backstory: str
    person: str = "user"
    relationship: str = "self"
    attribute: str = ""
    policy: ValuePolicy = "single"
    valid_from: str = ""
    valid_to: str = ""
    intensity: float = 0.0


class AddNote(Struct, frozen=True, tag="add"):
    """Add a note. `evidence` are event ids, and `quote` is a text of at most 25 words in one of them."""

    note: Draft
    evidence: tuple[str, ...]
    quote: str


class SupersedeNote(Struct, frozen=True, tag="supersede"):
    """Replace the note `name` by one that corrects it."""

    name: str
    note: Draft
    evidence: tuple[str, ...]
    quote: str


class RetractNote(Struct, frozen=True, tag="retract"):
    """The note `name` was never true."""

    name: str
    reason: str
    evidence: tuple[str, ...]
    quote: str


class ConfirmNote(Struct, frozen=True, tag="confirm"):
    """The note `name` was said again."""

    name: str
    evidence: tuple[str, ...]
    quote: str


Change: TypeAlias = AddNote | SupersedeNote | RetractNote | ConfirmNote


class Tombstone(Value, frozen=True):
    """What stays of a forgotten note: when and by whom, the events that it came from, and a keyed digest of person and attribute."""

    at: str
    by: str
    evidence: tuple[str, ...]
    digest: str = ""


class AcceptedChange(Value, frozen=True):
    """A change that holds: the notes to write, and those that leave, as they are after it."""

    saved: tuple[Note, ...] = ()
    past: tuple[Note, ...] = ()
    reason: str = ""


class RefusedChange(Value, frozen=True):
    """A change that does not hold, and why."""

    reason: str


class Memory(Value, frozen=True):
    """What a change is judged by: the active notes by name, what was forgotten, the key of their digests, and the author of the change."""

    notes: Mapping[str, Note]
    tombstones: tuple[Tombstone, ...] = ()
    key: bytes = b""
    by: Author = "extract"


def judge_change(change: Change, sources: Sequence[QuotableEvent], memory: Memory) -> AcceptedChange | RefusedChange:
    """Return what a change does to the notes, or why it is refused: everything that it says must rest on events that it quotes.

    A quotation counts if it occurs in a cited event, regardless of case and white space. What the user wants must be quoted from the
    user. The trust of a note follows from who is quoted, never from what the text says about itself.
    """
    quoted = _quoted(change, sources)
    if isinstance(quoted, RefusedChange):
        return quoted
    match change:
        case AddNote():
            return _added(change.note, change.evidence, quoted, memory)
        case SupersedeNote():
            return _superseded(change, quoted, memory)
        case RetractNote():
            return _retracted(change, quoted, memory)
        case ConfirmNote():
            note = memory.notes.get(change.name)
            return RefusedChange(f"there is no note {change.name[:80]!r}") if note is None else _confirmed(note, change.evidence, quoted)


def attribute_digest(key: bytes, person: str, attribute: str) -> str:
    """Return the digest by which a tombstone knows an attribute of a person without naming them; empty without an attribute."""
    text = f"{person.casefold()}\0{attribute}".encode()
    return keyed_digest(key, text, sha256).hexdigest() if attribute else ""


def _quoted(change: Change, sources: Sequence[QuotableEvent]) -> QuotableEvent | RefusedChange:
    """Return the cited event that contains the quotation, one of the user if there are several."""
    words = change.quote.split()
    if not words or len(words) > LONGEST_QUOTE_WORDS:
        return RefusedChange(f"a quotation has 1 to {LONGEST_QUOTE_WORDS} words")
    cited = [source for source in sources if source.id in change.evidence]
    if missing := [each for each in change.evidence if all(source.id != each for source in sources)]:
        return RefusedChange(f"the event {missing[0][:80]!r} is not among those that were read")
    holding = [source for source in cited if _folded(change.quote) in _folded(source.text)]
    if not holding:
        return RefusedChange("the quotation is not in the events that it cites")
    return next((source for source in holding if source.speaker == "user"), holding[0])


def _added(draft: Draft, evidence: tuple[str, ...], quoted: QuotableEvent, memory: Memory) -> AcceptedChange | RefusedChange:
    if draft.kind in ("user", "feedback") and quoted.speaker != "user":
        return RefusedChange(f"a {draft.kind} note needs a quotation of the user")
    if reason := _forgotten(draft, evidence, quoted, memory):
        return RefusedChange(reason)
    note = _note_of(draft, evidence, quoted, memory)
    same = next((each for each in memory.notes.values() if claim_of(each) == claim_of(note)), None)
    if same is not None:
        return _confirmed(same, evidence, quoted)
    try:
        return AcceptedChange((check_note(note),), reason="added")
    except BadInput as error:
        return RefusedChange(error.message)


def _superseded(change: SupersedeNote, quoted: QuotableEvent, memory: Memory) -> AcceptedChange | RefusedChange:
    old = memory.notes.get(change.name)
    if old is None:
        return RefusedChange(f"there is no note {change.name[:80]!r}")
    if old.person.casefold() != change.note.person.casefold():
        return RefusedChange("a note about another person corrects nothing")
    if old.trust == "stated" and quoted.speaker != "user":
        return RefusedChange("what the user stated is corrected by the user only")
    if time_of(quoted.at) < time_of(old.when):
        return RefusedChange("what was said earlier does not correct what was said later")
    result = _added(change.note, change.evidence, quoted, memory)
    if isinstance(result, RefusedChange) or result.reason != "added":
        return result
    winner, loser = supersede(result.saved[0], old)
    return AcceptedChange((winner,), (loser,), "corrected")


def _retracted(change: RetractNote, quoted: QuotableEvent, memory: Memory) -> AcceptedChange | RefusedChange:
    old = memory.notes.get(change.name)
    if old is None:
        return RefusedChange(f"there is no note {change.name[:80]!r}")
    if old.trust == "stated" and quoted.speaker != "user":
        return RefusedChange("what the user stated is retracted by the user only")
    return AcceptedChange((), (replace(old, status="retracted"),), " ".join(change.reason.split())[:LONGEST_ABOUT] or "retracted")


def _confirmed(note: Note, evidence: tuple[str, ...], quoted: QuotableEvent) -> AcceptedChange:
    """Return a note with further evidence; nothing is saved if all of it was known."""
    joined = tuple(dict.fromkeys((*note.evidence, *evidence)))
    trust: Trust = "stated" if quoted.speaker == "user" else note.trust
    when = quoted.at if time_of(quoted.at) > time_of(note.when) else note.when
    changed = replace(note, evidence=joined, when=when, trust=trust)
    return AcceptedChange(() if changed == note else (replace(changed, rev=note.rev + 1),), reason="confirmed")


def _note_of(draft: Draft, evidence: tuple[str, ...], quoted: QuotableEvent, memory: Memory) -> Note:
    trusts: Mapping[Speaker, Trust] = {"user": "stated", "assistant": "observed", "tool": "observed", "untrusted": "quarantined"}
    about = " ".join(draft.about.split())[:LONGEST_ABOUT]
    return Note(
        name=name_of(draft.kind, draft.attribute or about, frozenset(memory.notes)),
        kind=draft.kind,
        about=about,
        body=draft.body.strip() + "\n",
        backstory=draft.backstory,
        person=draft.person,
        relationship=draft.relationship,
        attribute=draft.attribute,
        policy=draft.policy,
        valid_from=draft.valid_from,
        valid_to=draft.valid_to,
        intensity=draft.intensity,
        when=quoted.at,
        evidence=tuple(dict.fromkeys(evidence)),
        trust=trusts[quoted.speaker],
        by=memory.by,
    )


def _forgotten(draft: Draft, evidence: tuple[str, ...], quoted: QuotableEvent, memory: Memory) -> str:
    """Return why a draft would bring back what was forgotten; empty if it does not."""
    digest = attribute_digest(memory.key, draft.person, draft.attribute)
    for stone in memory.tombstones:
        if set(evidence) <= set(stone.evidence):
            return "it rests on events whose note was forgotten"
        is_newer = quoted.speaker == "user" and time_of(quoted.at) > time_of(stone.at)
        if digest and digest == stone.digest and not is_newer:
            return "it was forgotten, and the user has not said it again since"
    return ""


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
