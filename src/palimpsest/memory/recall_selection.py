"""Turns ranked units into lines within a token budget, as excerpts, sentences or a timeline of notes and turns."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.items import EMPTY_MAPPING, Value
from palimpsest.core.tokens import estimate
from palimpsest.memory.note import ORIGINS, Note, time_of
from palimpsest.memory.recall_index import RecallIndex, term_character
from palimpsest.memory.recall_ranking import QUERY_CHARACTERS, RecallHit, read_query
from palimpsest.memory.recall_terms import MONTHS, RecallUnit, day_of, fold, query_terms

# Tokens of one call of the recall tool.
RECALL_TOKENS: Final = 4_096
# Shared terms, as a share of the terms of both, from which two units say the same.
NEAR_DUPLICATE: Final = 0.8
_SPACE: Final = re.compile(r"\s+")
_QUERY_CHARACTERS: Final = 60
# A line that is cut to fit is at least this long, else it says nothing.
_SHORTEST_CUT_TOKENS: Final = 24


class RecalledLines(Value, frozen=True):
    """Recalled lines, best first, with their evidence ids; `left_out` units did not fit, `duplicates` said what a line says already."""

    lines: tuple[str, ...]
    ids: tuple[str, ...]
    scores: tuple[float, ...]
    tokens: int
    left_out: int = 0
    duplicates: int = 0

    @property
    def text(self) -> str:
        """The lines as one text; empty if nothing was recalled."""
        return "\n".join(self.lines)


def select(
    index: RecallIndex, hits: Sequence[RecallHit], query: str, *, tokens: int = RECALL_TOKENS, most: int | None = None, factor: float = 1.0
) -> RecalledLines:
    """Return the best hits that fit a budget of tokens, at most `most` of them; the last line counts what was left out.

    A unit that follows a question brings the question. A hit that does not fit is left out, and smaller ones behind it may still fit;
    the first is cut instead. `factor` is the token factor of the model.
    """
    chosen = _Choice(index, tokens, most, factor, query)
    for hit in hits:
        chosen.offer(hit)
    return chosen.result()


class _Choice:
    """Lines chosen so far, and the tokens that are left for others."""

    def __init__(self, index: RecallIndex, tokens: int, most: int | None, factor: float, query: str) -> None:
        self._index = index
        self._factor = factor
        self._query = query
        self._most = most
        self._left = tokens - self._size(more_line(9_999, query))
        self._lines: list[str] = []
        self._chosen: dict[str, float] = {}
        self._terms: list[frozenset[str]] = []
        self._left_out: set[str] = set()
        self._duplicates: set[str] = set()

    def _size(self, line: str) -> int:
        # The line break counts too.
        return estimate(line + "\n", self._factor)

    def offer(self, hit: RecallHit) -> None:
        """Take a hit, with the question before it, if it is new and fits."""
        if hit.unit.id in self._chosen:
            return
        number = self._index.numbers[hit.unit.id]
        found = frozenset(self._index.sequences[number])
        if any(_similar(found, other) for other in self._terms):
            self._duplicates.add(hit.unit.id)
            return
        if self._most is not None and len(self._chosen) >= self._most:
            self._left_out.add(hit.unit.id)
            return
        for units in self._with_question(number):
            lines = [line_of(unit, hit.remark if unit.id == hit.unit.id else "") for unit in units]
            size = sum(map(self._size, lines))
            if size <= self._left:
                self._take(units, lines, size, hit.score)
                return
        if not self._chosen and (line := self._cut(line_of(hit.unit, hit.remark))):
            self._take([hit.unit], [line], self._size(line), hit.score)
            return
        self._left_out.add(hit.unit.id)

    def _with_question(self, number: int) -> Iterator[list[RecallUnit]]:
        """Yield the unit with the question that it follows, if there is one that was not taken, then the unit alone."""
        before = self._index.previous[number]
        unit = self._index.units[number]
        room = self._most is None or len(self._chosen) + 2 <= self._most
        if room and before >= 0 and self._index.asks[before] and before not in self._index.hidden:
            question = self._index.units[before]
            if question.id not in self._chosen and question.id not in self._duplicates:
                yield [question, unit]
        yield [unit]

    def _take(self, units: Sequence[RecallUnit], lines: Sequence[str], size: int, score: float) -> None:
        self._lines += lines
        self._left -= size
        for unit in units:
            self._chosen[unit.id] = score
            self._terms.append(frozenset(self._index.sequences[self._index.numbers[unit.id]]))
            # A question that did not fit before may come with its answer.
            self._left_out.discard(unit.id)

    def _cut(self, line: str) -> str:
        """Return the beginning of a line that fits what is left; empty if that is too little."""
        if self._left < _SHORTEST_CUT_TOKENS:
            return ""
        low, high = 0, len(line)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._size(line[:middle] + "…") <= self._left else (low, middle - 1)
        return line[:low] + "…"

    def result(self) -> RecalledLines:
        """Return the lines, with one that counts what was left out."""
        left_out = len(self._left_out)
        lines = [*self._lines, more_line(left_out, self._query)] if left_out and self._lines else self._lines
        tokens = estimate("\n".join(lines), self._factor) if lines else 0
        return RecalledLines(
            tuple(lines), tuple(self._chosen), tuple(self._chosen.values()), tokens, left_out=left_out, duplicates=len(self._duplicates)
        )


def line_of(unit: RecallUnit, remark: str = "") -> str:
    """Return the line of a unit: its id, date, a remark about it, person or role, and text; line breaks become spaces."""
    speaker = unit.who or unit.role
    head = " ".join(part for part in (f"[{unit.id}]", unit.date, f"({remark})" if remark else "") if part)
    return one_line(f"{head} {speaker}: {unit.text}" if speaker else f"{head} {unit.text}")


def one_line(text: str) -> str:
    """Return a text without line breaks: runs of white space become one space."""
    return _SPACE.sub(" ", text).strip()


def more_line(count: int, query: str) -> str:
    """Return the line that says how many units were left out, and how to get them."""
    short = query if len(query) <= _QUERY_CHARACTERS else query[: _QUERY_CHARACTERS - 1] + "…"
    return f"+{count} more, recall({json.dumps(_SPACE.sub(' ', short).strip(), ensure_ascii=False)})"


def _similar(first: frozenset[str], second: frozenset[str]) -> bool:
    shared = len(first & second)
    return shared > 0 and shared >= NEAR_DUPLICATE * len(first | second)


# A stop behind a capital and at most two letters ends an abbreviation rather than a sentence.
_ENDS: Final = re.compile(
    r"(?<![A-Z])(?<![A-Z][a-z])(?<![A-Z][a-z][a-z])[.!?]+[\"')\]]*\s+|[!?]+[\"')\]]*\s+|[。！？]+[」』”’）]*\s*|\s*\n+\s*"
)
# A run of letters and digits with at least one digit, and the marks that hold amounts, times and codes together.
_NUMBER: Final = re.compile(r"[^\W_]*(?:[-.][^\W\d_]+)*-?\d[\w.,:%/-]*")
_NAME: Final = re.compile(r"\b[^\W\d_a-z][\w&-]+")
# A day of a month is one value: `October 15th` is not `September 15th`.
_DAY: Final = re.compile(rf"\b({'|'.join(name[:3] for name in MONTHS)})[a-z]*\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?\b(?![:%])", re.IGNORECASE)
_MARKS: Final = ".,:-/"
_CAPITAL: Final = re.compile(r"[A-Z\u00c0-\u00de\u0391-\u03a9\u0410-\u042f]")


class Sentence(Value, frozen=True):
    """A sentence with what it may state as a fact.

    numbers: amounts, dates, times and codes, folded; names: capitalised words behind the first word, folded.
    """

    text: str
    numbers: frozenset[str]
    names: frozenset[str]


def sentences(text: str) -> list[str]:
    """Return the sentences of a text in order, without white space around them; line breaks end sentences too."""
    return list(_parts(text))


def _parts(text: str) -> Iterator[str]:
    start = 0
    for end in _ENDS.finditer(text):
        if part := text[start : end.end()].strip():
            yield part
        start = end.end()
    if part := text[start:].strip():
        yield part


def read_sentence(text: str) -> Sentence:
    """Return a sentence with its numbers and names; the day of a month is one number, such as `oct 15`."""
    days = frozenset(f"{month.lower()} {int(day)}" for month, day in _DAY.findall(text))
    rest = _DAY.sub(" ", text) if days else text
    numbers = frozenset(found.strip(_MARKS).lower() for found in _NUMBER.findall(rest)) | days
    found = (match for match in _NAME.finditer(rest) if match.start() > 0 and _CAPITAL.match(match[0]) is not None)
    return Sentence(text, numbers, frozenset(match[0].lower() for match in found) - numbers)


# The value of a sentence: how relevant its unit is, how much of the query it has, and which numbers and names it brings that no chosen
# sentence has. Chosen with the open cases of three levels in sight; `docs/memory-evaluation.md` says how.
RELEVANCE, COVER, NUMBERS, NAMES = 0.6, 0.5, 1.0, 0.6
_MOST_NUMBERS, _MOST_NAMES = 2, 3
# The relevance of a sentence that brings neither number nor name counts this share.
_WITHOUT_FACT: Final = 0.5
# Numbers with fewer digits are stated by chance.
_TELLING_DIGITS: Final = 2
# Longer sentences cost more of the budget: a value is divided by the tokens to this power.
_SIZE_POWER: Final = 0.3


class Offer(Value, frozen=True, eq=False):
    """A sentence that may be chosen: the number of its unit, its place there, the relevance of the unit from 0 to 1, its size in tokens.

    cover: the share of the term weights of the query that it has.
    question: what it answers, if it is too short to say anything without; empty for others. The size is that with the question.
    """

    unit: int
    place: int
    sentence: Sentence
    question: str
    relevance: float
    cover: float
    size: int


class SentenceChoice:
    """Sentences chosen so far, what they state, and the tokens that are left.

    `chosen` has the texts by unit and place; `remarks` what the line of a unit has to say about it, by unit.
    """

    def __init__(self, index: RecallIndex, remarks: Mapping[int, str], tokens: int, factor: float) -> None:
        self.chosen: dict[int, dict[int, str]] = {}
        self.remarks = remarks
        self._index = index
        self._left = tokens
        self._factor = factor
        self._stated: set[str] = set()
        self._texts: set[str] = set()
        self._headed: set[tuple[int, bool]] = set()

    def fill(self, offers: Sequence[Offer], newer: Mapping[int, int] = EMPTY_MAPPING) -> None:
        """Choose the most valuable sentence that fits, again and again, until none does.

        A number is shown where it was stated on the latest day. `newer` is, by place among the offers, the place of one that gives a newer
        value: it is chosen first, and named in the older line.
        """
        newest = self._newest(offers)
        # Values only fall while sentences are chosen, so that the value of a sentence is computed again only when it leads.
        heap = [(-self._value(offer), place) for place, offer in enumerate(offers)]
        heapify(heap)
        while heap:
            value, place = heappop(heap)
            offer = offers[place]
            current = -self._value(offer)
            if current >= 0:
                continue
            if (current > value and heap and heap[0] < (current, place)) or self._take_newest(offer, newest):
                heappush(heap, (-self._value(offer), place))
            elif place not in newer:
                self._take(offer)
            elif self._take(offers[newer[place]]):
                self._take(offer, f" (later [{self._index.units[offers[newer[place]].unit].id}])")

    def _newest(self, offers: Sequence[Offer]) -> dict[str, Offer]:
        """Return the sentence of the latest day that states a number, the most valuable one of that day."""
        found: dict[str, tuple[tuple[str, float], Offer]] = {}
        for offer in offers:
            rank = (self._day(offer), self._value(offer))
            for number in offer.sentence.numbers:
                if sum(map(str.isdigit, number)) >= _TELLING_DIGITS and (number not in found or rank > found[number][0]):
                    found[number] = (rank, offer)
        return {number: offer for number, (_, offer) in found.items()}

    def _take_newest(self, offer: Offer, newest: Mapping[str, Offer]) -> bool:
        """Take the sentences of later days that state the new numbers of a sentence; return whether there was one."""
        later = {newest[number].unit: newest[number] for number in sorted(offer.sentence.numbers - self._stated) if number in newest}
        taken = [self._take(each) for each in later.values() if self._day(each) > self._day(offer)]
        return any(taken)

    def _day(self, offer: Offer) -> str:
        return self._index.units[offer.unit].date[:10]

    def _value(self, offer: Offer) -> float:
        numbers = min(len(offer.sentence.numbers - self._stated), _MOST_NUMBERS) / _MOST_NUMBERS
        names = min(len(offer.sentence.names - self._stated), _MOST_NAMES) / _MOST_NAMES
        relevance = offer.relevance if numbers or names else offer.relevance * _WITHOUT_FACT
        value = RELEVANCE * relevance + COVER * offer.cover + NUMBERS * numbers + NAMES * names
        return value / math.pow(max(1, offer.size), _SIZE_POWER)

    def _take(self, offer: Offer, remark: str = "") -> bool:
        """Add a sentence, with a remark behind it, if it is new and fits; return whether it is shown."""
        if offer.place in self.chosen.get(offer.unit, ()):
            return True
        asked = offer.question if offer.question not in self._texts else ""
        text = f"({asked}) {offer.sentence.text}" if asked else offer.sentence.text
        if text in self._texts:
            return False
        size = offer.size + (estimate(remark, self._factor) if remark else 0)
        group = (self._index.sessions[offer.unit], offer.unit in self.remarks)
        if offer.unit not in self.chosen:
            size += estimate(self._lead(offer.unit) + "\n", self._factor)
        if group not in self._headed:
            size += estimate(self._heading(offer.unit) + "\n", self._factor)
        if size > self._left:
            return False
        self._left -= size
        self._headed.add(group)
        self.chosen.setdefault(offer.unit, {})[offer.place] = text + remark
        self._texts.update((text, asked) if asked else (text,))
        self._stated |= offer.sentence.numbers | offer.sentence.names
        return True

    def lines(self) -> tuple[list[str], list[int]]:
        """Return the lines, and the numbers of their units in the same order; what has a remark comes last.

        The first line of a session has the whole id and the date, the others the end of their id.
        """
        lines: list[str] = []
        order: list[int] = []
        for units in (self.chosen.keys() - self.remarks.keys(), self.chosen.keys() & self.remarks.keys()):
            for numbers in self._by_session(units):
                leads = (self._lead(number, self._heading(number) if number == numbers[0] else "") for number in numbers)
                lines += [" ".join((lead, *self._in_order(number))) for lead, number in zip(leads, numbers, strict=True)]
                order += numbers
        return lines, order

    def _in_order(self, number: int) -> list[str]:
        found = self.chosen[number]
        return [found[place] for place in sorted(found)]

    def _by_session(self, units: set[int]) -> list[list[int]]:
        """Return units by session, the session with the newest date first, else the one that was added last."""
        groups: dict[int, list[int]] = {}
        for number in sorted(units):
            groups.setdefault(self._index.sessions[number], []).append(number)
        return sorted(groups.values(), key=lambda numbers: (self._index.units[numbers[0]].date, numbers[0]), reverse=True)

    def _heading(self, number: int) -> str:
        unit = self._index.units[number]
        return " ".join(part for part in (f"[{unit.id}]", unit.date) if part)

    def _lead(self, number: int, heading: str = "") -> str:
        """Return what stands before the sentences of a unit: its heading or the end of its id, who speaks, and a remark."""
        unit = self._index.units[number]
        short = unit.id.removeprefix(unit.session) if unit.session and unit.id.startswith(f"{unit.session}:") else unit.id
        remark = self.remarks.get(number, "")
        speaker = f"{unit.who or unit.role}{f' ({remark})' if remark else ''}".strip()
        return one_line(f"{heading or f'[{short}]'} {speaker}" + (":" if speaker else ""))


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


# Two sentences are about one value if they share this much of their words without numbers, as a share of the words of both.
SAME_WORDS: Final = 0.6
# Sentences with fewer words say too little to be about one value.
FEWEST_WORDS: Final = 3


class DatedSentence(Value, frozen=True):
    """A sentence that gives numbers, with the day on which it was said, as an ISO date."""

    text: str
    numbers: frozenset[str]
    date: str


def newer_values(given: Sequence[DatedSentence]) -> dict[int, int]:
    """Return, by place, the place of the newest later sentence that says the same with other numbers, for those that have one.

    Sentences without numbers or date are about no value. A value that was said in other words is not found: that takes a model, or notes.
    """
    frames = [_frame(each) if each.numbers and each.date else frozenset() for each in given]
    having: dict[str, list[int]] = {}
    for place, frame in enumerate(frames):
        for term in frame:
            having.setdefault(term, []).append(place)
    found: dict[int, int] = {}
    for place, frame in enumerate(frames):
        shared = Counter(other for term in frame for other in having[term])
        later = [
            (given[other].date, other)
            for other, count in shared.items()
            if given[other].date[:10] > given[place].date[:10]
            and count >= SAME_WORDS * len(frame | frames[other])
            and given[other].numbers != given[place].numbers
        ]
        if later:
            found[place] = max(later)[1]
    return found


def _frame(sentence: DatedSentence) -> frozenset[str]:
    """Return the terms of a sentence without those that have a digit; none if they are few."""
    terms = frozenset(term for term in query_terms(sentence.text) if not any(letter.isdigit() for letter in term))
    return terms if len(terms) >= FEWEST_WORDS else frozenset()


# Units that are read for sentences: the hits, then their neighbours, nearest first, in the sessions of the best hits.
MOST_UNITS: Final = 400
MOST_SESSIONS: Final = 6
# Hits to ask of a ranking for a digest.
MOST_HITS: Final = 400
# An answer of at most so many words says nothing without its question.
SHORT_ANSWER_WORDS: Final = 4
# Characters of a sentence that are shown; longer ones are data without sentences.
_LONGEST: Final = 600
# Tokens of the budget that may stay unused.
_SLACK_TOKENS: Final = 16
# Relevance of the last hit; that of the first is 1, and what is no hit has none.
_LOWEST: Final = 0.1


def digest(
    index: RecallIndex,
    hits: Sequence[RecallHit],
    query: str,
    *,
    tokens: int = RECALL_TOKENS,
    factor: float = 1.0,
    excluded: frozenset[str] = frozenset(),
    corrected: Mapping[str, Correction] = EMPTY_MAPPING,
) -> RecalledLines:
    """Return the sentences of the hits and of what was said around them that state most, within a budget of tokens.

    Lines stand by session, the newest session first, in the order in which they were said; the first of a session has its whole id. What
    a note corrected (`corrected`, by event id) comes last, says so, and only with a line of what replaced it. A sentence that a later day
    repeats with other numbers names the later line, which is shown too. `left_out` counts hits without a line; `excluded` are ids of units
    or events that are not read; `factor` is the token factor of the model.
    """
    offers = list(_offers(index, hits, query, excluded, corrected, factor=factor))
    budget = tokens - estimate(more_line(9_999, query) + "\n", factor)
    found = _result(index, _choice(index, hits, offers, corrected, budget, factor=factor), hits, query, factor)
    if tokens - found.tokens >= _SLACK_TOKENS and found.left_out:
        # Sizes of lines are rounded up one by one: what that left over holds some more.
        wider = _choice(index, hits, offers, corrected, budget + tokens - found.tokens, factor=factor)
        found = min(found, _result(index, wider, hits, query, factor), key=lambda each: (each.tokens > tokens, -each.tokens))
    while found.tokens > tokens:
        # The estimate of a text may exceed the sum of the estimates of its lines by a little.
        budget -= found.tokens - tokens
        found = _result(index, _choice(index, hits, offers, corrected, budget, factor=factor), hits, query, factor)
    return found


def _choice(
    index: RecallIndex,
    hits: Sequence[RecallHit],
    offers: Sequence[Offer],
    corrected: Mapping[str, Correction],
    budget: int,
    *,
    factor: float,
) -> SentenceChoice:
    """Choose what replaced corrected hits, then what holds, then what was corrected and whose successor is shown."""
    events = {offer.unit: event_of(index.units[offer.unit].id) for offer in offers}
    choice = SentenceChoice(
        index, {unit: remark_of(corrected[event]) for unit, event in events.items() if event in corrected}, budget, factor
    )
    successors = {event for hit in hits if (found := corrected.get(event_of(hit.unit.id))) is not None for event in found.successors}
    current = [offer for offer in offers if offer.unit not in choice.remarks]
    choice.fill([offer for offer in current if events[offer.unit] in successors])
    choice.fill(current, newer=_newer(index, current))
    shown = {events[unit] for unit in choice.chosen}
    old = [offer for offer in offers if offer.unit in choice.remarks]
    choice.fill([offer for offer in old if shown.intersection(corrected[events[offer.unit]].successors)])
    return choice


def _newer(index: RecallIndex, offers: Sequence[Offer]) -> dict[int, int]:
    given = [DatedSentence(offer.sentence.text, offer.sentence.numbers, index.units[offer.unit].date) for offer in offers]
    return newer_values(given)


def _offers(
    index: RecallIndex,
    hits: Sequence[RecallHit],
    query: str,
    excluded: frozenset[str],
    corrected: Mapping[str, Correction],
    *,
    factor: float,
) -> Iterator[Offer]:
    cover = _QueryCover(index, query)
    scores = {index.numbers[hit.unit.id]: hit.score for hit in hits}
    lowest, highest = (min(scores.values()), max(scores.values())) if scores else (0.0, 0.0)
    spread = highest - lowest or 1.0
    for number in sorted(_pool(index, hits, corrected)):
        unit = index.units[number]
        if number in index.hidden or unit.id in excluded or event_of(unit.id) in excluded:
            continue
        relevance = _LOWEST + (1 - _LOWEST) * (scores[number] - lowest) / spread if number in scores else 0.0
        for place, text in enumerate(sentences(unit.text)):
            sentence = read_sentence(one_line(text)[:_LONGEST])
            question = "" if place else _question_of(index, number, sentence.text, excluded)
            shown = f" ({question}) {sentence.text}" if question else f" {sentence.text}"
            yield Offer(number, place, sentence, question, relevance, cover.share(number, sentence.text), estimate(shown, factor))


class _QueryCover:
    """The terms of a query with their weights, to compare sentences with."""

    def __init__(self, index: RecallIndex, query: str) -> None:
        found = read_query(index, query)
        self._sequences = index.sequences
        self._characters = [term_character(term) for term in found.terms]
        names = {index.vocabulary[term]: term for term in query_terms(query[:QUERY_CHARACTERS]) if term in index.vocabulary}
        self._weights = {names[term]: weight for term, weight in zip(found.terms, found.idf, strict=True) if term in names}
        self._total = sum(found.idf) or 1.0

    def share(self, number: int, sentence: str) -> float:
        """Return the share of the weights whose terms a sentence of a unit has."""
        # Stemming is slow, and most units have no term of the query.
        if not any(character in self._sequences[number] for character in self._characters):
            return 0.0
        return sum(self._weights.get(term, 0.0) for term in query_terms(sentence)) / self._total


def _question_of(index: RecallIndex, number: int, answer: str, excluded: frozenset[str]) -> str:
    """Return the question that a short answer follows, if that may be shown; empty for other sentences."""
    before = index.previous[number]
    if before < 0 or not index.asks[before] or before in index.hidden or event_of(index.units[before].id) in excluded:
        return ""
    question = one_line(sentences(index.units[before].text)[-1])
    return question if len(answer.split()) <= SHORT_ANSWER_WORDS and len(question) <= _LONGEST else ""


def _pool(index: RecallIndex, hits: Sequence[RecallHit], corrected: Mapping[str, Correction]) -> set[int]:
    """Return the hits and what replaced them, and the units around those in the best sessions, nearest first, `MOST_UNITS` together."""
    numbers = [index.numbers[hit.unit.id] for hit in hits[:MOST_UNITS]]
    best = set(list(dict.fromkeys(index.sessions[number] for number in numbers))[:MOST_SESSIONS])
    pool = set(numbers)
    for hit in hits[:MOST_UNITS]:
        if (found := corrected.get(event_of(hit.unit.id))) is not None:
            pool.update(index.numbers[event] for event in found.successors if event in index.numbers)
    edge = [number for number in numbers if index.sessions[number] in best]
    while edge and len(pool) < MOST_UNITS:
        around = dict.fromkeys(near for number in edge for near in (index.previous[number], index.following[number]) if near >= 0)
        edge = [number for number in around if number not in pool][: MOST_UNITS - len(pool)]
        pool.update(edge)
    return pool


def _result(index: RecallIndex, choice: SentenceChoice, hits: Sequence[RecallHit], query: str, factor: float) -> RecalledLines:
    scores = {hit.unit.id: hit.score for hit in hits}
    lines, order = choice.lines()
    ids = tuple(index.units[number].id for number in order)
    left_out = len(scores) - sum(each in scores for each in ids)
    if left_out and lines:
        lines.append(more_line(left_out, query))
    used = estimate("\n".join(lines), factor) if lines else 0
    return RecalledLines(tuple(lines), ids, tuple(scores.get(each, 0.0) for each in ids), used, left_out=left_out)


# Characters of one entry that are shown.
LONGEST_ENTRY: Final = 300


class TimelineEntry(Value, frozen=True):
    """Something that was the case, or was said, at a time.

    id: evidence id or name of a note; date: ISO date or time; until: when it ceased to hold, empty if it holds.
    person, attribute: whom and what a note is about; empty for what was said.
    """

    id: str
    date: str
    text: str
    person: str = ""
    attribute: str = ""
    until: str = ""


def note_entries(notes: Iterable[Note]) -> list[TimelineEntry]:
    """Return entries of notes, superseded ones included, so that a chain of values can be read; retracted ones were never true."""
    return [
        TimelineEntry(
            note.name if note.status == "active" else note.revision,
            note.valid_from or note.when,
            f"{note.about} ({ORIGINS[note.trust]})" if ORIGINS[note.trust] else note.about,
            person=note.person,
            attribute=note.attribute,
            until=note.valid_to if note.status == "superseded" else "",
        )
        for note in notes
        if note.status != "retracted" and note.trust != "quarantined"
    ]


def unit_entries(units: Iterable[RecallUnit]) -> list[TimelineEntry]:
    """Return entries of titles of sessions, or of turns; those without a date have no place in time and are left out."""
    return [TimelineEntry(unit.id, unit.date, unit.text, person=unit.who) for unit in units if unit.date]


def timeline(
    entries: Iterable[TimelineEntry], about: str, *, start: str = "", end: str = "", tokens: int = RECALL_TOKENS, factor: float = 1.0
) -> RecalledLines:
    """Return the entries about a person, an attribute or words, oldest first, from `start` to `end`, ISO dates, both included.

    An entry is about a person or attribute that is called so; about words if it has all of them; an empty `about` is about everything.
    If not all fit, the newest are kept, and the first line counts the earlier ones. Raises `BadInput` if a bound is no date.
    """
    first, last = _bound(start, "from"), _bound(end, "to")
    wanted = fold(about).strip()
    terms = frozenset(query_terms(about))
    chosen = sorted(
        (entry for entry in entries if _is_about(entry, wanted, terms) and _is_within(entry.date, first, last)),
        key=lambda entry: (entry.date[:10], entry.date, entry.id),
    )
    left = tokens - estimate(_earlier_line(len(chosen), about) + "\n", factor)
    lines: list[str] = []
    for entry in reversed(chosen):
        line = _timeline_line(entry)
        size = estimate(line + "\n", factor)
        if size > left:
            break
        left -= size
        lines.append(line)
    found = _told(chosen, lines[::-1], about, factor)
    while found.tokens > tokens:
        # The estimate of a text may exceed the sum of the estimates of its lines by a little.
        lines.pop()
        found = _told(chosen, lines[::-1], about, factor)
    return found


def _told(chosen: list[TimelineEntry], lines: list[str], about: str, factor: float) -> RecalledLines:
    left_out = len(chosen) - len(lines)
    ids = tuple(entry.id for entry in chosen[left_out:])
    if left_out and lines:
        lines = [_earlier_line(left_out, about), *lines]
    return RecalledLines(tuple(lines), ids, (0.0,) * len(ids), estimate("\n".join(lines), factor) if lines else 0, left_out=left_out)


def _is_about(entry: TimelineEntry, wanted: str, terms: frozenset[str]) -> bool:
    if not wanted or fold(entry.person).strip() == wanted:
        return True
    attribute = fold(entry.attribute).strip()
    if attribute and (attribute == wanted or attribute.startswith(f"{wanted}.")):
        return True
    return bool(terms) and terms <= frozenset(query_terms(entry.text))


def _is_within(when: str, first: int | None, last: int | None) -> bool:
    day = day_of(when)
    return day is not None and (first is None or day >= first) and (last is None or day <= last)


def _bound(text: str, name: str) -> int | None:
    if not text:
        return None
    day = day_of(text)
    if day is None:
        raise BadInput(f"`{name}` is a date such as 2026-05-04", where=f"timeline {text[:40]!r}")
    return day


def _timeline_line(entry: TimelineEntry) -> str:
    text = one_line(entry.text)
    short = text if len(text) <= LONGEST_ENTRY else text[: LONGEST_ENTRY - 1] + "…"
    until = f" (until {entry.until[:10]})" if entry.until else ""
    return f"{entry.date[:10]} [{entry.id}]{until} {short}"


def _earlier_line(count: int, about: str) -> str:
    return f"+{count} earlier, recall(timeline={one_line(about)[:60]!r}, to=…)"
