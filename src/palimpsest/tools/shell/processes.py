"""Runs shell commands: in the foreground with a time limit, or in the background with output that can be read later."""

import asyncio
import os
import signal
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from palimpsest.tools.shell.watcher import GroupWatcher

# Bytes of output that are kept of one command: so much of its beginning, and as much of its end.
HEAD: Final = 400_000
TAIL: Final = 400_000
_CHUNK: Final = 65_536
_GRACE: Final = 2.0
_POLL: Final = 0.02


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
    """A process with its output; `exit` is known once it has ended."""

    process: asyncio.subprocess.Process
    command: str
    output: Output = field(default_factory=Output)
    reading: "asyncio.Task[None] | None" = None

    @property
    def exit(self) -> int | None:
        """The exit code; negative for a signal, and none while it runs."""
        return self.process.returncode

    async def wait(self) -> int:
        """The exit code, once the process has ended and its output was read."""
        code = await self.process.wait()
        if self.reading is not None:
            # A child that outlives the command may hold the pipe open; what it writes later belongs to nothing.
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.shield(self.reading), 0.5)
        return code

    async def kill(self) -> None:
        """End the process and all that it started: asked first, then forced. If the task is cancelled meanwhile, forced at once."""
        try:
            for sign in (signal.SIGTERM, signal.SIGKILL):
                self._signal(sign)
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._group_ended(), _GRACE)
                    return
        except asyncio.CancelledError:
            self._signal(signal.SIGKILL)
            raise

    def _signal(self, sign: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, sign)

    async def _group_ended(self) -> None:
        """Wait for the process, and for those of its group that outlive it."""
        await self.process.wait()
        with suppress(ProcessLookupError, PermissionError):
            while True:
                os.killpg(self.process.pid, 0)
                await asyncio.sleep(_POLL)


async def start(
    arguments: tuple[str, ...], command: str, cwd: Path, environment: Mapping[str, str], watcher: GroupWatcher | None = None
) -> Running:
    """Start a process in a group of its own, without standard input. Raises `OSError` if it cannot be started.

    With a `watcher`, the group is killed if this process is.
    """
    creating = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *arguments,
            cwd=cwd,
            env=dict(environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    )
    try:
        process = await asyncio.shield(creating)
    except asyncio.CancelledError:
        # asyncio would end the process itself, but not what it has started by then.
        await Running(await creating, command).kill()
        raise
    running = Running(process, command)
    if watcher is not None:
        watcher.add(process.pid)
    running.reading = asyncio.create_task(_read(process, running.output, watcher))
    return running


async def _read(process: asyncio.subprocess.Process, output: Output, watcher: GroupWatcher | None) -> None:
    """Read the output until no process writes to it any more; until then the group is watched."""
    if process.stdout is None:
        return
    while chunk := await process.stdout.read(_CHUNK):
        output.take(chunk)
    if watcher is not None:
        await process.wait()
        watcher.remove(process.pid)
