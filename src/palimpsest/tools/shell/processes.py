"""Runs shell commands: in the foreground with a time limit, or in the background with output that can be read later."""

import asyncio
import os
import signal
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct, field

from palimpsest.tools.shell.watcher import GroupWatcher

# Bytes of output that are kept of one command: so much of its beginning, and as much of its end.
HEAD: Final = 400_000
TAIL: Final = 400_000
# A variable of each command, by which the processes that it started are found if their keeper was killed.
_MARK: Final = "PAL_COMMAND"
_CHUNK: Final = 65_536
# Seconds that processes have to end when they are asked, and when they are forced: a busy machine may be late to say so.
_GRACE: Final = 2.0
_FORCED: Final = 5.0
_POLL: Final = 0.02
# A process may start another one between the search and its end.
_ROUNDS: Final = 5
# Seconds that processes have to end after the shell that started them, such as the other end of a process substitution.
_LINGER: Final = 0.5


class Output:
    """The output of a process, bounded: its beginning and its end, and how many bytes were left out between them."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.left_out = 0
        self._unread = bytearray()
        self.arrived = asyncio.Event()

    def take(self, chunk: bytes) -> None:
        """Add a piece."""
        room = HEAD - len(self._head)
        self._head += chunk[:room]
        rest = chunk[room:] if room < len(chunk) else b""
        if rest:
            self._tail.append(rest)
            self._tail_size += len(rest)
            while self._tail_size - len(self._tail[0]) >= TAIL:
                gone = self._tail.popleft()
                self._tail_size -= len(gone)
                self.left_out += len(gone)
        self._unread += chunk
        self.arrived.set()
        del self._unread[: max(0, len(self._unread) - TAIL)]

    def text(self) -> str:
        """All that was kept."""
        gap = f"\n[{self.left_out:,} bytes left out]\n".encode() if self.left_out else b""
        return (bytes(self._head) + gap + b"".join(self._tail)).decode("utf-8", "replace")

    def unread(self) -> str:
        """What came since the last time this was called."""
        text = self._unread.decode("utf-8", "replace")
        self._unread.clear()
        self.arrived.clear()
        return text


class Running(Struct):
    """A process with its output; `exit` is known once it has ended. `note` is what its reader should know if it fails.

    `mark` is in the environment of all that it started.
    """

    process: asyncio.subprocess.Process
    command: str
    output: Output = field(default_factory=Output)
    reading: "asyncio.Task[None] | None" = None
    note: str = ""
    mark: str = ""

    @property
    def exit(self) -> int | None:
        """The exit code; negative for a signal, and none while it runs."""
        return self.process.returncode

    async def wait(self) -> int:
        """The exit code, once the process has ended and its output was read."""
        code = await self.process.wait()
        # A child that outlives the command may hold the pipe open.
        await self._drained()
        return code

    async def end_rest(self) -> Literal["none", "ended", "goes_on"]:
        """End what still runs in the group of a process that has ended, after a moment in which it may end by itself.

        Returns what there was: nothing, processes that were ended, or one that has left the group, holds the output and goes on.
        """
        try:
            async with asyncio.timeout(_LINGER):
                await self._group_ended()
            ended = False
        except TimeoutError:
            await self.kill()
            ended = True
        if self.process.returncode == -signal.SIGKILL:
            # Perhaps by the command itself: what had left its group is below no process of ours now.
            ended = self._kill_marked() or ended
        if not await self._drained():
            return "goes_on"
        return "ended" if ended else "none"

    async def _drained(self) -> bool:
        """Whether no process holds the output any more; waits a moment for it."""
        if self.reading is not None and not self.reading.done():
            await asyncio.wait((self.reading,), timeout=_LINGER)
        return self.reading is None or self.reading.done()

    async def kill(self) -> None:
        """End the process and all that it started: asked first, then forced. If the task is cancelled meanwhile, forced at once."""
        try:
            for sign, seconds in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, _FORCED)):
                self._signal(sign)
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._group_ended(), seconds)
                    return
        except asyncio.CancelledError:
            self._signal(signal.SIGKILL)
            await wait_killed(self.process)
            raise

    def _signal(self, sign: signal.Signals) -> None:
        """Send a signal to the group. Force reaches the processes below too, which may have left it."""
        for _ in range(_ROUNDS if sign == signal.SIGKILL else 0):
            if not (found := _below(self.process.pid)):
                break
            for each in found:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(each, sign)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, sign)

    def _kill_marked(self) -> bool:
        """Kill what bears the mark of this process. Returns whether there was anything; without `/proc`, nothing is found."""
        wanted = f"{_MARK}={self.mark}".encode()
        found = False
        for entry in Path("/proc").glob("[0-9]*/environ") if self.mark else ():
            with suppress(OSError):
                if wanted in entry.read_bytes().split(b"\0"):
                    os.kill(int(entry.parent.name), signal.SIGKILL)
                    found = True
        return found

    async def _group_ended(self) -> None:
        """Wait for the process, and for those of its group that outlive it."""
        await self.process.wait()
        while True:
            if not _is_alive(self.process.pid):
                return
            await asyncio.sleep(_POLL)


async def wait_killed(process: asyncio.subprocess.Process) -> None:
    """Wait until asyncio knows of the end of a process that was killed, for seconds at most; a cancellation meanwhile is raised after it.

    A loop that is closed before that, such as one whose end cancels the task, leaves the process open for ever.
    """
    clock, cancelled = asyncio.get_running_loop(), False
    until = clock.time() + _FORCED
    while process.returncode is None and (seconds := until - clock.time()) > 0:
        try:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), seconds)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError


def _below(top: int) -> list[int]:
    """The processes that a process started and those that they started, as far as they run and the system tells."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            # After the name, which may hold anything: state, parent.
            state, parent, *_ = entry.read_bytes().rpartition(b")")[2].split()
            if state not in (b"Z", b"X"):
                parents.setdefault(int(parent), []).append(int(entry.parent.name))
    found = [top]
    for each in found:
        found += parents.get(each, [])
    return found[1:]


