"""Fits the weights of the features: listwise softmax loss with L2, minimised by limited-memory BFGS in plain Python, without randomness."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from operator import mul
from typing import Final, TypeAlias

from pal_lab.recall.data import Question
from palimpsest.core.items import Value
from palimpsest.memory.recall_index import RecallIndex
from palimpsest.memory.recall_ranking import FEATURES, Similar, feature_columns, find_candidates, read_query

# Strength of the L2 penalty: a weight of 1 costs as much as .15 of the log-likelihood of one question.
PENALTY: Final = 0.3
_STEPS, _MEMORY, _TOLERANCE, _HALVINGS = 80, 8, 1e-5, 20

Vector: TypeAlias = list[float]


class Sample(Value, frozen=True, eq=False):
    """One question: its candidates, their features by column, and the places of the evidence among them."""

    question: Question
    ids: tuple[str, ...]
    columns: Mapping[str, list[float]]
    relevant: tuple[int, ...]


def sample(index: RecallIndex, question: Question, similar: Similar | None = None) -> Sample:
    """Return the candidates and features of a question, as ranking computes them."""
    query = read_query(index, question.text)
    candidates = find_candidates(index, query, similar=similar)
    ids = tuple(index.units[number].id for number in candidates.numbers)
    columns = feature_columns(index, query, candidates, similar) if ids else {}
    evidence = set(question.evidence)
    return Sample(question, ids, columns, tuple(place for place, each in enumerate(ids) if each in evidence))


def fit(samples: Sequence[Sample], penalty: float = PENALTY) -> dict[str, float]:
    """Return the weight of each feature, rounded to four decimals; questions without evidence among their candidates teach nothing.

    The loss of a question is the mean negative logarithm of the softmax probability of its relevant candidates.
    """
    useful = [each for each in samples if each.relevant]
    names = tuple(useful[0].columns) if useful else FEATURES
    weights = [0.0] * len(names)
    loss, gradient = _loss(useful, weights, penalty)
    memory: deque[tuple[Vector, Vector]] = deque(maxlen=_MEMORY)
    for _ in range(_STEPS):
        direction = _direction(gradient, memory)
        slope = _dot(direction, gradient)
        step = 1.0 if memory else 1 / math.sqrt(_dot(gradient, gradient) or 1.0)
        for _ in range(_HALVINGS):
            trial = [weight + step * each for weight, each in zip(weights, direction, strict=True)]
            trial_loss, trial_gradient = _loss(useful, trial, penalty)
            if trial_loss <= loss + 1e-4 * step * slope:
                break
            step /= 2
        else:
            break
        moved = [after - before for after, before in zip(trial, weights, strict=True)]
        turned = [after - before for after, before in zip(trial_gradient, gradient, strict=True)]
        if _dot(moved, turned) > 0:
            memory.append((moved, turned))
        gain = loss - trial_loss
        weights, loss, gradient = trial, trial_loss, trial_gradient
        if gain < _TOLERANCE * max(1.0, loss):
            break
    return {name: round(weight, 4) for name, weight in zip(names, weights, strict=True)}


def _loss(samples: Sequence[Sample], weights: Vector, penalty: float) -> tuple[float, Vector]:
    """Return the loss and its gradient."""
    total = penalty / 2 * _dot(weights, weights)
    gradient = [penalty * weight for weight in weights]
    for each in samples:
        scores = [sum(map(mul, weights, row)) for row in zip(*each.columns.values(), strict=True)]
        highest = max(scores)
        powers = [math.exp(score - highest) for score in scores]
        norm = sum(powers)
        share = 1 / len(each.relevant)
        residuals = [power / norm for power in powers]
        total += math.log(norm) + highest - share * sum(scores[place] for place in each.relevant)
        for place in each.relevant:
            residuals[place] -= share
        gradient = [slope + sum(map(mul, residuals, column)) for slope, column in zip(gradient, each.columns.values(), strict=True)]
    return total, gradient


def _direction(gradient: Vector, memory: Sequence[tuple[Vector, Vector]]) -> Vector:
    """Return the direction of descent by the two-loop recursion."""
    found = [-slope for slope in gradient]
    factors: list[float] = []
    for moved, turned in reversed(memory):
        factor = _dot(moved, found) / _dot(moved, turned)
        factors.append(factor)
        found = [value - factor * each for value, each in zip(found, turned, strict=True)]
    if memory:
        moved, turned = memory[-1]
        scale = _dot(moved, turned) / _dot(turned, turned)
        found = [scale * value for value in found]
    for (moved, turned), factor in zip(memory, reversed(factors), strict=True):
        other = _dot(turned, found) / _dot(moved, turned)
        found = [value + (factor - other) * each for value, each in zip(found, moved, strict=True)]
    return found


def _dot(first: Vector, second: Vector) -> float:
    return math.fsum(map(mul, first, second))
