"""What a proposed note rests on: the events that it cites, and the trust that they give to its words."""

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from palimpsest.core.items import Value
from palimpsest.memory.note import Note, NoteKind, Trust, ValuePolicy
from palimpsest.memory.weighing.wording import (
    LEAST_SHARE,
    LEAST_TEXT_SHARE,
    fact_of,
    folded,
    missing_token,
    own_words,
    pasted_words,
    wording_of,
)

Speaker: TypeAlias = Literal["user", "assistant", "tool", "untrusted"]
"""Who an event quotes: `tool` is a tool in the workspace, `untrusted` one that brings text from elsewhere, such as a web page."""

LONGEST_QUOTE_WORDS: Final = 25
# Events that a note names at most; the newest are kept.
MOST_EVIDENCE: Final = 20


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
        pasted = [pasted_words(source.text) for source in self.sources if source.speaker == "user"]
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
