"""MEMORY.md, the generated index of active notes, and the detection of outdated notes and of duplicates."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TypeAlias, TypeVar

from msgspec.structs import replace

from palimpsest.core.items import Value
from palimpsest.core.tokens import estimate
from palimpsest.memory.note import KINDS, ORIGINS, Note, Trust, time_of, trust_rank
from palimpsest.memory.recall_terms import query_terms

Words: TypeAlias = Callable[[str], frozenset[str]]
"""A function that returns the stemmed content words of a text."""

NEAR: Final = 0.6
LEAST_CLUSTER: Final = 3
_SPACES_AND_SIGNS: Final = re.compile(r"[\W_]+")
_NUMBER: Final = re.compile(r"\d+(?:[.,:/-]\d+)*")
# Own words and numbers of each of two statements from which on they are about two things: what it is, and its value.
_LEAST_OWN: Final = 2


class Cluster(Value, frozen=True):
    """Notes that say nearly the same: the newest of the highest trust, and the others in the order of their names."""

    representative: Note
    members: tuple[Note, ...]

    def standing_for_all(self) -> Note:
        """Return the representative with the names and the evidence of all, so that the members can leave."""
        names = dict.fromkeys((*self.representative.stands_for, *(note.name for note in self.members)))
        evidence = dict.fromkeys(each for note in (self.representative, *self.members) for each in note.evidence)
        return replace(self.representative, level="representative", stands_for=tuple(names), evidence=tuple(evidence))


def claim_of(note: Note) -> tuple[str, str, str, str]:
    """Return what a note claims, so that equal claims are equal values: kind, person, attribute and the text without case and signs."""
    return note.kind, _folded(note.person), note.attribute, _folded(note.body)


def merged(notes: Sequence[Note]) -> Note:
    """Return one note for notes of equal claims: the oldest one with all evidence, the earliest beginning and the newest time."""
    first = min(notes, key=lambda note: (time_of(note.when), note.name))
    starts = [note.valid_from for note in notes]
    return replace(
        first,
        evidence=tuple(dict.fromkeys(each for note in notes for each in note.evidence)),
        valid_from="" if "" in starts else min(starts),
        when=max((note.when for note in notes), key=time_of),
        trust="stated" if any(note.trust == "stated" for note in notes) else first.trust,
        intensity=max(note.intensity for note in notes),
        pinned=any(note.pinned for note in notes),
        uses=sum(note.uses for note in notes),
        shown=sum(note.shown for note in notes),
        last_used=max(note.last_used for note in notes),
    )


def near_duplicates(notes: Iterable[Note], words: Words, least: float = NEAR) -> Mapping[str, frozenset[str]]:
    """Return for each active note the names of the active notes of its person and kind whose words overlap by at least this share.

    The share is that of the words of both texts that they have in common.
    """
    active = [note for note in notes if note.status == "active"]
    of_note = {note.name: words(f"{note.about}\n{note.body}") for note in active}
    groups: dict[tuple[str, str], list[str]] = {}
    for note in active:
        groups.setdefault((note.kind, _folded(note.person)), []).append(note.name)
    found: dict[str, set[str]] = {note.name: set() for note in active}
    for names in groups.values():
        for one, other in _pairs_that_share(names, of_note):
            if overlap(of_note[one], of_note[other]) >= least:
                found[one].add(other)
                found[other].add(one)
    return {name: frozenset(others) for name, others in found.items()}


def numbers_of(note: Note) -> frozenset[str]:
    """Return the numbers in a note, dates and addresses among them."""
    return frozenset(_NUMBER.findall(f"{note.about}\n{note.body}"))


def are_of_two_things(one: Note, other: Note, words: Words) -> bool:
    """Return whether two notes of one pattern are about two things, as the ports of two services, so that none can take the other's place.

    By structure: each has two words or numbers of its own. What is said again with another value has one, or adds to the other.
    """
    first, second = (words(_NUMBER.sub(" ", f"{note.about}\n{note.body}")) | numbers_of(note) for note in (one, other))
    return min(len(first - second), len(second - first)) >= _LEAST_OWN


def clusters(notes: Iterable[Note], near: Mapping[str, frozenset[str]], words: Words) -> tuple[Cluster, ...]:
    """Return the connected groups of at least three near duplicates, in the order of their representatives. Pinned notes are in none.

    A note that is about another thing than its representative is no member.
    """
    by_name = {note.name: note for note in notes if note.status == "active" and not note.pinned}
    seen: set[str] = set()
    found: list[Cluster] = []
    for name in sorted(by_name):
        if name in seen:
            continue
        group, waiting = set[str](), [name]
        while waiting:
            each = waiting.pop()
            if each in by_name and each not in group:
                group.add(each)
                waiting.extend(near.get(each, ()))
        seen |= group
        if len(group) >= LEAST_CLUSTER:
            # What was said last stands for what was said before; what the user stated is not represented by anything else.
            ordered = sorted((by_name[each] for each in sorted(group)), key=lambda note: time_of(note.when), reverse=True)
            first, *rest = sorted(ordered, key=lambda note: -trust_rank(note.trust))
            members = sorted((note for note in rest if not are_of_two_things(first, note, words)), key=lambda note: note.name)
            found += [Cluster(first, tuple(members))] if members else []
    return tuple(found)


def overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the share of the words of both sets that they have in common; 0 if both are empty."""
    return len(one & other) / len(one | other) if one or other else 0.0


