"""Turns ranked units into the sentences that state most within a token budget, by session and newest session first."""

import math
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from palimpsest.core.items import Value
from palimpsest.core.tokens.estimate import estimate
from palimpsest.memory.recall.index import RecallIndex
from palimpsest.memory.recall.ranking import RecallHit
from palimpsest.memory.recall.selection import RECALL_TOKENS, RecalledLines, more_line, one_line
from palimpsest.memory.recall.texts.sentences import Sentence, read_sentence, sentences

# Units that are read for sentences: the hits, then their neighbours, nearest first, in the sessions of the best hits.
MOST_UNITS: Final = 400
MOST_SESSIONS: Final = 6
# Hits to ask of a ranking for a digest.
MOST_HITS: Final = 400
# The value of a sentence: how relevant its unit is, and which numbers and names it brings that no chosen sentence has. Chosen on half of
# the cases of three levels; `docs/memory.md` has the scores of both halves.
RELEVANCE, NUMBERS, NAMES = 0.6, 1.0, 0.6
_MOST_NUMBERS, _MOST_NAMES = 2, 3
# Longer sentences cost more of the budget: a value is divided by the tokens to this power.
_SIZE_POWER: Final = 0.3
# The relevance of a sentence that brings neither number nor name counts this share.
_WITHOUT_FACT: Final = 0.5
# An answer of at most so many words says nothing without its question.
SHORT_ANSWER_WORDS: Final = 4
# Characters of a sentence that are shown; longer ones are data without sentences.
_LONGEST: Final = 600


class _Offer(Value, frozen=True, eq=False):
    """A sentence that may be chosen: the unit it is from, its place there, the relevance of the unit from 0 to 1, its size in tokens.

    text: the sentence as it is shown, with the question that it answers if it is short.
    """

    unit: int
    place: int
    sentence: Sentence
    text: str
    relevance: float
    size: int


def digest(
    index: RecallIndex,
    hits: Sequence[RecallHit],
    query: str,
    *,
    tokens: int = RECALL_TOKENS,
    factor: float = 1.0,
    excluded: frozenset[str] = frozenset(),
) -> RecalledLines:
    """Return the sentences of the hits and of what was said around them that state most, within a budget of tokens.

    Lines stand under the session they are from, the newest session first, in the order in which they were said; units with a remark, which
    are no longer so, come last. `left_out` counts hits without a line. `excluded` are ids of units that are not read. `factor` is the
    token factor of the model.
    """
    offers = list(_offers(index, hits, excluded, factor))
    choice = _Digest(index, {hit.unit.id: hit for hit in hits}, tokens - estimate(more_line(9_999, query) + "\n", factor), factor)
    choice.fill(offers)
    return choice.result(query)


def _offers(index: RecallIndex, hits: Sequence[RecallHit], excluded: frozenset[str], factor: float) -> Iterator[_Offer]:
    scores = {index.numbers[hit.unit.id]: hit.score for hit in hits}
    lowest, highest = (min(scores.values()), max(scores.values())) if scores else (0.0, 0.0)
    spread = highest - lowest or 1.0
    for number in sorted(_pool(index, hits)):
        unit = index.units[number]
        if unit.id in excluded or number in index.hidden:
            continue
        relevance = (scores[number] - lowest) / spread if number in scores else 0.0
        for place, text in enumerate(sentences(unit.text)):
            sentence = read_sentence(one_line(text)[:_LONGEST])
            shown = sentence.text if place else _with_question(index, number, sentence.text, excluded)
            yield _Offer(number, place, sentence, shown, relevance, estimate(f" {shown}", factor))


def _with_question(index: RecallIndex, number: int, answer: str, excluded: frozenset[str]) -> str:
    """Return a short answer behind the question it follows, if that may be shown; other sentences as they are."""
    before = index.previous[number]
    if before < 0 or not index.asks[before] or before in index.hidden or index.units[before].id in excluded:
        return answer
    question = one_line(sentences(index.units[before].text)[-1])
    return f"({question}) {answer}" if len(answer.split()) <= SHORT_ANSWER_WORDS and len(question) <= _LONGEST else answer


def _pool(index: RecallIndex, hits: Sequence[RecallHit]) -> set[int]:
    """Return the hits, and the units around those in the best sessions, nearest first, at most `MOST_UNITS` together."""
    numbers = [index.numbers[hit.unit.id] for hit in hits[:MOST_UNITS]]
    best = set(list(dict.fromkeys(index.sessions[number] for number in numbers))[:MOST_SESSIONS])
    pool = set(numbers)
    edge = [number for number in numbers if index.sessions[number] in best]
    while edge and len(pool) < MOST_UNITS:
        around = dict.fromkeys(near for number in edge for near in (index.previous[number], index.following[number]) if near >= 0)
        edge = [number for number in around if number not in pool][: MOST_UNITS - len(pool)]
        pool.update(edge)
    return pool


