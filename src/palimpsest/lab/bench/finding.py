"""Bars of the search index, of listing sessions and of starting `pal`, with ripgrep as the peer of searches."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median

from palimpsest.core.errors import BadInput, StoreError
from palimpsest.core.events import UserSaid
from palimpsest.core.items import Text
from palimpsest.lab.bench.bars import Bar, bar
from palimpsest.lab.bench.workspace import EXTRA, BenchWorkspace, frozen_gc, seconds, write_session
from palimpsest.stores.index.sqlite import SqliteIndex
from palimpsest.stores.jsonl import JsonlSessions


def measure_start(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `help_ms`."""
    workspace.announce("starting")
    command = (*workspace.pal_command, "--help")

    def start() -> None:
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - the command that is being measured

    start()
    yield bar("help_ms", median(seconds(start) for _ in range(5)) * 1000)


RARE = "quokkasaurus"
_HOLDERS = 3
_SEARCHES = 5


def measure_finding(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `index_*`, `search_vs_ripgrep` and `list_2000`."""
    ripgrep = find_ripgrep() if "search_vs_ripgrep" in wanted else ""
    store = _write_sessions(workspace)
    size = sum(size for _, _, size, _ in store.stats())
    workspace.announce(f"indexing {size / 1e6:,.0f} MB")
    database = workspace.folder / "index.sqlite"
    with SqliteIndex(database, store) as index:
        took = seconds(index.refresh)
        if "index_mb_s" in wanted:
            yield bar("index_mb_s", size / 1e6 / took, seconds=took)
        if "search_vs_ripgrep" in wanted:
            workspace.announce("searching")
            yield _search(workspace, index, store, ripgrep)
        if "list_2000" in wanted:
            workspace.announce("listing")
            (units,) = workspace.unit.of(workspace.sizes.rounds, index.list)
            yield bar("list_2000", units, sessions=workspace.sizes.sessions)
    if "index_ratio" in wanted:
        kept = sum(path.stat().st_size for path in workspace.folder.glob("index.sqlite*"))
        yield bar("index_ratio", kept / size, index_mb=kept / 1e6, logs_mb=size / 1e6)


def _write_sessions(workspace: BenchWorkspace) -> JsonlSessions:
    sizes = workspace.sizes
    workspace.announce(f"writing {sizes.sessions:,} sessions")
    store = JsonlSessions(workspace.folder / "sessions")
    holders = {sizes.sessions * part // (_HOLDERS + 1) for part in range(1, _HOLDERS + 1)}
    for number in range(sizes.sessions):
        log, _ = write_session(store, f"session-{number:05d}", sizes.session_events, workspace.clock, seed=number % 50)
        if number in holders:
            log.append(UserSaid((Text(f"Why does the {RARE} not start?"),)))
        log.close()
    return store


def _search(workspace: BenchWorkspace, index: SqliteIndex, store: JsonlSessions, ripgrep: str) -> Bar:
    command = (ripgrep, "-F", "-c", RARE, str(store.folder))
    run = partial(subprocess.run, command, check=True, capture_output=True)
    counted, found = len(run().stdout.splitlines()), len(index.search(RARE))
    if not counted == found == _HOLDERS:
        raise StoreError(f"ripgrep found the rare word {counted} times and the index {found} times; it was written {_HOLDERS} times")
    first: list[float] = []
    next_ones: list[float] = []
    theirs: list[float] = []
    # Both run on a warm page cache. The first search after ripgrep pays for CPU caches that ripgrep filled, so it is listed apart.
    with frozen_gc():
        for _ in range(max(5, workspace.sizes.rounds // 4)):
            theirs.append(seconds(run))
            first.append(seconds(partial(index.search, RARE)))
            next_ones += [seconds(partial(index.search, RARE)) for _ in range(_SEARCHES)]
    ours, ripgrep_s = median(next_ones), median(theirs)
    return bar("search_vs_ripgrep", ripgrep_s / ours, ours_ms=ours * 1000, ours_first_ms=median(first) * 1000, ripgrep_ms=ripgrep_s * 1000)


def find_ripgrep(beside: Path = Path(sys.executable).parent, path: str | None = None) -> str:
    """Return the ripgrep of this environment, else of the machine. Raises `BadInput` if there is none."""
    own = beside / "rg"
    found = str(own) if own.is_file() else shutil.which("rg", path=path)
    if found is None:
        raise BadInput(EXTRA)
    return found
