"""Workspace of a benchmark run: timing, sizes, the working folder, and the generated logs that measurements share."""

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from random import Random
from statistics import median
from types import ModuleType
from typing import TypeAlias

import msgspec

from pal_lab.bench.bars import ProfileRow, SessionCostRow
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
from palimpsest.core.items import Content, Fold, Keep, Mask, Put, Text, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.core.ports import Clock, SessionStore
from palimpsest.stores.home import SystemClock
from palimpsest.stores.sessions import JsonlSessions
from palimpsest.testing.synthetic import TextGenerator

MODEL = "claude-sonnet-4-5"
# A view of more than the first number of items is folded to the second; of more results than the third, all but the fourth are masked.
_MOST_ITEMS, _FEWEST_ITEMS = 440, 340
_MOST_RESULTS, _FEWEST_RESULTS = 40, 16
_KEPT_MESSAGES = 20
# Code blocks of each of twenty files. As in real sessions, the median result is a fifth of the mean.
_BLOCKS = (*(1 for _ in range(9)), 2, 2, 3, 4, 5, 6, 9, 12, 16, 22, 54)
_CLEARED = "[cleared; call recall to see it again]"
_INSTRUCTIONS = (
    "Read before you write, run the tests after you wrote, and say what you did in a few words. Show the exit code of what fails.\n" * 60
)


@dataclass
class _VisibleItem:
    """An item of the view: its id, the round that added it, and its kind."""

    id: str
    round: int
    kind: str


@dataclass
class SyntheticRounds:
    """Generates the events of one session round by round, without end, reproducible from a seed."""

    seed: int
    seq: int = 0
    _visible_items: list[_VisibleItem] = field(default_factory=list)
    _unmasked: list[str] = field(default_factory=list)
    _deck: list[int] = field(default_factory=list)
    _round: int = 0

    def __post_init__(self) -> None:
        self._random = Random(self.seed)  # noqa: S311 - synthetic sessions hold no secret
        self._texts = TextGenerator(self.seed)
        self._subject = self._texts.subject(self._random)

    def next_round(self) -> Iterator[Body]:
        """Yield the events of one round: a call with a tool use, or the end of a turn; every ninth round a new user message."""
        self._round += 1
        if self.seq == 0:
            yield self._count_event(ContextStated(head=(Statement("base", _INSTRUCTIONS, "system"),)))
        if self._round % 9 == 1:
            self._subject = self._texts.subject(self._random)
            message = Text(self._texts.ask(self._random, self._subject))
            yield self._count_event(UserSaid((message,)), "user")
        if self._round % 9 == 0:
            yield from self._reply((Text(self._texts.ending(self._random, self._subject), "assistant"),))
            yield self._count_event(TurnEnded())
        else:
            yield from self._step()
        yield from self._edits()

    def _count_event(self, body: Body, *kinds: str) -> Body:
        self.seq += 1
        self._visible_items += [_VisibleItem(f"{self.seq}.{part}", self._round, kind) for part, kind in enumerate(kinds)]
        return body

    def _step(self) -> Iterator[Body]:
        random, texts, subject = self._random, self._texts, self._subject
        path = texts.path(random, subject)
        call = ToolCall(f"toolu_{self.seq:09d}", "read", msgspec.json.encode({"path": path}).decode())
        text = _file_text(random, texts, self._blocks()) if random.random() < 0.75 else texts.test_run(random, subject)
        text_parts = (Text(texts.step(random, subject), "assistant"),) if random.random() < 0.6 else ()
        yield from self._reply((*text_parts, call))
        yield self._count_event(ToolStarted(call.call_id, call.tool))
        yield self._count_event(ToolReturned(ToolResult(call.call_id, (Text(text),)), call.tool, paths=(path,), took_ms=12), "result")
        self._unmasked.append(f"{self.seq}.0")

    def _blocks(self) -> int:
        """Return the number of code blocks of the next file, from a shuffled deck, so that short logs have the same mix as long ones."""
        if not self._deck:
            self._deck = self._random.sample(_BLOCKS, len(_BLOCKS))
        return self._deck.pop()

    def _reply(self, parts: tuple[Content, ...]) -> Iterator[Body]:
        yield self._count_event(CallStarted(MODEL, "anthropic", estimate=100_000))
        call_seq = self.seq
        usage = Usage(input=3, cache_read=140_000, cache_write=4_000, output=150)
        yield self._count_event(
            ModelReplied(parts, call_seq, usage, "tool_use", MODEL, f"msg_{call_seq:08d}"), *("assistant" for _ in parts)
        )

    def _edits(self) -> Iterator[Body]:
        """Yield edits that are due: old results are masked, and the oldest items are folded into a summary and user messages."""
        if len(self._unmasked) > _MOST_RESULTS:
            cleared, self._unmasked = tuple(self._unmasked[:-_FEWEST_RESULTS]), self._unmasked[-_FEWEST_RESULTS:]
            yield self._count_event(
                ViewEdited((Mask(cleared, _CLEARED),), by="bench", why="old results", tokens_before=170_000, tokens_after=140_000)
            )
        if len(self._visible_items) > _MOST_ITEMS:
            cut = self._visible_items[-_FEWEST_ITEMS].round
            folded = [item for item in self._visible_items if item.round < cut]
            kept = [item for item in folded if item.kind == "user"][-_KEPT_MESSAGES:]
            summary = Put("summary", Text(self._texts.source(self._random, 2)))
            fold = Fold(folded[0].id, folded[-1].id, (summary, *(Keep(item.id) for item in kept)))
            yield self._count_event(ViewEdited((fold,), by="bench", why="the view was full", tokens_before=170_000, tokens_after=120_000))
            self._visible_items = [_VisibleItem(f"{self.seq}.0.0", 0, "summary"), *kept, *self._visible_items[len(folded) :]]


