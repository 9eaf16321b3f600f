"""Proposed changes of notes, and the check of each against the quotations and the wording of the events that it cites."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import lru_cache
from hashlib import sha256
from hmac import new as keyed_digest
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Value
from palimpsest.memory.index_text import claim_of
from palimpsest.memory.note import (
    LONGEST_ABOUT,
    Author,
    Note,
    NoteKind,
    Trust,
    ValuePolicy,
    check_note,
    fitting,
    name_of,
    time_of,
    trust_rank,
)
from palimpsest.memory.recall_terms import stems, words
from palimpsest.memory.weigh import begins_later, supersede

# Days between a date of a note and an event by which a relative date ("next friday") may have been made absolute.
DATE_DAYS: Final = 400
# Share of the words of a fact that an event must contain to say the same, and of the words of a whole text with reasons and applications.
LEAST_SHARE: Final = 0.5
LEAST_TEXT_SHARE: Final = 0.3
_FENCED: Final = re.compile(r"^[ \t]{0,3}(```+|~~~+)[^\n]*\n(.*?)(?:^[ \t]{0,3}\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_CITED_LINE: Final = re.compile(r"^[ \t]{0,3}>[^\n]*$", re.MULTILINE)
# Headings of our own format in the body of a note.
_HEADINGS: Final = re.compile(r"\*\*(?:why|how to apply):?\*\*:?", re.IGNORECASE)
_LIST_NUMBERS: Final = re.compile(r"^\s{0,20}\d{1,3}[.)]\s", re.MULTILINE)
_QUOTATIONS: Final = re.compile(r"`([^`\n]{1,300})`|\"([^\"\n]{1,300})\"|“([^”\n]{1,300})”|「([^」\n]{1,300})」|『([^』\n]{1,300})』")
_RUN: Final = re.compile(r"[!-~]+")
_OPENING, _CLOSING = "([{<'\"`*,;:!?", ")]}>'\"`*.,;:!?"
_SIGNS: Final = frozenset("/\\_=$@#~|&^")
_INNER: Final = re.compile(r"\w{2}\.\w|\w\.\w{2}|\w:\S|[a-z][A-Z]")
_FLAG: Final = re.compile(r"--?[A-Za-z]")
_NUMBER: Final = re.compile(r"\d+(?:[.,:/-]\d+)*")
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_ISO_DATE: Final = re.compile(r"\b\d{4}-\d\d-\d\d(?:T[0-9:.]{0,15}(?:Z|[+-]\d\d:?\d\d)?)?")


class WordOrigins(Value, frozen=True):
    """Words of a note by their origin: in the texts that are to support it, in other texts only, and pairs copied from the latter."""

    supported: int
    foreign: int
    share: float
    copied_pairs: tuple[tuple[str, str], ...] = ()


@lru_cache(maxsize=1_024)
def folded(text: str) -> str:
    """Return a text without differences of case, width and white space."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


@lru_cache(maxsize=1_024)
def own_words(text: str) -> str:
    """Return what a message says outside of fenced blocks and cited lines, which are usually pasted."""
    return _CITED_LINE.sub(" ", _FENCED.sub("\n", text))


@lru_cache(maxsize=1_024)
def pasted_words(text: str) -> str:
    """Return what stands in fenced blocks and cited lines of a message."""
    fenced = [match[2] for match in _FENCED.finditer(text)]
    return "\n".join((*fenced, *(match[0].lstrip(" \t>") for match in _CITED_LINE.finditer(_FENCED.sub("\n", text)))))


def fact_of(body: str) -> str:
    """Return what a body says before its reason and its application."""
    return _HEADINGS.split(body, maxsplit=1)[0]


def missing_token(text: str, sources: Sequence[str], days: Iterable[date]) -> str:
    """Return the first structural token of a text that no source contains; empty if they contain all.

    Structural tokens are quotations, code, paths, URLs, flags, identifiers and numbers. A date may also be one that lies within 400 days
    of `days`, and a year one of theirs or the next: relative dates are written as absolute ones.
    """
    near = tuple(days)
    known = [_normal(source) for source in sources]
    plain = unicodedata.normalize("NFKC", text)
    for token in _tokens(plain):
        # The letters around it are compared as they are, since case folding makes two letters of some.
        bounded = re.compile(rf"(?-i:(?<![0-9A-Za-z])){re.escape(_normal(token))}(?-i:(?![0-9A-Za-z]))", re.IGNORECASE)
        if not any(bounded.search(source) for source in known):
            return token[:80]
    numbers = {number for source in known for number in _numbers(source)} | {f"{day.year + more}" for day in near for more in (0, 1)}
    rest = _LIST_NUMBERS.sub(" ", _ISO_DATE.sub(lambda match: " " if _is_near(match[0], near) else match[0], plain))
    return next((number for number in _whole_numbers(rest) if number not in numbers), "")


