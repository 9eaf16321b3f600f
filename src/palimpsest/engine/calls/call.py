"""One model call of a turn: runs the policies, sends the request, and retries once if it was too long."""

from collections.abc import Awaitable, Callable

from palimpsest.core.errors import PromptTooLong
from palimpsest.core.events import ModelReplied
from palimpsest.core.events.deltas import Delta
from palimpsest.core.situation import Moment
from palimpsest.engine.calls.late_tools import announce_changes, declared_tools
from palimpsest.engine.calls.plans import carry_out
from palimpsest.engine.calls.sending import Outgoing, ignore, send, with_reply_limit
from palimpsest.engine.policies import PolicyRun, run_policies
from palimpsest.engine.session import Session
from palimpsest.wire.encoding.breakpoints import with_anchors


async def do_nothing() -> None:
    """Do nothing: the default after a fold."""


async def call(
    session: Session,
    *,
    observe: Callable[[Delta], None] = ignore,
    after_policies: Callable[[Moment, PolicyRun], None] = lambda *_: None,
    after_fold: Callable[[], Awaitable[None]] = do_nothing,
) -> ModelReplied:
    """Run the policies, send the view and return the reply. `observe` gets the deltas, `after_policies` the policy run of each moment.

    `after_fold` is awaited before the request is sent if a policy folded, so that context which the fold removed can be stated again.

    If the request is too long, the profile decides between folding and `PromptTooLong`. Raises `PalimpsestError` if the call fails, or
    if a policy fails and the profile insists on it.
    """
    before = await carry_out(run_policies(session, "before_call"), session)
    after_policies("before_call", before)
    if before.folded:
        await after_fold()
    if before.failure is not None and session.profile.stops_when_fold_fails:
        raise before.failure
    try:
        reply = await _send_turn(session, observe)
    except PromptTooLong:
        if session.profile.overflow == "stop":
            raise
        overflow = await carry_out(run_policies(session, "overflow"), session)
        after_policies("overflow", overflow)
        if not overflow.edited:
            raise
        if overflow.folded:
            await after_fold()
        reply = await _send_turn(session, observe)
    after_policies("after_call", await carry_out(run_policies(session, "after_call"), session))
    return reply


async def _send_turn(session: Session, observe: Callable[[Delta], None]) -> ModelReplied:
    def checked() -> Outgoing:
        check_room(session)
        return turn_request(session)

    announce_changes(session)
    # Counting the tokens of a large view after an edit takes long, so it runs in a thread too.
    return await send(session, await session.environment.offload(checked), observe)


def turn_request(session: Session) -> Outgoing:
    """Return the request for the current view, with cache breakpoints and a reply limit that fits the window."""
    session.log.catch_up()
    params = with_anchors(session.request_params, session.derived.cache.value(), session.environment.clock.now())
    return Outgoing(session.log.view, session.card, declared_tools(session), with_reply_limit(params, session.card, session.used))


def check_room(session: Session) -> None:
    """Raise `PromptTooLong` if the next request exceeds the limit of the budget."""
    level = session.budget.block_at
    if level is not None and session.used >= level:
        message = f"prompt is too long: {session.used:,} tokens, and nothing is sent from {level:,} on; compact the session"
        raise PromptTooLong(message, where=session.log.session, gap=session.used - level)
