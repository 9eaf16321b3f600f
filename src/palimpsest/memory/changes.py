"""Proposed changes of the notes, and the check that each is supported by a quotation of the events that it cites."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from hmac import new as keyed_digest
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Value
from palimpsest.memory.note import LONGEST_ABOUT, Author, Note, Trust, check_note, name_of, time_of, trust_rank
from palimpsest.memory.note_file import fitting
from palimpsest.memory.weighing.conflicts import begins_later, supersede
from palimpsest.memory.weighing.duplicates import claim_of
from palimpsest.memory.weighing.quotation import LONGEST_QUOTE_WORDS, MOST_EVIDENCE, Draft, QuotableEvent, Quotation, Speaker, Unsupported
from palimpsest.memory.weighing.wording import LEAST_SHARE, wording_of

__all__ = ["LONGEST_QUOTE_WORDS", "Draft", "QuotableEvent", "Speaker"]


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
    """What stays of a forgotten note: when and by whom, the events that it came from, and keyed digests.

    `digest` is that of person and attribute; `names` are those of its names, by which a session finds what it has shown of it.
    """

    at: str
    by: str
    evidence: tuple[str, ...]
    digest: str = ""
    names: tuple[str, ...] = ()


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
    """Return what a change does to the notes, or why it is refused: everything that it says must rest on events that it cites.

    A quotation counts if it occurs in a cited event, regardless of case and white space; so must every path, command, URL, number and
    quoted text of the note. What the user wants, and what changes a statement of the user, must be said by the user. The trust of a note
    follows from the events that its words come from, never from what a text says about itself.
    """
    quoted = _quoted(change, sources, memory)
    if isinstance(quoted, RefusedChange):
        return quoted
    match change:
        case AddNote():
            return _added(change.note, quoted, sources, memory)
        case SupersedeNote():
            return _superseded(change, quoted, sources, memory)
        case RetractNote():
            return _retracted(change, quoted, memory)
        case ConfirmNote():
            note = memory.notes.get(change.name)
            return RefusedChange(f"there is no note {change.name[:80]!r}") if note is None else _said_again(note, quoted)


def attribute_digest(key: bytes, person: str, attribute: str) -> str:
    """Return the digest by which a tombstone knows an attribute of a person without naming them; empty without an attribute."""
    text = f"{person.casefold()}\0{attribute}".encode()
    return keyed_digest(key, text, sha256).hexdigest() if attribute else ""


def name_digest(key: bytes, name: str) -> str:
    """Return the digest by which a tombstone knows the name of a note, which often repeats what it says."""
    return keyed_digest(key, f"name\0{name}".encode(), sha256).hexdigest()[:32]


def _quoted(change: Change, sources: Sequence[QuotableEvent], memory: Memory) -> Quotation | RefusedChange:
    """Return the quotation of a change with the events that it cites; an event whose note was forgotten supports nothing."""
    words = change.quote.split()
    if not words or len(words) > LONGEST_QUOTE_WORDS:
        return RefusedChange(f"a quotation has 1 to {LONGEST_QUOTE_WORDS} words")
    if missing := [each for each in change.evidence if all(source.id != each for source in sources)]:
        return RefusedChange(f"the event {missing[0][:80]!r} is not among those that were read")
    gone = {each for stone in memory.tombstones for each in stone.evidence}
    evidence = tuple(each for each in dict.fromkeys(change.evidence) if each not in gone)
    if change.evidence and not evidence:
        return RefusedChange("it rests on events whose note was forgotten")
    found = Quotation(change.quote, evidence, tuple(source for source in sources if source.id not in gone))
    return found if found.holding else RefusedChange("the quotation is not in the events that it cites")


def _added(draft: Draft, quoted: Quotation, sources: Sequence[QuotableEvent], memory: Memory) -> AcceptedChange | RefusedChange:
    trust = quoted.trust_of(draft)
    if isinstance(trust, Unsupported):
        return RefusedChange(trust.reason)
    if reason := _forgotten(draft, quoted, trust, sources, memory):
        return RefusedChange(reason)
    note = _note_of(draft, quoted, trust, memory)
    same = next((each for each in memory.notes.values() if claim_of(each) == claim_of(note)), None)
    if same is not None:
        return _confirmed(same, quoted, trust)
    try:
        return AcceptedChange((fitting(check_note(note)),), reason="added")
    except BadInput as error:
        return RefusedChange(error.message)


def _superseded(
    change: SupersedeNote, quoted: Quotation, sources: Sequence[QuotableEvent], memory: Memory
) -> AcceptedChange | RefusedChange:
    old = memory.notes.get(change.name)
    if old is None:
        return RefusedChange(f"there is no note {change.name[:80]!r}")
    if old.person.casefold() != change.note.person.casefold():
        return RefusedChange("a note about another person corrects nothing")
    if old.trust == "stated" and quoted.trust_of(change.note) != "stated":
        return RefusedChange("what the user stated is corrected by the user only")
    if time_of(quoted.at) < time_of(old.when):
        return RefusedChange("what was said earlier does not correct what was said later")
    if quoted.is_known_to(old):
        return RefusedChange("what a note rests on does not correct it")
    if not _has_one_topic(change.note, old) or (quoted.is_aimed_from_outside(old) and not quoted.touches(old)):
        return RefusedChange("it is about something else than the note that it would replace")
    result = _added(change.note, quoted, sources, memory)
    if isinstance(result, RefusedChange) or result.reason != "added":
        return result
    if result.saved[0].trust == "quarantined":
        return RefusedChange("a text from outside corrects nothing")
    if begins_later(result.saved[0]):
        # Until then the old one holds.
        return AcceptedChange((result.saved[0], replace(old, valid_to=result.saved[0].valid_from, rev=old.rev + 1)), reason="corrected")
    winner, loser = supersede(result.saved[0], old)
    return AcceptedChange((winner,), (loser,), "corrected")


def _has_one_topic(draft: Draft, old: Note) -> bool:
    """Return whether a draft gives the same attribute, or shares a word with a note."""
    shared = wording_of(f"{draft.about}\n{draft.body}", (old.about, old.body), (), (old.person, "user")).supported
    return shared > 0 or bool(draft.attribute and draft.attribute == old.attribute)


def _retracted(change: RetractNote, quoted: Quotation, memory: Memory) -> AcceptedChange | RefusedChange:
    old = memory.notes.get(change.name)
    if old is None:
        return RefusedChange(f"there is no note {change.name[:80]!r}")
    if quoted.is_known_to(old) or time_of(quoted.at) < time_of(old.when):
        return RefusedChange("what a note rests on, or what was said before it, does not retract it")
    if old.trust == "stated" and (not quoted.is_said_by_user(old) or quoted.is_aimed_from_outside(old)):
        return RefusedChange("what the user stated is retracted by the user only, in words about it")
    if old.trust != "stated" and quoted.lowest_trust() == "quarantined":
        return RefusedChange("a text from outside retracts nothing")
    return AcceptedChange((), (replace(old, status="retracted"),), " ".join(change.reason.split())[:LONGEST_ABOUT] or "retracted")


def _said_again(note: Note, quoted: Quotation) -> AcceptedChange | RefusedChange:
    if quoted.is_said_by_user(note):
        return _confirmed(note, quoted, "stated" if quoted.has_all_tokens(note) else note.trust)
    if note.trust == "stated":
        return RefusedChange("what the user stated is confirmed by the user only, in words about it")
    if quoted.lowest_trust() == "quarantined" or not quoted.says(note):
        return RefusedChange("a text from outside, or one about something else, confirms nothing")
    return _confirmed(note, quoted, note.trust)


def _confirmed(note: Note, quoted: Quotation, trust: Trust) -> AcceptedChange:
    """Return a note with further evidence; nothing is saved if all of it was known, or if it is of less trust than the note."""
    if trust_rank(trust) < trust_rank(note.trust):
        return AcceptedChange(reason="confirmed")
    joined = tuple(dict.fromkeys((*note.evidence, *quoted.evidence)))[-MOST_EVIDENCE:]
    when = quoted.at if time_of(quoted.at) > time_of(note.when) else note.when
    is_known = set(quoted.evidence) <= set(note.evidence) and trust == note.trust
    return AcceptedChange(
        () if is_known else (replace(note, evidence=joined, when=when, trust=trust, rev=note.rev + 1),), reason="confirmed"
    )


def _note_of(draft: Draft, quoted: Quotation, trust: Trust, memory: Memory) -> Note:
    about = " ".join(draft.about.split())[:LONGEST_ABOUT]
    return Note(
        name=name_of(draft.kind, draft.attribute or about, frozenset(memory.notes)),
        kind=draft.kind,
        about=about,
        body=draft.body.strip() + "\n",
        backstory=" ".join(draft.backstory.split()),
        person=draft.person,
        relationship=draft.relationship,
        attribute=draft.attribute,
        policy=draft.policy,
        valid_from=draft.valid_from,
        valid_to=draft.valid_to,
        intensity=draft.intensity,
        when=quoted.at,
        evidence=quoted.evidence[:MOST_EVIDENCE],
        trust=trust,
        by=memory.by,
    )


def _forgotten(draft: Draft, quoted: Quotation, trust: Trust, sources: Sequence[QuotableEvent], memory: Memory) -> str:
    """Return why a draft would bring back what was forgotten; empty if it does not, or if the user has said it again since."""
    digest = attribute_digest(memory.key, draft.person, draft.attribute)
    for stone in memory.tombstones:
        if trust == "stated" and time_of(quoted.at) > time_of(stone.at):
            continue
        if digest and digest == stone.digest:
            return "it was forgotten, and the user has not said it again since"
        # A reply that repeats a forgotten statement is another event; its words are those of the forgotten one.
        gone = [source.text for source in sources if source.id in stone.evidence]
        said = (wording_of(each, gone, (), (draft.person, "user")).share for each in (draft.about, draft.body))
        if gone and max(said) >= LEAST_SHARE:
            return "it says what was forgotten, and the user has not said it again since"
    return ""
