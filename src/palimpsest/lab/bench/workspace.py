"""The room a benchmark runs in: how time is taken, sizes, the folder, and the typical events of the logs that measurements share."""

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from random import Random
from statistics import median
from types import ModuleType
from typing import Protocol, TypeAlias

import msgspec

from palimpsest.core.edits import Fold, Keep, Mask, Put
from palimpsest.core.errors import BadInput
from palimpsest.core.events import (
    Body,
    CallStarted,
    ContextStated,
    ModelReplied,
    SessionOpened,
    Statement,
    ToolReturned,
    ToolStarted,
    TurnEnded,
    Usage,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import Content, Text, ToolCall, ToolResult
from palimpsest.core.log.log import Log
from palimpsest.core.ports import Clock, SessionStore
from palimpsest.lab.bench.tables import ProfileRow, SessionCostRow
from palimpsest.lab.synthetic.texts import TextGenerator
from palimpsest.stores.jsonl import JsonlSessions

MODEL = "claude-sonnet-4-5"
# Items of the view: folded down from the first number to the second. Results: all but the newest few are masked, some at a time.
_MOST_ITEMS, _FEWEST_ITEMS = 440, 340
_MOST_RESULTS, _FEWEST_RESULTS = 40, 16
_KEPT_MESSAGES = 20
# How many blocks of code a file has, twenty files in a row. As in real sessions, the typical result is a fifth of the mean one.
_BLOCKS = (*(1 for _ in range(9)), 2, 2, 3, 4, 5, 6, 9, 12, 16, 22, 54)
_CLEARED = "[cleared; call recall to see it again]"
_RULES = (
    "Read before you write, run the tests after you wrote, and say what you did in a few words. Show the exit code of what fails.\n" * 60
)


@dataclass
class _VisibleItem:
    """An item of the view, as far as folding and masking need to know it."""

    id: str
    round: int
    kind: str


@dataclass
class SyntheticRounds:
    """The events of one session, round after round, without end; a seed always gives the same."""

    seed: int
    seq: int = 0
    _shown: list[_VisibleItem] = field(default_factory=list)
    _unmasked: list[str] = field(default_factory=list)
    _deck: list[int] = field(default_factory=list)
    _round: int = 0

    def __post_init__(self) -> None:
        self._random = Random(self.seed)  # noqa: S311 - made-up sessions keep no secret
        self._prose = TextGenerator(self.seed)
        self._subject = self._prose.subject(self._random)

    def next_round(self) -> Iterator[Body]:
        """What happens from one call to the next: the model uses a tool, or it is done and the user speaks again."""
        self._round += 1
        if self.seq == 0:
            yield self._number(ContextStated(head=(Statement("base", _RULES, "system"),)))
        if self._round % 9 == 1:
            self._subject = self._prose.subject(self._random)
            asked = Text(self._prose.ask(self._random, self._subject))
            yield self._number(UserSaid((asked,)), "user")
        if self._round % 9 == 0:
            yield from self._reply((Text(self._prose.ending(self._random, self._subject), "assistant"),))
            yield self._number(TurnEnded())
        else:
            yield from self._step()
        yield from self._edits()

    def _number(self, body: Body, *kinds: str) -> Body:
        self.seq += 1
        self._shown += [_VisibleItem(f"{self.seq}.{part}", self._round, kind) for part, kind in enumerate(kinds)]
        return body

    def _step(self) -> Iterator[Body]:
        random, prose, subject = self._random, self._prose, self._subject
        path = prose.path(random, subject)
        call = ToolCall(f"toolu_{self.seq:09d}", "read", msgspec.json.encode({"path": path}).decode())
        text = _file(random, prose, self._blocks()) if random.random() < 0.75 else prose.test_run(random, subject, 0)
        said = (Text(prose.step(random, subject), "assistant"),) if random.random() < 0.6 else ()
        yield from self._reply((*said, call))
        yield self._number(ToolStarted(call.call_id, call.tool))
        yield self._number(ToolReturned(ToolResult(call.call_id, (Text(text),)), call.tool, paths=(path,), took_ms=12), "result")
        self._unmasked.append(f"{self.seq}.0")

    def _blocks(self) -> int:
        """Lengths are dealt from a shuffled deck: a short log has the same mix of them as a long one."""
        if not self._deck:
            self._deck = self._random.sample(_BLOCKS, len(_BLOCKS))
        return self._deck.pop()

    def _reply(self, parts: tuple[Content, ...]) -> Iterator[Body]:
        yield self._number(CallStarted(MODEL, "anthropic", estimate=100_000))
        called = self.seq
        usage = Usage(input=3, cache_read=140_000, cache_write=4_000, output=150)
        yield self._number(ModelReplied(parts, called, usage, "tool_use", MODEL, f"msg_{called:08d}"), *("assistant" for _ in parts))

    def _edits(self) -> Iterator[Body]:
        """Old results are masked; what is older still becomes a summary and the user's newest messages."""
        if len(self._unmasked) > _MOST_RESULTS:
            gone, self._unmasked = tuple(self._unmasked[:-_FEWEST_RESULTS]), self._unmasked[-_FEWEST_RESULTS:]
            yield self._number(
                ViewEdited((Mask(gone, _CLEARED),), by="bench", why="old results", tokens_before=170_000, tokens_after=140_000)
            )
        if len(self._shown) > _MOST_ITEMS:
            cut = self._shown[-_FEWEST_ITEMS].round
            old = [item for item in self._shown if item.round < cut]
            kept = [item for item in old if item.kind == "user"][-_KEPT_MESSAGES:]
            summary = Put("summary", Text(self._prose.source(self._random, 2)))
            fold = Fold(old[0].id, old[-1].id, (summary, *(Keep(item.id) for item in kept)))
            yield self._number(ViewEdited((fold,), by="bench", why="the view was full", tokens_before=170_000, tokens_after=120_000))
            self._shown = [_VisibleItem(f"{self.seq}.0.0", 0, "summary"), *kept, *self._shown[len(old) :]]


def _file(random: Random, prose: TextGenerator, blocks: int) -> str:
    """A file as tools show it, most of them short and a few very long.

    In real sessions two thirds of all text stands in strings that are not plain ASCII, most often for such an arrow, and one letter
    in twenty is escaped; both make JSON slower to read than plain text is.
    """
    text = prose.source(random, blocks).replace("'", '"').replace(" and ", "\n\tand ")
    return text.replace("\t", "→") if random.random() < 0.8 else text


def write_session(store: SessionStore, session: str, events: int, clock: Clock, seed: int) -> tuple[Log, SyntheticRounds]:
    """A session of so many events or a few more, still open, and where its events come from; the last event is no edit."""
    rounds = SyntheticRounds(seed)
    log = Log.create(store, SessionOpened(session, cwd="/project", model=MODEL), clock)
    edited = False
    while rounds.seq < events - 1 or edited:
        for body in rounds.next_round():
            log.append(body)
            edited = isinstance(body, ViewEdited)
    return log, rounds


Work: TypeAlias = Callable[[], object]


def seconds(work: Work) -> float:
    """How long one run takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def side_by_side(rounds: int, *works: Work) -> tuple[float, ...]:
    """The median time of each work; they take turns."""
    with frozen_gc():
        times = [[seconds(work) for work in works] for _ in range(rounds)]
    return tuple(median(column) for column in zip(*times, strict=True))


@contextmanager
def frozen_gc() -> Iterator[None]:
    """Everything that exists is kept out of garbage collection, so that a measurement pays only for what it makes itself."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class DecodeUnit:
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
        with frozen_gc():
            times = [[*(work() for work in works), self.pulse()] for _ in range(rounds)]
        *columns, pulses = zip(*times, strict=True)
        unit = median(pulses)
        return tuple(median(column) / unit for column in columns)


EXTRA = "`pal bench` needs the extra: pip install 'palimpsest-agent[bench,search]'"
# A peer that would take longer than this is not measured, rather than guessed.
PATIENCE_S = 20.0


class WallClock:
    """The clock of this machine."""

    def now(self) -> int:
        """Milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class BenchSizes:
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


FULL = BenchSizes()
QUICK = BenchSizes(
    small=1_000, middle=2_000, large=8_000, sessions=200, rounds=15, syncs=60, replayed=((1, 60_000),), peers=False, replayed_long=60_000
)


class Closable(Protocol):
    """Something a room holds for the whole run."""

    def close(self) -> None:
        """Let go."""
        ...


@dataclass
class Workspace:
    """What measurements share. A log is written when it is first asked for; `recorded` is a folder of sessions to be replayed."""

    folder: Path
    sizes: BenchSizes = FULL
    tell: Callable[[str], None] = print
    help_command: tuple[str, ...] = ()
    clock: WallClock = field(default_factory=WallClock)
    recorded: Path | None = None
    rows: tuple[ProfileRow, ...] = ()
    session_rows: tuple[SessionCostRow, ...] = ()
    peers: dict[str, Closable] = field(default_factory=dict)
    _rounds_by_log: dict[str, SyntheticRounds] = field(default_factory=dict)

    @cached_property
    def store(self) -> JsonlSessions:
        """Where the three logs are kept."""
        return JsonlSessions(self.folder / "logs")

    @cached_property
    def orjson(self) -> ModuleType:
        """What the unit is measured with."""
        found = import_optional("orjson")
        if found is None:
            raise BadInput(EXTRA)
        return found

    @cached_property
    def unit(self) -> DecodeUnit:
        """`u`, over the first 1,000 lines of the smallest log."""
        path = self.store.path_of(self.session("1k"))
        return DecodeUnit(self.orjson.loads, path.read_bytes().splitlines()[:1_000])

    def session(self, length: str) -> str:
        """The id of a log, written and closed."""
        name = f"events-{length}"
        if name not in self._rounds_by_log:
            events = self.sizes.lengths[length]
            self.tell(f"writing a log of {events:,} events")
            log, rounds = write_session(self.store, name, events, self.clock, seed=len(length))
            log.close()
            # What is still on its way to the disk would be waited for by the syncs that are measured.
            getattr(os, "sync", _nothing)()
            self._rounds_by_log[name] = rounds
        return name

    def writer(self, length: str) -> tuple[Log, SyntheticRounds]:
        """A log held for writing, and what will happen next in it."""
        name = self.session(length)
        return Log.open(self.store, name, self.clock, write=True), self._rounds_by_log[name]

    def reader(self, length: str) -> Log:
        """A log opened for reading."""
        return Log.open(self.store, self.session(length), self.clock)

    def close(self) -> None:
        """Let go of what peers hold."""
        while self.peers:
            self.peers.popitem()[1].close()


def _nothing() -> None:
    """Where the system cannot be asked to write everything out."""


def import_optional(module: str) -> ModuleType | None:
    """A library that may be missing."""
    try:
        return import_module(module)
    except ImportError:
        return None
