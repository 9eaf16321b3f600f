"""Bars of the agent: the overhead of a turn, the start of `pal -p`, and a soak of thousands of turns in one session."""

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace as replaced

from palimpsest.core.events import ModelReplied, SessionOpened, UserTyped
from palimpsest.core.events.deltas import Delta
from palimpsest.core.items import Text, ToolCall
from palimpsest.core.ports import Sendable
from palimpsest.engine.environment import Environment
from palimpsest.engine.loop.feed import unfollowed
from palimpsest.engine.loop.tool_calls import Toolbox
from palimpsest.engine.loop.turn import Loop, run_turn
from palimpsest.engine.session import Session
from palimpsest.lab.bench.bars import Bar, bar
from palimpsest.lab.bench.workspace import BenchWorkspace, seconds
from palimpsest.lab.synthetic.sessions import synthetic_session
from palimpsest.profiles.named import profile
from palimpsest.stores.blobs import BlobFolder
from palimpsest.stores.files import write_atomically
from palimpsest.stores.home import SystemClock
from palimpsest.stores.jsonl import JsonlSessions
from palimpsest.stores.snapshots.git import ShadowGit, find_git
from palimpsest.tools.tool import AgentTool, ToolOutput
from palimpsest.tools.workspace import Workspace
from palimpsest.wire.models.cards import card
from palimpsest.wire.request import Tool

Result = TypeVar("Result")
_MODEL: Final = "claude-sonnet-4-6"
# Unscaled tokens of a session whose view has about 200,000 tokens of the model.
_TOKENS: Final = 135_000
_STARTS: Final = 5
_RESULT: Final = "def f(x):\n    return x + 1\n" * 20


class _AskingProvider:
    """A model that calls a tool and then answers, both at once."""

    def __init__(self) -> None:
        self.calls = 0

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        self.calls += 1
        if self.calls % 2:
            yield ModelReplied((ToolCall(f"call_{self.calls}", "look", f'{{"n":{self.calls}}}'),), stop="tool_use", model=_MODEL)
        else:
            yield ModelReplied((Text(f"Part {self.calls} is short.", "assistant"),), stop="end_turn", model=_MODEL)


async def _look(_: str, __: Workspace) -> ToolOutput:
    return ToolOutput(_RESULT)


class AgentTurns:
    """A session whose turns go through the loop: input, two model calls, one tool; model and tool answer at once.

    `run` runs the coroutine of a turn; by default each turn has an event loop of its own.
    """

    def __init__(self, session: Session, run: Callable[[Coroutine[Any, Any, object]], object] = asyncio.run) -> None:
        tool = AgentTool(Tool("look", kind="reads"), parallel=True, run=_look)
        session.tools = (tool.declaration,)
        self._sync_seconds = 0.0
        self._loop = Loop(session, Toolbox({"look": tool}, Workspace(Path("/"))), unfollowed(session.log))
        self._session = session
        self._run = run

    def run_one(self) -> float:
        """Run one turn and return its seconds without those of disk syncs."""
        self._sync_seconds = 0.0
        begun = time.perf_counter()
        self._session.log.append(UserTyped((Text("Look at the next part."),)))
        self._run(run_turn(self._loop))
        return time.perf_counter() - begun - self._sync_seconds

    async def without_disk(self, work: Callable[[], Result], /) -> Result:
        """Run a function at once; the time of a disk sync is counted apart."""
        begun = time.perf_counter()
        result = work()
        if work == self._session.log.sync:
            self._sync_seconds += time.perf_counter() - begun
        return result


