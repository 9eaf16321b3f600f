"""Where conversations are recorded: in threads of the gateway, or in processes beside it, so that no stream waits for their work."""

import asyncio
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from palimpsest.apps.gateway.hosting import ConversationHost
from palimpsest.apps.gateway.recorded import Mode
from palimpsest.apps.gateway.thinking import ThinkingMode
from palimpsest.core.errors import StoreError
from palimpsest.stores.home import Home

LENGTH_BYTES: Final = 8
"""Bytes of the length before each message between the gateway and a process of it."""
FOLD: Final = "fold"
KEEP_ALIVE: Final = "keep-alive"
_THREADS: Final = 4
# A long conversation takes a process for a third of a second when it is opened; with two, others need not wait for that.
_PROCESSES: Final = 2
# A request of 200,000 tokens passes at once.
_BUFFER_BYTES: Final = 1 << 20
_STOP_SECONDS: Final = 2
Result = TypeVar("Result")


class HostEnded(StoreError):
    """A process of the gateway ended while it worked; the next one goes on with its conversations."""


class Workers(Protocol):
    """Works with the hosts of conversations, never in the event loop."""

    async def run(self, place: int, work: Callable[[ConversationHost], Result]) -> Result:
        """Do something with the host of a place and return its result; a conversation keeps its place. Raises what it raises."""
        ...

    async def close(self) -> None:
        """End the threads or processes, once they have nothing to do."""
        ...


class ThreadWorkers:
    """Threads of this process, with one host."""

    def __init__(self, host: ConversationHost) -> None:
        self._host = host
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="conversation")

    async def run(self, place: int, work: Callable[[ConversationHost], Result]) -> Result:
        """Do something in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, self._host)

    async def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()


class ProcessWorkers:
    """Processes that each have the host of some conversations. Errors in them, also their end, are raised as `StoreError`.

    Python runs one thread at a time, so that planning in a thread would delay each event of each stream by some milliseconds.
    """

    def __init__(self, home: Home, mode: Mode, *, fold: bool = False, keeps_alive: bool = False, thinking: ThinkingMode = "strip") -> None:
        options = [name for name, is_on in ((FOLD, fold), (KEEP_ALIVE, keeps_alive and mode != "watch")) if is_on]
        self._hosted = tuple(_HostProcess((str(home.folder), mode, thinking, *options)) for _ in range(_PROCESSES))
        # The first request should not wait for the start of its process; most gateways have one conversation at a time.
        self._hosted[0].start()

    async def run(self, place: int, work: Callable[[ConversationHost], Result]) -> Result:
        """Do something in the process of the place; the work and its result are pickled."""
        return await self._hosted[place % len(self._hosted)].run(work)

    async def close(self) -> None:
        """End the processes."""
        await asyncio.gather(*(each.close() for each in self._hosted))


class _HostProcess:
    """One process, which is started when it is needed, also after it died. It does one thing after the other."""

    def __init__(self, arguments: tuple[str, ...]) -> None:
        self._arguments = arguments
        self._order = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ours: socket.socket | None = None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def start(self) -> "subprocess.Popen[bytes]":
        """Start the process and return it."""
        self._ours, theirs = socket.socketpair()
        for end in (self._ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self._process = subprocess.Popen(  # noqa: S603 - this program itself
            (sys.executable, "-P", "-m", "palimpsest.apps.gateway.host_process", str(theirs.fileno()), *self._arguments),
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            # An interrupt in a terminal is for the gateway, which lets this process finish.
            start_new_session=True,
        )
        theirs.close()
        self._streams = None
        return self._process

    async def run(self, work: Callable[[ConversationHost], Result]) -> Result:
        """Do something in the process."""
        async with self._order:
            process = self._process
            if process is None or process.poll() is not None:
                await self._hang_up()
                process = self.start()
            reader, writer = self._streams = self._streams or await asyncio.open_connection(sock=self._ours)
            data = pickle.dumps(work)
            try:
                writer.writelines((len(data).to_bytes(LENGTH_BYTES), data))
                await writer.drain()
                answer = await reader.readexactly(int.from_bytes(await reader.readexactly(LENGTH_BYTES)))
            except (asyncio.IncompleteReadError, OSError) as error:
                code = await asyncio.to_thread(process.wait)
                raise HostEnded(f"a process of the gateway ended (exit code {code})", where="pal gateway") from error
        # Only the process that was started above writes to this socket.
        failure, result = pickle.loads(answer)  # noqa: S301 - the same
        if failure:
            raise StoreError(failure, where="pal gateway")
        value: Result = result
        return value

    async def close(self) -> None:
        """End the process: it ends when its socket is closed."""
        await self._hang_up()
        if self._process is None:
            return
        try:
            await asyncio.to_thread(self._process.wait, _STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()

    async def _hang_up(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            with suppress(OSError):
                await self._streams[1].wait_closed()
        if self._ours is not None:
            self._ours.close()
