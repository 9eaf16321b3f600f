"""Which notes are older statements of what a newer one is about: found by shared words and by time, not by what the words mean."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

from palimpsest.core.items import Value
from palimpsest.memory.note import Note, Trust, time_of, trust_rank
from palimpsest.memory.recall.terms import query_terms
from palimpsest.memory.weighing.duplicates import NEAR, overlap

Shown = TypeVar("Shown")

# A word that more notes have than these, and than this share of all, is no rare one.
_FEW_NOTES: Final = 4
_RARE_SHARE: Final = 0.1
# Newer notes that come along with one note: of one step, and of the steps of a chain of changes.
_MOST_OF_STEP: Final = 2
_MOST_STEPS: Final = 3
_MOST_COMPANIONS: Final = 4
_PERSONS: Final = frozenset({"user", "teammate"})


class ComparedNote(Value, frozen=True):
    """A note as it is compared: its words, its time, when its file changed last (which orders notes of one second), trust and person."""

    name: str
    words: frozenset[str]
    when: str
    trust: Trust
    person: str
    changed: int = 0

    @property
    def moment(self) -> tuple[datetime, int]:
        """What statements are ordered by."""
        return time_of(self.when), self.changed

    def may_correct(self, other: "ComparedNote") -> bool:
        """Return whether this is newer than another statement, of no less trust, and about no other person.

        Against what a repository says of itself holds whatever is known here, at any time.
        """
        if (self.trust == "repository") != (other.trust == "repository"):
            return trust_rank(self.trust) > trust_rank(other.trust)
        one, two = self.person.casefold(), other.person.casefold()
        is_same = one == two or {one, two} <= _PERSONS
        return is_same and trust_rank(self.trust) >= trust_rank(other.trust) and self.moment > other.moment


class NewerNotes:
    """Finds for each note the newer ones that may correct it. Built once for a state of the notes."""

    def __init__(self, statements: Iterable[ComparedNote]) -> None:
        self.known = {each.name: each for each in statements}
        self._having: dict[str, list[ComparedNote]] = {}
        for each in self.known.values():
            for word in each.words:
                self._having.setdefault(word, []).append(each)
        self._sharing = self._pairs()

    def of(self, name: str, without: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """Return the newer notes that share half of the words of the shorter one with a note, newest first."""
        return tuple(each for each in self._sharing.get(name, ()) if each not in without)

    def companions(self, name: str, without: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """Return the newer notes that are to be shown with a note, newest first.

        They share half of the words of the shorter with it, or are the newest with the rarest of its words that newer ones have; and what
        is so newer than these, for a few steps.
        """
        found: dict[str, None] = {}
        last = [name]
        for _ in range(_MOST_STEPS):
            steps = (each for one in last for each in (*self._nearest(one, without), *self._mentions(one, without)))
            last = [each for each in dict.fromkeys(steps) if each not in found]
            found |= dict.fromkeys(last)
        return self._newest_first(tuple(found)[:_MOST_COMPANIONS])

    def after(self, name: str, asked: frozenset[str], without: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """Return the newer notes that a note may not stand before, newest first: its companions, and those of `of` that answer as much.

        `asked` are the words of the query. Notes of one pattern (the port of one service, of another) share half of their words: one that
        lacks a word of the query which the older one has does not push it back.
        """
        old = self.known.get(name)
        wanted = frozenset[str]() if old is None else old.words & asked
        return self._newest_first(
            {*(each for each in self.of(name, without) if wanted <= self.known[each].words), *self.companions(name, without)}
        )

    def alike(self, name: str) -> int:
        """Return how many other notes of the same person and kind say nearly the same, as consolidation counts them."""
        own = self.known.get(name)
        if own is None:
            return 0
        rarest = sorted(own.words, key=lambda word: (len(self._having[word]), word))[: len(own.words) // 2 + 1]
        others = {each.name: each for word in rarest for each in self._having[word] if each.name != name}
        return sum(_is_of_one_group(own, each) and overlap(own.words, each.words) >= NEAR for each in others.values())

    def _nearest(self, name: str, without: frozenset[str]) -> Sequence[str]:
        old = self.known.get(name)
        # The order is kept among equals: newest first.
        near = sorted(self.of(name, without), key=lambda each: -len(self.known[each].words & old.words) if old else 0)
        return near[:_MOST_OF_STEP]

    def _mentions(self, name: str, without: frozenset[str]) -> Sequence[str]:
        old = self.known.get(name)
        if old is None:
            return ()
        most = max(_FEW_NOTES, _RARE_SHARE * len(self.known))
        newest: dict[str, ComparedNote] = {}
        for word in old.words:
            if 1 < len(self._having[word]) <= most:
                later = [each for each in self._having[word] if each.name not in without and each.may_correct(old)]
                if later:
                    newest[word] = max(later, key=lambda each: each.moment)
        rarest = min((len(self._having[word]) for word in newest), default=0)
        found = {each.name for word, each in newest.items() if len(self._having[word]) == rarest}
        return self._newest_first(found)[:_MOST_OF_STEP]

    def _newest_first(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(sorted(names), key=lambda name: self.known[name].moment, reverse=True))

    def _pairs(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, set[str]] = {}
        for short in self.known.values():
            # Who has half of the words has one of the rarer half and one more.
            rarest = sorted(short.words, key=lambda word: (len(self._having[word]), word))[: len(short.words) // 2 + 1]
            near = {each.name: each for word in rarest for each in self._having[word] if len(each.words) >= len(short.words)}
            for other in near.values():
                if 2 * len(short.words & other.words) >= len(short.words):
                    for newer, older in ((short, other), (other, short)):
                        if newer.may_correct(older):
                            found.setdefault(older.name, set()).add(newer.name)
        return {name: self._newest_first(newer) for name, newer in found.items()}


def _is_of_one_group(one: ComparedNote, other: ComparedNote) -> bool:
    kinds = {each.name.partition("_")[0] for each in (one, other)}
    return len(kinds) == 1 and one.person.casefold() == other.person.casefold()


def newer_among(notes: Iterable[Note]) -> NewerNotes:
    """Return which of these notes are older than others."""
    return NewerNotes(
        ComparedNote(note.name, frozenset(query_terms(f"{note.about}\n{note.body}")), note.when, note.trust, note.person) for note in notes
    )


def newest_first(found: Iterable[Shown], name_of: Callable[[Shown], str], newer: Mapping[str, Sequence[str]]) -> list[Shown]:
    """Return values in their order, except that none stands before a newer note about the same: these come right before it."""
    by_name = {name_of(each): each for each in found}
    ordered: dict[str, Shown] = {}
    for first in by_name:
        waiting = [first]
        while waiting:
            name = waiting[-1]
            missing = [each for each in newer.get(name, ()) if each in by_name and each not in ordered]
            # A chain of corrections is followed to its newest note.
            waiting += reversed(missing)
            if not missing:
                ordered.setdefault(waiting.pop(), by_name[name])
    return list(ordered.values())


def older_mark(newer: Sequence[str], trust: Trust) -> str:
    """Return what the line of a note says if there are newer ones about the same; empty if there are none."""
    if not newer:
        return ""
    # What holds against a note of a repository may be older.
    return f"{'to be checked with' if trust == 'repository' else 'older than'} [{newer[0]}], which holds where they contradict"


def days_shared(times: Iterable[str]) -> frozenset[str]:
    """Return the days (UTC) on which more than one of these times lies."""
    return frozenset(day for day, count in Counter(shown_time(each) for each in times).items() if count > 1)


def shown_time(when: str, *, is_finer: bool = False) -> str:
    """Return the time of a note as a model sees it, in UTC: the day, or to the second."""
    return time_of(when).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S" if is_finer else "%Y-%m-%d")
