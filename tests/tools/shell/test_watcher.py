"""Commands end with the process that started them, also if that is killed and cannot end them itself."""

import os
import signal
import subprocess
import sys
from pathlib import Path

# It says when the command holds its lock, by a pipe that the command opens, and waits to be killed.
STARTER = """
import asyncio, sys
from pathlib import Path
from palimpsest.agent.shell import Shell
from palimpsest.agent.workspace import Workspace

async def main(how):
    folder = Path.cwd()
    shell = Shell(folder)
    tool = shell.tools()[0]
    done = await tool.run('{"command": "true"}', Workspace(folder))
    assert done.exit == 0, done
    if how == "background":
        await tool.run('{"command": "./holder", "background": true}', Workspace(folder))
        await asyncio.Event().wait()
    else:
        await tool.run('{"command": "./holder"}', Workspace(folder))

asyncio.run(main(sys.argv[1]))
"""
# The process below it ignores the request to end, and both hold the lock for as long as they live.
HOLDER = """#!/bin/bash
trap "" TERM
exec 9> held
flock 9
echo ready > ready
cat < never
"""


def started(folder: Path, how: str) -> subprocess.Popen[bytes]:
    for name in ("ready", "never"):
        os.mkfifo(folder / name)
    (folder / "holder").write_text(HOLDER)
    (folder / "holder").chmod(0o755)
    return subprocess.Popen([sys.executable, "-c", STARTER, how], cwd=folder, start_new_session=True)


def is_free(folder: Path, seconds: str) -> bool:
    return subprocess.run(["flock", "-w", seconds, folder / "held", "true"], check=False).returncode == 0


def test_commands_are_killed_with_the_group_of_the_process_that_started_them(tmp_path: Path) -> None:
    for how in ("foreground", "background"):
        folder = tmp_path / how
        folder.mkdir()
        with started(folder, how) as process:
            assert (folder / "ready").read_text() == "ready\n"
            assert not is_free(folder, "0")
            os.killpg(process.pid, signal.SIGKILL)
        assert is_free(folder, "120")


WATCHING = """
import sys
from palimpsest.agent.processes import GroupWatcher

first, second = map(int, sys.argv[1:])
watcher = GroupWatcher()
watcher.add(first)
watcher.add(second)
watcher.remove(first)
print("ready", flush=True)
sys.stdin.read()
"""


def test_only_the_groups_that_are_still_watched_are_killed() -> None:
    with (
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as removed,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True) as watched,
    ):
        words = [sys.executable, "-c", WATCHING, str(removed.pid), str(watched.pid)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            process.kill()
        assert watched.wait(120) == -signal.SIGTERM
        # It was added first, so it would have been killed first.
        assert removed.communicate(b"alive")[0] == b"alive"
