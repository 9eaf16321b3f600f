"""How the tokens of a recording are counted for money: our estimate fitted to reported usage, and what the file does not show."""

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

# Factors beyond these come from files that do not hold what was sent, and not from the vocabulary of a model.
LOWEST, HIGHEST = 0.7, 2.0
# Fewer tokens than these that were added and reported teach nothing about the vocabulary.
_LESSON = 5_000
# Runs of fewer calls say too little about what they have in common.
_FEW = 5


class Measure(Value, frozen=True):
    """Tokens are `factor` times our estimate; `unseen` ones (head and tools, as a rule) are in every request and not in the recording."""

    factor: float = 1.0
    unseen: int = 0

    def scaled(self, raw: int) -> int:
        """Tokens of something that we estimate so."""
        return round(raw * self.factor)


class Sample(NamedTuple):
    """One recorded call: our unscaled estimate of what was shown, and what the provider reported; `run` counts the edits before it."""

    raw: int
    reported: int
    run: int


def measure_of(events: Iterable[Event]) -> Measure:
    """The measure that fits a recording; without reported usage that of the model's family, and nothing unseen."""
    samples, model = samples_of(events)
    factor = _factor(samples)
    if factor is None:
        factor = FAMILY_FACTORS[family_of(model)]
    return Measure(round(factor, 4), _unseen(samples, factor))


def samples_of(events: Iterable[Event]) -> tuple[list[Sample], str]:
    """What was shown and what was reported at each call, and the model that replied last."""
    projection, counter = ViewProjection(), TokenCounter(palimpsest_size)
    samples: list[Sample] = []
    raw, run, model = 0, 0, ""
    for event in events:
        body = event.body
        if isinstance(body, CallStarted) and body.purpose == "turn":
            raw = counter.raw(projection.view)
        elif isinstance(body, ModelReplied) and body.purpose == TURN:
            if body.usage.prompt and raw:
                samples.append(Sample(raw, body.usage.prompt, run))
            model = body.model or model
        run += isinstance(body, ViewEdited)
        projection.take(event)
    return samples, model


def _unseen(samples: Sequence[Sample], factor: float) -> int:
    """What every request had beside what is recorded: the least of all runs, for after an edit programs add what is not in the file."""
    runs: dict[int, list[float]] = {}
    for sample in samples:
        runs.setdefault(sample.run, []).append(sample.reported - factor * sample.raw)
    middles = [median(rest) for rest in runs.values() if len(rest) >= _FEW or len(runs) == 1]
    return max(0, round(min(middles, default=0.0)))


def _factor(samples: Sequence[Sample]) -> float | None:
    """How reported sizes grow with ours between edits, in the middle of all calls; none where too little was added."""
    steps = [(one, later) for one, later in pairwise(samples) if one.run == later.run]
    growing = [(later.raw - one.raw, later.reported - one.reported) for one, later in steps]
    growing = [(raw, reported) for raw, reported in growing if raw > 0 and reported > 0]
    added = sum(raw for raw, _ in growing)
    if added < _LESSON:
        return None
    return min(HIGHEST, max(LOWEST, sum(reported for _, reported in growing) / added))
