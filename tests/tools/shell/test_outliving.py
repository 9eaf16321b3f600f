"""Processes that outlive the command which started them: the command returns soon, and what it left running is ended."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from palimpsest.agent.shell import Shell
from palimpsest.agent.tool import ToolOutput
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.tools.sandbox import Area, Sandbox

pytestmark = pytest.mark.machine

ENDED = "[what the command left running was ended; `background` is for processes that go on]"
GOES_ON = "[a process that the command started has left its group and goes on; its output is not shown]"


@pytest.fixture
def area() -> Iterator[Area]:
    """A project outside of the folder that a sandbox replaces by a private one, with a private temp folder beside it."""
    folder = Path(tempfile.mkdtemp(prefix="pal-outliving-", dir="/var/tmp"))
    for name in ("project", "temp", "home"):
        (folder / name).mkdir()
    yield Area(folder / "project", (), folder / "temp", home=folder / "home")
    shutil.rmtree(folder)


def sandboxes() -> list[Sandbox]:
    """No sandbox, and those that could work on this machine."""
    spec = find_spec("sandlock") if sys.platform == "linux" else None
    library = str(Path(spec.origin).parent.parent) if spec is not None and spec.origin is not None else ""
    program = shutil.which("bwrap") or ""
    return [Sandbox("none"), Sandbox("bubblewrap", program), Sandbox("landlock", sys.executable, library)]


def needs(sandbox: Sandbox) -> None:
    """Skip a test whose sandbox is not installed."""
    if (sandbox.kind == "bubblewrap" and not sandbox.program) or (sandbox.kind == "landlock" and not sandbox.library):
        pytest.skip(f"{sandbox.kind} is not installed here")


def output_of(area: Area, sandbox: Sandbox, command: str) -> ToolOutput:
    """What the tool returns. A command that waited for what it left running would return that its time was over."""

    async def run() -> ToolOutput:
        shell = Shell(area.root, sandbox=sandbox.wrap(area), temp=area.temp)
        try:
            return await shell.tools()[0].run(json.dumps({"command": command}), Workspace(area.root))
        finally:
            await shell.close()

    return asyncio.run(run())


def is_free(lock: Path) -> bool:
    """Whether no process holds a lock any more, for at most a minute."""
    return subprocess.run(["flock", "-w", "120", lock, "true"], check=False).returncode == 0


@pytest.mark.parametrize("redirected", ["", " >/dev/null 2>&1"], ids=["output held", "output elsewhere"])
@pytest.mark.parametrize("sandbox", sandboxes(), ids=lambda sandbox: sandbox.kind)
def test_a_command_returns_soon_after_its_shell_and_what_it_left_running_is_ended(area: Area, sandbox: Sandbox, redirected: str) -> None:
    needs(sandbox)
    output = output_of(area, sandbox, f"exec 9> lock; flock 9; sleep 1000{redirected} & echo hi")
    # Where the sandbox ends them itself, they are gone before they can be seen.
    assert output in (ToolOutput(f"hi\n{ENDED}", exit=0), ToolOutput("hi\n", exit=0))
    assert is_free(area.root / "lock")


def test_without_a_sandbox_the_result_says_that_processes_were_ended(area: Area) -> None:
    assert output_of(area, Sandbox("none"), "sleep 1000 & echo hi; exit 3") == ToolOutput(f"hi\n{ENDED}\n[exit code 3]", error=True, exit=3)


def test_what_ends_by_itself_within_a_moment_is_awaited_and_its_output_kept(area: Area) -> None:
    os.mkfifo(area.root / "fifo")
    assert output_of(area, Sandbox("none"), "(read line < fifo; echo $line) & echo first; echo second > fifo") == ToolOutput(
        "first\nsecond\n", exit=0
    )


@pytest.mark.parametrize("sandbox", sandboxes(), ids=lambda sandbox: sandbox.kind)
def test_a_process_that_left_the_group_is_ended_with_its_command(area: Area, sandbox: Sandbox) -> None:
    needs(sandbox)
    os.mkfifo(area.root / "fifo")
    command = (
        "setsid bash -c '(setsid bash -c \"exec 9> lock; flock 9; echo ready > fifo; exec sleep 1000\" &)' & read line < fifo; echo $line"
    )
    output = output_of(area, sandbox, command)
    assert output in (ToolOutput(f"ready\n{ENDED}", exit=0), ToolOutput("ready\n", exit=0))
    assert is_free(area.root / "lock")


@pytest.mark.parametrize("cleared", ["", "env -i "], ids=["with its environment", "without its environment"])
@pytest.mark.parametrize("killed", ["$PPID", "0"])
def test_a_process_that_left_the_group_is_ended_also_if_its_command_kills_the_one_that_keeps_it(
    area: Area, killed: str, cleared: str
) -> None:
    os.mkfifo(area.root / "fifo")
    left = f"{cleared}setsid bash -c 'exec 9> lock; flock 9; echo ready > fifo; exec sleep 1000'"
    output = output_of(area, Sandbox("none"), f"{left} & read line < fifo; kill -9 {killed}; sleep 1000")
    assert output == ToolOutput(f"[no output]\n{ENDED}\n[exit code -9]", error=True, exit=-9)
    assert is_free(area.root / "lock")


AGENT = """\
import asyncio, json, os, sys
from pathlib import Path
from palimpsest.agent.shell import Shell
from palimpsest.coding.tools.sandbox import Area, Sandbox
from palimpsest.agent.workspace import Workspace

async def main(folder, kind, program, library, command, how):
    area = Area(folder / "project", (), folder / "temp", home=folder / "home")
    shell = Shell(area.root, sandbox=Sandbox(kind, program, library).wrap(area), temp=area.temp)
    arguments = json.dumps({"command": command, "background": how == "background"})
    asyncio.get_running_loop().create_task(shell.tools()[0].run(arguments, Workspace(area.root)))
    await asyncio.to_thread((area.root / "fifo").read_text)
    os.kill(os.getpid(), 9)

asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
"""


@pytest.mark.parametrize("how", ["foreground", "background"])
@pytest.mark.parametrize("sandbox", sandboxes(), ids=lambda sandbox: sandbox.kind)
def test_all_that_a_command_started_ends_when_the_agent_is_killed(area: Area, sandbox: Sandbox, how: str) -> None:
    needs(sandbox)
    os.mkfifo(area.root / "fifo")
    command = "trap '' TERM; exec 9> lock; flock 9; (setsid bash -c 'sleep 1000' &); setsid sleep 1000 & echo ready > fifo; sleep 1000"
    words = (sys.executable, "-c", AGENT, str(area.root.parent), sandbox.kind, sandbox.program, sandbox.library, command, how)
    assert subprocess.run(words, check=False, capture_output=True).returncode == -9
    assert is_free(area.root / "lock")


def test_the_end_of_a_command_is_known_before_a_loop_can_close_however_often_its_ending_is_cancelled(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    exits: list[int | None] = []

    async def end(cancellations: int) -> None:
        running = await shell.start("trap '' TERM; echo ready; while :; do read -t 60 < <(tail -f /dev/null); done", {})
        await running.output.arrived.wait()
        ending = asyncio.ensure_future(running.kill())
        ending.add_done_callback(lambda _: exits.append(running.exit))
        for _ in range(cancellations):
            # It has been asked to end by now, and its time to do so is cut short.
            await asyncio.wait((ending,), timeout=0)
            ending.cancel()

    try:
        # The end of the loop cancels what still goes on, once more.
        for cancellations in (1, 2, 3):
            asyncio.run(end(cancellations))
        assert len(exits) == 3
        assert None not in exits
    finally:
        shell.watcher.close()
