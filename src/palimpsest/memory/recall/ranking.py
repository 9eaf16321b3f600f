"""Ranks the units of an index for a query: a linear sum of features with learned weights, and small priors that are not learned."""

import math
from collections.abc import Mapping
from datetime import date
from itertools import islice
from operator import mul
from typing import Final

from palimpsest.core.items import EMPTY_MAPPING, Value
from palimpsest.memory.recall.candidates import Candidates, Similar, find_candidates, read_query
from palimpsest.memory.recall.features import feature_columns
from palimpsest.memory.recall.index import RecallIndex
from palimpsest.memory.recall.priors import with_priors
from palimpsest.memory.recall.units import RecallUnit
from palimpsest.memory.recall.weights import SIMILAR_WEIGHTS, WEIGHTS

# Importance, use and age decide between equals: each moves a unit by at most this many standard deviations of the scores.
STANDING_DEVIATIONS: Final = 0.1
# Where all scores are equal, these still decide.
LEAST_STANDING: Final = 1e-3
HALF_LIFE_DAYS: Final = 60.0
USES_SCALE: Final = 3.0
# Scores are compared in steps of a billionth, so that the last bit of a logarithm decides nothing on any platform.
_STEPS: Final = 1e9
MOST: Final = 50
# Units that are due stand behind this many better ones at most, and so many of them do.
DUE_PLACE, MOST_DUE_PLACED = 2, 2


class Standing(Value, frozen=True):
    """What is known about a unit beside its text: importance from 0 to 1, and how often it was cited."""

    importance: float = 0.0
    uses: int = 0


class RecallHit(Value, frozen=True):
    """A unit that was found, and its score; only the order of the scores of one query has a meaning.

    remark: what a reader must know about it, such as what replaced it; shown in its line, empty for most.
    """

    unit: RecallUnit
    score: float
    remark: str = ""


class RankingOptions(Value, frozen=True):
    """What a ranking considers beside the words.

    now: today as an ISO date; without it age does not matter.
    standing: importance and uses by unit id; what is missing is neutral.
    excluded: ids of units that are not returned, such as those shown before.
    kinds: only units of these kinds, if not empty.
    due: ids of units that are returned without a matching word, the soonest first: see `due.py`.
    """

    now: str = ""
    standing: Mapping[str, Standing] = EMPTY_MAPPING
    excluded: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    due: tuple[str, ...] = ()


NEUTRAL: Final = RankingOptions()


def rank(
    index: RecallIndex,
    text: str,
    *,
    most: int = MOST,
    weights: Mapping[str, float] | None = None,
    options: RankingOptions = NEUTRAL,
    similar: Similar | None = None,
) -> tuple[RecallHit, ...]:
    """Return the best units for a query, best first, at most `most`; equal scores in the order of the index. No model is asked.

    `weights` are the shipped ones if not given. `similar` is the similarity of the query to all units, if vectors of them are kept.
    """
    query = read_query(index, text)
    candidates = find_candidates(index, query, similar=similar)
    if not candidates.numbers:
        return with_due(index, (), options, most)
    columns = feature_columns(index, query, candidates, similar)
    scores = linear_scores(columns, weights or (WEIGHTS if similar is None else SIMILAR_WEIGHTS))
    scores = with_priors(index, query, candidates, scores)
    scores = _with_standing(index, candidates, scores, options)
    order = sorted(zip([-int(score * _STEPS) for score in scores], candidates.numbers, strict=True))
    excluded, kinds, units = options.excluded, options.kinds, index.units
    allowed = (
        (steps, units[number]) for steps, number in order if units[number].id not in excluded and (not kinds or units[number].kind in kinds)
    )
    return with_due(index, tuple(RecallHit(unit, -steps / _STEPS) for steps, unit in islice(allowed, most)), options, most)


def with_due(index: RecallIndex, hits: tuple[RecallHit, ...], options: RankingOptions, most: int) -> tuple[RecallHit, ...]:
    """Return the hits with what is due behind the best two, with the score of the hit before it; what stands higher already stays."""
    leading = {hit.unit.id for hit in hits[:DUE_PLACE]}
    due = [
        index.units[index.numbers[each]]
        for each in options.due
        if each in index.numbers and index.numbers[each] not in index.hidden and each not in options.excluded and each not in leading
    ]
    placed = [unit for unit in due if not options.kinds or unit.kind in options.kinds][:MOST_DUE_PLACED]
    if not placed:
        return hits
    score = hits[min(DUE_PLACE, len(hits)) - 1].score if hits else 0.0
    moved = {unit.id for unit in placed}
    rest = (hit for hit in hits[DUE_PLACE:] if hit.unit.id not in moved)
    return (*hits[:DUE_PLACE], *(RecallHit(unit, score) for unit in placed), *rest)[:most]


def linear_scores(columns: Mapping[str, list[float]], weights: Mapping[str, float]) -> list[float]:
    """Return the weighted sum of the features of each candidate; features without a weight do not count."""
    factors = [weights.get(name, 0.0) for name in columns]
    return [sum(map(mul, factors, row)) for row in zip(*columns.values(), strict=True)]


def _with_standing(index: RecallIndex, candidates: Candidates, scores: list[float], options: RankingOptions) -> list[float]:
    if not options.now and not options.standing:
        return scores
    mean = sum(scores) / len(scores)
    step = max(LEAST_STANDING, STANDING_DEVIATIONS * math.sqrt(sum((score - mean) ** 2 for score in scores) / len(scores)))
    today = _day(options.now)
    moved: list[float] = []
    for score, number in zip(scores, candidates.numbers, strict=True):
        unit = index.units[number]
        standing = options.standing.get(unit.id)
        extra = 0.0
        if standing is not None:
            extra += min(max(standing.importance, 0.0), 1.0) + 1 - math.exp(-max(standing.uses, 0) / USES_SCALE)
        day = _day(unit.date)
        if today is not None and day is not None:
            extra += 2 ** (-max(0, today - day) / HALF_LIFE_DAYS)
        moved.append(score + step * extra)
    return moved


def _day(text: str) -> int | None:
    """Return the day of an ISO date as a number; None if it is no date."""
    try:
        return date.fromisoformat(text[:10]).toordinal()
    except ValueError:
        return None
