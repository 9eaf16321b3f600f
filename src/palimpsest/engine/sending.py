"""The one way a request leaves: its start is recorded, it is streamed, and exactly one outcome is recorded."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from palimpsest.core.errors import BadInput, PalimpsestError, ProviderError
from palimpsest.core.events import TURN, CallStarted, Failed, Interrupted, ModelReplied
from palimpsest.core.events.deltas import Arrived, Delta
from palimpsest.core.format.side_requests import encode_side_request
from palimpsest.core.ports import Provider, Sendable, closing
from palimpsest.core.view import View
from palimpsest.engine.environment import Encoded
from palimpsest.engine.session import Session
from palimpsest.providers.retrying import waits
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.request import Params, Tool, resolved_params

_encode = msgspec.json.Encoder().encode
# The shortest reply that is still worth asking for, in tokens.
SHORTEST_REPLY = 1_024


def ignore(_: object) -> None:
    """An observer that looks at nothing."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request to be made: what it shows, to which model, with which tools and parameters, and what for."""

    view: View
    card: ModelCard
    tools: tuple[Tool, ...]
    params: Params
    purpose: str = TURN


def fitting(params: Params, card: ModelCard, used: int, wanted: int = 0) -> Params:
    """The parameters with a reply limit that fits beside `used` tokens; `wanted` is the limit that the caller would like."""
    limit = min(wanted or params.max_tokens or card.reply, card.reply)
    room = card.window - used
    if room >= limit and (params.max_tokens or 0) <= card.reply:
        return replace(params, max_tokens=limit) if wanted else params
    return replace(params, max_tokens=max(SHORTEST_REPLY, min(room, limit)))


async def send(session: Session, outgoing: Outgoing, observe: Callable[[Delta], None] = ignore) -> ModelReplied:
    """Record the request, make it durable, let it leave, and record what came of it. Returns the reply as it is recorded.

    Whatever ends a call, its outcome is in the log before the error goes on: `Failed` if nothing had arrived, `Interrupted` with the
    parts that had if the stream broke, the task was cancelled or the process is being stopped. A failure that may pass is tried again
    after the wait that the provider asks for; each attempt is a call of its own in the log.
    """
    environment = session.environment
    attempt, waited = 1, 0.0
    while True:
        arrived = Arrived()
        try:
            return await _attempt(session, outgoing, arrived, observe)
        except PalimpsestError as error:
            wait = waits(error, attempt, environment.retries, waited=waited, chance=environment.chance()) if arrived.is_empty else None
            if wait is None:
                raise
        await environment.sleep(wait)
        attempt, waited = attempt + 1, waited + wait


async def _attempt(session: Session, outgoing: Outgoing, arrived: Arrived, observe: Callable[[Delta], None]) -> ModelReplied:
    """One request and its one outcome."""
    provider = session.environment.provider(outgoing.card, outgoing.purpose)
    request, started = await session.environment.offload(lambda: _prepared(session, outgoing))
    call = session.log.append(started).seq
    try:
        await session.environment.offload(session.log.sync)
        reply = await _streamed(provider, request, arrived, observe)
        body = session.log.append(replace(reply, call=call, purpose=outgoing.purpose)).body
    except BaseException as error:
        try:
            _record_end(session, error, arrived, call, outgoing)
        except PalimpsestError as unrecorded:
            error.add_note(f"and it could not be recorded: {unrecorded}")
        raise
    return body if isinstance(body, ModelReplied) else reply


def _prepared(session: Session, outgoing: Outgoing) -> tuple[Encoded, CallStarted]:
    """The encoded request and the event that records it; blobs that the event names are kept first."""
    blobs, card = session.environment.blobs, outgoing.card
    params = resolved_params(outgoing.params, card)
    request = session.encoder(card, outgoing.tools, params).encode(outgoing.view)
    aside = outgoing.purpose != TURN
    started = CallStarted(
        model=card.name,
        wire=request.wire,
        params=Raw(_encode(params)),
        tools=session.keep_tools(outgoing.tools),
        digest=request.digest,
        size=len(request.body),
        estimate=0 if aside else session.counter.raw(outgoing.view),
        breakpoints=request.breakpoints,
        purpose=outgoing.purpose,
        request=blobs.put(encode_side_request(outgoing.view, session.log.view)) if aside else "",
    )
    return request, started


async def whole_reply(provider: Provider, request: Sendable) -> ModelReplied:
    """The reply to a request that belongs to no session."""
    return await _streamed(provider, request, Arrived(), ignore)


async def _streamed(provider: Provider, request: Sendable, arrived: Arrived, observe: Callable[[Delta], None]) -> ModelReplied:
    reply: ModelReplied | None = None
    async with closing(provider.stream(request)) as pieces:
        async for piece in pieces:
            if isinstance(piece, ModelReplied):
                reply = piece
            else:
                arrived.take(piece)
                observe(piece)
    if reply is None:
        raise ProviderError("the provider ended without a reply")
    return reply


def _record_end(session: Session, error: BaseException, arrived: Arrived, call: int, outgoing: Outgoing) -> None:
    """Record what came of a call that ended with an error."""
    parts, model, purpose = arrived.parts(), outgoing.card.name, outgoing.purpose
    message = error.message if isinstance(error, PalimpsestError) else type(error).__name__
    kind = error.kind if isinstance(error, PalimpsestError) else "internal"
    failed = Failed("call", kind, message, call=call, purpose=purpose)
    if not parts and isinstance(error, Exception):
        session.log.append(failed)
        return
    try:
        session.log.append(Interrupted(call, parts, message, arrived.usage, model, purpose))
    except BadInput:
        # What a model sent may be what no file can hold, such as half of a character; the call must have an outcome all the same.
        session.log.append(failed)
