"""Measures how long one query takes in an index of 50,000 long units, in the configuration whose quality is gated."""

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from palimpsest.core.items import Value
from palimpsest.lab.memory.beam import read_data
from palimpsest.lab.memory.conversations import EvaluationData
from palimpsest.memory.recall.index import RecallIndex
from palimpsest.memory.recall.ranking import rank
from palimpsest.memory.recall.units import RecallUnit

UNITS: Final = 50_000
WORDS_A_MESSAGE: Final = 275
QUERIES: Final = 400
P95_LIMIT_MS, WORST_LIMIT_MS = 10.0, 50.0
_SESSION_UNITS: Final = 20
_SEED: Final = 14
# One unit in three has a word that few others have, as identifiers are.
_RARE_SHARE, _RARE_WORDS = 0.33, 20_000


class Latency(Value, frozen=True):
    """Milliseconds a query, by the clock and of processor time, which other programs on the machine do not change."""

    units: int
    queries: int
    build_s: float
    p50_ms: float
    p95_ms: float
    worst_ms: float
    p95_cpu_ms: float
    worst_cpu_ms: float
    seed: int = _SEED

    @property
    def ok(self) -> bool:
        """Whether the limits hold, by the clock."""
        return self.p95_ms < P95_LIMIT_MS and self.worst_ms <= WORST_LIMIT_MS


def measure_latency(path: Path, *, units: int = UNITS, queries: int = QUERIES, announce: Callable[[str], None] = lambda _: None) -> Latency:
    """Measure queries over units that are made of turns of a file in the format of LoCoMo, joined at random to 275 words each.

    Raises `BadInput` if the file cannot be read. Needs about 8 kB of memory a unit.
    """
    data = read_data(path)
    chance = random.Random(_SEED)  # noqa: S311 - the same units in every run
    announce(f"indexing {units:,} units of {WORDS_A_MESSAGE} words")
    begun = time.perf_counter()
    index = _index(data, units, chance)
    built = time.perf_counter() - begun
    questions = [question.text for conversation in data.conversations for question in conversation.questions]
    chosen = [chance.choice(questions) for _ in range(queries)]
    announce(f"asking {queries:,} queries")
    clock, processor = _times(index, chosen)
    return Latency(
        units=units,
        queries=queries,
        build_s=round(built, 1),
        p50_ms=quantile(clock, 0.5),
        p95_ms=quantile(clock, 0.95),
        worst_ms=quantile(clock, 1.0),
        p95_cpu_ms=quantile(processor, 0.95),
        worst_cpu_ms=quantile(processor, 1.0),
    )


def _index(data: EvaluationData, units: int, chance: random.Random) -> RecallIndex:
    turns = [(unit.text, len(unit.text.split())) for conversation in data.conversations for unit in conversation.units]
    index = RecallIndex()
    for number in range(units):
        texts: list[str] = [f"id{chance.randrange(_RARE_WORDS)}"] if chance.random() < _RARE_SHARE else []
        size = 0
        while size < WORDS_A_MESSAGE:
            text, length = chance.choice(turns)
            texts.append(text)
            size += max(1, length)
        role = "assistant" if number % 2 else "user"
        index.add(RecallUnit(str(number), " ".join(texts), role=role, session=str(number // _SESSION_UNITS), date="2025-03-04"))
    return index


def _times(index: RecallIndex, queries: Sequence[str]) -> tuple[list[float], list[float]]:
    clock: list[float] = []
    processor: list[float] = []
    rank(index, queries[0])
    for query in queries:
        begun, worked = time.perf_counter(), time.thread_time()
        rank(index, query)
        processor.append((time.thread_time() - worked) * 1000)
        clock.append((time.perf_counter() - begun) * 1000)
    return clock, processor


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all does not exceed."""
    return round(sorted(values)[max(0, -(-int(share * 1000) * len(values) // 1000) - 1)], 2)
