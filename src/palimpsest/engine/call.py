"""One call to the model: policies look, the request leaves, the reply is recorded; once more if it was too long."""

from collections.abc import Callable

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from palimpsest.core.errors import PromptTooLong, ProviderError
from palimpsest.core.events import CallStarted, Failed, ModelReplied
from palimpsest.core.ports import Provider
from palimpsest.engine.flow import carry_out, whole_reply
from palimpsest.engine.moments import Looked, look
from palimpsest.engine.session import Session
from palimpsest.wire.caching import anchored
from palimpsest.wire.encode import encode
from palimpsest.wire.request import resolved

_encode = msgspec.json.Encoder().encode
# The shortest reply that is still worth asking for.
_SHORTEST = 1_024


async def call(session: Session, provider: Provider, *, tell: Callable[[str], None] = lambda _: None) -> ModelReplied:
    """The model's reply to the view as policies leave it; what a request is too long for, the profile decides."""
    looked = await carry_out(look(session, "before_call"), session, provider)
    _tell(looked, tell)
    if looked.failure is not None and session.profile.insists:
        raise looked.failure
    check_room(session)
    try:
        reply = await _send(session, provider)
    except PromptTooLong:
        if session.profile.overflow == "stop":
            raise
        looked = await carry_out(look(session, "overflow"), session, provider)
        _tell(looked, tell)
        if not looked.edited:
            raise
        reply = await _send(session, provider)
    _tell(await carry_out(look(session, "after_call"), session, provider), tell)
    return reply


def check_room(session: Session) -> None:
    """Refuse to send what is known not to fit."""
    level = session.budget.block_at
    if level is not None and session.used >= level:
        message = f"prompt is too long: {session.used:,} tokens, and nothing is sent from {level:,} on; compact the session"
        raise PromptTooLong(message, where=session.log.session, gap=session.used - level)


async def _send(session: Session, provider: Provider) -> ModelReplied:
    """Record the request, make it durable, let it leave, and record what came of it."""
    view, model = session.log.view, session.card
    room = model.window - session.used
    limit = min(session.params.max_tokens or model.reply, model.reply)
    fits = room >= limit and (session.params.max_tokens or 0) <= model.reply
    wanted = anchored(session.params, session.witness.cache, session.environment.clock.now())
    params = resolved(wanted if fits else replace(wanted, max_tokens=max(_SHORTEST, min(room, limit))), model)
    request = encode(view, model, session.tools, params, session.environment.blobs.get)
    tools = session.environment.blobs.put(_encode(session.tools)) if session.tools else ""
    started = session.record(
        CallStarted(
            model=model.name,
            wire=request.wire,
            params=Raw(_encode(params)),
            tools=tools,
            digest=request.digest,
            size=len(request.body),
            estimate=session.counter.raw(view),
            marks=request.marks,
        )
    )
    session.log.sync()
    try:
        reply = await whole_reply(provider, request)
    except ProviderError as error:
        session.record(Failed("call", error.kind, error.message))
        raise
    session.record(replace(reply, call=started.seq))
    return reply


def _tell(looked: Looked, tell: Callable[[str], None]) -> None:
    for notice in looked.notices:
        tell(notice)
