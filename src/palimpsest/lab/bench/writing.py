"""Bars of durable appends, forks and disk usage, against raw writes of the same bytes."""

import os
import shutil
import time
from collections.abc import Iterator
from itertools import islice
from statistics import median

from palimpsest.core.events import Body
from palimpsest.core.format.codec import body_bytes, encode_body
from palimpsest.core.log.log import Log
from palimpsest.lab.bench.bars import Bar, bar, peer_value
from palimpsest.lab.bench.peers.agents import NAME, Agents
from palimpsest.lab.bench.workspace import BenchWorkspace, SyntheticRounds, frozen_gc

_GROUP = 10
_ROUNDS = 5
# Bytes of a line before its body: numbers, time and a digest of 64 characters.
_ENVELOPE = 130
sync_file = getattr(os, "fdatasync", os.fsync)


def measure_writing(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `append`, `append_cpu_us` and `group_commit`."""
    peer = Agents.find(workspace)
    if "append" in wanted:
        workspace.announce("durable appends")
        ours, raw = _against_raw(workspace, 1)
        yield bar("append", ours / raw, peer_value(NAME, peer and peer.append(1)), ours_us=ours * 1e6, raw_us=raw * 1e6)
    if "append_cpu_us" in wanted:
        workspace.announce("processor time of appends")
        used = {length: _cpu_us(workspace, length) for length in ("1k", "100k")}
        yield bar("append_cpu_us", max(used.values()), peer_value(NAME, peer and peer.append_cpu_us()), **used)
    if "group_commit" in wanted:
        workspace.announce("group commits")
        ours, raw = _against_raw(workspace, _GROUP)
        yield bar("group_commit", ours / raw, peer_value(NAME, peer and peer.append(_GROUP)), ours_us=ours * 1e6, raw_us=raw * 1e6)


def _raw_copy(workspace: BenchWorkspace) -> int:
    """Return a file descriptor of a copy of the log; sync time depends on the length and layout of a file."""
    path = workspace.folder / "raw"
    shutil.copyfile(workspace.store.path_of(workspace.session("10k")), path)
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.fsync(file)
    return file


def endless_events(rounds: SyntheticRounds) -> Iterator[Body]:
    """Yield the events of a session, one by one."""
    while True:
        yield from rounds.next_round()


def _against_raw(workspace: BenchWorkspace, group: int) -> tuple[float, float]:
    """Return the median seconds of `group` appends with a sync, and of as many raw writes of the same sizes with a sync."""
    log, rounds = workspace.writer("10k")
    raw = _raw_copy(workspace)
    bodies = endless_events(rounds)
    ours: list[float] = []
    plain: list[float] = []
    try:
        with log, frozen_gc():
            for number in range(workspace.sizes.syncs):
                group_bodies = list(islice(bodies, group))
                data = [b" " * _ENVELOPE + encode_body(body) + b"\n" for body in group_bodies]
                # A disk answers sooner right after a write, so the two take turns in going first.
                if number % 2:
                    plain.append(_write(raw, data))
                ours.append(_append(log, group_bodies))
                if not number % 2:
                    plain.append(_write(raw, data))
            finish_open_call(log, bodies)
    finally:
        os.close(raw)
    return median(ours), median(plain)


def finish_open_call(log: Log, bodies: Iterator[Body]) -> None:
    """Append events until no call is open, so that the next measurement may begin with any event."""
    while log.open_call is not None:
        log.append(next(bodies))


def _append(log: Log, bodies: list[Body]) -> float:
    begun = time.perf_counter()
    log.extend(bodies)
    return time.perf_counter() - begun


def _write(file: int, lines: list[bytes]) -> float:
    begun = time.perf_counter()
    for line in lines:
        os.write(file, line)
    sync_file(file)
    return time.perf_counter() - begun


def _cpu_us(workspace: BenchWorkspace, length: str) -> float:
    """Return the CPU microseconds of an append with its sync, checkpoints included: the median over five rounds."""
    log, rounds = workspace.writer(length)
    bodies = endless_events(rounds)
    used: list[float] = []
    with log, frozen_gc():
        for _ in range(_ROUNDS):
            group_bodies = list(islice(bodies, workspace.sizes.syncs * 2))
            begun = time.process_time()
            for body in group_bodies:
                log.append(body)
                log.sync()
            used.append((time.process_time() - begun) / len(group_bodies) * 1e6)
        finish_open_call(log, bodies)
    return median(used)


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
        yield bar("disk_ratio", kept / plain, peer_value(NAME, peer and peer.disk_ratio()), log=kept, plain=plain)


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
        ended = time.perf_counter()
        fresh.close()
        return ended - begun

    def create() -> float:
        path = workspace.store.folder / "empty"
        begun = time.perf_counter()
        path.touch(exist_ok=False)
        ended = time.perf_counter()
        path.unlink()
        return ended - begun

    units, create_units = unit.of_timed(workspace.sizes.rounds, fork, create)
    log.close()
    fork_files = {name: size for name, size in _files(workspace).items() if name not in before}
    return units, create_units, sum(fork_files.values()) // next(numbers)


def _files(workspace: BenchWorkspace) -> dict[str, int]:
    return {str(path): path.stat().st_size for path in workspace.store.folder.rglob("*") if path.is_file()}
