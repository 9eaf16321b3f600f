"""Background processes of the shell: their output, their events, and that none is left behind."""

import asyncio
import json
import os
import select
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from palimpsest.agent.shell import Shell
from palimpsest.agent.tool import ToolOutput
from palimpsest.agent.workspace import Workspace
from palimpsest.core.events import ProcessEnded, ProcessStarted

Run = Callable[..., Awaitable[ToolOutput]]
Result = TypeVar("Result")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A project with a pipe in which nothing ever arrives."""
    os.mkfifo(tmp_path / "fifo")
    return Workspace(tmp_path)


def with_shell(workspace: Workspace, steps: Callable[[Shell, Run], Awaitable[Result]]) -> Result:
    """What some steps return, with a shell that is closed after them."""

    async def run() -> Result:
        shell = Shell(workspace.root)
        tools = {tool.name: tool for tool in shell.tools()}

        async def use(name: str, **arguments: object) -> ToolOutput:
            return await tools[name].run(json.dumps(arguments), workspace)

        try:
            return await steps(shell, use)
        finally:
            await shell.close()

    return asyncio.run(run())


def test_a_process_in_the_background_is_read_later_and_ended(workspace: Workspace) -> None:
    os.mkfifo(workspace.root / "number")
    command = "echo ready; echo 1 > number; cat < fifo"

    async def steps(shell: Shell, use: Run) -> tuple[int, list[ToolOutput]]:
        started = await use("bash", command=command, background=True)
        await first_number(workspace.root / "number")
        outputs = [
            started,
            await use("bash_output", id="p1"),
            await use("kill", id="p1"),
            await use("bash_output", id="p1"),
            await use("kill", id="p9"),
        ]
        return shell.background["p1"].process.pid, outputs

    pid, outputs = with_shell(workspace, steps)
    assert outputs == [
        ToolOutput("Runs in the background with id p1", events=(ProcessStarted("p1", command, pid=pid),)),
        ToolOutput("ready\n[still running]"),
        ToolOutput("p1 has ended with exit code -15", exit=-15, events=(ProcessEnded("p1", -15, "killed by the model"),)),
        ToolOutput("[nothing new]\n[ended with exit code -15]", exit=-15),
        ToolOutput("there is no background process p9; known are p1", error=True),
    ]


def test_the_end_of_a_process_is_recorded_once_by_the_next_result(workspace: Workspace) -> None:
    async def steps(shell: Shell, use: Run) -> list[ToolOutput]:
        await use("bash", command="exit 3", background=True)
        await shell.background["p1"].wait()
        return [await use("bash", command="true"), await use("bash_output", id="p1")]

    assert with_shell(workspace, steps) == [
        ToolOutput("[no output]", exit=0, events=(ProcessEnded("p1", 3),)),
        ToolOutput("[nothing new]\n[ended with exit code 3]", exit=3),
    ]


def test_closing_the_shell_ends_what_runs_and_says_so(workspace: Workspace) -> None:
    async def steps(shell: Shell, use: Run) -> tuple[ProcessEnded, ...]:
        await use("bash", command="cat < fifo", background=True)
        return await shell.close()

    assert with_shell(workspace, steps) == (ProcessEnded("p1", -15, "the session ended"),)


def test_at_most_sixteen_processes_run_in_the_background(workspace: Workspace) -> None:
    async def steps(_: Shell, use: Run) -> list[ToolOutput]:
        return [await use("bash", command="cat < fifo", background=True) for _ in range(17)]

    *started, refused = with_shell(workspace, steps)
    assert [output.error for output in started] == [False] * 16
    assert refused == ToolOutput("16 processes run in the background already; end one with `kill`", error=True)


async def first_number(pipe: Path) -> int:
    """The number that arrives in a pipe. Opened for both directions, so that it does not block a thread if none ever comes."""
    handle, arrived = os.open(pipe, os.O_RDWR | os.O_NONBLOCK), asyncio.Event()
    asyncio.get_running_loop().add_reader(handle, arrived.set)
    try:
        async with asyncio.timeout(120):
            await arrived.wait()
        return int(os.read(handle, 20))
    finally:
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="lists the processes of Linux")
def test_a_command_that_is_cancelled_while_it_starts_leaves_no_process(workspace: Workspace) -> None:
    async def steps(_: Shell, use: Run) -> None:
        running = asyncio.ensure_future(use("bash", command="cat < fifo & wait"))
        # One step of the loop: the process is being made, and its pipes are not connected yet.
        await asyncio.wait((running,), timeout=0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    with_shell(workspace, steps)
    assert [path for path in Path("/proc").iterdir() if path.name.isdigit() and _directory(path.name) == str(workspace.root)] == []


def _directory(pid: str) -> str:
    """The working directory of a process; empty if it has ended."""
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""


def test_a_cancelled_command_leaves_no_process_even_one_that_ignores_the_request_to_end(workspace: Workspace) -> None:
    os.mkfifo(workspace.root / "pids")

    async def steps(_: Shell, use: Run) -> int:
        command = "(trap '' TERM; echo $BASHPID > pids; exec cat < fifo) & wait"
        running = asyncio.ensure_future(use("bash", command=command))
        pid = await first_number(workspace.root / "pids")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return pid

    assert _ended(with_shell(workspace, steps))


def test_a_second_cancellation_ends_a_process_that_ignores_the_request_at_once(workspace: Workspace) -> None:
    os.mkfifo(workspace.root / "pids")

    async def steps(_: Shell, use: Run) -> int:
        command = "(trap '' TERM; echo $BASHPID > pids; exec cat < fifo) & wait"
        running = asyncio.ensure_future(use("bash", command=command))
        pid = await first_number(workspace.root / "pids")
        running.cancel()
        await asyncio.wait((running,), timeout=0.1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return pid

    assert _ended(with_shell(workspace, steps))


def test_closing_that_is_cancelled_ends_every_process_in_the_background(workspace: Workspace) -> None:
    for name in ("one", "two"):
        os.mkfifo(workspace.root / name)

    async def steps(shell: Shell, use: Run) -> list[int]:
        pids: list[int] = []
        for name in ("one", "two"):
            await use("bash", command=f"trap '' TERM; echo $BASHPID > {name}; exec cat < fifo", background=True)
            pids.append(await first_number(workspace.root / name))
        closing = asyncio.ensure_future(shell.close())
        await asyncio.wait((closing,), timeout=0.1)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        for running in shell.background.values():
            await running.process.wait()
        return pids

    assert [_ended(pid) for pid in with_shell(workspace, steps)] == [True, True]


def _ended(pid: int) -> bool:
    """Whether a process that got SIGKILL ends."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], 120)[0])
    finally:
        os.close(handle)