def _is_alive(group: int) -> bool:
    """Whether a process of a group still runs. One that has ended and was not waited for does not, though signals reach it."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    if not Path("/proc/self/stat").exists():
        return True
    return any(_runs_in(group, entry) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _runs_in(group: int, process: Path) -> bool:
    try:
        # After the name, which may hold anything: state, parent, group.
        state, _, own, *_ = (process / "stat").read_bytes().rpartition(b")")[2].split()
    except (OSError, ValueError):
        return False
    return int(own) == group and state not in (b"Z", b"X")


async def start(
    arguments: tuple[str, ...], command: str, cwd: Path, environment: Mapping[str, str], watcher: GroupWatcher | None = None
) -> Running:
    """Start a process in a group of its own, without standard input. Raises `OSError` if it cannot be started.

    With a `watcher`, the group is killed if this process is.
    """
    mark = os.urandom(16).hex()
    creating = asyncio.ensure_future(_created(arguments, cwd, {**environment, _MARK: mark}))
    try:
        process, pipe = await asyncio.shield(creating)
    except asyncio.CancelledError:
        # asyncio would end the process itself, but not what it has started by then.
        process, pipe = await creating
        os.close(pipe)
        await Running(process, command).kill()
        raise
    running = Running(process, command, mark=mark)
    if watcher is not None:
        watcher.add(process.pid)
    running.reading = asyncio.create_task(_read(process, pipe, running.output, watcher))
    return running


async def _created(arguments: tuple[str, ...], cwd: Path, environment: Mapping[str, str]) -> tuple[asyncio.subprocess.Process, int]:
    """A new process, and the end of the pipe from which its output is read.

    The pipe is ours, because that of asyncio keeps `wait` from returning as long as any other process holds it.
    """
    reading, writing = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *arguments,
            cwd=cwd,
            env=dict(environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
        )
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return process, reading


async def _read(process: asyncio.subprocess.Process, pipe: int, output: Output, watcher: GroupWatcher | None) -> None:
    """Read the output until no process writes to it any more; until then the group is watched."""
    reader = asyncio.StreamReader()
    file = os.fdopen(pipe, "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    try:
        while chunk := await reader.read(_CHUNK):
            output.take(chunk)
    finally:
        transport.close()
    if watcher is not None:
        await process.wait()
        watcher.remove(process.pid)
