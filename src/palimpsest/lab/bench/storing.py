"""Bars of a log on disk: resuming and loading it, durable appends against raw writes of the same bytes, forks and disk usage."""

import os
import shutil
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from statistics import median

from palimpsest.core.events import Body, ViewEdited
from palimpsest.core.format.codec import body_bytes, encode_body
from palimpsest.core.log.log import CHECKPOINT_EVERY, Log
from palimpsest.core.tokens.budget import decide, used
from palimpsest.core.tokens.counter import TokenCounter
from palimpsest.core.tokens.sizes import palimpsest_size
from palimpsest.lab.bench.bars import Bar, bar, peer_value
from palimpsest.lab.bench.peers import Agents
from palimpsest.lab.bench.workspace import MODEL, BenchWorkspace, SyntheticRounds, frozen_gc, seconds, side_by_side, write_synced
from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.stores.jsonl import JsonlSessions
from palimpsest.wire.models.cards import card

_CARD = card(MODEL)
_BUDGET = palimpsest_budget(_CARD.window, _CARD.reply)
_GROUP = 10
_ROUNDS = 5
# Bytes of a line before its body: numbers, time and a digest of 64 characters.
_ENVELOPE = 130


def measure_resuming(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `resume_*`."""
    peer = Agents.find(workspace)
    for length, events in workspace.sizes.lengths.items():
        name = f"resume_{length}"
        if name in wanted:
            workspace.announce(f"resuming after {events:,} events")
            yield bar(name, _resume_units(workspace, workspace.store, length), peer_value(Agents.NAME, peer and peer.resume(length)))
    if "resume_edited" in wanted:
        workspace.announce("resuming after an edit")
        _extend_to_edit(workspace)
        yield bar("resume_edited", _resume_units(workspace, workspace.store, "10k"))
    if "resume_crashed" in wanted:
        workspace.announce("resuming after a crash")
        yield bar("resume_crashed", _resume_units(workspace, _copy_before_checkpoint(workspace), "10k"))


def _resume_units(workspace: BenchWorkspace, store: JsonlSessions, length: str) -> float:
    """Return the units from opening a session to a view ready for the model; closing is not counted."""
    session = workspace.session(length)

    def resume() -> float:
        begun = time.perf_counter()
        log = Log.open(store, session, workspace.clock)
        decide(used(log.view, TokenCounter(palimpsest_size)), _BUDGET)
        took = time.perf_counter() - begun
        log.close()
        return took

    (units,) = workspace.unit.of_timed(workspace.sizes.rounds, resume)
    return units


def _extend_to_edit(workspace: BenchWorkspace) -> None:
    """Extend the log of middle length until its last event is an edit, after which only the edit's own token counts are known."""
    log, rounds = workspace.writer("10k")
    with log:
        edited = False
        while not edited:
            for body in rounds.next_round():
                log.append(body)
                edited = isinstance(body, ViewEdited)


def _copy_before_checkpoint(workspace: BenchWorkspace) -> JsonlSessions:
    """Return a store with a copy of the log of middle length that is as far ahead of its checkpoint as possible."""
    store = JsonlSessions(workspace.folder / "crashed")
    log, rounds = workspace.writer("10k")
    with log:
        log.checkpoint()
        last_seq = rounds.seq + CHECKPOINT_EVERY
        _copy_file(workspace, store, ".checkpoint")
        while rounds.seq < last_seq:
            for body in rounds.next_round():
                log.append(body)
        _copy_file(workspace, store, ".jsonl")
    return store


def measure_load(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `load`: opening a whole log without its checkpoint, against decoding the same lines."""
    workspace.announce("loading without a checkpoint")
    session = workspace.session("10k")
    store = JsonlSessions(workspace.folder / "bare")
    _copy_file(workspace, store, ".jsonl")
    path = store.path_of(session)
    loads = workspace.orjson.loads

    def decode() -> None:
        for line in path.read_bytes().splitlines():
            loads(line)

    opened: list[Log] = []
    whole, plain = side_by_side(
        max(3, workspace.sizes.rounds // 4), lambda: opened.append(Log.open(store, session, workspace.clock)), decode
    )
    for log in opened:
        log.close()
    peer = Agents.find(workspace)
    yield bar("load", whole / plain, peer_value(Agents.NAME, peer and peer.load()), load_ms=whole * 1000, decode_ms=plain * 1000)


def _copy_file(workspace: BenchWorkspace, store: JsonlSessions, suffix: str) -> None:
    session = workspace.session("10k")
    store.folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(workspace.store.path_of(session).with_suffix(suffix), store.path_of(session).with_suffix(suffix))


def measure_writing(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `append`, `append_cpu_us` and `group_commit`."""
    peer = Agents.find(workspace)
    if "append" in wanted:
        workspace.announce("durable appends")
        yield _append_bar(workspace, "append", 1)
    if "append_cpu_us" in wanted:
        workspace.announce("processor time of appends")
        by_length = {length: _cpu_us(workspace, length) for length in ("1k", "100k")}
        yield bar("append_cpu_us", max(by_length.values()), peer_value(Agents.NAME, peer and peer.append_cpu_us()), **by_length)
    if "group_commit" in wanted:
        workspace.announce("group commits")
        yield _append_bar(workspace, "group_commit", _GROUP)


def _append_bar(workspace: BenchWorkspace, name: str, group: int) -> Bar:
    ours, raw = _against_raw(workspace, group)
    peer = Agents.find(workspace)
    return bar(name, ours / raw, peer_value(Agents.NAME, peer and peer.append(group)), ours_us=ours * 1e6, raw_us=raw * 1e6)


def _raw_copy(workspace: BenchWorkspace) -> int:
    """Return a file descriptor of a copy of the log; sync time depends on the length and layout of a file."""
    path = workspace.folder / "raw"
    shutil.copyfile(workspace.store.path_of(workspace.session("10k")), path)
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.fsync(file)
    return file


def _endless_events(rounds: SyntheticRounds) -> Iterator[Body]:
    while True:
        yield from rounds.next_round()


def _against_raw(workspace: BenchWorkspace, group: int) -> tuple[float, float]:
    """Return the median seconds of `group` appends with a sync, and of as many raw writes of the same sizes with a sync."""
    log, rounds = workspace.writer("10k")
    raw = _raw_copy(workspace)
    bodies = _endless_events(rounds)
    ours: list[float] = []
    plain: list[float] = []
    try:
        with log, frozen_gc():
            for number in range(workspace.sizes.syncs):
                group_bodies = list(islice(bodies, group))
                data = [b" " * _ENVELOPE + encode_body(body) + b"\n" for body in group_bodies]
                # A disk answers sooner right after a write, so the two take turns in going first.
                if number % 2:
                    plain.append(seconds(partial(write_synced, raw, *data)))
                ours.append(seconds(partial(log.extend, group_bodies)))
                if not number % 2:
                    plain.append(seconds(partial(write_synced, raw, *data)))
            _finish_open_call(log, bodies)
    finally:
        os.close(raw)
    return median(ours), median(plain)


def _finish_open_call(log: Log, bodies: Iterator[Body]) -> None:
    """Append events until no call is open, so that the next measurement may begin with any event."""
    while log.open_call is not None:
        log.append(next(bodies))


def _cpu_us(workspace: BenchWorkspace, length: str) -> float:
    """Return the CPU microseconds of an append with its sync, checkpoints included: the median over five rounds."""
    log, rounds = workspace.writer(length)
    bodies = _endless_events(rounds)
    cpu_us: list[float] = []
    with log, frozen_gc():
        for _ in range(_ROUNDS):
            group_bodies = list(islice(bodies, workspace.sizes.syncs * 2))
            begun = time.process_time()
            for body in group_bodies:
                log.append(body)
                log.sync()
            cpu_us.append((time.process_time() - begun) / len(group_bodies) * 1e6)
        _finish_open_call(log, bodies)
    return median(cpu_us)


def measure_keeping(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `fork`, `fork_bytes` and `disk_ratio`."""
    if wanted & {"fork", "fork_bytes"}:
        workspace.announce("forking")
        units, create_units, size = _fork(workspace)
        if "fork" in wanted:
            yield bar("fork", units, create_file_u=create_units)
        if "fork_bytes" in wanted:
            yield bar("fork_bytes", size)
    if "disk_ratio" in wanted:
        workspace.announce("measuring file sizes")
        path = workspace.store.path_of(workspace.session("10k"))
        lines = path.read_bytes().splitlines(keepends=True)
        plain = sum(len(body_bytes(line)) + 1 for line in lines)
        kept = path.stat().st_size + path.with_suffix(".checkpoint").stat().st_size
        peer = Agents.find(workspace)
        yield bar("disk_ratio", kept / plain, peer_value(Agents.NAME, peer and peer.disk_ratio()), log=kept, plain=plain)


def _fork(workspace: BenchWorkspace) -> tuple[float, float, int]:
    """Return the units of a fork and of creating an empty file, and the bytes of all files of a closed fork."""
    # The log of the unit must exist before the files are counted.
    unit = workspace.unit
    log = workspace.reader("10k")
    numbers = iter(range(1_000_000))
    before = _files(workspace)

    def fork() -> float:
        begun = time.perf_counter()
        fresh = log.fork(workspace.store, f"fork-{next(numbers)}")
        took = time.perf_counter() - begun
        fresh.close()
        return took

    def create() -> float:
        path = workspace.store.folder / "empty"
        took = seconds(partial(path.touch, exist_ok=False))
        path.unlink()
        return took

    units, create_units = unit.of_timed(workspace.sizes.rounds, fork, create)
    log.close()
    fork_files = {name: size for name, size in _files(workspace).items() if name not in before}
    return units, create_units, sum(fork_files.values()) // next(numbers)


def _files(workspace: BenchWorkspace) -> dict[str, int]:
    return {str(path): path.stat().st_size for path in workspace.store.folder.rglob("*") if path.is_file()}