def wording_of(text: str, own: Iterable[str], others: Iterable[str], ignored: Iterable[str] = ()) -> WordOrigins:
    """Return how far the words of a text are those of `own`, and which of them are those of `others` only.

    Words of `ignored` texts, such as the name of the person, do not count. Without any word the share is 0.
    """
    skipped = frozenset(term for each in ignored for term in _terms(each))
    sequence = [term for term in _terms(_HEADINGS.sub("\n", text)) if term not in skipped]
    own_texts, other_texts = [_terms(each) for each in own], [_terms(each) for each in others]
    mine = {term for terms in own_texts for term in terms}
    theirs = {term for terms in other_texts for term in terms} - mine
    found = set(sequence)
    own_pairs, pairs = ({pair for terms in texts for pair in _pairs(terms, skipped)} for texts in (own_texts, other_texts))
    # A pair of two words that are both in the supporting texts was put together from them, not copied.
    found_pairs = [pair for pair in dict.fromkeys(pairwise(sequence)) if pair in pairs and pair not in own_pairs]
    copied = tuple(pair for pair in found_pairs if not mine.issuperset(pair))
    return WordOrigins(len(found & mine), len(found & theirs), len(found & mine) / len(found) if found else 0.0, copied)


@lru_cache(maxsize=1_024)
def _normal(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())


@lru_cache(maxsize=512)
def _terms(text: str) -> tuple[str, ...]:
    # Each change of a reply is compared with the same events.
    return tuple(stems(words(text)))


def _pairs(terms: tuple[str, ...], skipped: frozenset[str]) -> Iterator[tuple[str, str]]:
    left = [term for term in terms if term not in skipped]
    return pairwise(left)


def _tokens(plain: str) -> Iterator[str]:
    """Yield the tokens of a text that are no words of a language: code, quotations, paths, URLs, flags and identifiers."""
    for match in _FENCED.finditer(plain):
        yield from (line.strip() for line in match[2].split("\n") if line.strip())
    plain = _HEADINGS.sub("\n", _FENCED.sub("\n", plain))
    for match in _QUOTATIONS.finditer(plain):
        if inner := (match[match.lastindex or 0]).strip():
            yield inner
    for match in _RUN.finditer(_QUOTATIONS.sub(" ", _ISO_DATE.sub(" ", plain))):
        token = match[0].lstrip(_OPENING).rstrip(_CLOSING)
        letters = any(letter.isalpha() for letter in token)
        if letters and (_SIGNS.intersection(token) or _INNER.search(token) or _FLAG.match(token)):
            yield token


def _numbers(text: str) -> Iterator[str]:
    """Yield the numbers of a text, and the parts of those that consist of several, such as dates."""
    for number in _whole_numbers(text):
        yield number
        yield from re.split(r"[.,:/-]", number)


def _whole_numbers(text: str) -> list[str]:
    return _NUMBER.findall(_THOUSANDS.sub("", text))


def _is_near(text: str, days: Iterable[date]) -> bool:
    try:
        day = date.fromisoformat(text[:10])
    except ValueError:
        return False
    return any(abs((day - each).days) <= DATE_DAYS for each in days)


Speaker: TypeAlias = Literal["user", "assistant", "tool", "untrusted"]
"""Who an event quotes: `tool` is a tool in the workspace, `untrusted` one that brings text from elsewhere, such as a web page."""

LONGEST_QUOTE_WORDS: Final = 25
# Events that a note names at most; the newest are kept.
MOST_EVIDENCE: Final = 8


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


class Unsupported(Value, frozen=True):
    """Why events do not support a note."""

    reason: str


