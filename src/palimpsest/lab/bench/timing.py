"""How time is taken: medians, side by side with what they are compared with, so that noise of the machine hits both."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import TypeAlias

Work: TypeAlias = Callable[[], object]


def seconds(work: Work) -> float:
    """How long one run takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def side_by_side(rounds: int, *works: Work) -> tuple[float, ...]:
    """The median time of each work; they take turns."""
    with steady():
        times = [[seconds(work) for work in works] for _ in range(rounds)]
    return tuple(median(column) for column in zip(*times, strict=True))


@contextmanager
def steady() -> Iterator[None]:
    """Everything that exists is kept out of garbage collection, so that a measurement pays only for what it makes itself."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class Unit:
    """`u`: decoding 1,000 typical events line by line into a list. It is measured next to each thing that is expressed in it."""

    def __init__(self, decode: Callable[[bytes], object], lines: list[bytes]) -> None:
        self._decode = decode
        self._lines = lines
        self._pulses: list[float] = []

    def pulse(self) -> float:
        """Measure it once, in seconds."""
        decode = self._decode
        begun = time.perf_counter()
        events = [decode(line) for line in self._lines]
        took = time.perf_counter() - begun
        del events
        self._pulses.append(took)
        return took

    @property
    def milliseconds(self) -> float:
        """The median of all measurements of this run."""
        while len(self._pulses) < 5:
            self.pulse()
        return median(self._pulses) * 1000

    def of(self, rounds: int, *works: Work) -> tuple[float, ...]:
        """The median time of each work, in units measured in turn with them."""
        *times, unit = side_by_side(rounds, *works, self.pulse)
        return tuple(each / unit for each in times)

    def of_timed(self, rounds: int, *works: Callable[[], float]) -> tuple[float, ...]:
        """The same for works that prepare something first and say themselves how many seconds the rest took."""
        with steady():
            times = [[*(work() for work in works), self.pulse()] for _ in range(rounds)]
        *columns, pulses = zip(*times, strict=True)
        unit = median(pulses)
        return tuple(median(column) / unit for column in columns)