def _file_text(random: Random, texts: TextGenerator, blocks: int) -> str:
    """Return a file as tools print it.

    In real sessions two thirds of all text is in strings that are not plain ASCII, mostly because of such an arrow, and one character
    in twenty is escaped; both make JSON slower to decode.
    """
    text = texts.source(random, blocks).replace("'", '"').replace(" and ", "\n\tand ")
    return text.replace("\t", "→") if random.random() < 0.8 else text


def write_session(store: SessionStore, session: str, events: int, clock: Clock, seed: int) -> tuple[Log, SyntheticRounds]:
    """Write a session of at least so many events that does not end with an edit. Returns its open log and its generator."""
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
    """Return the seconds that one run takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def side_by_side(rounds: int, *works: Work) -> tuple[float, ...]:
    """Return the median seconds of each work, measured in turn."""
    with frozen_gc():
        times = [[seconds(work) for work in works] for _ in range(rounds)]
    return tuple(median(column) for column in zip(*times, strict=True))


@contextmanager
def frozen_gc() -> Iterator[None]:
    """Exclude all existing objects from garbage collection, so that a measurement pays only for its own."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class DecodeUnit:
    """The unit `u`: the time to decode 1,000 typical events line by line, measured in turn with each work that is expressed in it."""

    def __init__(self, decode: Callable[[bytes], object], lines: list[bytes]) -> None:
        self._decode = decode
        self._lines = lines
        self._unit_seconds: list[float] = []

    def measure(self) -> float:
        """Measure the unit once, in seconds."""
        decode = self._decode
        begun = time.perf_counter()
        events = [decode(line) for line in self._lines]
        took = time.perf_counter() - begun
        del events
        self._unit_seconds.append(took)
        return took

    @property
    def milliseconds(self) -> float:
        """Median of all measurements of this run, in milliseconds."""
        while len(self._unit_seconds) < 5:
            self.measure()
        return median(self._unit_seconds) * 1000

    def of(self, rounds: int, *works: Work) -> tuple[float, ...]:
        """Return the median time of each work, in units."""
        *times, unit = side_by_side(rounds, *works, self.measure)
        return tuple(each / unit for each in times)

    def of_timed(self, rounds: int, *works: Callable[[], float]) -> tuple[float, ...]:
        """Return the median time, in units, of works that return their own seconds, without their preparation."""
        with frozen_gc():
            times = [[*(work() for work in works), self.measure()] for _ in range(rounds)]
        *columns, unit_seconds = zip(*times, strict=True)
        unit = median(unit_seconds)
        return tuple(median(column) / unit for column in columns)


