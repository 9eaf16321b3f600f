"""The turn: the only loop of the engine, from queued input to the reply that asks for no tool."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import ContextStated, ModelReplied, Statement, TurnEnded, UserSaid, UserTyped
from palimpsest.core.events.stops import stop_reason
from palimpsest.core.items import Part, ToolCall
from palimpsest.core.pairs import pending_calls
from palimpsest.engine.call import call
from palimpsest.engine.loop.context import ContextStating, NoContext
from palimpsest.engine.loop.feed import Feed
from palimpsest.engine.loop.limits import NO_LIMITS, Limits, TurnMeter, within_seconds
from palimpsest.engine.loop.tool_calls import Toolbox, answer_pending, run_calls
from palimpsest.engine.moments import compact, end_turn, start_turn
from palimpsest.engine.policies import compact_focus
from palimpsest.engine.session import Session

INTERRUPTED, FAILED = "interrupted", "failed"
# Empty replies after which a turn ends: some models answer once with nothing after a tool result.
_MOST_EMPTY = 2


@dataclass(frozen=True, slots=True)
class Loop:
    """What a turn needs: the session, its tools and limits, the context that it states, and the feed that user interfaces follow.

    `meter` measures the turn; without one, the turn makes its own, which knows of no sub-agents.
    """

    session: Session
    toolbox: Toolbox
    feed: Feed
    limits: Limits = NO_LIMITS
    context: ContextStating = field(default_factory=NoContext)
    meter: TurnMeter | None = None


async def run_turn(loop: Loop) -> str:
    """Work on the queued input, or go on where an interrupted turn stopped, until a reply asks for no tool. Returns the stop reason.

    The reason is `done`, that of the last reply if it was cut off or refused, or the limit that was reached. If the task is cancelled,
    or the turn fails, every call is answered and the end of the turn recorded before the error is raised.
    """
    session = loop.session
    try:
        stop = await within_seconds(loop.limits.seconds, _work(loop))
        answer_pending(session)
    except BaseException as error:
        # What cannot be recorded now, such as on a full disk, is recorded by the recovery when the session is opened again.
        with suppress(PalimpsestError):
            _break_off(loop, INTERRUPTED if isinstance(error, asyncio.CancelledError) else FAILED)
        raise
    await end_turn(session, stop)
    loop.feed.events()
    return stop


async def _work(loop: Loop) -> str:
    session, meter = loop.session, loop.meter or TurnMeter(loop.session, loop.limits)
    if session.log.health.turn is None:
        queued = session.log.inbox
        tokens = sum(session.counter.content(part) for seq in queued for part in _typed(session, seq))
        await start_turn(session, incoming=tokens, typed=queued)
    pending = [item.content for item in pending_calls(session.log.view.items) if isinstance(item.content, ToolCall)]
    await run_calls(session, loop.toolbox, pending, loop.feed)
    await loop.context.observe()
    _accept_input(loop, steering=False)
    empty = 0
    while True:
        loop.feed.events()
        reply = await call(session, observe=loop.feed.delta, after_fold=loop.context.restate)
        calls = [part for part in reply.parts if isinstance(part, ToolCall)]
        meter.tools += len(calls)
        await run_calls(session, loop.toolbox, calls, loop.feed)
        focus = compact_focus(reply) if "compact" in loop.toolbox.tools else None
        if focus is not None:
            await compact(session, focus)
        loop.context.restate()
        joined = _accept_input(loop, steering=True)
        empty += not reply.parts
        finished = stop_reason(reply.stop) != "pause" and (reply.parts or empty >= _MOST_EMPTY)
        if finished and not calls and not joined:
            return _stop(reply)
        if (limit := meter.reached()) is not None:
            return limit


def _accept_input(loop: Loop, *, steering: bool) -> bool:
    """Let queued input enter the view, oldest first. Returns whether there was any."""
    session, queued = loop.session, loop.session.log.inbox
    for seq in queued:
        parts = _typed(session, seq)
        session.log.append(UserSaid(parts, typed=seq, steering=steering))
        loop.context.mention(parts)
    return bool(queued)


def _typed(session: Session, seq: int) -> tuple[Part, ...]:
    body = session.log.event(seq).body
    return body.parts if isinstance(body, UserTyped) else ()


def _stop(reply: ModelReplied) -> str:
    return reason if (reason := stop_reason(reply.stop)) in ("refusal", "max_tokens", "context_window", "error") else "done"


def _break_off(loop: Loop, stop: str) -> None:
    """Answer pending calls and record the end of a turn without running policies, and make it durable."""
    session = loop.session
    answer_pending(session)
    if stop == INTERRUPTED and session.profile.interrupted_notice:
        session.log.append(ContextStated((Statement("interrupted", session.profile.interrupted_notice),)))
    if session.log.health.turn is not None:
        session.log.append(TurnEnded(stop))
    session.log.sync()
    loop.feed.events()
