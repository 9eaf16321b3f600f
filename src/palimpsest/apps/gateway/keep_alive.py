"""Reads that keep the cache of a conversation alive while its user thinks: opted in, for keys that are billed by the token."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

import httpx
import msgspec
from msgspec import Raw

from palimpsest.apps.gateway.conversations import Lane, OpenConversations
from palimpsest.apps.gateway.forwarding import send
from palimpsest.apps.gateway.given import fields_of
from palimpsest.apps.gateway.recorded import RecordedConversation
from palimpsest.audit.pricing.pauses import KEEP_ALIVE
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import CallStarted, Failed, JobRan, ModelReplied
from palimpsest.core.projections.jobs import job_purpose
from palimpsest.engine.jobs.running import job_situation
from palimpsest.policies.jobs.keep_alive import KeepAlive
from palimpsest.wire.json_reading import is_json, text
from palimpsest.wire.stream import decode_response

PURPOSE: Final = job_purpose(KEEP_ALIVE)
Pause = Callable[[float], Awaitable[None]]


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
        self, conversations: OpenConversations, client: httpx.AsyncClient, *, job: KeepAlive | None = None, pause: Pause = asyncio.sleep
    ) -> None:
        self._conversations = conversations
        self._client = client
        self._job = job or KeepAlive()
        self._pause = pause
        self._waiting: dict[str, asyncio.Task[None]] = {}

    def ended(self, lane: Lane, call: SentCall) -> None:
        """Begin to wait after the call of a conversation has ended; what waited before ends."""
        self.begun(lane)
        body = reading_request(call.body) if is_billed_by_token(call.headers) else None
        if body is not None and not lane.name.agent:
            task = asyncio.create_task(self._keep(lane, call._replace(body=body)))
            self._waiting[lane.name.session] = task
            task.add_done_callback(lambda done: self._forget(lane, done))

    def begun(self, lane: Lane) -> None:
        """Stop waiting, because a conversation goes on."""
        waiting = self._waiting.pop(lane.name.session, None)
        if waiting is not None:
            waiting.cancel()

    def _forget(self, lane: Lane, done: "asyncio.Task[None]") -> None:
        if self._waiting.get(lane.name.session) is done:
            del self._waiting[lane.name.session]

    async def close(self) -> None:
        """Stop: the client is gone."""
        waiting = tuple(self._waiting.values())
        for task in waiting:
            task.cancel()
        if waiting:
            await asyncio.wait(waiting)

    async def _keep(self, lane: Lane, call: SentCall) -> None:
        elapsed = 0 if lane.recorded is None else await self._conversations.run(lane, partial(self._since_call, lane.recorded))
        while True:
            await self._pause(max(0, self._job.interval_ms - elapsed) / 1_000)
            recorded, elapsed = lane.recorded, 0
            if recorded is None or not lane.idle.is_set():
                return
            cached, pays = await self._conversations.run(lane, partial(self._judged, recorded))
            if not cached or (pays and not await self._read(lane, recorded, call)):
                return

    def _since_call(self, recorded: RecordedConversation) -> int:
        """Milliseconds since the newest call began, from which on the cache lives; a reply may have taken long."""
        session = recorded.conversation.session
        called = session.derived.cache.value().called
        return 0 if called is None else session.environment.clock.now() - called

    def _judged(self, recorded: RecordedConversation) -> tuple[bool, bool]:
        """Whether anything is still cached, and whether a read pays now."""
        session = recorded.conversation.session
        cached = session.derived.cache.value().longest(session.environment.clock.now())
        return bool(cached), self._job.plan(job_situation(session, self._job, "idle")) is not None

    async def _read(self, lane: Lane, recorded: RecordedConversation, call: SentCall) -> bool:
        """Send one read and record it; return whether it succeeded."""
        log = recorded.conversation.session.log
        started = await self._conversations.run(
            lane, lambda: log.append(CallStarted(recorded.conversation.session.card.name, recorded.wire, purpose=PURPOSE))
        )
        outcome: ModelReplied | Failed
        try:
            reply = await send(self._client, "POST", call.url, call.headers, call.body)
            data = await reply.aread()
            outcome = decode_response(recorded.wire, data, recorded.conversation.session.card)
            outcome = msgspec.structs.replace(outcome, parts=(), call=started.seq, purpose=PURPOSE)
        except (httpx.HTTPError, PalimpsestError) as error:
            outcome = Failed("call", "keep_alive", type(error).__name__, call=started.seq, purpose=PURPOSE)
        await self._conversations.run(lane, lambda: (log.append(outcome), log.append(JobRan(self._job.name, log.tip, "done"))))
        if isinstance(outcome, ModelReplied):
            recorded.add_read(outcome)
        return isinstance(outcome, ModelReplied)
