"""One benchmark run: the groups of measurements that contain the wanted bars, in an order that lets them share logs."""

import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from queue import Empty
from subprocess import SubprocessError
from typing import TypeAlias

from pal_lab.bench.bars import GOALS, Bar, Report, failed_bar
from pal_lab.bench.costing import COST_BARS, PROBE_BARS, SURVIVAL_BARS, measure_costing
from pal_lab.bench.engine import (
    START_BARS,
    find_ripgrep,
    measure_blocking,
    measure_counting,
    measure_finding,
    measure_keeping,
    measure_load,
    measure_mirror,
    measure_planning,
    measure_resuming,
    measure_start,
    measure_turns,
    measure_writing,
)
from pal_lab.bench.processes import GATEWAY_BARS, TERMINAL_BARS, measure_agent, measure_gateway, measure_terminal
from pal_lab.bench.replaying import REPLAY_BARS, measure_replaying
from pal_lab.bench.workspace import FULL, QUICK, BenchSizes, BenchWorkspace
from palimpsest.core.errors import BadInput, StoreError

Measurement: TypeAlias = Callable[[BenchWorkspace, frozenset[str]], Iterator[Bar]]

# Forks are measured after the disk has had time to store the logs.
GROUPS: tuple[tuple[frozenset[str], Measurement], ...] = (
    (START_BARS, measure_start),
    (frozenset({"resume_1k", "resume_10k", "resume_100k", "resume_edited", "resume_crashed"}), measure_resuming),
    (frozenset({"load"}), measure_load),
    (frozenset({"turn_1k", "turn_10k", "turn_100k", "decide"}), measure_turns),
    (frozenset({"disk_ratio", "fork", "fork_bytes"}), measure_keeping),
    (frozenset({"append", "append_cpu_us", "group_commit"}), measure_writing),
    (frozenset({"loop_ms"}), measure_blocking),
    (frozenset({"agent_turn_ms", "ask_ms"}), measure_agent),
    (TERMINAL_BARS, measure_terminal),
    (frozenset({"plan_ms", "fold_ms"}), measure_planning),
    (frozenset({"mirror_ms"}), measure_mirror),
    (GATEWAY_BARS, measure_gateway),
    (frozenset({"index_ratio", "index_mb_s", "search_vs_ripgrep", "list_2000"}), measure_finding),
    (frozenset({"tokens_error"}), measure_counting),
    (REPLAY_BARS, measure_replaying),
    (frozenset(COST_BARS | SURVIVAL_BARS | PROBE_BARS), measure_costing),
)


def bars_named(names: Iterable[str]) -> frozenset[str]:
    """Return the bars for names: a bar and all that its name is the prefix of (`turn`); all without names.

    Raises `BadInput` for an unknown name.
    """
    chosen: set[str] = set()
    for name in names:
        found = {bar for bar in GOALS if bar == name or bar.startswith(f"{name}_")}
        if not found:
            raise BadInput(f"there is no bar {name!r}; there are {', '.join(GOALS)}")
        chosen |= found
    return frozenset(chosen) or frozenset(GOALS)


def _measured(names: frozenset[str], measure: Measurement, workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Yield the bars of a group. One that fails or runs into its time limit costs the bars that it had not measured yet, and no other."""
    missing = set(names)
    try:
        for each in measure(workspace, wanted):
            missing.discard(each.name)
            yield each
    except (StoreError, OSError, Empty, SubprocessError) as error:
        why = error.message if isinstance(error, StoreError) else str(error) or "no answer came within the time limit"
        workspace.announce(f"{', '.join(sorted(missing))}: {why}")
        yield from (failed_bar(name, why) for name in missing)


def run_bench(
    folder: Path,
    *,
    wanted: frozenset[str] = frozenset(GOALS),
    quick: bool = False,
    sizes: BenchSizes | None = None,
    pal_command: tuple[str, ...] = (sys.executable, "-c", "pass"),
    recorded: Path | None = None,
    announce: Callable[[str], None] = print,
) -> Report:
    """Measure the wanted bars in a folder, which needs up to a gigabyte; `recorded` is a folder of sessions to replay."""
    begun = time.monotonic()
    workspace = BenchWorkspace(folder, sizes or (QUICK if quick else FULL), announce, pal_command, recorded=recorded)
    measures_speed = any(GOALS[name].table == "bench" for name in wanted)
    # Missing tools are an error before minutes are spent.
    if measures_speed:
        _ = workspace.orjson
    if "search_vs_ripgrep" in wanted:
        find_ripgrep()
    with workspace.resources:
        found = {
            bar.name: bar for names, measure in GROUPS if names & wanted for bar in _measured(names & wanted, measure, workspace, wanted)
        }
        unit = workspace.unit.milliseconds if measures_speed else 0.0
    bars = tuple(found[name] for name in GOALS if name in found)
    replayed = "" if not workspace.rows else "sessions that were given" if recorded is not None else "synthetic sessions"
    machine = {"python": platform.python_version(), "system": platform.system(), "processors": str(os.cpu_count())}
    return Report(unit, bars, quick, time.monotonic() - begun, machine, workspace.rows, workspace.session_rows, replayed)
