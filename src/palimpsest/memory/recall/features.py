"""Features of the candidates of a query, in columns, computed from stored scores, term sequences and places only."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

from palimpsest.core.items import Value
from palimpsest.memory.recall.candidates import Candidates, RecallQuery, Similar
from palimpsest.memory.recall.index import RecallIndex, term_character

FEATURES: Final = (
    "match",  # BM25 of the unit, relative to the best candidate
    "cover",  # share of the query's term weights that the unit has
    "rarest",  # weight of its rarest matched term
    "cover_with_previous",  # share that it and the unit before it have together
    "window",  # BM25 of it and its two neighbours as one text, relative to the best candidate
    "pairs",  # pairs of neighbouring terms of the query that are neighbours in the unit
    "previous",  # BM25 of the unit before, after, second before and second after, relative to the best candidate
    "following",
    "second_previous",
    "second_following",
    "previous_if_asked",  # BM25 of the unit before, if that ends with a question mark
    "session_match",  # BM25 of its session, whose words are units, relative to the best session
    "session_cover",  # share of term weights that the candidates of its session have together
    "session_best",  # BM25 of the best candidate of its session
    "distance",  # logarithm of the distance to that candidate
    "speaker",  # the query names its speaker, and no other
    "asks",  # it ends with a question mark
    "after_question",  # the unit before does
    "length",  # logarithm of its number of terms, up to 63
    "number",  # it has a digit
    "place",  # logarithm of its place in the session, up to 31
    "month",  # the query names the month of its date
)


# The last columns if a query has similarities: cosine to the unit with the one before it, and with the one after it, which is that of
# the next unit; in standard deviations of the candidates.
SIMILAR, SIMILAR_WITH_NEXT = "similar", "similar_with_next"
# BM25 of three units together, and of a session: k1, b, and the pivots in terms and in units.
_WINDOW: Final = (1.2, 0.75, 36.0)
_SESSION: Final = (1.2, 0.75, 20.0)


class TermCounts(Value, frozen=True):
    """How often each unit has each term of a query, and which terms it has, as bits, the rarest term first."""

    query: RecallQuery
    counts: list[dict[int, int]]
    masks: dict[int, int]
    total: float

    def shares(self, masks: list[int]) -> list[float]:
        """Return the share of all term weights that each set of terms has; each distinct set is computed once."""
        known = {mask: self._share(mask) for mask in set(masks)}
        return [known[mask] for mask in masks]

    def _share(self, mask: int) -> float:
        return sum(weight for bit, weight in enumerate(self.query.idf) if mask >> bit & 1) / self.total


def feature_columns(
    index: RecallIndex, query: RecallQuery, candidates: Candidates, similar: Similar | None = None
) -> dict[str, list[float]]:
    """Return one column for each of `FEATURES`, and two more if there are similarities, with a value for each candidate."""
    columns = dict(zip(FEATURES, _columns(index, query, candidates), strict=True))
    if similar is not None:
        columns[SIMILAR] = standardized(similar.similarities(candidates.numbers))
        after = [index.following[number] for number in candidates.numbers]
        with_next = [number if at < 0 else at for number, at in zip(candidates.numbers, after, strict=True)]
        columns[SIMILAR_WITH_NEXT] = standardized(similar.similarities(with_next))
    return columns


def standardized(column: Sequence[float]) -> list[float]:
    """Return a column less its mean, in standard deviations; zeros if all values are equal."""
    mean = sum(column) / len(column)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in column) / len(column))
    return [(value - mean) / deviation if deviation > 1e-9 else 0.0 for value in column]


def _columns(index: RecallIndex, query: RecallQuery, candidates: Candidates) -> list[list[float]]:
    numbers, scores = candidates.numbers, candidates.scores
    previous, following, asks = index.previous, index.following, index.asks
    before = [previous[number] for number in numbers]
    after = [following[number] for number in numbers]
    top = max(map(scores.__getitem__, numbers)) or 1.0
    found = _term_counts(index, query, {*numbers, *before, *after})
    masks = [found.masks[number] for number in numbers]
    joined = [mask | found.masks[at] for mask, at in zip(masks, before, strict=True)]
    highest = max(query.idf, default=1.0) or 1.0
    by_lowest_bit = [0.0, *(weight / highest for weight in query.idf)]
    asked = [asks[at] if at >= 0 else 0.0 for at in before]
    scores_before = [scores[at] / top for at in before]
    speakers, speaker = index.speaker_of, next(iter(query.speakers)) if len(query.speakers) == 1 else -2
    lengths, with_number, places, months = index.lengths, index.with_number, index.log_places, index.months
    return [
        [scores[number] / top for number in numbers],
        found.shares(masks),
        [by_lowest_bit[(mask & -mask).bit_length()] for mask in masks],
        found.shares(joined),
        _window(index, found, numbers, before, after),
        _pairs(index, query, numbers, found.total),
        scores_before,
        [scores[at] / top for at in after],
        [scores[previous[at]] / top if at >= 0 else 0.0 for at in before],
        [scores[following[at]] / top if at >= 0 else 0.0 for at in after],
        [score * question for score, question in zip(scores_before, asked, strict=True)],
        *_session_columns(index, candidates, masks, found, top),
        [1.0 if speakers[number] == speaker else 0.0 for number in numbers],
        [asks[number] for number in numbers],
        asked,
        [lengths[number] for number in numbers],
        [with_number[number] for number in numbers],
        [places[number] for number in numbers],
        [1.0 if months[number] in query.months else 0.0 for number in numbers],
    ]


def _term_counts(index: RecallIndex, query: RecallQuery, numbers: set[int]) -> TermCounts:
    sequences = index.sequences
    masks = dict.fromkeys(numbers, 0)
    masks[-1] = 0
    texts = [(number, sequences[number]) for number in numbers if number >= 0]
    counts: list[dict[int, int]] = []
    for place, term in enumerate(query.terms):
        character, bit = term_character(term), 1 << place
        having = {number: sequence.count(character) for number, sequence in texts if character in sequence}
        for number in having:
            masks[number] |= bit
        counts.append(having)
    return TermCounts(query, counts, masks, sum(query.idf) or 1.0)


def _window(index: RecallIndex, found: TermCounts, numbers: list[int], before: list[int], after: list[int]) -> list[float]:
    k1, b, pivot = _WINDOW
    sequences = index.sequences
    sizes = {number: len(sequences[number]) for number in found.masks if number >= 0}
    sizes[-1] = 0
    fixed, slope = k1 * (1 - b), k1 * b / pivot
    places = list(zip(numbers, before, after, strict=True))
    norms = [fixed + slope * (sizes[at] + sizes[left] + sizes[right]) for at, left, right in places]
    sums = [0.0] * len(numbers)
    for weight, having in zip(found.query.idf, found.counts, strict=True):
        count_of, factor = having.get, weight * (k1 + 1)
        counts = [count_of(at, 0) + count_of(left, 0) + count_of(right, 0) for at, left, right in places]
        sums = [total + factor * count / (count + norm) for total, count, norm in zip(sums, counts, norms, strict=True)]
    highest = max(sums) or 1.0
    return [total / highest for total in sums]


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
    index: RecallIndex, candidates: Candidates, masks: list[int], found: TermCounts, top: float
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
    matches = _session_matches(index, found.query, best)
    leaders = [best[session] for session in sessions]
    return (
        [matches[session] for session in sessions],
        found.shares([joined[session] for session in sessions]),
        [scores[leader] / top for leader in leaders],
        [_LOGARITHMS[min(abs(places[number] - places[leader]), _FARTHEST)] for number, leader in zip(numbers, leaders, strict=True)],
    )


def _session_matches(index: RecallIndex, query: RecallQuery, sessions: Iterable[int]) -> dict[int, float]:
    """Return the BM25 of sessions, in which a term counts once a unit, relative to the best of them."""
    k1, b, pivot = _SESSION
    chosen = list(sessions)
    norms = [k1 * (1 - b + b * len(index.members[session]) / pivot) for session in chosen]
    sums = [0.0] * len(chosen)
    for term in query.terms:
        weight = index.session_idf(term) * (k1 + 1)
        counts = index.units_with(term, chosen)
        sums = [total + weight * count / (count + norm) for total, count, norm in zip(sums, counts, norms, strict=True)]
    highest = max(sums) or 1.0
    return {session: total / highest for session, total in zip(chosen, sums, strict=True)}


# Distances in units of a session beyond which nothing is close.
_FARTHEST: Final = 255
_LOGARITHMS: Final = tuple(math.log1p(distance) for distance in range(_FARTHEST + 1))
