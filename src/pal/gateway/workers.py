"""Threads or processes that record conversations, and the order in which the requests of a conversation are worked on."""

import asyncio
import pickle
import socket
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from operator import methodcaller
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from pal.gateway.hosting import ConversationHost, Mode
from pal.gateway.routing import ConversationName
from pal.gateway.thinking import ThinkingMode
from palimpsest.core.errors import PalimpsestError, StoreError
from palimpsest.core.ports import SessionArchive
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
        self._hosted = tuple(_HostProcess((str(home.local_folder), mode, thinking, *options)) for _ in range(_PROCESSES))
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
            (sys.executable, "-P", "-m", "pal.gateway.host_process", str(theirs.fileno()), *self._arguments),
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


MOST_OPEN: Final = 64
"""Conversations that are open at once; of those that wait for nothing, the one that was used longest ago is closed for another."""
# Replies after which a conversation can be continued.
_MOST_REPLIES: Final = 1_024
# How long a request waits for the end of the reply before it, in seconds; longer means that both are on their way at once.
_REPLY_WAIT: Final = 0.05
_CONVERSATION_STOP_SECONDS: Final = 2.0
ConversationResult = TypeVar("ConversationResult")
Given = ParamSpec("Given")


class Lane:
    """One conversation and its order: what is done in it is done one after the other, by the worker of its `place`.

    `idle` is set while no call of it is on its way; the reply of the last one is recorded once `recording` is done. `may_be_edited` says
    whether its last request showed edits, or that of an earlier gateway may have.
    """

    def __init__(self, name: ConversationName, place: int, *, may_be_edited: bool) -> None:
        self.name = name
        self.place = place
        self.may_be_edited = may_be_edited
        self.order = asyncio.Lock()
        self.idle = asyncio.Event()
        self.idle.set()
        self.recording: asyncio.Task[Any] | None = None

    @property
    def is_unused(self) -> bool:
        """Whether nothing of the conversation is on its way."""
        return self.idle.is_set() and not self.order.locked() and (self.recording is None or self.recording.done())


class OpenConversations:
    """The conversations of all clients. Sub-agents get the conversation of their client as their parent, if that is known."""

    def __init__(self, workers: Workers, store: SessionArchive) -> None:
        self._workers = workers
        self._store = store
        self._lanes: OrderedDict[str, Lane] = OrderedDict()
        self._mains: OrderedDict[str, str] = OrderedDict()
        self._replies: OrderedDict[str, ConversationName] = OrderedDict()
        self._places = count()

    async def lane(self, name: ConversationName) -> Lane:
        """Return the lane of a conversation that has no call on its way; if it has one, that of a conversation beside it."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._lane(name).idle.wait(), _REPLY_WAIT)
        # Looked up again, because what waits for nothing may have been closed in the meantime.
        lane, beside = self._lane(name), 1
        while not lane.idle.is_set():
            beside += 1
            lane = self._lane(name._replace(session=f"{name.session}-{beside}"))
        lane.idle.clear()
        return lane

    def _lane(self, name: ConversationName) -> Lane:
        lane = self._lanes.pop(name.session, None) or Lane(name, self._place_of(name), may_be_edited=self._exists(name.session))
        self._lanes[name.session] = lane
        if name.client and not name.agent and name.client not in self._mains:
            self._mains[name.client] = name.session
            while len(self._mains) > MOST_OPEN:
                self._mains.popitem(last=False)
        return lane

    def _place_of(self, name: ConversationName) -> int:
        """The place of a new lane: that of another one of the same agent, whose list it may go on with by another model."""
        same = (lane.place for lane in reversed(self._lanes.values()) if name.client and lane.name[1:] == name[1:])
        place = next(same, None)
        return next(self._places) if place is None else place

    def _exists(self, session: str) -> bool:
        try:
            self._store.stat(session)
        except PalimpsestError:
            return False
        return True

    def replied(self, reply: str, name: ConversationName) -> None:
        """Take in the id of a reply of a conversation, after which its client may go on without sending it again."""
        if reply:
            self._replies[reply] = name
            while len(self._replies) > _MOST_REPLIES:
                self._replies.popitem(last=False)

    async def of_reply(self, reply: str) -> ConversationName | None:
        """Return the conversation of a reply if its list up to there is at hand; else `None`."""
        name = self._replies.get(reply)
        lane = None if name is None else self._lanes.get(name.session)
        if lane is None or not await self.run(lane, ConversationHost.holds, lane.name.session, reply):
            return None
        return lane.name

    async def counted(self, name: ConversationName, body: bytes) -> bytes | None:
        """Return a request for the number of tokens of a list, as it can be sent; `None` if its conversation is not open."""
        session = name.session if name.session in self._lanes else self._mains.get(name.client, "")
        lane = self._lanes.get(session)
        return None if lane is None else await self.run(lane, ConversationHost.counted, lane.name.session, body)

    def parent_of(self, name: ConversationName) -> str:
        """Return the session of the client whose sub-agent has this conversation; empty if there is none."""
        return self._mains.get(name.client, "") if name.agent else ""

    async def run(
        self,
        lane: Lane,
        method: Callable[Concatenate[ConversationHost, Given], ConversationResult],
        *given: Given.args,
        **named: Given.kwargs,
    ) -> ConversationResult:
        """Run a method of the host of a conversation, after what was asked before. Raises what it raises.

        If the caller is cancelled, the method still runs to its end in its order, so that no later one gets its answer.
        """
        # By its name, because it may be run in another process.
        work: Callable[[ConversationHost], ConversationResult] = methodcaller(method.__name__, *given, **named)
        return await asyncio.shield(asyncio.create_task(self._in_order(lane, work)))

    async def _in_order(self, lane: Lane, work: Callable[[ConversationHost], ConversationResult]) -> ConversationResult:
        async with lane.order:
            return await self._workers.run(lane.place, work)

    async def close_unused(self) -> None:
        """Close conversations that are too many."""
        for session, other in list(self._lanes.items()):
            if len(self._lanes) <= MOST_OPEN:
                return
            if other.is_unused:
                await self._close(session, other)
                self._forget(session, other)

    def _forget(self, session: str, lane: Lane) -> None:
        # A request that came while it was closed goes on in this lane: another one could be that of another process.
        if lane.is_unused and self._lanes.get(session) is lane:
            del self._lanes[session]

    async def close(self, seconds: float = _CONVERSATION_STOP_SECONDS) -> None:
        """Close all conversations; those that take longer are given up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for session, lane in list(self._lanes.items()):
                    await self._close(session, lane)
        await self._workers.close()

    async def _close(self, session: str, lane: Lane) -> None:
        # A process that died has closed its conversations.
        with suppress(Exception):
            await self.run(lane, ConversationHost.close, session)