class Quotation(Value, frozen=True):
    """A quotation that occurs in the cited events. `sources` are all events that its author has read, the cited ones among them."""

    quote: str
    evidence: tuple[str, ...]
    sources: tuple[QuotableEvent, ...]

    @property
    def cited(self) -> tuple[QuotableEvent, ...]:
        """The cited events."""
        return tuple(source for source in self.sources if source.id in self.evidence)

    @property
    def holding(self) -> tuple[QuotableEvent, ...]:
        """The cited events that contain the quotation; those of the user first."""
        quote = folded(self.quote)
        found = [source for source in self.cited if quote in folded(source.text)]
        return tuple(sorted(found, key=lambda source: source.speaker != "user"))

    @property
    def at(self) -> str:
        """The time of the quoted event."""
        return self.holding[0].at

    @property
    def is_of_user(self) -> bool:
        """Whether the user said the quoted words, and did not only paste them."""
        quote = folded(self.quote)
        return any(source.speaker == "user" and quote in folded(own_words(source.text)) for source in self.holding)

    def trust_of(self, claim: Draft) -> Trust | Unsupported:
        """Return the trust that the cited events give to a draft, or why they do not support it.

        It is `stated` if the words of the user support it alone. Otherwise it is the lowest trust of the events that it cites and of those
        from which its words were copied; of the kinds `user` and `feedback` there are no such notes.
        """
        is_wish = claim.kind in ("user", "feedback")
        if is_wish and not self.is_of_user:
            return Unsupported(f"a {claim.kind} note needs a quotation of the user")
        text = f"{claim.about}\n{claim.body}\n{claim.backstory}"
        if missing := missing_token(text, [source.text for source in self.cited], self._days()):
            return Unsupported(f"the events that it cites do not contain {missing!r}")
        if self.is_of_user and self._is_of_users_words(claim):
            return "stated"
        if is_wish:
            return Unsupported("the user did not say it: a note about the user repeats words of the message that it quotes")
        said = wording_of(fact_of(claim.body), [source.text for source in self.cited], (), (claim.person, claim.relationship, "user"))
        if said.share < LEAST_TEXT_SHARE:
            return Unsupported("the events that it cites do not say it: a note repeats words of what it quotes")
        carried = (source for source in self.sources if source.speaker == "untrusted" and self._is_copied(text, claim, source))
        return _lowest((*self.cited, *carried), self.sources)

    def is_said_by_user(self, note: Note) -> bool:
        """Return whether the quoted words of the user say what a note says."""
        own = [own_words(source.text) for source in self.holding if source.speaker == "user"]
        return self.is_of_user and _share(note, own) >= LEAST_SHARE

    def has_all_tokens(self, note: Note) -> bool:
        """Return whether the cited messages of the user contain every path, command, URL, number and quoted text of a note."""
        own = [source.text for source in self.cited if source.speaker == "user"]
        return not missing_token(f"{note.about}\n{note.body}", own, self._days())

    def says(self, note: Note) -> bool:
        """Return whether the cited events contain words of what a note says, at least three of ten."""
        return _share(note, [source.text for source in self.cited]) >= LEAST_TEXT_SHARE

    def lowest_trust(self) -> Trust:
        """Return the lowest trust of the cited events."""
        return _lowest(self.cited, self.sources)

    def is_known_to(self, note: Note) -> bool:
        """Return whether a note rests on the quoted events itself."""
        return all(source.id in note.evidence for source in self.holding)

    def is_aimed_from_outside(self, note: Note) -> bool:
        """Return whether a result of a tool, or a reply that follows one from outside, names a note or says what it says."""
        outside = _outside(self.sources)
        return any(note.name in source.text or _share(note, [source.text]) >= LEAST_SHARE for source in outside)

    def touches(self, note: Note) -> bool:
        """Return whether the cited messages of the user contain a word of a note."""
        own = [own_words(source.text) for source in self.cited if source.speaker == "user"]
        return wording_of(f"{note.about}\n{note.body}", own, (), (note.person,)).supported > 0

    def _is_of_users_words(self, claim: Draft) -> bool:
        """Return whether the messages of the user support a draft alone.

        They must contain its paths, commands, URLs, numbers and quoted texts, half of the words of the fact, and three of ten words of
        the body and of the line. In neither of them may more words stem from replies, results and pasted blocks than from the user, and
        no two neighbours from a result.
        """
        users = [source for source in self.cited if source.speaker == "user"]
        own, ignored = [own_words(source.text) for source in users], (claim.person, claim.relationship, "user")
        text = f"{claim.about}\n{claim.body}\n{claim.backstory}"
        if missing_token(text, [source.text for source in users], self._days()):
            return False
        shares = [wording_of(each, own, (), ignored).share for each in (fact_of(claim.body), claim.body, claim.about)]
        if shares[0] < LEAST_SHARE or min(shares) < LEAST_TEXT_SHARE:
            return False
        pasted = [words for source in self.sources if source.speaker == "user" if (words := pasted_words(source.text))]
        others = [source.text for source in self.sources if source.speaker != "user"]
        origins = [wording_of(each, own, (*pasted, *others), ignored) for each in (claim.about, claim.body, text)]
        results = [source.text for source in self.sources if source.speaker in ("tool", "untrusted")]
        return all(each.foreign <= each.supported for each in origins) and not wording_of(text, own, results, ignored).copied_pairs

    def _is_copied(self, text: str, claim: Draft, source: QuotableEvent) -> bool:
        own = [each.text for each in self.cited if each.speaker != "untrusted"]
        return bool(wording_of(text, own, (source.text,), (claim.person, "user")).copied_pairs)

    def _days(self) -> tuple[date, ...]:
        return tuple(date.fromisoformat(source.at[:10]) for source in self.cited)


def _share(note: Note, texts: Iterable[str]) -> float:
    """Return the share of the words of a note's line or body, whichever is larger, that texts contain."""
    listed = list(texts)
    return max(wording_of(each, listed, (), (note.person, note.relationship, "user")).share for each in (note.about, note.body))


def _outside(sources: Sequence[QuotableEvent]) -> tuple[QuotableEvent, ...]:
    """Return the results of tools, and the replies after the first one from outside, which may repeat it."""
    first = next((place for place, source in enumerate(sources) if source.speaker == "untrusted"), len(sources))
    return tuple(
        source
        for place, source in enumerate(sources)
        if source.speaker in ("tool", "untrusted") or (source.speaker == "assistant" and place > first)
    )


def _lowest(events: Iterable[QuotableEvent], sources: Sequence[QuotableEvent]) -> Trust:
    """Return `quarantined` if one of the events is from outside or may repeat such a text, else `observed`."""
    outside = _outside(sources)
    is_outside = any(event.speaker == "untrusted" or (event.speaker == "assistant" and event in outside) for event in events)
    return "quarantined" if is_outside else "observed"


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