def measure_agent(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `agent_turn_ms` and `ask_ms`."""
    if "agent_turn_ms" in wanted:
        workspace.announce("turns of the agent")
        log = synthetic_session(1, _TOKENS, workspace.store, "agent-turns")
        environment = Environment(workspace.store, BlobFolder(workspace.folder / "agent-blobs"), workspace.clock)
        provider = _AskingProvider()
        with Session(log, profile("palimpsest"), card(_MODEL), environment) as session:
            tokens, turns = session.used, AgentTurns(session)
            session.environment = Environment(
                workspace.store, environment.blobs, workspace.clock, provider=lambda *_: provider, offload=turns.without_disk
            )
            times = [turns.run_one() for _ in range(workspace.sizes.rounds)]
        yield bar("agent_turn_ms", median(times) * 1_000, worst_ms=max(times) * 1_000, tokens=tokens)
    if "ask_ms" in wanted:
        workspace.announce("starting the agent")
        yield bar("ask_ms", median(_start_seconds(workspace) for _ in range(_STARTS)) * 1_000)


def _start_seconds(workspace: BenchWorkspace) -> float:
    """Return the seconds of one run in a small project; with git, the project is a repository."""
    project, script = workspace.folder / "project", workspace.folder / "script.jsonl"
    project.mkdir(exist_ok=True)
    folder, git = project / ".git", find_git(project)
    if not folder.exists() and git is not None:
        folder.mkdir()
        ShadowGit(git, folder).run("init", "--quiet")
    variables = {**os.environ, "PAL_HOME": str(workspace.folder / "ask-home"), "PAL_SCRIPT": str(script)}
    command = (*workspace.pal_command, "-p", "hello", "--quiet")
    write_atomically(script, (json.dumps("ready").encode(),), replace=True)

    def start() -> None:
        subprocess.run(command, check=True, capture_output=True, env=variables, stdin=subprocess.DEVNULL, cwd=project)  # noqa: S603 - measured

    return seconds(start)


class SoakRow(Struct, frozen=True):
    """A tenth of a soak: turns so far, milliseconds of a turn (median, with syncs), and the highest memory of the process so far in kB."""

    turns: int
    turn_ms: float
    memory_kb: int
    view_items: int


# The highest memory may grow by this share after the first fifth of the turns, which fill the caches of the process.
MOST_GROWTH: Final = 0.10
# Rows of a fifth.
_FIFTH: Final = 2


class Soak(Struct, frozen=True):
    """A soak by tenths, and the growth of memory and of the time of a turn after the first fifth, as shares.

    Memory is flat if it grew by at most a tenth. The time is that of the last fifth; it has no limit, because other work disturbs it.
    """

    rows: tuple[SoakRow, ...]
    memory_growth: float
    memory_is_flat: bool
    time_growth: float


def soak_of(rows: Sequence[SoakRow]) -> Soak:
    """Return a soak with its growth, from the rows of its tenths."""
    memory = round(rows[-1].memory_kb / rows[_FIFTH - 1].memory_kb - 1, 3)
    first, last = (sum(row.turn_ms for row in part) for part in (rows[:_FIFTH], rows[-_FIFTH:]))
    return Soak(tuple(rows), memory, memory <= MOST_GROWTH, round(last / first - 1, 3))


def peak_kb() -> int:
    """Return the highest memory of this process so far, in kB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak


def soak(folder: Path, turns: int, announce: Callable[[str], None]) -> Soak:
    """Run turns in one session on disk with our profile, and return what each tenth of them needed, and the growth."""
    store, provider = JsonlSessions(folder / "sessions"), _AskingProvider()
    environment = Environment(store, BlobFolder(folder / "blobs"), SystemClock(), provider=lambda *_: provider)
    small = replaced(card(_MODEL), window=60_000, reply=8_000)
    rows: list[SoakRow] = []
    # One event loop for all turns, as the agent has: a new one for each turn would start new threads too.
    with asyncio.Runner() as runner, Session.create(SessionOpened("soak"), profile("palimpsest"), small, environment) as session:
        running = AgentTurns(session, runner.run)
        for tenth in range(1, 11):
            times = [seconds(running.run_one) for _ in range(max(1, turns // 10))]
            memory = peak_kb()
            rows.append(SoakRow(tenth * max(1, turns // 10), round(median(times) * 1_000, 2), memory, len(session.log.view.items)))
            announce(f"{rows[-1].turns:,} turns: {rows[-1].turn_ms} ms a turn, {memory:,} kB")
    return soak_of(rows)
