"""The gateway: records, edits and forwards each request on the loopback, passes its reply back, and keeps caches alive."""

import asyncio
import gc
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import httpx
import msgspec
import uvicorn
from msgspec import Raw
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from pal.gateway.hosting import ConversationHost, Mode, Observed, PreparedBody, SentForm
from pal.gateway.routing import (
    LOOP_HEADER,
    WIRE_PATHS,
    ConversationName,
    Door,
    ForwardedRequest,
    KeptReply,
    Upstreams,
    connect,
    continuation_name,
    conversation_name,
    fields_of,
    is_followed,
    read_body,
    returned_headers,
    send,
    text_at,
    timely,
)
from pal.gateway.thinking import (
    COUNTING_PATH,
    REFUSAL,
    PathTranslator,
    ThinkingMismatch,
    ThinkingMode,
    Thread,
    ThreadMode,
    is_reporting,
    refusal_of,
    thread_of,
    with_beta,
    without_beta,
    without_thread,
)
from pal.gateway.workers import HostEnded, Lane, OpenConversations, ThreadWorkers, Workers
from palimpsest.audit.two_bills import UNKNOWN_CALL, GatewayBill
from palimpsest.core.errors import BadInput
from palimpsest.core.items import ReasoningLost, Value
from palimpsest.policies.jobs import KeepAlive
from palimpsest.stores.home import Home
from palimpsest.wire.json_reading import is_json, text
from palimpsest.wire.models import WireName

Pause = Callable[[float], Awaitable[None]]
_KEEP_ALIVE_STOP_SECONDS: Final = 5.0


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
            await asyncio.wait(tasks, timeout=_KEEP_ALIVE_STOP_SECONDS)

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


PATIENCE_S: Final = 2.0
"""Seconds that a request waits for new edits on a busy machine; of a request above 200,000 tokens, in proportion to its bytes."""
_PLANNING_S: Final = 0.25
"""Seconds of processor time that planning new edits may take, in the same proportion; mostly it takes some milliseconds."""
_BYTES_OF_PATIENCE: Final = 700_000
# No model takes more text than a million tokens: what is larger has images, or is refused.
_MOST_PATIENCE: Final = 5.0
# What is cached of a conversation with edits is the edited list. To send the original costs a write of all of it, some ten cents to
# dollars, which is too much for a minute; longer means that the process which has the edits hangs.
_EDITED_PATIENCE_S: Final = 60.0
# Seconds that the end of a reply waits until the reply is recorded.
_RECORD_S: Final = 5.0
# Providers refuse more than 32 MB. What is larger is passed on without a record.
_MOST_BYTES: Final = 34_000_000
# A reply that is longer is passed on whole and not recorded.
_MOST_REPLY_BYTES: Final = 32_000_000
# An error of a provider is shorter.
_MOST_ERROR_BYTES: Final = 100_000
# The share of the patience after which no new edit is begun; the rest is for one that is being made.
_PLANNING_SHARE: Final = 0.6
_LONGEST_NOTE: Final = 500
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_STOP_SECONDS: Final = 3.0
_UNANSWERED: Final = "the provider refused the request or could not be reached"


class RequestReport(Value, frozen=True):
    """One request as `--json-stream` prints it: dollars of the session so far, with the gateway and without; `ms` until it was sent on.

    `reasoning_lost` is the thinking that edits made unusable in the session so far, `recoveries` its requests that were sent again without.
    Dollars are `None` if no price of the model is known.
    """

    session: str
    request: int
    mode: str
    tokens_in: int
    tokens_forwarded: int
    usd: float | None
    usd_without: float | None
    edits: int
    ms: float
    reasoning_lost: ReasoningLost = ReasoningLost()
    recoveries: int = 0


@dataclass
class _Call:
    """A call on its way: its conversation once that is known, and the form in which it is sent.

    Times are those of the monotonic clock, in seconds; no new edit is begun after `plans_until`, or after `plans_for` seconds of
    processor time. `prepared` is what would be sent now, in
    the form `prepared_as`: `stable` is set once it has the edits made before it, `taken` once its
    conversation is known. A call that `is_watched` is sent as it was given, whatever the mode. `ms` are those until it was sent on.
    """

    begun: float
    plans_until: float
    plans_for: float
    is_watched: bool
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    stable: asyncio.Event = field(default_factory=asyncio.Event)
    taken: asyncio.Event = field(default_factory=asyncio.Event)
    preparing: "asyncio.Task[None]" = field(init=False)
    lane: Lane | None = None
    has_lane: bool = False
    prepared: PreparedBody | None = None
    prepared_as: SentForm = "given"
    form: SentForm = "given"
    edits: int = 0
    ms: float = 0.0
    request: SentCall | None = None