def _pairs_that_share(names: Sequence[str], of_note: Mapping[str, frozenset[str]]) -> Iterable[tuple[str, str]]:
    """Yield pairs of names whose notes share one of their rarest words: two notes that overlap by a share of s must share one of them."""
    counts: dict[str, int] = {}
    for name in names:
        for word in of_note[name]:
            counts[word] = counts.get(word, 0) + 1
    with_word: dict[str, list[str]] = {}
    yielded: set[tuple[str, str]] = set()
    for name in names:
        rarest = sorted(of_note[name], key=lambda word: (counts[word], word))
        # With an overlap of at least a half, two sets share one of the rarer halves of each plus one word.
        for word in rarest[: len(rarest) // 2 + 1]:
            for other in with_word.setdefault(word, []):
                if (other, name) not in yielded:
                    yielded.add((other, name))
                    yield other, name
            with_word[word].append(name)


def _folded(text: str) -> str:
    return _SPACES_AND_SIGNS.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()


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


MOST_LINES: Final = 200
MOST_BYTES: Final = 25_000
MOST_TOKENS: Final = 2_500
# Lines of the warning: an empty one and the sentence.
_WARNING_LINES: Final = 2
_NONE_NEWER: Final[Mapping[str, Sequence[str]]] = {}


class IndexText(Value, frozen=True):
    """The text of MEMORY.md, and the line of the first note that did not fit; empty if all did."""

    text: str
    first_left_out: str = ""


def index_of(
    notes: Iterable[Note],
    newer: Mapping[str, Sequence[str]] = _NONE_NEWER,
    *,
    lines: int = MOST_LINES,
    size: int = MOST_BYTES,
    tokens: int = MOST_TOKENS,
) -> IndexText:
    """Return the index of the active notes: pinned ones first, then by kind, the newest first, and notes of a repository last.

    It depends on nothing but the notes. `newer` are the names of newer notes about the same, by name: these stand before the older one,
    whose line names the newest of them.
    The index has at most so many lines, bytes and tokens; a warning in its last line names the first note that was left out, and how many.
    """
    shown = sorted((note for note in notes if note.status == "active" and note.trust != "quarantined"), key=lambda note: note.name)
    shown = sorted(shown, key=lambda note: time_of(note.when), reverse=True)
    shown = sorted(shown, key=lambda note: (not note.pinned, note.trust == "repository", KINDS.index(note.kind)))
    active = newest_first(shown, lambda note: note.name, newer)
    days = days_shared(note.when for note in active)
    # One more than can be listed, which the warning names.
    listed = active[: lines + 1]
    whole = [line_of(note, newer.get(note.name, ()), is_finer=shown_time(note.when) in days) for note in listed]
    if len(listed) == len(active) and _fits(whole, lines, size, tokens):
        return IndexText("".join(f"{line}\n" for line in whole))
    kept = _most_that_fit(whole, len(active), lines, size, tokens)
    return IndexText("".join(f"{line}\n" for line in (*whole[:kept], *_warning(whole, kept, len(active)))), whole[kept])


def line_of(note: Note, newer: Sequence[str] = (), *, is_finer: bool = False) -> str:
    """Return the line of a note in the index: its name and time, whom it is about and whose word it is if not the user, and the fact."""
    whom = f"about {note.whom}" if note.whom else ""
    head = " · ".join(filter(None, (shown_time(note.when, is_finer=is_finer), whom, ORIGINS[note.trust], older_mark(newer, note.trust))))
    return f"- [{note.name}](notes/{note.name}.md) {head}: {' '.join(note.about.split())}"


def _warning(whole: list[str], kept: int, count: int) -> tuple[str, str]:
    return "", f"> {count - kept:,} of {count:,} notes are not listed here; the first is: {whole[kept]}"


def _most_that_fit(whole: list[str], count: int, lines: int, size: int, tokens: int) -> int:
    """Return how many lines fit together with the warning, by bisection: each further line makes the text longer."""
    low, high = 0, min(len(whole) - 1, max(0, lines - _WARNING_LINES))
    while low < high:
        middle = (low + high + 1) // 2
        if _fits([*whole[:middle], *_warning(whole, middle, count)], lines, size, tokens):
            low = middle
        else:
            high = middle - 1
    return low


def _fits(parts: list[str], lines: int, size: int, tokens: int) -> bool:
    text = "".join(f"{line}\n" for line in parts)
    return len(parts) <= lines and len(text.encode()) <= size and estimate(text) <= tokens