class _Digest:
    """Sentences chosen so far, what they state, and the tokens that are left."""

    def __init__(self, index: RecallIndex, hits: dict[str, RecallHit], tokens: int, factor: float) -> None:
        self._index = index
        self._hits = hits
        self._left = tokens
        self._factor = factor
        self._stated: set[str] = set()
        self._chosen: dict[int, dict[int, str]] = {}
        self._texts: set[str] = set()

    def fill(self, offers: Sequence[_Offer]) -> None:
        """Choose the most valuable sentence that fits, again and again; values only fall, so a stale one is computed again when it leads."""
        heap = [(-self._value(offer), place) for place, offer in enumerate(offers)]
        heapify(heap)
        while heap:
            value, place = heappop(heap)
            offer = offers[place]
            current = -self._value(offer)
            if current >= 0:
                continue
            if current > value and heap and heap[0] < (current, place):
                heappush(heap, (current, place))
                continue
            self._take(offer)

    def _value(self, offer: _Offer) -> float:
        numbers = min(len(offer.sentence.numbers - self._stated), _MOST_NUMBERS) / _MOST_NUMBERS
        names = min(len(offer.sentence.names - self._stated), _MOST_NAMES) / _MOST_NAMES
        relevance = offer.relevance if numbers or names else offer.relevance * _WITHOUT_FACT
        value = RELEVANCE * relevance + NUMBERS * numbers + NAMES * names
        return value / math.pow(offer.size, _SIZE_POWER)

    def _take(self, offer: _Offer) -> None:
        text = offer.text
        if text in self._texts:
            return
        size = offer.size
        if offer.unit not in self._chosen:
            size += estimate(self._lead(offer.unit) + "\n", self._factor)
            session = self._index.sessions[offer.unit]
            if all(self._index.sessions[unit] != session for unit in self._chosen):
                size += estimate(self._heading(offer.unit) + "\n", self._factor)
        if size > self._left:
            return
        self._left -= size
        self._chosen.setdefault(offer.unit, {})[offer.place] = text
        self._texts.add(text)
        self._stated |= offer.sentence.numbers | offer.sentence.names

    def _heading(self, number: int) -> str:
        unit = self._index.units[number]
        return " ".join(part for part in (f"[{unit.session or unit.id}]", unit.date) if part)

    def _lead(self, number: int) -> str:
        """Return what stands before the sentences of a unit: the end of its id, who speaks, and what is to be known about it."""
        unit = self._index.units[number]
        short = unit.id.removeprefix(unit.session) if unit.session and unit.id.startswith(f"{unit.session}:") else unit.id
        speaker = unit.who or unit.role
        hit = self._hits.get(unit.id)
        remark = f" ({hit.remark})" if hit is not None and hit.remark else ""
        return one_line(f"[{short}] {speaker}{remark}:" if speaker or remark else f"[{short}]")

    def result(self, query: str) -> RecalledLines:
        """Return the lines, with one that counts the hits that have none."""
        outdated = {unit for unit in self._chosen if (hit := self._hits.get(self._index.units[unit].id)) is not None and hit.remark}
        lines: list[str] = []
        order: list[int] = []
        for units in (set(self._chosen) - outdated, outdated):
            for numbers in self._by_session(units):
                lines.append(self._heading(numbers[0]))
                lines += [" ".join((self._lead(number), *dict(sorted(self._chosen[number].items())).values())) for number in numbers]
                order += numbers
        ids = tuple(self._index.units[number].id for number in order)
        left_out = len(self._hits) - sum(each in self._hits for each in ids)
        if left_out and lines:
            lines.append(more_line(left_out, query))
        scores = tuple(self._hits[each].score if each in self._hits else 0.0 for each in ids)
        used = estimate("\n".join(lines), self._factor) if lines else 0
        return RecalledLines(tuple(lines), ids, scores, used, left_out=left_out)

    def _by_session(self, units: set[int]) -> list[list[int]]:
        """Return units by session, the session with the newest date first, else the one that was added last."""
        groups: dict[int, list[int]] = {}
        for number in sorted(units):
            groups.setdefault(self._index.sessions[number], []).append(number)
        return sorted(groups.values(), key=lambda numbers: (self._index.units[numbers[0]].date, numbers[0]), reverse=True)
