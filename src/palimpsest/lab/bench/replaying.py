"""How long it takes to replay a long session under six profiles, and how much memory, in a process of its own."""

import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, structs

from palimpsest.core.log.log import Log
from palimpsest.core.tokens.estimate import FAMILY_FACTORS, family_of
from palimpsest.lab.bench.bars import Bar, bar
from palimpsest.lab.bench.workspace import Workspace, import_optional, seconds
from palimpsest.lab.comparison import COMPARED, ReplayPlan, as_builtins, compared, replay_session
from palimpsest.lab.simulation.environment import replay_card
from palimpsest.lab.simulation.loading import load_log
from palimpsest.lab.synthetic.sessions import synthetic_session
from palimpsest.profiles.named import profile
from palimpsest.stores.ephemeral import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.stores.jsonl import JsonlSessions

REPLAY_BARS: Final = frozenset({"replay_seconds", "replay_peak_mb"})
# So many tokens the limits are for; a smaller session is measured and not judged.
JUDGED: Final = 1_000_000
_SEED: Final = 1
_MODEL: Final = "claude-sonnet-4-5"
_ROUNDS: Final = 3


class Replaying(Struct, frozen=True):
    """What the process that replayed says of itself: the tokens of the recording, its processor time, and the most memory it had."""

    tokens: int
    cpu_s: float
    peak_mb: float | None


def measure_replaying(workspace: Workspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """`replay_seconds` and `replay_peak_mb`."""
    tokens = workspace.sizes.replayed_long
    workspace.tell(f"replaying {tokens:,} tokens under {len(COMPARED)} profiles")
    store = JsonlSessions(workspace.folder / "replayed")
    _write(store, tokens)
    command = (sys.executable, "-m", "palimpsest.lab.bench.replaying", str(store.folder), _session())
    run = partial(subprocess.run, command, check=True, capture_output=True)
    told = msgspec.json.decode(run().stdout, type=Replaying)
    # The shortest of some: what is longer is what other work on the machine took.
    took = min(seconds(run) for _ in range(_ROUNDS if tokens >= JUDGED else 1))
    found = (
        bar("replay_seconds", took, None, tokens=told.tokens, profiles=len(COMPARED), cpu_s=told.cpu_s),
        bar("replay_peak_mb", told.peak_mb, None, tokens=told.tokens),
    )
    yield from (_without_limit_if_short(each, tokens) for each in found if each.name in wanted)


def _without_limit_if_short(each: Bar, tokens: int) -> Bar:
    return each if tokens >= JUDGED else structs.replace(each, limit=None, ok=True)


def _session() -> str:
    return f"made-up-{_SEED}"


def _write(store: JsonlSessions, tokens: int) -> None:
    """A session on the disk, written at once."""
    memory = MemorySessions()
    # Sessions are made up to an unscaled size, and recordings count theirs scaled, as a bill would.
    synthetic_session(_SEED, round(tokens / FAMILY_FACTORS[family_of(_MODEL)]), memory).close()
    store.create(_session(), b"".join(chunk for _, chunk in memory.open(_session()).chunks())).close()


def replay_stored(folder: Path, session: str) -> Replaying:
    """Replay a session of a folder as `pal replay --json` does, to the bytes it would print."""
    with Log.open(JsonlSessions(folder), session, FixedClock(1)) as log:
        taken = load_log(log, MemoryBlobs(), str(folder))
    plan = ReplayPlan(tuple(map(profile, COMPARED)), (replay_card(_MODEL),))
    msgspec.json.encode(as_builtins(compared([replay_session(taken, plan)], plan)))
    return Replaying(taken.recording.tokens, time.process_time(), peak_mb())


def peak_mb() -> float | None:
    """The most memory that this process ever had; nothing where the system does not tell.

    Linux tells it of the program alone, while what it tells of the process may be that of the one that started it.
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
