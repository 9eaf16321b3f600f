"""Features of the candidates of a query, in columns, computed from stored scores, term sequences and places only."""

import math
from collections.abc import Iterable
from typing import Final

from palimpsest.core.items import Value
from palimpsest.memory.recall.candidates import Candidates, RecallQuery
from palimpsest.memory.recall.index import RecallIndex, term_character

FEATURES: Final = (
    "match",  # BM25 of the unit, relative to the best candidate
    "cover",  # share of the query's term weights that the unit has
    "rarest",  # weight of its rarest matched term
    "cover_with_previous",  # share that it and the unit before it have together
    "cover_window",  # share that it and its two neighbours have together
    "pairs",  # pairs of neighbouring terms of the query that are neighbours in the unit
    "previous",  # BM25 of the unit before, after, second before and second after, relative to the best candidate
    "following",
    "second_previous",
    "second_following",
    "previous_if_asked",  # BM25 of the unit before, if that ends with a question mark
    "session_sum",  # BM25 summed over its session, relative to the best session
    "session_cover",  # share of term weights that the candidates of its session have together
    "session_best",  # BM25 of the best candidate of its session
    "distance",  # logarithm of the distance to that candidate
    "speaker",  # the query names its speaker, and no other
    "asks",  # it ends with a question mark
    "after_question",  # the unit before does
    "length",  # logarithm of its number of terms
    "number",  # it has a digit
    "place",  # logarithm of its place in the session
    "month",  # the query names the month of its date
)


class TermSets(Value, frozen=True):
    """Sets of terms of a query as bits, the rarest term first: those of each unit, and the share of all term weights of each set."""

    of_unit: dict[int, int]
    query: RecallQuery
    total: float

    def shares(self, masks: Iterable[int]) -> list[float]:
        """Return the share of each set; each distinct one is computed once."""
        masks = list(masks)
        known = {mask: self._share(mask) for mask in set(masks)}
        return [known[mask] for mask in masks]

    def _share(self, mask: int) -> float:
        return sum(weight for bit, weight in enumerate(self.query.idf) if mask >> bit & 1) / self.total


def feature_columns(index: RecallIndex, query: RecallQuery, candidates: Candidates) -> list[list[float]]:
    """Return one column for each of `FEATURES`, with a value for each candidate."""
    numbers, scores = candidates.numbers, candidates.scores
    previous, following, asks = index.previous, index.following, index.asks
    before = [previous[number] for number in numbers]
    after = [following[number] for number in numbers]
    top = max(map(scores.__getitem__, numbers)) or 1.0
    sets = _term_sets(index, query, {*numbers, *before, *after})
    masks = [sets.of_unit[number] for number in numbers]
    joined = [mask | sets.of_unit[at] for mask, at in zip(masks, before, strict=True)]
    highest = max(query.idf, default=1.0) or 1.0
    by_lowest_bit = [0.0, *(weight / highest for weight in query.idf)]
    asked = [asks[at] if at >= 0 else 0.0 for at in before]
    scores_before = [scores[at] / top for at in before]
    speakers, speaker = index.speaker_of, next(iter(query.speakers)) if len(query.speakers) == 1 else -2
    lengths, with_number, places, months = index.lengths, index.with_number, index.log_places, index.months
    return [
        [scores[number] / top for number in numbers],
        sets.shares(masks),
        [by_lowest_bit[(mask & -mask).bit_length()] for mask in masks],
        sets.shares(joined),
        sets.shares([mask | sets.of_unit[at] for mask, at in zip(joined, after, strict=True)]),
        _pairs(index, query, numbers, sets.total),
        scores_before,
        [scores[at] / top for at in after],
        [scores[previous[at]] / top if at >= 0 else 0.0 for at in before],
        [scores[following[at]] / top if at >= 0 else 0.0 for at in after],
        [score * question for score, question in zip(scores_before, asked, strict=True)],
        *_session_columns(index, candidates, masks, sets, top),
        [1.0 if speakers[number] == speaker else 0.0 for number in numbers],
        [asks[number] for number in numbers],
        asked,
        [lengths[number] for number in numbers],
        [with_number[number] for number in numbers],
        [places[number] for number in numbers],
        [1.0 if months[number] in query.months else 0.0 for number in numbers],
    ]


def _term_sets(index: RecallIndex, query: RecallQuery, numbers: set[int]) -> TermSets:
    characters = [(term_character(term), 1 << bit) for bit, term in enumerate(query.terms)]
    sequences = index.sequences
    masks = {}
    for number in numbers:
        sequence = sequences[number]
        mask = 0
        for character, bit in characters:
            if character in sequence:
                mask |= bit
        masks[number] = mask
    masks[-1] = 0
    return TermSets(masks, query, sum(query.idf) or 1.0)


def _pairs(index: RecallIndex, query: RecallQuery, numbers: list[int], total: float) -> list[float]:
    weight_of = dict(zip(query.terms, query.idf, strict=True))
    sequences = [index.sequences[number] for number in numbers]
    found = [0.0] * len(numbers)
    for first, second in query.pairs:
        pair = term_character(first) + term_character(second)
        weight = (weight_of[first] + weight_of[second]) / (2 * total)
        for at, sequence in enumerate(sequences):
            if pair in sequence:
                found[at] += weight
    return found


def _session_columns(
    index: RecallIndex, candidates: Candidates, masks: list[int], sets: TermSets, top: float
) -> tuple[list[float], list[float], list[float], list[float]]:
    numbers, scores, places = candidates.numbers, candidates.scores, index.places
    sessions = [index.sessions[number] for number in numbers]
    best: dict[int, int] = {}
    joined: dict[int, int] = {}
    for number, session, mask in zip(numbers, sessions, masks, strict=True):
        leader = best.get(session)
        if leader is None:
            best[session], joined[session] = number, mask
            continue
        joined[session] |= mask
        if scores[number] > scores[leader]:
            best[session] = number
    members = index.members
    sums = {session: sum(map(scores.__getitem__, members[session])) for session in best}
    highest = max(sums.values()) or 1.0
    leaders = [best[session] for session in sessions]
    return (
        [sums[session] / highest for session in sessions],
        sets.shares([joined[session] for session in sessions]),
        [scores[leader] / top for leader in leaders],
        [_LOGARITHMS[min(abs(places[number] - places[leader]), _FARTHEST)] for number, leader in zip(numbers, leaders, strict=True)],
    )


# Distances in units of a session beyond which nothing is close.
_FARTHEST: Final = 255
_LOGARITHMS: Final = tuple(math.log1p(distance) for distance in range(_FARTHEST + 1))
