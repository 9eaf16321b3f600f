"""Measures how the processor time of commands grows when a session of a shape doubles."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct

from palimpsest.lab.bench.workspace import frozen_gc
from palimpsest.lab.growth.shapes import SHAPES, Shape, write_shape

MOST_GROWTH: Final = 2.3
ROUNDS: Final = 3
# Runs one command of `pal` with a home folder, in this process.
RunCommand: TypeAlias = Callable[[Path, Sequence[str]], object]


class Growth(Struct, frozen=True):
    """Processor time of one command on a session of `count` parts, and of twice as many: the best of some rounds, in milliseconds."""

    shape: str
    about: str
    command: str
    count: int
    ms: float
    doubled_ms: float

    @property
    def ratio(self) -> float:
        """How many times longer twice as much takes."""
        return self.doubled_ms / max(self.ms, 0.001)

    @property
    def ok(self) -> bool:
        """Whether the ratio keeps the limit."""
        return self.ratio <= MOST_GROWTH


def measure_growth(
    folder: Path, run: RunCommand, announce: Callable[[str], None], *, shapes: Sequence[Shape] = SHAPES, rounds: int = ROUNDS
) -> tuple[Growth, ...]:
    """Run the commands of each shape on a session and on one of twice its size, in turn, each time in a new home below `folder`."""
    found: list[Growth] = []
    for shape in shapes:
        announce(f"{2 * shape.count:,} {shape.about}")
        times: dict[int, dict[str, float]] = {shape.count: {}, 2 * shape.count: {}}
        for number in range(rounds):
            for count, best in times.items():
                for command, ms in _run_once(shape, count, folder / f"{shape.name}-{count}-{number}", run):
                    best[command] = min(ms, best.get(command, ms))
        small, large = times.values()
        found += [Growth(shape.name, shape.about, name, shape.count, round(ms, 2), round(large[name], 2)) for name, ms in small.items()]
    return tuple(found)


def _run_once(shape: Shape, count: int, folder: Path, run: RunCommand) -> list[tuple[str, float]]:
    """Return the milliseconds of each command of a shape, in order; the first imports the session."""
    path = write_shape(shape, folder, count)
    times: list[tuple[str, float]] = []
    for arguments in (("import", str(path)), *shape.commands):
        with frozen_gc():
            begun = time.process_time()
            run(folder / "home", arguments)
            times.append((arguments[0], (time.process_time() - begun) * 1000))
    return times
