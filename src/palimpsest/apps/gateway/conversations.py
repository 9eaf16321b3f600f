"""The open conversations of a gateway: found by name, in order within each, and never in the way of a request."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

from msgspec import Raw

from palimpsest.apps.gateway.recorded import PROFILES, Exchange, Mode, RecordedConversation
from palimpsest.apps.gateway.routing import ConversationName
from palimpsest.core.errors import Locked, PalimpsestError
from palimpsest.core.events import EventRef
from palimpsest.engine.conversation.conversation import Conversation
from palimpsest.stores.home import AnyHome
from palimpsest.wire.models.cards import WireName

MOST_OPEN: Final = 64
"""Conversations that are open at once; of those that wait for nothing, the one that was used longest ago is closed for another."""
_THREADS: Final = 4
_OTHERS: Final = 4
# How long a request waits for the record of the reply before it, in seconds; longer means that both are on their way at once.
_REPLY_WAIT: Final = 0.05
Result = TypeVar("Result")


class Lane:
    """One conversation and its order: what is done in it is done one after the other, in threads."""

    def __init__(self, name: ConversationName) -> None:
        self.name = name
        self.recorded: RecordedConversation | None = None
        self.order = asyncio.Lock()
        self.idle = asyncio.Event()
        self.idle.set()


class OpenConversations:
    """The conversations of all clients. Sub-agents get the conversation of their client as their parent, if that is known."""

    def __init__(self, home: AnyHome, mode: Mode, *, fold: bool = False, keeps_alive: bool = False) -> None:
        self._home = home
        self._mode: Mode = mode
        self._fold = fold
        self._keeps_alive = keeps_alive
        self._lanes: OrderedDict[str, Lane] = OrderedDict()
        self._mains: OrderedDict[str, str] = OrderedDict()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="conversation")

    async def lane(self, name: ConversationName) -> Lane:
        """Return the lane of a conversation that has no call on its way; if it has one, that of a conversation beside it."""
        lane = self._lane(name)
        with suppress(TimeoutError):
            await asyncio.wait_for(lane.idle.wait(), _REPLY_WAIT)
        beside = 1
        while not lane.idle.is_set():
            beside += 1
            lane = self._lane(name._replace(session=f"{name.session}-{beside}"))
        lane.idle.clear()
        return lane

    def _lane(self, name: ConversationName) -> Lane:
        lane = self._lanes.pop(name.session, None) or Lane(name)
        self._lanes[name.session] = lane
        if name.client and not name.agent and name.client not in self._mains:
            self._mains[name.client] = name.session
            while len(self._mains) > MOST_OPEN:
                self._mains.popitem(last=False)
        return lane

    async def prepare(self, lane: Lane, wire: WireName, model: str, body: bytes, fields: Mapping[str, Raw]) -> Exchange:
        """Record a request in its conversation and return what to send. Raises what opening and preparing raise."""
        return await self.run(lane, lambda: self._opened(lane, wire, model).prepare(body, fields))

    async def run(self, lane: Lane, work: Callable[[], Result]) -> Result:
        """Do something in a conversation, in a thread, after what was asked before."""
        async with lane.order:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _opened(self, lane: Lane, wire: WireName, model: str) -> RecordedConversation:
        if lane.recorded is None:
            lane.recorded = self._open(lane.name, wire, model)
        return lane.recorded

    def _open(self, name: ConversationName, wire: WireName, model: str) -> RecordedConversation:
        profile, settings = PROFILES[self._mode], {"PAL_AUTO_COMPACT": "on"} if self._fold else {}
        if self._keeps_alive:
            # Edits and reads share one limit of what may be lost.
            settings = settings | {"PAL_KEEP_ALIVE": "on"}
        parent = self._mains.get(name.client, "") if name.agent else ""
        opener = EventRef(parent, 0) if parent else None
        for session in (name.session, *(f"{name.session}.{number}" for number in range(2, 2 + _OTHERS))):
            # Another gateway with the same home may have the conversation of the same client.
            with suppress(Locked):
                conversation = Conversation.open(
                    session, model=model, home=self._home, profile=profile, settings=settings, shape=wire, origin="gateway", opener=opener
                )
                return RecordedConversation(conversation, wire, self._mode, self._home)
        raise Locked("other gateways have this conversation", where=name.session)

    async def release(self, lane: Lane) -> None:
        """Say that the call of a conversation has ended, and close conversations that are too many."""
        lane.idle.set()
        for session, other in list(self._lanes.items()):
            if len(self._lanes) <= MOST_OPEN:
                return
            if other.idle.is_set() and not other.order.locked():
                del self._lanes[session]
                await self._close(other)

    async def _close(self, lane: Lane) -> None:
        recorded, lane.recorded = lane.recorded, None
        if recorded is not None:
            with suppress(PalimpsestError):
                await self.run(lane, recorded.close)

    async def close(self) -> tuple[RecordedConversation, ...]:
        """Close all conversations, and return those that were open."""
        found = tuple(lane.recorded for lane in self._lanes.values() if lane.recorded is not None)
        for lane in self._lanes.values():
            await self._close(lane)
        self._threads.shutdown()
        return found
