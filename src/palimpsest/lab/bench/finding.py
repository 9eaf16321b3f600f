"""Bars of the search index, of listing sessions, and of starting `pal`, its hook and its MCP server; ripgrep is the peer of searches."""

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from palimpsest.core.errors import BadInput, StoreError
from palimpsest.core.events import UserSaid
from palimpsest.core.items import Text
from palimpsest.lab.bench.bars import Bar, bar
from palimpsest.lab.bench.workspace import EXTRA, FULL, MODEL, BenchWorkspace, frozen_gc, seconds, write_session
from palimpsest.stores.index.sqlite import SqliteIndex
from palimpsest.stores.jsonl import JsonlSessions

START_BARS: Final = frozenset({"help_ms", "hook_ms", "mcp_initialize_ms"})
_STARTS: Final = 5
_LINES_MB: Final = 100
_TIME: Final = "2026-01-02T03:04:05.000Z"
_INITIALIZE: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}


def measure_start(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `help_ms`, `hook_ms` and `mcp_initialize_ms`."""
    if "help_ms" in wanted:
        workspace.announce("starting")
        command = (*workspace.pal_command, "--help")

        def start() -> None:
            subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - the command that is being measured

        start()
        yield bar("help_ms", median(seconds(start) for _ in range(min(_STARTS, workspace.sizes.rounds))) * 1000)
    if "hook_ms" in wanted:
        yield _hook(workspace)
    if "mcp_initialize_ms" in wanted:
        workspace.announce("starting the MCP server")
        _initialize_seconds(workspace)
        yield bar("mcp_initialize_ms", median(_initialize_seconds(workspace) for _ in range(min(_STARTS, workspace.sizes.rounds))) * 1000)


def _hook(workspace: BenchWorkspace) -> Bar:
    """Measure the evidence hook with the digest that earlier turns have kept, and without one; the slower is the value."""
    megabytes = max(1, _LINES_MB * workspace.sizes.sessions // FULL.sessions)
    workspace.announce(f"a hook after a transcript of {megabytes} MB")
    home, transcript = workspace.folder / "hook-home", workspace.folder / "transcript.jsonl"
    home.mkdir()
    _write_transcript(transcript, megabytes)
    variables = {**os.environ, "PAL_HOME": str(home)}
    command = (*workspace.pal_command, "hook")
    given = {"hook_event_name": "SessionStart", "source": "compact", "session_id": "bench", "transcript_path": str(transcript)}

    def run() -> None:
        done = subprocess.run(  # noqa: S603 - measured
            (*command, "SessionStart"), check=True, capture_output=True, env=variables, input=json.dumps(given).encode()
        )
        if b"[Added by pal" not in done.stdout:
            raise StoreError("the hook ran out of time, and printed nothing", where=str(transcript))

    run()
    without = [_process_times(run) for _ in range(min(_STARTS, workspace.sizes.rounds))]
    subprocess.run((*command, "--background", "read", "--transcript", str(transcript)), check=True, env=variables)  # noqa: S603 - measured
    kept = [_process_times(run) for _ in range(min(_STARTS, workspace.sizes.rounds))]
    rows = {"without_digest": without, "with_digest": kept}
    detail = {
        f"{name}_{kind}_ms": median(pair[at] for pair in pairs) * 1000
        for name, pairs in rows.items()
        for at, kind in enumerate(("wall", "cpu"))
    }
    return bar("hook_ms", max(detail[f"{name}_cpu_ms"] for name in rows), None, megabytes=megabytes, **detail)


def _process_times(run: Callable[[], None]) -> tuple[float, float]:
    """Return the seconds of a run, and the processor time of the processes that it started and waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = seconds(run)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _write_transcript(path: Path, megabytes: int) -> None:
    """Write a made-up transcript of Claude Code: prompts, commands, and results of 8 kB."""
    number, before = 0, None
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < megabytes * 1_000_000:
            for kind, content in _round(number):
                entry = {"role": kind, "content": content, **({"id": f"msg_{number}", "model": MODEL} if kind == "assistant" else {})}
                link = f"{kind}-{number}-{isinstance(content, str):d}"
                line = {"type": kind, "uuid": link, "parentUuid": before, "sessionId": "bench", "timestamp": _TIME, "message": entry}
                file.write(json.dumps(line) + "\n")
                before = link
            number += 1


def _round(number: int) -> Iterator[tuple[str, object]]:
    call, text = f"toolu_{number}", f"line of run {number}\n" * 400
    yield "user", f"Message {number}: look at src/module_{number % 400}.py and run its tests."
    yield "assistant", [{"type": "tool_use", "id": call, "name": "Bash", "input": {"command": f"pytest tests/test_{number % 400}.py"}}]
    yield "user", [{"type": "tool_result", "tool_use_id": call, "content": text}]


def _initialize_seconds(workspace: BenchWorkspace) -> float:
    """Return the seconds from starting the MCP server to its first reply."""
    variables = {**os.environ, "PAL_HOME": str(workspace.folder / "mcp-home")}
    begun = time.perf_counter()
    with subprocess.Popen(  # noqa: S603 - measured
        (*workspace.pal_command, "mcp"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=variables
    ) as server:
        if server.stdin is None or server.stdout is None:
            raise StoreError("the MCP server has no pipes", where="pal mcp")
        server.stdin.write(json.dumps(_INITIALIZE).encode() + b"\n")
        server.stdin.flush()
        reply = server.stdout.readline()
        took = time.perf_counter() - begun
        server.stdin.close()
        server.kill()
    if b"serverInfo" not in reply:
        raise StoreError("the MCP server did not answer", where="pal mcp")
    return took


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
