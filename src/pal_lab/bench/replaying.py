"""Bars of time and memory for replaying a long session under six profiles, measured in a separate process."""

import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from pal.replay.comparison import COMPARED, ReplayPlan, as_builtins, compared, replay_session
from pal.replay.recording import load_log
from pal.replay.simulation import replay_card
from pal_lab.bench.bars import Bar, bar, without_limit
from pal_lab.bench.workspace import BenchWorkspace, import_optional, seconds
from palimpsest.core.log import Log
from palimpsest.core.tokens import FAMILY_FACTORS, family_of
from palimpsest.policies.named import profile
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.stores.sessions import JsonlSessions
from palimpsest.testing.synthetic import synthetic_session

REPLAY_BARS: Final = frozenset({"replay_seconds", "replay_peak_mb"})
# The limits apply to sessions of at least this many tokens.
LIMITED_TOKENS: Final = 1_000_000
_SEED: Final = 1
_SESSION: Final = f"made-up-{_SEED}"
_MODEL: Final = "claude-sonnet-4-5"
_ROUNDS: Final = 3


class ReplayMeasurement(Struct, frozen=True):
    """Report of the replaying process: tokens of the recording, CPU seconds, and peak memory in MiB."""

    tokens: int
    cpu_s: float
    peak_mb: float | None


def measure_replaying(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `replay_seconds` and `replay_peak_mb`."""
    tokens = workspace.sizes.replayed_long
    workspace.announce(f"replaying {tokens:,} tokens under {len(COMPARED)} profiles")
    store = JsonlSessions(workspace.folder / "replayed")
    _write(store, tokens)
    command = (sys.executable, "-m", "pal_lab.bench.replaying", str(store.folder), _SESSION)
    run = partial(subprocess.run, command, check=True, capture_output=True)
    measured = msgspec.json.decode(run().stdout, type=ReplayMeasurement)
    # The shortest run counts; longer ones include other work on the machine.
    took = min(seconds(run) for _ in range(_ROUNDS if tokens >= LIMITED_TOKENS else 1))
    found = (
        bar("replay_seconds", took, None, tokens=measured.tokens, profiles=len(COMPARED), cpu_s=measured.cpu_s),
        bar("replay_peak_mb", measured.peak_mb, None, tokens=measured.tokens),
    )
    yield from (each if tokens >= LIMITED_TOKENS else without_limit(each) for each in found if each.name in wanted)


def _write(store: JsonlSessions, tokens: int) -> None:
    """Write a synthetic session to disk in one go."""
    memory = MemorySessions()
    # Synthetic sessions take an unscaled size; recordings count scaled tokens, as bills do.
    synthetic_session(_SEED, round(tokens / FAMILY_FACTORS[family_of(_MODEL)]), memory).close()
    store.create(_SESSION, b"".join(chunk for _, chunk in memory.open(_SESSION).chunks())).close()


def replay_stored(folder: Path, session: str) -> ReplayMeasurement:
    """Replay a stored session as `pal replay --json` does, including encoding of the output."""
    with Log.open(JsonlSessions(folder), session, FixedClock(1)) as log:
        loaded = load_log(log, MemoryBlobs(), str(folder))
    plan = ReplayPlan(tuple(map(profile, COMPARED)), (replay_card(_MODEL),))
    msgspec.json.encode(as_builtins(compared([replay_session(loaded, plan)], plan)))
    return ReplayMeasurement(loaded.recording.tokens, time.process_time(), peak_mb())


def peak_mb() -> float | None:
    """Return the peak memory of this process in MiB, or None if the system does not report it.

    On Linux `VmHWM` is read, because `ru_maxrss` may include the process that started this one.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        lines = status.read_text(encoding="ascii", errors="replace").splitlines()
        return next((int(line.split()[1]) / 1_024 for line in lines if line.startswith("VmHWM:")), None)
    resource = import_optional("resource")
    if resource is None:
        return None
    most: int = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1_024 * 1_024 if sys.platform == "darwin" else 1_024)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(replay_stored(Path(sys.argv[1]), sys.argv[2])))
