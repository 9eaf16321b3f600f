"""One request through the gateway: recorded, edited within a deadline, sent on, and its reply passed back as it arrives."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
from msgspec import Raw
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from palimpsest.apps.gateway.conversations import Lane, OpenConversations
from palimpsest.apps.gateway.forwarding import Upstreams, connect, returned_headers, send
from palimpsest.apps.gateway.given import fields_of, is_followed, text_at
from palimpsest.apps.gateway.keep_alive import CacheKeeper, Pause, SentCall
from palimpsest.apps.gateway.recorded import Exchange, Mode, RecordedConversation
from palimpsest.apps.gateway.routing import WIRES, ConversationName, conversation_name
from palimpsest.audit.pricing.two_bills import GatewayBill, PricedCall
from palimpsest.core.items import Value
from palimpsest.stores.home import AnyHome
from palimpsest.wire.models.cards import WireName

DEADLINE_MS: Final = 50
"""Milliseconds that the edits of a request may take; of a request above 200,000 tokens, in proportion to its bytes."""
_BYTES_OF_DEADLINE: Final = 700_000
# Providers refuse more than 32 MB. What is larger is passed on without being read.
_MOST_BYTES: Final = 64_000_000
# A reply that is longer is passed on whole and not recorded.
_MOST_REPLY_BYTES: Final = 32_000_000
_LONGER_WITH_EDITS: Final = 10
_LONGEST_NOTE: Final = 500
_LOCAL_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})


class RequestReport(Value, frozen=True):
    """One request as `--json-stream` prints it: dollars of the session so far, with the gateway and without; `ms` until it was sent on."""

    session: str
    request: int
    mode: str
    tokens_in: int
    tokens_forwarded: int
    usd: float
    usd_without: float
    edits: int
    ms: float


@dataclass
class _Call:
    """A call on its way: its conversation once that is known, what is prepared for it, and whether that is sent; `ms` until then."""

    begun: float
    sent: asyncio.Event
    prepared: "asyncio.Task[Exchange]" = field(init=False)
    lane: Lane | None = None
    sent_as_given: bool = True
    edits: int = 0
    ms: float = 0.0
    request: SentCall | None = None


class Gateway:
    """Passes requests on in one mode. `report` gets each request whose reply was recorded, `warn` what no log could record."""

    def __init__(
        self,
        home: AnyHome,
        mode: Mode,
        upstreams: Upstreams,
        *,
        report: Callable[[RequestReport], None] = lambda _report: None,
        warn: Callable[[str], None] = lambda _message: None,
        fold: bool = False,
        deadline_ms: float = DEADLINE_MS,
        keeps_alive: bool = False,
        pause: Pause = asyncio.sleep,
    ) -> None:
        self.mode: Mode = mode
        self.total = GatewayBill(mode)
        self._upstreams = upstreams
        self._report = report
        self._warn = warn
        self._deadline_ms = deadline_ms
        keeps_alive = keeps_alive and mode != "watch"
        self._conversations = OpenConversations(home, mode, fold=fold, keeps_alive=keeps_alive)
        self._client = connect()
        self._recording: set[asyncio.Task[None]] = set()
        self._keeper = CacheKeeper(self._conversations, self._client, pause=pause) if keeps_alive else None

    async def answer(self, request: Request) -> Response:
        """Answer one request of a client."""
        if request.headers.get("host", "").rsplit(":", 1)[0] not in _LOCAL_HOSTS:
            # A page of another site that has its name resolve to this machine.
            return _error(403, "this gateway answers programs of this machine only")
        path = request.url.path
        if request.headers.get("upgrade", "").lower() == "websocket":
            return Response(status_code=426, headers={"upgrade": "HTTP/1.1"})
        wire = WIRES.get(path) if request.method == "POST" else None
        length = request.headers.get("content-length", "0")
        try:
            if wire is None or not length.isdigit() or int(length) > _MOST_BYTES:
                return await self._passed(request, request.stream() if request.method in ("POST", "PUT", "PATCH") else b"", None)
            body = await request.body()
            call = await self._prepared_or_given(request, wire, body)
            sent = body if call is None or call.sent_as_given else call.prepared.result().body
            return await self._passed(request, sent, call)
        except ClientDisconnect:
            return Response(status_code=499)

    async def _prepared_or_given(self, request: Request, wire: WireName, body: bytes) -> _Call | None:
        try:
            return await self._prepared(request, wire, body)
        except Exception as error:  # noqa: BLE001 - no error of ours may stop the request of a client
            self._warn(f"a request was passed on without a record ({error!r})"[:500])
            return None

    async def _prepared(self, request: Request, wire: WireName, body: bytes) -> _Call | None:
        """Prepare a request; `None` if it belongs to no conversation. After the deadline it is sent as it is, and recorded later."""
        call = _Call(time.perf_counter(), asyncio.Event())
        fields = fields_of(body)
        if fields is None or not is_followed(wire, fields):
            return None
        name = conversation_name(wire, request.headers, fields)
        call.prepared = asyncio.create_task(self._prepare(call, name, wire, body, fields))
        if self.mode == "watch":
            # Nothing is changed, so that the request does not wait; it is recorded once it is sent.
            call.ms = (time.perf_counter() - call.begun) * 1_000
            return call
        seconds = self._deadline_ms / 1_000 * max(1.0, len(body) / _BYTES_OF_DEADLINE)
        await asyncio.wait((call.prepared,), timeout=seconds - (time.perf_counter() - call.begun))
        if call.lane is not None and call.lane.recorded is not None and call.lane.recorded.is_edited:
            # What is cached is the edited list: to send the original would cost far more than to wait.
            await asyncio.wait((call.prepared,), timeout=seconds * _LONGER_WITH_EDITS)
        if not call.prepared.done():
            self._keep(self._note_late(call, seconds))
        elif call.prepared.exception() is None:
            call.sent_as_given, call.edits = False, call.prepared.result().edits
        call.ms = (time.perf_counter() - call.begun) * 1_000
        return call

    async def _prepare(self, call: _Call, name: ConversationName, wire: WireName, body: bytes, fields: Mapping[str, Raw]) -> Exchange:
        if self.mode == "watch":
            await call.sent.wait()
        call.lane = await self._conversations.lane(name)
        if self._keeper is not None:
            self._keeper.begun(call.lane)
        return await self._conversations.prepare(call.lane, wire, text_at(fields, "model"), body, fields)

    async def _note_late(self, call: _Call, seconds: float) -> None:
        await asyncio.wait((call.prepared,))
        message = f"the edits took longer than {seconds * 1_000:.0f} ms; the request was sent as it was given"
        await self._note(call, "request", "deadline", message)

    async def _note(self, call: _Call, what: str, kind: str, message: str) -> None:
        lane = call.lane
        if lane is None or lane.recorded is None:
            self._warn(message)
            return
        recorded = lane.recorded
        await self._conversations.run(lane, lambda: recorded.note(what, kind, message))

    async def _passed(self, request: Request, body: bytes | AsyncIterator[bytes], call: _Call | None) -> Response:
        """Send a request on, and return the reply, which is passed back as it arrives and recorded at its end."""
        url = self._upstreams.url_of(request.url.path, request.url.query, request.headers)
        try:
            reply = await send(self._client, request.method, url, request.headers.raw, body)
        except httpx.HTTPError as error:
            self._keep(self._ended(call, None))
            return _error(502, f"pal gateway: the provider at {httpx.URL(url).host} cannot be reached ({type(error).__name__})")
        except BaseException:
            self._keep(self._ended(call, None))
            raise
        if call is not None:
            call.sent.set()
            call.request = SentCall(url, request.headers.raw, body if isinstance(body, bytes) else b"")
        response = StreamingResponse(self._chunks(reply, call), reply.status_code)
        response.raw_headers = returned_headers(reply.headers)
        return response

    async def _chunks(self, reply: httpx.Response, call: _Call | None) -> AsyncIterator[bytes]:
        kept: list[bytes] = []
        size, is_whole = 0, False
        try:
            async for chunk in reply.aiter_raw():
                size += len(chunk)
                if call is not None and size <= _MOST_REPLY_BYTES:
                    kept.append(chunk)
                yield chunk
            is_whole = size <= _MOST_REPLY_BYTES
        finally:
            data = b"".join(kept) if is_whole and reply.status_code == httpx.codes.OK else None
            streamed = reply.headers.get("content-type", "").startswith("text/event-stream")
            # The record must not end with the connection of a client that is gone.
            self._keep(self._ended(call, data, streamed=streamed))
            await reply.aclose()

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._recording.add(task)
        task.add_done_callback(self._recording.discard)

    async def _ended(self, call: _Call | None, reply: bytes | None, *, streamed: bool = False) -> None:
        """Record the end of a call, and report it; errors of this are noted in the log of its conversation."""
        if call is None:
            return
        call.sent.set()
        await asyncio.wait((call.prepared,))
        lane, failed = call.lane, call.prepared.exception()
        try:
            if failed is not None:
                await self._note(call, "request", "internal", f"a request was sent as it was given ({failed!r})"[:_LONGEST_NOTE])
            elif reply is not None and lane is not None and lane.recorded is not None:
                recorded, exchange, as_given = lane.recorded, call.prepared.result(), call.sent_as_given
                billed = await self._conversations.run(
                    lane, lambda: recorded.observe(exchange, reply, streamed=streamed, sent_as_given=as_given)
                )
                self._reported(call, recorded, billed)
        except Exception as error:  # noqa: BLE001 - the record of a reply that the client already has
            await self._note(call, "reply", "internal", repr(error)[:_LONGEST_NOTE])
        finally:
            if lane is not None:
                await self._conversations.release(lane)
                if self._keeper is not None and call.request is not None and reply is not None:
                    self._keeper.ended(lane, call.request)

    def _reported(self, call: _Call, recorded: RecordedConversation, billed: PricedCall | None) -> None:
        if billed is None:
            return
        self.total = self.total.plus(billed)
        bill = recorded.bill
        self._report(
            RequestReport(
                recorded.conversation.id,
                bill.requests,
                self.mode,
                billed.tokens_given,
                billed.tokens_sent,
                bill.usd,
                bill.usd_without,
                call.edits,
                round(call.ms, 2),
            )
        )

    async def close(self) -> None:
        """Finish what is being recorded, and close all conversations and connections."""
        if self._keeper is not None:
            await self._keeper.close()
        if self._recording:
            await asyncio.wait(tuple(self._recording))
        await self._conversations.close()
        await self._client.aclose()


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"type": "error", "error": {"type": "api_error", "message": message}}, status)
