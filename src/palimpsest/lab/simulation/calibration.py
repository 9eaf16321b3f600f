"""Calibrates our token estimate to the usage that a recording reports, and estimates the tokens that the file does not contain."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from palimpsest.core.events import TURN, CallStarted, Event, ModelReplied, ViewEdited
from palimpsest.core.items import Value
from palimpsest.core.projections.view import ViewProjection
from palimpsest.core.tokens.counter import TokenCounter
from palimpsest.core.tokens.estimate import FAMILY_FACTORS, family_of
from palimpsest.core.tokens.sizes import palimpsest_size

# Factors beyond these come from incomplete files, not from the tokenizer of a model.
LOWEST_FACTOR, HIGHEST_FACTOR = 0.7, 2.0
# Fewer added and reported tokens than these say nothing about the tokenizer.
_FEWEST_TOKENS = 5_000
# Runs of fewer calls say too little about the tokens that all their requests share.
_FEWEST_CALLS = 5


class TokenCalibration(Value, frozen=True):
    """Tokens are `factor` times our estimate; `unseen` tokens are in every request but not in the recording, usually head and tools."""

    factor: float = 1.0
    unseen: int = 0

    def scaled(self, raw: int) -> int:
        """Convert an unscaled estimate to tokens."""
        return round(raw * self.factor)


class UsageSample(NamedTuple):
    """One recorded call: our unscaled estimate of the prompt, the reported tokens, and the number of edits before it (`run`)."""

    raw: int
    reported: int
    run: int


def calibrate(events: Iterable[Event]) -> TokenCalibration:
    """Fit a calibration to a recording; without enough usage, take the factor of the model's family."""
    samples, model = samples_of(events)
    factor = _factor(samples)
    if factor is None:
        factor = FAMILY_FACTORS[family_of(model)]
    return TokenCalibration(round(factor, 4), _unseen_tokens(samples, factor))


def samples_of(events: Iterable[Event]) -> tuple[list[UsageSample], str]:
    """Return a sample for each turn call with usage, and the model that replied last."""
    projection, counter = ViewProjection(), TokenCounter(palimpsest_size)
    samples: list[UsageSample] = []
    raw, run, model = 0, 0, ""
    for event in events:
        body = event.body
        if isinstance(body, CallStarted) and body.purpose == "turn":
            raw = counter.raw(projection.view)
        elif isinstance(body, ModelReplied) and body.purpose == TURN:
            if body.usage.prompt and raw:
                samples.append(UsageSample(raw, body.usage.prompt, run))
            model = body.model or model
        run += isinstance(body, ViewEdited)
        projection.take(event)
    return samples, model


def _unseen_tokens(samples: Sequence[UsageSample], factor: float) -> int:
    """Return the tokens that every request had beside the recorded ones.

    It is the lowest median of all runs, because after an edit programs add text that is not in the file.
    """
    runs: dict[int, list[float]] = {}
    for sample in samples:
        runs.setdefault(sample.run, []).append(sample.reported - factor * sample.raw)
    middles = [median(rest) for rest in runs.values() if len(rest) >= _FEWEST_CALLS or len(runs) == 1]
    return max(0, round(min(middles, default=0.0)))


def _factor(samples: Sequence[UsageSample]) -> float | None:
    """Return reported growth divided by estimated growth between edits, within bounds; None if too few tokens were added."""
    steps = [(one, later) for one, later in pairwise(samples) if one.run == later.run]
    growths = [(later.raw - one.raw, later.reported - one.reported) for one, later in steps]
    growths = [(raw, reported) for raw, reported in growths if raw > 0 and reported > 0]
    added = sum(raw for raw, _ in growths)
    if added < _FEWEST_TOKENS:
        return None
    return min(HIGHEST_FACTOR, max(LOWEST_FACTOR, sum(reported for _, reported in growths) / added))
