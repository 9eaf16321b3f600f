"""Scores of a ranking against known evidence: recall, nDCG, and recall of sessions; no model judges anything."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

from palimpsest.core.items import Value

DEPTH: Final = 10


class QuestionScore(Value, frozen=True):
    """Scores of one question; `ranks` are the places of its evidence from 1, 0 where it was not found."""

    ndcg_10: float
    recall_10: float
    recall_1: float
    all_10: float
    any_10: float
    session_recall_5: float
    recall_5: float
    recall_20: float
    ranks: tuple[int, ...] = ()


class MeanScores(Value, frozen=True):
    """Means over questions, and the standard error of `recall_10`."""

    questions: int
    ndcg_10: float
    recall_10: float
    recall_1: float
    all_10: float
    any_10: float
    session_recall_5: float
    recall_5: float
    recall_20: float
    recall_10_error: float


def score(ranking: Iterable[str], evidence: Sequence[str], sessions: Sequence[str] = ()) -> QuestionScore:
    """Score a ranking of ids, best first; repeated ids, such as chunks of one message, count where they occur first.

    `sessions` are the sessions of the ranking in the order of their best unit, each once; the session of an id is its part before a colon.
    """
    ranked = list(dict.fromkeys(ranking))
    places = {each: place for place, each in enumerate(ranked, 1)}
    ranks = tuple(places.get(each, 0) for each in evidence)
    hits = sorted(rank for rank in ranks if 0 < rank <= DEPTH)
    gain = sum(1 / math.log2(rank + 1) for rank in hits)
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(DEPTH, len(evidence)) + 1))
    wanted = {_session(each) for each in evidence}
    best_sessions = list(dict.fromkeys(sessions or map(_session, ranked)))[:5]
    return QuestionScore(
        ndcg_10=gain / ideal,
        recall_10=len(hits) / len(evidence),
        recall_1=sum(rank == 1 for rank in ranks) / len(evidence),
        all_10=float(len(hits) == len(evidence)),
        any_10=float(bool(hits)),
        session_recall_5=len(wanted.intersection(best_sessions)) / len(wanted),
        recall_5=sum(0 < rank <= 5 for rank in ranks) / len(evidence),
        recall_20=sum(0 < rank <= 20 for rank in ranks) / len(evidence),
        ranks=ranks,
    )


def _session(unit: str) -> str:
    return unit.rpartition(":")[0]


def mean_scores(scores: Sequence[QuestionScore]) -> MeanScores:
    """Return the means over questions; zeros without questions."""
    count = len(scores)
    if not count:
        return MeanScores(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    recall = sum(each.recall_10 for each in scores) / count
    spread = sum((each.recall_10 - recall) ** 2 for each in scores) / count
    return MeanScores(
        questions=count,
        ndcg_10=sum(each.ndcg_10 for each in scores) / count,
        recall_10=recall,
        recall_1=sum(each.recall_1 for each in scores) / count,
        all_10=sum(each.all_10 for each in scores) / count,
        any_10=sum(each.any_10 for each in scores) / count,
        session_recall_5=sum(each.session_recall_5 for each in scores) / count,
        recall_5=sum(each.recall_5 for each in scores) / count,
        recall_20=sum(each.recall_20 for each in scores) / count,
        recall_10_error=math.sqrt(spread / count),
    )
