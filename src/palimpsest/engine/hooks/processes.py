"""Runs one command of a hook: input from a file, bounded output, and nothing that it started is left when it has ended."""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, NamedTuple

from palimpsest.engine.hooks.hook import MARK
from palimpsest.tools.shell.processes import wait_killed
from palimpsest.tools.shell.watcher import GroupWatcher

KEPT_BYTES: Final = 64 * 1024
"""Bytes of each output stream that are kept; the rest is read and discarded, so that the command does not wait."""
# Seconds. After a command ended, its output is there at once, unless a process that was not found holds the pipe.
_REST_SECONDS: Final = 0.5
_KILL_ROUNDS: Final = 5
_SHELL: Final = "/bin/sh"
_PROCESSES: Final = Path("/proc")


class CommandOutput(NamedTuple):
    """How a command ended: exit code (negative for a signal), the kept output, its full size in bytes, and whether processes were left."""

    exit: int
    stdout: bytes
    stderr: bytes
    stdout_size: int
    left: bool


class _Drain(asyncio.Protocol):
    """Reads a pipe to its end and keeps the beginning."""

    def __init__(self) -> None:
        self.kept = bytearray()
        self.size = 0
        self.closed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        """Keep what there is room for."""
        self.kept += data[: max(0, KEPT_BYTES - len(self.kept))]
        self.size += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remember that the pipe has ended."""
        self.closed.set()


class _Pipe:
    """A pipe of which this process reads one end, and a command gets the other."""

    def __init__(self) -> None:
        self.drain = _Drain()
        self._transport: asyncio.ReadTransport | None = None
        read, self.write = os.pipe()
        self._read = os.fdopen(read, "rb", 0)

    async def open(self) -> None:
        """Begin to read."""
        self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: self.drain, self._read)

    def close_write(self) -> None:
        """Close the end of the command, once it has its own copy."""
        if self.write >= 0:
            os.close(self.write)
            self.write = -1

    async def rest(self) -> None:
        """Wait for the end of the output, at most half a second."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.drain.closed.wait(), _REST_SECONDS)

    def close(self) -> None:
        """Close what is open."""
        self.close_write()
        if self._transport is None:
            self._read.close()
        else:
            self._transport.close()


async def run_command(command: str, data: bytes, cwd: Path, environment: Mapping[str, str]) -> CommandOutput:
    """Run a command with the shell in a folder and wait for its end. Raises `OSError` if it cannot be started.

    The input comes from a file, so that a command which reads none of it, or only a part, delays nothing. If the task is cancelled, the
    command and all that it started are killed; also if this process is.
    """
    mark = os.urandom(16).hex()
    with ExitStack() as opened:
        out = _Pipe()
        opened.callback(out.close)
        err = _Pipe()
        opened.callback(err.close)
        stdin = opened.enter_context(tempfile.TemporaryFile())
        stdin.write(data)
        stdin.seek(0)
        await out.open()
        await err.open()
        # Before the command, which would run unwatched while it starts.
        watcher = GroupWatcher()
        opened.callback(watcher.close)
        await asyncio.to_thread(watcher.add_marked, f"{MARK}={mark}")
        creating = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *(_SHELL, "-c", command),
                cwd=cwd,
                env={**environment, MARK: mark},
                stdin=stdin,
                stdout=out.write,
                stderr=err.write,
                start_new_session=True,
            )
        )
        try:
            process = await asyncio.shield(creating)
        except asyncio.CancelledError:
            # What it has started by then must be ended too, so the process has to be known.
            with suppress(OSError):
                await _kill(await creating, mark)
            raise
        out.close_write()
        err.close_write()
        watcher.add(process.pid)
        try:
            code = await process.wait()
            # In a thread, because it looks at every process of the system.
            left = await asyncio.to_thread(end_processes, process.pid, mark)
            await out.rest()
            await err.rest()
        except asyncio.CancelledError:
            await _kill(process, mark)
            raise
    return CommandOutput(code, bytes(out.drain.kept), bytes(err.drain.kept), out.drain.size, left)


async def _kill(process: asyncio.subprocess.Process, mark: str) -> None:
    end_processes(process.pid, mark)
    await wait_killed(process)


def end_processes(group: int, mark: str) -> bool:
    """Kill all processes of a group, and all with the mark in their environment. Returns whether there were any.

    A process that left the group and cleared its environment is not found; nor is one that only left the group on systems without `/proc`.
    """
    kill = _kill_found if sys.platform == "linux" else _kill_group
    found = False
    # A process may have started another between the search and its end.
    for _ in range(_KILL_ROUNDS):
        if not kill(group, mark):
            break
        found = True
    return found


def _kill_group(group: int, _: str) -> bool:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _kill_found(group: int, mark: str) -> bool:
    """Kill the members that are alive one by one, and return whether there were any."""
    wanted = f"{MARK}={mark}".encode()
    members = [number for number in _own_processes() if _is_member(number, group, wanted)]
    for number in members:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(number, signal.SIGKILL)
    return bool(members)


def _own_processes() -> Iterator[int]:
    with suppress(OSError), os.scandir(_PROCESSES) as entries:
        for entry in entries:
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                yield int(entry.name)


def _is_member(number: int, group: int, wanted: bytes) -> bool:
    """Whether a process is alive, and in the group or marked."""
    folder = _PROCESSES / str(number)
    try:
        # The name of the program is in parentheses and may contain anything.
        state, _, of_group, *_ = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        if state in (b"Z", b"X"):
            return False
        return int(of_group) == group or wanted in (folder / "environ").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return False
