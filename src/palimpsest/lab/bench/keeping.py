"""What sessions cost on the disk, and what a fork costs in time and bytes."""

import time
from collections.abc import Iterator

from palimpsest.core.codec import body_bytes
from palimpsest.lab.bench.bars import Bar, bar, peer_of
from palimpsest.lab.bench.peer_agents import NAME, Agents
from palimpsest.lab.bench.room import Room


def measure_keeping(room: Room, wanted: frozenset[str]) -> Iterator[Bar]:
    """`fork`, `fork_bytes` and `disk_ratio`."""
    if wanted & {"fork", "fork_bytes"}:
        room.tell("forking")
        units, creating, size = _fork(room)
        if "fork" in wanted:
            yield bar("fork", units, create_file_u=creating)
        if "fork_bytes" in wanted:
            yield bar("fork_bytes", size)
    if "disk_ratio" in wanted:
        room.tell("weighing files")
        path = room.store.path_of(room.session("10k"))
        lines = path.read_bytes().splitlines(keepends=True)
        plain = sum(len(body_bytes(line)) + 1 for line in lines)
        kept = path.stat().st_size + path.with_suffix(".checkpoint").stat().st_size
        peer = Agents.find(room)
        yield bar("disk_ratio", kept / plain, peer_of(NAME, peer and peer.disk_ratio()), log=kept, plain=plain)


def _fork(room: Room) -> tuple[float, float, int]:
    """Units that a fork takes and that one empty file takes there, and the bytes of all files that a fork leaves when it is closed."""
    # The log that the unit is measured with must be there before the files are counted.
    unit = room.unit
    log = room.reader("10k")
    numbers = iter(range(1_000_000))
    before = _files(room)

    def fork() -> float:
        begun = time.perf_counter()
        fresh = log.fork(room.store, f"fork-{next(numbers)}")
        ended = time.perf_counter()
        fresh.close()
        return ended - begun

    def create() -> float:
        path = room.store.folder / "empty"
        begun = time.perf_counter()
        path.touch(exist_ok=False)
        ended = time.perf_counter()
        path.unlink()
        return ended - begun

    units, creating = unit.of_timed(room.sizes.rounds, fork, create)
    log.close()
    made = {name: size for name, size in _files(room).items() if name not in before}
    return units, creating, sum(made.values()) // next(numbers)


def _files(room: Room) -> dict[str, int]:
    return {str(path): path.stat().st_size for path in room.store.folder.rglob("*") if path.is_file()}
