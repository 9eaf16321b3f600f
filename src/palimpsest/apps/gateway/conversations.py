"""The conversations of a gateway: found by name, in order within each, and never in the way of a request."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from operator import methodcaller
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from palimpsest.apps.gateway.hosting import ConversationHost
from palimpsest.apps.gateway.routing import ConversationName
from palimpsest.apps.gateway.workers import Workers
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.ports import SessionArchive

MOST_OPEN: Final = 64
"""Conversations that are open at once; of those that wait for nothing, the one that was used longest ago is closed for another."""
# Replies after which a conversation can be continued.
_MOST_REPLIES: Final = 1_024
# How long a request waits for the end of the reply before it, in seconds; longer means that both are on their way at once.
_REPLY_WAIT: Final = 0.05
_STOP_SECONDS: Final = 2.0
Result = TypeVar("Result")
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
        lane = self._lanes.pop(name.session, None) or Lane(name, next(self._places), may_be_edited=self._exists(name.session))
        self._lanes[name.session] = lane
        if name.client and not name.agent and name.client not in self._mains:
            self._mains[name.client] = name.session
            while len(self._mains) > MOST_OPEN:
                self._mains.popitem(last=False)
        return lane

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
        self, lane: Lane, method: Callable[Concatenate[ConversationHost, Given], Result], *given: Given.args, **named: Given.kwargs
    ) -> Result:
        """Run a method of the host of a conversation, after what was asked before. Raises what it raises.

        If the caller is cancelled, the method still runs to its end in its order, so that no later one gets its answer.
        """
        # By its name, because it may be run in another process.
        work: Callable[[ConversationHost], Result] = methodcaller(method.__name__, *given, **named)
        return await asyncio.shield(asyncio.create_task(self._in_order(lane, work)))

    async def _in_order(self, lane: Lane, work: Callable[[ConversationHost], Result]) -> Result:
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

    async def close(self, seconds: float = _STOP_SECONDS) -> None:
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
