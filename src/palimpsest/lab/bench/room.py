"""The room a run works in: sizes, the folder, and the logs that several measurements share."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Protocol

from palimpsest.core.errors import BadInput
from palimpsest.core.log import Log
from palimpsest.lab.bench.compared import Row, SessionRow
from palimpsest.lab.bench.material import Material, write_session
from palimpsest.lab.bench.timing import Unit
from palimpsest.stores.jsonl import JsonlSessions

EXTRA = "`pal bench` needs the extra: pip install 'palimpsest-agent[bench,search]'"
# A peer that would take longer than this is not measured, rather than guessed.
PATIENCE_S = 20.0


class WallClock:
    """The clock of this machine."""

    def now(self) -> int:
        """Milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Sizes:
    """How much is measured: events of the three logs, sessions for searching and listing, and how often.

    `replayed` are seeds and tokens of the sessions that are made up and replayed when none are given, `peers` says whether under
    the profiles of all programs. `replayed_long` are the tokens of the session whose replay is timed.
    """

    small: int = 1_000
    middle: int = 10_000
    large: int = 100_000
    sessions: int = 2_000
    session_events: int = 48
    rounds: int = 41
    syncs: int = 300
    replayed: tuple[tuple[int, int], ...] = ((1, 120_000), (3, 240_000))
    peers: bool = True
    replayed_long: int = 1_000_000

    @property
    def lengths(self) -> dict[str, int]:
        """The three logs, as bars call them."""
        return {"1k": self.small, "10k": self.middle, "100k": self.large}


FULL = Sizes()
QUICK = Sizes(
    small=1_000, middle=2_000, large=8_000, sessions=200, rounds=15, syncs=60, replayed=((1, 60_000),), peers=False, replayed_long=60_000
)


class Closable(Protocol):
    """Something a room holds for the whole run."""

    def close(self) -> None:
        """Let go."""
        ...


@dataclass
class Room:
    """What measurements share. A log is written when it is first asked for; `recorded` is a folder of sessions to be replayed."""

    folder: Path
    sizes: Sizes = FULL
    tell: Callable[[str], None] = print
    help_command: tuple[str, ...] = ()
    clock: WallClock = field(default_factory=WallClock)
    recorded: Path | None = None
    rows: tuple[Row, ...] = ()
    session_rows: tuple[SessionRow, ...] = ()
    peers: dict[str, Closable] = field(default_factory=dict)
    _materials: dict[str, Material] = field(default_factory=dict)

    @cached_property
    def store(self) -> JsonlSessions:
        """Where the three logs are kept."""
        return JsonlSessions(self.folder / "logs")

    @cached_property
    def orjson(self) -> ModuleType:
        """What the unit is measured with."""
        found = optional("orjson")
        if found is None:
            raise BadInput(EXTRA)
        return found

    @cached_property
    def unit(self) -> Unit:
        """`u`, over the first 1,000 lines of the smallest log."""
        path = self.store.path_of(self.session("1k"))
        return Unit(self.orjson.loads, path.read_bytes().splitlines()[:1_000])

    def session(self, length: str) -> str:
        """The id of a log, written and closed."""
        name = f"events-{length}"
        if name not in self._materials:
            events = self.sizes.lengths[length]
            self.tell(f"writing a log of {events:,} events")
            log, material = write_session(self.store, name, events, self.clock, seed=len(length))
            log.close()
            # What is still on its way to the disk would be waited for by the syncs that are measured.
            getattr(os, "sync", _nothing)()
            self._materials[name] = material
        return name

    def writer(self, length: str) -> tuple[Log, Material]:
        """A log held for writing, and what will happen next in it."""
        name = self.session(length)
        return Log.open(self.store, name, self.clock, write=True), self._materials[name]

    def reader(self, length: str) -> Log:
        """A log opened for reading."""
        return Log.open(self.store, self.session(length), self.clock)

    def close(self) -> None:
        """Let go of what peers hold."""
        while self.peers:
            self.peers.popitem()[1].close()


def _nothing() -> None:
    """Where the system cannot be asked to write everything out."""


def optional(module: str) -> ModuleType | None:
    """A library that may be missing."""
    try:
        return import_module(module)
    except ImportError:
        return None
