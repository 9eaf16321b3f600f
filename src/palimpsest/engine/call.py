"""One call of a turn: policies run, the request leaves, the reply is recorded; once more if it was too long."""

from collections.abc import Callable

from palimpsest.core.errors import PromptTooLong
from palimpsest.core.events import ModelReplied
from palimpsest.core.events.deltas import Delta
from palimpsest.core.situation import Moment
from palimpsest.engine.plans import carry_out
from palimpsest.engine.policies import PolicyRun, run_policies
from palimpsest.engine.sending import Outgoing, fitting, ignore, send
from palimpsest.engine.session import Session
from palimpsest.wire.encoding.caching import anchored


async def call(
    session: Session, *, observe: Callable[[Delta], None] = ignore, ran: Callable[[Moment, PolicyRun], None] = lambda *_: None
) -> ModelReplied:
    """The model's reply to the view as policies leave it; what to do with a request that is too long, the profile decides.

    `observe` gets the deltas as they come, `ran` what came of each moment.
    """
    before = await carry_out(run_policies(session, "before_call"), session)
    ran("before_call", before)
    if before.failure is not None and session.profile.stops_when_fold_fails:
        raise before.failure
    try:
        reply = await _send_turn(session, observe)
    except PromptTooLong:
        if session.profile.overflow == "stop":
            raise
        overflow = await carry_out(run_policies(session, "overflow"), session)
        ran("overflow", overflow)
        if not overflow.edited:
            raise
        reply = await _send_turn(session, observe)
    ran("after_call", await carry_out(run_policies(session, "after_call"), session))
    return reply


async def _send_turn(session: Session, observe: Callable[[Delta], None]) -> ModelReplied:
    def checked() -> Outgoing:
        check_room(session)
        return turn_request(session)

    # Taking in what an edit of a full view changed is work for another thread too.
    return await send(session, await session.environment.offload(checked), observe)


def turn_request(session: Session) -> Outgoing:
    """The request that shows the view as it is now, with cache breakpoints and a reply limit that fits."""
    session.log.catch_up()
    params = anchored(session.params, session.derived.cache.value(), session.environment.clock.now())
    return Outgoing(session.log.view, session.card, session.tools, fitting(params, session.card, session.used))


def check_room(session: Session) -> None:
    """Refuse to send what is known not to fit. Raises `PromptTooLong`."""
    level = session.budget.block_at
    if level is not None and session.used >= level:
        message = f"prompt is too long: {session.used:,} tokens, and nothing is sent from {level:,} on; compact the session"
        raise PromptTooLong(message, where=session.log.session, gap=session.used - level)
