"""One run: the families of measurements that hold the wanted bars, in an order that lets them share material."""

import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from palimpsest.core.errors import BadInput
from palimpsest.lab.bench.bars import GOALS, Bar, Report
from palimpsest.lab.bench.costing import COST_BARS, PROBE_BARS, SURVIVAL_BARS, measure_costing
from palimpsest.lab.bench.counting import measure_counting
from palimpsest.lab.bench.finding import find_ripgrep, measure_finding, measure_start
from palimpsest.lab.bench.replaying import REPLAY_BARS, measure_replaying
from palimpsest.lab.bench.resuming import measure_load, measure_resuming
from palimpsest.lab.bench.turns import measure_blocking, measure_turns
from palimpsest.lab.bench.workspace import FULL, QUICK, BenchSizes, Workspace
from palimpsest.lab.bench.writing import measure_keeping, measure_writing

Family: TypeAlias = Callable[[Workspace, frozenset[str]], Iterator[Bar]]

# Forks come when the disk has had time to take in the logs.
FAMILIES: tuple[tuple[frozenset[str], Family], ...] = (
    (frozenset({"help_ms"}), measure_start),
    (frozenset({"resume_1k", "resume_10k", "resume_100k", "resume_edited", "resume_crashed"}), measure_resuming),
    (frozenset({"load"}), measure_load),
    (frozenset({"turn_1k", "turn_10k", "turn_100k", "decide"}), measure_turns),
    (frozenset({"disk_ratio", "fork", "fork_bytes"}), measure_keeping),
    (frozenset({"append", "append_cpu_us", "group_commit"}), measure_writing),
    (frozenset({"loop_ms"}), measure_blocking),
    (frozenset({"index_ratio", "index_mb_s", "search_vs_ripgrep", "list_2000"}), measure_finding),
    (frozenset({"tokens_error"}), measure_counting),
    (REPLAY_BARS, measure_replaying),
    (frozenset(COST_BARS | SURVIVAL_BARS | PROBE_BARS), measure_costing),
)


def choose(names: Iterable[str]) -> frozenset[str]:
    """The bars that names mean: a bar, or the beginning of several (`turn`); no name means all."""
    chosen: set[str] = set()
    for name in names:
        found = {name} & GOALS.keys() or {bar for bar in GOALS if bar.startswith(f"{name}_")}
        if not found:
            raise BadInput(f"there is no bar {name!r}; there are {', '.join(GOALS)}")
        chosen |= found
    return frozenset(chosen) or frozenset(GOALS)


def run_bench(
    folder: Path,
    *,
    wanted: frozenset[str] = frozenset(GOALS),
    quick: bool = False,
    sizes: BenchSizes | None = None,
    help_command: tuple[str, ...] = (sys.executable, "-c", "pass"),
    recorded: Path | None = None,
    tell: Callable[[str], None] = print,
) -> Report:
    """Measure the wanted bars in a folder, which will hold up to a gigabyte; `recorded` holds sessions to be replayed."""
    begun = time.monotonic()
    workspace = Workspace(folder, sizes or (QUICK if quick else FULL), tell, help_command, recorded=recorded)
    _demand(workspace, wanted)
    try:
        found = {bar.name: bar for names, measure in FAMILIES if names & wanted for bar in measure(workspace, wanted)}
        unit = workspace.unit.milliseconds if any(GOALS[name].table == "bench" for name in wanted) else 0.0
    finally:
        workspace.close()
    bars = tuple(found[name] for name in GOALS if name in found)
    told = "" if not workspace.rows else "sessions that were given" if recorded is not None else "made-up sessions"
    return Report(unit, bars, quick, time.monotonic() - begun, _machine(), workspace.rows, workspace.session_rows, told)


def _demand(workspace: Workspace, wanted: frozenset[str]) -> None:
    """What is missing is said before minutes are spent."""
    if any(GOALS[name].table == "bench" for name in wanted):
        workspace.orjson  # noqa: B018 - asking for it is the check
    if "search_vs_ripgrep" in wanted:
        find_ripgrep()


def _machine() -> dict[str, str]:
    return {"python": platform.python_version(), "system": platform.system(), "processors": str(os.cpu_count())}
