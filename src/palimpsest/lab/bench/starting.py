"""How long a person waits for the first line of help."""

import subprocess
from collections.abc import Iterator
from statistics import median

from palimpsest.lab.bench.bars import Bar, bar
from palimpsest.lab.bench.room import Room
from palimpsest.lab.bench.timing import seconds


def measure_start(room: Room, wanted: frozenset[str]) -> Iterator[Bar]:
    """`help_ms`."""
    room.tell("starting")
    command = room.help_command

    def start() -> None:
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - the command that is being measured

    start()
    yield bar("help_ms", median(seconds(start) for _ in range(5)) * 1000)