class Gateway:
    """Passes requests on in one mode.

    `arrived` is called for each request, `report` gets those whose reply was recorded, and `warn` what no log could record.
    `threads` are refused by default, but for mode `watch`, in which they pass. Without `workers`, threads of this process record.
    """

    def __init__(
        self,
        home: Home,
        mode: Mode,
        upstreams: Upstreams,
        *,
        arrived: Callable[[], None] = lambda: None,
        report: Callable[[RequestReport], None] = lambda _report: None,
        warn: Callable[[str], None] = lambda _message: None,
        fold: bool = False,
        threads: ThreadMode | None = None,
        thinking: ThinkingMode = "strip",
        patience_s: float = PATIENCE_S,
        record_s: float = _RECORD_S,
        keeps_alive: bool = False,
        pause: Pause = asyncio.sleep,
        workers: Workers | None = None,
    ) -> None:
        self.mode: Mode = mode
        self.total = GatewayBill(mode)
        self._upstreams = upstreams
        self._arrived = arrived
        self._report = report
        self._warn = warn
        self._threads: ThreadMode = threads or ("pass" if mode == "watch" else "refuse")
        self._patience_s = patience_s
        self._record_s = record_s
        self._door = Door()
        keeps_alive = keeps_alive and mode != "watch"
        host = workers or ThreadWorkers(ConversationHost(home, mode, fold=fold, keeps_alive=keeps_alive, thinking=thinking))
        self._conversations = OpenConversations(host, home.store)
        self._client = connect()
        self._recording: set[asyncio.Task[None]] = set()
        self._warned_of_encoding = False
        self._keeper = CacheKeeper(self._conversations, self._client, pause=pause, paid=self._read_paid) if keeps_alive else None

    async def answer(self, request: Request) -> Response:
        """Answer one request of a client."""
        path = bytes(request.scope.get("raw_path") or b"").decode("latin-1") or request.url.path
        wire = WIRE_PATHS.get(path) if request.method == "POST" else None
        counts = path == COUNTING_PATH and request.method == "POST"
        refusal = self._door.refusal(request.headers, is_conversation=wire is not None)
        if refusal is not None:
            return _error(refusal.status, f"pal gateway: {refusal.message}")
        self._arrived()
        if request.headers.get("upgrade", "").lower() == "websocket":
            return Response(status_code=426, headers={"upgrade": "HTTP/1.1"})
        try:
            query = bytes(request.scope["query_string"]).decode("latin-1")
            url = self._upstreams.of(path, request.headers) + path + (f"?{query}" if query else "")
            headers = [(name, value) for name, value in request.headers.raw if name.lower() != LOOP_HEADER.encode()]
            given = ForwardedRequest(request.method, url, [*headers, self._door.marked(request.headers)], b"")
            if wire is None and not counts:
                return await self._passed(given._replace(body=timely(request.stream()) if request.method in _WITH_BODY else b""), None)
            body = await read_body(request.stream(), _MOST_BYTES)
            given = given._replace(body=body)
            return await (self._of_conversation(request, given, body, wire) if isinstance(body, bytes) else self._passed(given, None))
        except BadInput as error:
            return _error(400, f"pal gateway: {error.message}")
        except TimeoutError:
            return _error(408, "pal gateway: the request did not come to its end")
        except ClientDisconnect:
            return Response(status_code=499)

    async def _of_conversation(self, request: Request, given: ForwardedRequest, body: bytes, wire: WireName | None) -> Response:
        """Answer a request with a list, or one that asks how many tokens a list has, which has no wire here."""
        fields = fields_of(body)
        thread = thread_of(fields) if fields is not None and wire in ("anthropic", None) else Thread()
        if self._threads == "refuse" and thread.kind == "continue":
            return JSONResponse(REFUSAL, 400)
        if self._threads == "refuse" and thread.kind == "create" and fields is not None:
            body = without_thread(fields)
            given = given._replace(headers=without_beta(given.headers), body=body)
            fields, thread = {name: value for name, value in fields.items() if name != "thread"}, Thread()
        if wire is None:
            return await self._passed(await self._countable(request, given, body), None)
        call = await self._prepared_or_given(request, wire, body, fields, thread)
        if call is None or call.form == "given" or call.prepared is None:
            return await self._passed(given, call)
        return await self._passed(_as_prepared(given, call.prepared), call)

    async def _countable(self, request: Request, given: ForwardedRequest, body: bytes) -> ForwardedRequest:
        """A request for the number of tokens of a list, which the provider checks as any other, without thinking that we made unusable."""
        try:
            fields = fields_of(body)
            name = None if fields is None or self.mode == "watch" else conversation_name("anthropic", request.headers, fields)
            changed = None if name is None else await self._conversations.counted(name, body)
        except Exception as error:  # noqa: BLE001 - the provider then says what is wrong with the list as it was given
            self._warn(f"a request to count tokens was passed on as it was given ({error!r})"[:500])
            return given
        return given if changed is None else given._replace(body=changed)

    async def _prepared_or_given(
        self, request: Request, wire: WireName, body: bytes, fields: Mapping[str, Raw] | None, thread: Thread
    ) -> _Call | None:
        try:
            return await self._prepared(request, wire, body, fields, thread)
        except Exception as error:  # noqa: BLE001 - no error of ours may stop the request of a client
            self._warn(f"a request was passed on without a record ({error!r})"[:500])
            return None

    async def _prepared(
        self, request: Request, wire: WireName, body: bytes, fields: Mapping[str, Raw] | None, thread: Thread
    ) -> _Call | None:
        """Prepare a request; `None` if it belongs to no conversation. What is not prepared at its deadline is recorded later."""
        begun, share = time.monotonic(), min(max(1.0, len(body) / _BYTES_OF_PATIENCE), _MOST_PATIENCE)
        seconds = self._patience_s * share
        # What a thread holds cannot be edited.
        is_watched = self.mode == "watch" or thread.kind != "none"
        call = _Call(begun, begun + _PLANNING_SHARE * seconds, _PLANNING_S * share, is_watched)
        if fields is None:
            self._warn_of_encoding(request.headers.get("content-encoding", ""))
        if fields is None or not ((thread.kind == "continue" and thread.previous) or is_followed(wire, fields)):
            return None
        name = await self._name(request, wire, fields, thread)
        call.preparing = asyncio.create_task(self._prepare(call, name, wire, text_at(fields, "model"), body, previous=thread.previous))
        if not is_watched:
            await self._wait_for_edits(call, seconds)
        # A request that is only watched does not wait; it is recorded once it is sent.
        call.ms = (time.monotonic() - begun) * 1_000
        return call

    async def _name(self, request: Request, wire: WireName, fields: Mapping[str, Raw], thread: Thread) -> ConversationName:
        if thread.kind != "continue":
            return conversation_name(wire, request.headers, fields)
        return await self._conversations.of_reply(thread.previous) or continuation_name(request.headers, fields, thread.previous)

    def _warn_of_encoding(self, encoding: str) -> None:
        """Say once that a client compresses its requests, which are passed on but can be neither recorded nor edited."""
        if encoding and not self._warned_of_encoding:
            self._warned_of_encoding = True
            self._warn(
                f"the client compresses its requests ({encoding[:20]}), so that they are passed on without a record or an edit; "
                "turn that off in the client"
            )

    async def _wait_for_edits(self, call: _Call, seconds: float) -> None:
        """Wait until a call is prepared, or for as long as that is worth; then it is sent in the form that it has."""
        await asyncio.wait((call.preparing,), timeout=call.begun + seconds - time.monotonic())
        if call.prepared is None and not call.preparing.done() and (call.lane is None or call.lane.may_be_edited):
            stable = asyncio.create_task(call.stable.wait())
            await asyncio.wait((call.preparing, stable), timeout=_EDITED_PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
            stable.cancel()
        if call.prepared is not None:
            call.form, call.edits = call.prepared_as, call.prepared.edits
        elif not call.preparing.done():
            self._keep(self._note_late(call, seconds))

    async def _prepare(self, call: _Call, name: ConversationName, wire: WireName, model: str, body: bytes, *, previous: str) -> None:
        if call.is_watched:
            await call.sent.wait()
        lane = call.lane = await self._conversations.lane(name)
        call.has_lane = True
        call.taken.set()
        if self._keeper is not None:
            self._keeper.begun(lane)
        if lane.recording is not None:
            await asyncio.wait((lane.recording,))
        run, session, parent = self._conversations.run, lane.name.session, self._conversations.parent_of(name)
        if call.is_watched:
            await run(lane, ConversationHost.record, lane.name, parent, wire, model, body, previous=previous)
            return
        try:
            followed = await run(lane, ConversationHost.follow, lane.name, parent, wire, model, body)
        except HostEnded:
            # The next process reads the edits from the log, so that the cache of the edited list is not lost.
            followed = await run(lane, ConversationHost.follow, lane.name, parent, wire, model, body)
        lane.may_be_edited = followed.is_edited
        call.prepared, call.prepared_as = followed, "followed"
        call.stable.set()
        planned = await run(lane, ConversationHost.plan, session, call.plans_until, call.plans_for)
        lane.may_be_edited = planned.is_edited
        if call.form == "given":
            call.prepared, call.prepared_as = planned, "planned"

    async def _note_late(self, call: _Call, seconds: float) -> None:
        await asyncio.wait((call.preparing,))
        message = f"the edits took longer than {seconds * 1_000:.0f} ms; the request was sent as it was given"
        await self._note(call, "request", "deadline", message)

    async def _note(self, call: _Call, what: str, kind: str, message: str) -> None:
        lane, noted = call.lane, False
        # What cannot be recorded is still said.
        with suppress(Exception):
            noted = lane is not None and await self._conversations.run(lane, ConversationHost.note, lane.name.session, what, kind, message)
        if not noted:
            self._warn(message)

    async def _passed(self, request: ForwardedRequest, call: _Call | None) -> Response:
        """Send a request on, and return the reply, which is passed back as it arrives and recorded before its end is."""
        try:
            reply = await send(self._client, request.method, request.url, request.headers, request.body)
        except httpx.HTTPError as error:
            self._keep(self._ended(call, None))
            return _error(502, f"pal gateway: the provider at {httpx.URL(request.url).host} cannot be reached ({type(error).__name__})")
        except BaseException:
            self._keep(self._ended(call, None))
            raise
        stream, head = reply.aiter_raw(), b""
        if reply.status_code == httpx.codes.BAD_REQUEST and call is not None and not call.is_watched:
            async for chunk in stream:
                head += chunk
                if len(head) > _MOST_ERROR_BYTES:
                    break
            again = await self._without_thinking(request, call, refusal_of(head, reply.headers))
            if again is not None:
                await reply.aclose()
                return await self._passed(again, call)
        if call is not None:
            call.sent.set()
            if self._keeper is not None:
                call.request = SentCall(request.url, request.headers, request.body if isinstance(request.body, bytes) else b"")
        translator = _translator(request, reply, call)
        response = StreamingResponse(self._chunks(reply, _joined(head, stream), call, translator), reply.status_code)
        # The length of what is translated is not known before.
        response.raw_headers = [each for each in returned_headers(reply.headers) if translator is None or each[0] != b"content-length"]
        return response

    async def _without_thinking(self, request: ForwardedRequest, call: _Call, refusal: ThinkingMismatch | None) -> ForwardedRequest | None:
        """Return a request without any thinking, once, if the provider refused it because of an edit of ours; else `None`."""
        if refusal is None or call.form == "recovered":
            return None
        await asyncio.wait((call.preparing,))
        lane, found = call.lane, None
        try:
            if lane is not None:
                found = await self._conversations.run(lane, ConversationHost.recovered, lane.name.session, call.form, refusal)
        except Exception as error:  # noqa: BLE001 - the client then gets the refusal of the provider
            self._warn(f"a request whose thinking was refused could not be sent again ({error!r})"[:500])
        if found is None or found.body is None:
            return None
        call.form, call.prepared = "recovered", found
        return request._replace(body=found.body)

    async def _chunks(
        self, reply: httpx.Response, stream: AsyncIterator[bytes], call: _Call | None, translator: PathTranslator | None
    ) -> AsyncIterator[bytes]:
        """Yield a reply as it arrives. What ends it for the client is held back until all of it is recorded."""
        kept = None if call is None or reply.status_code != httpx.codes.OK else KeptReply(reply.headers, _MOST_REPLY_BYTES)
        recording: asyncio.Task[None] | None = None
        said: Callable[[bytes], bytes] = bytes if translator is None else translator.passed
        try:
            async for chunk in stream:
                passed = said(chunk if kept is None else kept.taken(chunk))
                if passed:
                    yield passed
                if kept is not None and recording is None and kept.has_ended:
                    recording = await self._recorded(call, kept)
                    if rest := said(kept.rest()):
                        yield rest
            if kept is not None and recording is None:
                recording = await self._recorded(call, kept)
                if rest := said(kept.rest()):
                    yield rest
            if translator is not None and (rest := translator.rest()):
                yield rest
        finally:
            if recording is None:
                # What the client did not wait for is paid nevertheless.
                self._recording_of(call, kept)
            await reply.aclose()

    async def _recorded(self, call: _Call | None, kept: KeptReply) -> "asyncio.Task[None]":
        """Record a reply, and return the task once it is recorded, or after some seconds while it is still at it."""
        recording = self._recording_of(call, kept)
        await asyncio.wait((recording,), timeout=self._record_s)
        return recording

    def _recording_of(self, call: _Call | None, kept: KeptReply | None) -> "asyncio.Task[None]":
        # The record must not end with the connection of a client that is gone.
        data = None if kept is None else kept.data or b""
        return self._keep(self._ended(call, data, "" if kept is None else kept.content_type))

    def _keep(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._recording.add(task)
        task.add_done_callback(self._recording.discard)
        return task

    def _leave(self, call: _Call) -> None:
        """Let the conversation of a call take the next one."""
        if call.lane is not None and call.has_lane:
            call.has_lane = False
            call.lane.idle.set()

    async def _ended(self, call: _Call | None, reply: bytes | None, content_type: str = "") -> None:
        """Record the end of a call, and report it; errors of this are noted in the log of its conversation."""
        if call is None:
            return
        call.sent.set()
        taken = asyncio.create_task(call.taken.wait())
        await asyncio.wait((call.preparing, taken), return_when=asyncio.FIRST_COMPLETED)
        taken.cancel()
        if call.lane is not None and call.has_lane:
            # The next request may come before this reply is recorded.
            call.lane.recording = asyncio.current_task()
            self._leave(call)
        await asyncio.wait((call.preparing,))
        lane, failed = call.lane, call.preparing.exception()
        try:
            if failed is not None:
                if reply is not None:
                    # It was paid, and is in no log.
                    self.total = self.total.plus(UNKNOWN_CALL)
                await self._note(call, "request", "internal", f"a request was sent as it was given ({failed!r})"[:_LONGEST_NOTE])
            elif reply is not None and lane is not None:
                observed = await self._conversations.run(lane, ConversationHost.observe, lane.name.session, reply, content_type, call.form)
                self._conversations.replied(observed.reply, lane.name)
                self._reported(call, observed)
            elif lane is not None:
                await self._conversations.run(lane, ConversationHost.unanswered, lane.name.session, _UNANSWERED)
        except Exception as error:  # noqa: BLE001 - the record of a reply that the client already has
            await self._note(call, "reply", "internal", repr(error)[:_LONGEST_NOTE])
        finally:
            self._leave(call)
            if lane is not None and self._keeper is not None and call.request is not None and reply is not None:
                self._keeper.ended(lane, call.request)
            await self._conversations.close_unused()

    def _read_paid(self, usd: float | None) -> None:
        self.total = self.total.with_read(usd)

    def _reported(self, call: _Call, observed: Observed) -> None:
        billed, bill = observed.call, observed.bill
        self.total = self.total.plus(billed)
        self._report(
            RequestReport(
                observed.session,
                bill.requests,
                self.mode,
                billed.tokens_given,
                billed.tokens_sent,
                bill.usd,
                bill.usd_without,
                call.edits,
                round(call.ms, 2),
                bill.reasoning_lost,
                bill.recoveries,
            )
        )

    async def close(self) -> None:
        """Finish what is being recorded, within some seconds, and close all conversations and connections."""
        if self._recording:
            await asyncio.wait(tuple(self._recording), timeout=_STOP_SECONDS)
        if self._keeper is not None:
            # After the records, because each of them begins to wait for the next read.
            await self._keeper.close()
        await self._conversations.close()
        await self._client.aclose()


def _as_prepared(given: ForwardedRequest, prepared: PreparedBody) -> ForwardedRequest:
    """A request as it was prepared."""
    headers = with_beta(given.headers) if prepared.is_asked else given.headers
    return given._replace(headers=headers, body=given.body if prepared.body is None else prepared.body)


def _translator(request: ForwardedRequest, reply: httpx.Response, call: _Call | None) -> PathTranslator | None:
    """What tells the client about the thinking that was sent, in places of its own list; `None` if they are the same."""
    prepared = None if call is None or call.form == "given" else call.prepared
    if prepared is None or prepared.paths is None or not is_reporting(request.headers):
        return None
    is_stream = reply.headers.get("content-type", "").startswith("text/event-stream")
    return PathTranslator({} if prepared.is_asked else prepared.paths, is_stream=is_stream)


async def _joined(head: bytes, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if head:
        yield head
    async for chunk in stream:
        yield chunk


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"type": "error", "error": {"type": "api_error", "message": message}}, status)


LOOPBACK: Final = "127.0.0.1"
_WAITING_CONNECTIONS: Final = 256
_METHODS: Final = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
# Seconds that requests on their way get after the gateway was asked to stop.
_GRACE_SECONDS: Final = 10
# Seconds in which a connection must bring the head of a request; one that brings less is closed.
_HEAD_SECONDS: Final = 30.0
# Threads that record give way to the event loop so often, in seconds; with the default of 5 ms a chunk of a stream could wait as long.
_SWITCH_SECONDS: Final = 0.001
# Objects between two searches for garbage.
_COLLECT_EVERY: Final = 1_000


class _TimelyProtocol(H11Protocol):
    """A connection that is closed if it does not bring the whole head of a request in time, its first one or a later one."""

    head_s: float = _HEAD_SECONDS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self.loop.call_later(self.head_s, self._close_unused, None)

    def _close_unused(self, before: object) -> None:
        if self.transport.is_closing():
            return
        # Before its first request it has neither.
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or (cycle.response_complete and self.scope is before):
            self.transport.close()
        else:
            self.loop.call_later(self.head_s, self._close_unused, self.scope)


class _Server(uvicorn.Server):
    """A server whose signals belong to the gateway."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


def listening(port: int) -> socket.socket:
    """Return a socket on the loopback; port 0 takes a free one. Raises `BadInput` if the port is taken."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((LOOPBACK, port))
    except OSError as error:
        found.close()
        raise BadInput(f"port {port} cannot be used ({error.strerror}); choose another with --port", where=LOOPBACK) from error
    found.listen(_WAITING_CONNECTIONS)
    return found


def application(gateway: Gateway) -> Starlette:
    """Return the application of a gateway: every path of it is answered by the gateway."""

    async def answer(request: Request) -> Response:
        return await gateway.answer(request)

    return Starlette(routes=[Route("/{path:path}", answer, methods=_METHODS)])


def stopped_by_signals() -> asyncio.Event:
    """Return an event that an interrupt or a request to end this process sets; to be called in the main thread."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def serve(
    gateway: Gateway, found: socket.socket, ready: Callable[[str], None], stop: asyncio.Event, *, head_s: float = _HEAD_SECONDS
) -> None:
    """Serve until `stop` is set; `ready` gets the address once requests are answered. A head of a request must come in `head_s` seconds."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    # Modules never become garbage. What a request leaves behind holds its bytes, so that it is looked for often.
    gc.freeze()
    gc.set_threshold(_COLLECT_EVERY)
    config = uvicorn.Config(
        application(gateway),
        http=type("Connection", (_TimelyProtocol,), {"head_s": head_s}),
        log_level="critical",
        access_log=False,
        ws="none",
        lifespan="off",
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[found]))
    stopping = asyncio.create_task(stop.wait())
    try:
        # The socket listens before the server has started, so that no early request is lost.
        ready(f"http://{LOOPBACK}:{found.getsockname()[1]}")
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await serving
    finally:
        stopping.cancel()
        await gateway.close()
