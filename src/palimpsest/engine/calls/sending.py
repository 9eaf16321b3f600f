"""The only call path: records the start of a call, streams the reply, and records exactly one outcome."""

from collections.abc import Callable

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from palimpsest.core.errors import BadInput, PalimpsestError, ProviderError
from palimpsest.core.events import TURN, CallStarted, Failed, Interrupted, ModelReplied
from palimpsest.core.events.deltas import Delta, PartialReply
from palimpsest.core.format.side_requests import encode_side_request
from palimpsest.core.ports import Provider, Sendable, closing
from palimpsest.core.projections.jobs import is_job_purpose
from palimpsest.core.view import View
from palimpsest.engine.environment import Encoded
from palimpsest.engine.session import Session, tools_size
from palimpsest.providers.retrying import retry_delay
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.request import Params, Tool, resolved_params, with_client_metadata

_encode = msgspec.json.Encoder().encode
# The lowest reply limit of a request, in tokens, even if less fits the window.
SHORTEST_REPLY = 1_024


def ignore(_: object) -> None:
    """Do nothing: the default observer of deltas."""


class Outgoing(Struct, frozen=True):
    """A request before encoding: its view, model, tools, parameters and purpose."""

    view: View
    card: ModelCard
    tools: tuple[Tool, ...]
    params: Params
    purpose: str = TURN


def with_reply_limit(params: Params, card: ModelCard, used: int, wanted: int = 0) -> Params:
    """Return the parameters with a reply limit that fits the window beside `used` tokens; `wanted` is the preferred limit.

    Where no limit is stated, the provider would take its own, which may be far above or below what the card and the budget assume.
    """
    limit = min(wanted or params.max_tokens or card.reply, card.reply)
    room = card.window - used
    if room >= limit and not wanted and params.max_tokens is None and not params.states_limit:
        return params
    return replace(params, max_tokens=limit if room >= limit else max(SHORTEST_REPLY, min(room, limit)))


async def send(session: Session, outgoing: Outgoing, observe: Callable[[Delta], None] = ignore) -> ModelReplied:
    """Record the start of a call, make it durable, send the request and record the outcome. Returns the reply as recorded.

    Before an error is raised, its outcome is recorded: `Failed` if nothing had arrived, else `Interrupted` with the parts and the usage
    that had arrived; also if the task is cancelled. Transient errors are retried after the delay of the retry policy, as long as no part
    has arrived; each attempt is a separate call in the log.
    """
    environment = session.environment
    attempt, waited = 1, 0.0
    while True:
        arrived = PartialReply()
        try:
            return await _attempt(session, outgoing, arrived, observe)
        except PalimpsestError as error:
            wait = (
                retry_delay(error, attempt, environment.retries, waited=waited, chance=environment.chance()) if arrived.is_empty else None
            )
            if wait is None:
                raise
        await environment.sleep(wait)
        attempt, waited = attempt + 1, waited + wait


async def _attempt(session: Session, outgoing: Outgoing, arrived: PartialReply, observe: Callable[[Delta], None]) -> ModelReplied:
    """Send one request and record its outcome."""
    provider = session.environment.provider(outgoing.card, outgoing.purpose)
    request, started = await session.environment.offload(lambda: _prepared(session, outgoing))
    for reason in session.fetch.unreported():
        session.log.append(Failed("read", "blob", reason))
    call = session.log.append(started).seq
    try:
        await session.environment.offload(session.log.sync)
        reply = await _streamed(provider, request, arrived, observe)
        body = session.log.append(replace(reply, call=call, purpose=outgoing.purpose)).body
    except BaseException as error:
        try:
            _record_failure(session, error, arrived, call, outgoing)
        except PalimpsestError as unrecorded:
            error.add_note(f"and it could not be recorded: {unrecorded}")
        raise
    return body if isinstance(body, ModelReplied) else reply


def _prepared(session: Session, outgoing: Outgoing) -> tuple[Encoded, CallStarted]:
    """Return the encoded request and its `CallStarted`, after storing the blobs to which that refers."""
    blobs, card = session.environment.blobs, outgoing.card
    params = _with_ids(session, outgoing, resolved_params(outgoing.params, card))
    is_side_call = outgoing.purpose != TURN
    request = session.encoder(card, outgoing.tools, params, beside=is_job_purpose(outgoing.purpose)).encode(outgoing.view)
    started = CallStarted(
        model=card.name,
        wire=request.wire,
        params=Raw(_encode(params)),
        tools=session.keep_tools(outgoing.tools),
        digest=request.digest,
        size=len(request.body),
        estimate=0 if is_side_call else session.counter.raw(outgoing.view),
        tools_estimate=0 if is_side_call else tools_size(outgoing.tools),
        breakpoints=request.breakpoints,
        purpose=outgoing.purpose,
        request=blobs.put(encode_side_request(outgoing.view, session.log.view)) if is_side_call else "",
    )
    return request, started


def _with_ids(session: Session, outgoing: Outgoing, params: Params) -> Params:
    """Return the parameters with the ids of this request, for the dialect that names them."""
    if params.dialect != "codex-0.166" or outgoing.card.wire != "responses":
        return params
    log = session.log
    root = log.session if log.opened.opener is None else log.opened.opener.session
    kind = "turn" if outgoing.purpose == TURN else "compaction"
    return with_client_metadata(params, log.session, root=root, turn=log.health.turn, epoch=max(0, log.view.epoch - 1), kind=kind)


async def whole_reply(provider: Provider, request: Sendable) -> ModelReplied:
    """Return the reply to a request outside of any session. Raises `ProviderError`."""
    return await _streamed(provider, request, PartialReply(), ignore)


async def _streamed(provider: Provider, request: Sendable, arrived: PartialReply, observe: Callable[[Delta], None]) -> ModelReplied:
    reply: ModelReplied | None = None
    async with closing(provider.stream(request)) as pieces:
        async for piece in pieces:
            if isinstance(piece, ModelReplied):
                reply = piece
            else:
                arrived.add(piece)
                observe(piece)
    if reply is None:
        raise ProviderError("the provider ended without a reply")
    return reply


def _record_failure(session: Session, error: BaseException, arrived: PartialReply, call: int, outgoing: Outgoing) -> None:
    """Record the outcome of a call that ended with an error."""
    parts, model, purpose = arrived.parts(), outgoing.card.name, outgoing.purpose
    message = error.message if isinstance(error, PalimpsestError) else type(error).__name__
    kind = error.kind if isinstance(error, PalimpsestError) else "internal"
    failed = Failed("call", kind, message, call=call, purpose=purpose)
    if not parts and not arrived.usage.total and isinstance(error, Exception):
        session.log.append(failed)
        return
    try:
        session.log.append(Interrupted(call, parts, message, arrived.usage, model, purpose))
    except BadInput:
        # The parts cannot be encoded, for example because of half a surrogate pair; the call needs an outcome nevertheless.
        session.log.append(failed)