EXTRA = "`pal bench` needs the extra: pip install 'palimpsest-agent[bench,search]'"
_sync_file = getattr(os, "fdatasync", os.fsync)


def write_synced(file: int, *chunks: bytes) -> None:
    """Write chunks to a file descriptor, and sync it once."""
    for chunk in chunks:
        os.write(file, chunk)
    _sync_file(file)


@dataclass(frozen=True)
class BenchSizes:
    """Sizes of a run: events of the three logs, sessions for searching and listing, and repetitions.

    `replayed` are seeds and tokens of the synthetic sessions that are replayed if no folder is given; with `peers` they are replayed
    under the profiles of all programs. `replayed_long` is the number of tokens of the session whose replay is timed.
    `terminal_turns` are the turns over which the memory of the terminal is measured, and half of the requests over which that of the
    gateway is. `streams` run through the gateway at once, each with `stream_events`.
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
    terminal_turns: int = 1_000
    streams: int = 50
    stream_events: int = 40

    @property
    def lengths(self) -> dict[str, int]:
        """Events of the three logs, by the suffix of their bars."""
        return {"1k": self.small, "10k": self.middle, "100k": self.large}


FULL = BenchSizes()
QUICK = BenchSizes(
    small=1_000,
    middle=2_000,
    large=8_000,
    sessions=200,
    rounds=15,
    syncs=60,
    replayed=((1, 60_000),),
    peers=False,
    replayed_long=60_000,
    terminal_turns=500,
)


@dataclass
class BenchWorkspace:
    """State that measurements share; a log is written on first use, `recorded` is a folder of sessions to replay.

    `peers` are other libraries by name, `resources` are closed at the end of the run.
    """

    folder: Path
    sizes: BenchSizes = FULL
    announce: Callable[[str], None] = print
    pal_command: tuple[str, ...] = ()
    clock: SystemClock = field(default_factory=SystemClock)
    recorded: Path | None = None
    rows: tuple[ProfileRow, ...] = ()
    session_rows: tuple[SessionCostRow, ...] = ()
    peers: dict[str, object] = field(default_factory=dict)
    resources: ExitStack = field(default_factory=ExitStack)
    _rounds_by_log: dict[str, SyntheticRounds] = field(default_factory=dict)

    @cached_property
    def store(self) -> JsonlSessions:
        """Store of the three logs."""
        return JsonlSessions(self.folder / "logs")

    @cached_property
    def orjson(self) -> ModuleType:
        """The JSON library that decodes for the unit. Raises `BadInput` if it is not installed."""
        found = import_optional("orjson")
        if found is None:
            raise BadInput(EXTRA)
        return found

    @cached_property
    def unit(self) -> DecodeUnit:
        """The unit, over the first 1,000 lines of the smallest log."""
        path = self.store.path_of(self.session("1k"))
        return DecodeUnit(self.orjson.loads, path.read_bytes().splitlines()[:1_000])

    def session(self, length: str) -> str:
        """Return the id of a log; write and close it on first use."""
        name = f"events-{length}"
        if name not in self._rounds_by_log:
            events = self.sizes.lengths[length]
            self.announce(f"writing a log of {events:,} events")
            log, rounds = write_session(self.store, name, events, self.clock, seed=len(length))
            log.close()
            # Pending writes would slow down the syncs that are measured.
            if hasattr(os, "sync"):
                os.sync()
            self._rounds_by_log[name] = rounds
        return name

    def writer(self, length: str) -> tuple[Log, SyntheticRounds]:
        """Return a log open for writing, and the generator of its next events."""
        name = self.session(length)
        return Log.open(self.store, name, self.clock, write=True), self._rounds_by_log[name]

    def reader(self, length: str) -> Log:
        """Return a log open for reading."""
        return Log.open(self.store, self.session(length), self.clock)


def import_optional(module: str) -> ModuleType | None:
    """Return a module, or None if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        return None
