"""Reads that keep the cache of a conversation alive while its user thinks: opted in, for keys that are billed by the token."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import httpx
import msgspec
from msgspec import Raw

from palimpsest.apps.gateway.conversations import Lane, OpenConversations
from palimpsest.apps.gateway.forwarding import send
from palimpsest.apps.gateway.given import fields_of
from palimpsest.apps.gateway.hosting import ConversationHost
from palimpsest.policies.jobs.keep_alive import KeepAlive
from palimpsest.wire.json_reading import is_json, text

Pause = Callable[[float], Awaitable[None]]
_STOP_SECONDS: Final = 5.0


class SentCall(NamedTuple):
    """The last request of a conversation as it was sent: its address, its headers, which stay in memory, and its bytes."""

    url: str
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes


def is_billed_by_token(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether a request has a key of Anthropic's API and nothing else to sign in with, as a subscription has."""
    names = {name.lower() for name, _ in headers}
    return b"x-api-key" in names and b"authorization" not in names


def reading_request(body: bytes) -> bytes | None:
    """Return a request that reads what a request has cached, and asks for one token; `None` if the cache depends on its limits.

    A budget of thinking must be below the limit of the reply, and another budget has another cache.
    """
    fields = fields_of(body)
    if fields is None or "messages" not in fields:
        return None
    thinking = msgspec.json.decode(fields.get("thinking", Raw(b"{}")))
    if is_json(thinking) and text(thinking, "type") == "enabled":
        return None
    return msgspec.json.encode(fields | {"max_tokens": Raw(b"1"), "stream": Raw(b"false")})


class CacheKeeper:
    """Keeps the caches of conversations alive. The job of the engine decides: by pauses, prices and a share of what a session costs."""

    def __init__(
        self,
        conversations: OpenConversations,
        client: httpx.AsyncClient,
        *,
        pause: Pause = asyncio.sleep,
        paid: Callable[[float | None], None] = lambda _usd: None,
    ) -> None:
        self._conversations = conversations
        self._client = client
        self._interval_ms = KeepAlive().interval_ms
        self._pause = pause
        self._paid = paid
        self._waiting: dict[str, asyncio.Task[None]] = {}
        self._reading: set[asyncio.Task[bool]] = set()

    def ended(self, lane: Lane, call: SentCall) -> None:
        """Begin to wait after the call of a conversation has ended; what waited before ends."""
        self.begun(lane)
        body = reading_request(call.body) if is_billed_by_token(call.headers) else None
        if body is not None and not lane.name.agent:
            task = asyncio.create_task(self._keep(lane, call._replace(body=body)))
            self._waiting[lane.name.session] = task
            task.add_done_callback(lambda done: self._forget(lane, done))

    def begun(self, lane: Lane) -> None:
        """Stop waiting, because a conversation goes on. A read that was sent is paid, so that it is still recorded."""
        waiting = self._waiting.pop(lane.name.session, None)
        if waiting is not None:
            waiting.cancel()

    def _forget(self, lane: Lane, done: "asyncio.Task[None]") -> None:
        if self._waiting.get(lane.name.session) is done:
            del self._waiting[lane.name.session]
        if not done.cancelled():
            # Retrieved, because asyncio prints the others: if the process of the conversation dies, its cache is not kept.
            done.exception()

    async def close(self) -> None:
        """Stop: the client is gone. Reads that were sent get some seconds."""
        waiting = tuple(self._waiting.values())
        for task in waiting:
            task.cancel()
        if tasks := (*waiting, *self._reading):
            await asyncio.wait(tasks, timeout=_STOP_SECONDS)

    async def _keep(self, lane: Lane, call: SentCall) -> None:
        elapsed = await self._conversations.run(lane, ConversationHost.since_call, lane.name.session)
        while True:
            await self._pause(max(0, self._interval_ms - elapsed) / 1_000)
            elapsed = 0
            if not lane.idle.is_set():
                return
            cached, pays = await self._conversations.run(lane, ConversationHost.should_read, lane.name.session)
            if not cached or (pays and not await self._sent(lane, call)):
                return

    async def _sent(self, lane: Lane, call: SentCall) -> bool:
        reading = asyncio.create_task(self._read(lane, call))
        self._reading.add(reading)
        reading.add_done_callback(self._reading.discard)
        return await asyncio.shield(reading)

    async def _read(self, lane: Lane, call: SentCall) -> bool:
        """Send one read and record it; return whether there may be another one.

        After one whose price is not known there is none: what the reads may cost could not be kept.
        """
        started = await self._conversations.run(lane, ConversationHost.begin_read, lane.name.session)
        data, failure = b"", ""
        try:
            reply = await send(self._client, "POST", call.url, call.headers, call.body)
            data = await reply.aread()
        except httpx.HTTPError as error:
            failure = type(error).__name__
        succeeded, usd = await self._conversations.run(lane, ConversationHost.end_read, lane.name.session, started, data, failure)
        if succeeded:
            self._paid(usd)
        return succeeded and usd is not None
