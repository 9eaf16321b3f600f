"""Turns ranked units into the sentences that state most within a token budget, by session and newest session first."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from palimpsest.core.items import EMPTY_MAPPING
from palimpsest.core.tokens.estimate import estimate
from palimpsest.memory.recall.candidates import QUERY_CHARACTERS, read_query
from palimpsest.memory.recall.digest.choice import Offer, SentenceChoice
from palimpsest.memory.recall.digest.corrections import Correction, event_of, remark_of
from palimpsest.memory.recall.digest.newer_values import DatedSentence, newer_values
from palimpsest.memory.recall.digest.sentences import read_sentence, sentences
from palimpsest.memory.recall.index import RecallIndex, term_character
from palimpsest.memory.recall.ranking import RecallHit
from palimpsest.memory.recall.selection import RECALL_TOKENS, RecalledLines, more_line, one_line
from palimpsest.memory.recall.terms import query_terms

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
