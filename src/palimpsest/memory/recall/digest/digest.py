"""Turns ranked units into the sentences that state most within a token budget, by session and newest session first."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from palimpsest.core.items import EMPTY_MAPPING
from palimpsest.core.tokens.estimate import estimate
from palimpsest.memory.recall.digest.choice import Choice, Offer
from palimpsest.memory.recall.digest.corrections import Correction, event_of, remark_of
from palimpsest.memory.recall.digest.newer_values import DatedSentence, newer_values
from palimpsest.memory.recall.index import RecallIndex
from palimpsest.memory.recall.ranking import RecallHit
from palimpsest.memory.recall.selection import RECALL_TOKENS, RecalledLines, more_line, one_line
from palimpsest.memory.recall.texts.sentences import read_sentence, sentences

# Units that are read for sentences: the hits, then their neighbours, nearest first, in the sessions of the best hits.
MOST_UNITS: Final = 400
MOST_SESSIONS: Final = 6
# Hits to ask of a ranking for a digest.
MOST_HITS: Final = 400
# An answer of at most so many words says nothing without its question.
SHORT_ANSWER_WORDS: Final = 4
# Characters of a sentence that are shown; longer ones are data without sentences.
_LONGEST: Final = 600


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

    Lines stand under the session they are from, the newest session first, in the order in which they were said. What a note corrected
    (`corrected`, by event id) comes last, says so, and only with a line of what replaced it. A sentence that a later day repeats with
    other numbers names the later line, which is shown too. `left_out` counts hits without a line; `excluded` are ids of units that are
    not read; `factor` is the token factor of the model.
    """
    budget = tokens - estimate(more_line(9_999, query) + "\n", factor)
    offers = list(_offers(index, hits, excluded, corrected, factor))
    events = {offer.unit: event_of(index.units[offer.unit].id) for offer in offers}
    choice = Choice(index, {unit: remark_of(corrected[event]) for unit, event in events.items() if event in corrected}, budget, factor)
    successors = {event for hit in hits if (found := corrected.get(event_of(hit.unit.id))) is not None for event in found.successors}
    choice.fill([offer for offer in offers if events[offer.unit] in successors])
    current = [offer for offer in offers if offer.unit not in choice.remarks]
    choice.fill(current, newer=_newer(index, current))
    shown = {events[unit] for unit in choice.chosen}
    choice.fill(
        [offer for offer in offers if offer.unit in choice.remarks and shown.intersection(corrected[events[offer.unit]].successors)]
    )
    return _result(index, choice, hits, query, factor)


def _newer(index: RecallIndex, offers: Sequence[Offer]) -> dict[int, int]:
    given = [DatedSentence(offer.sentence.text, offer.sentence.numbers, index.units[offer.unit].date) for offer in offers]
    return newer_values(given)


def _offers(
    index: RecallIndex, hits: Sequence[RecallHit], excluded: frozenset[str], corrected: Mapping[str, Correction], factor: float
) -> Iterator[Offer]:
    scores = {index.numbers[hit.unit.id]: hit.score for hit in hits}
    lowest, highest = (min(scores.values()), max(scores.values())) if scores else (0.0, 0.0)
    spread = highest - lowest or 1.0
    for number in sorted(_pool(index, hits, corrected)):
        unit = index.units[number]
        if unit.id in excluded or number in index.hidden:
            continue
        relevance = (scores[number] - lowest) / spread if number in scores else 0.0
        for place, text in enumerate(sentences(unit.text)):
            sentence = read_sentence(one_line(text)[:_LONGEST])
            shown = sentence.text if place else _with_question(index, number, sentence.text, excluded)
            yield Offer(number, place, sentence, shown, relevance, estimate(f" {shown}", factor))


def _with_question(index: RecallIndex, number: int, answer: str, excluded: frozenset[str]) -> str:
    """Return a short answer behind the question it follows, if that may be shown; other sentences as they are."""
    before = index.previous[number]
    if before < 0 or not index.asks[before] or before in index.hidden or index.units[before].id in excluded:
        return answer
    question = one_line(sentences(index.units[before].text)[-1])
    return f"({question}) {answer}" if len(answer.split()) <= SHORT_ANSWER_WORDS and len(question) <= _LONGEST else answer


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


def _result(index: RecallIndex, choice: Choice, hits: Sequence[RecallHit], query: str, factor: float) -> RecalledLines:
    scores = {hit.unit.id: hit.score for hit in hits}
    lines, order = choice.lines()
    ids = tuple(index.units[number].id for number in order)
    left_out = len(scores) - sum(each in scores for each in ids)
    if left_out and lines:
        lines.append(more_line(left_out, query))
    used = estimate("\n".join(lines), factor) if lines else 0
    return RecalledLines(tuple(lines), ids, tuple(scores.get(each, 0.0) for each in ids), used, left_out=left_out)
