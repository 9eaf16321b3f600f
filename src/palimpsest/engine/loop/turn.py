"""The turn: the only loop of the engine, from queued input to the reply that asks for no tool."""

import asyncio
from contextlib import suppress

from msgspec import Struct, field

from palimpsest.core.errors import OverBudget, PalimpsestError
from palimpsest.core.events import ModelReplied
from palimpsest.core.events.stops import stop_reason
from palimpsest.core.items import ToolCall
from palimpsest.core.pairs import pending_calls
from palimpsest.engine.calls.call import call
from palimpsest.engine.calls.moments import end_turn, start_turn
from palimpsest.engine.loop.context import ContextStating, NoContext
from palimpsest.engine.loop.ending import FAILED, INTERRUPTED, Progress, break_off, stop_of
from palimpsest.engine.loop.feed import Feed
from palimpsest.engine.loop.hooked import SessionHooks
from palimpsest.engine.loop.limits import NO_LIMITS, Limits, TurnMeter, within_seconds
from palimpsest.engine.loop.queued_input import Accepted, NoRecall, Recalling, accept_input, queued_tokens
from palimpsest.engine.loop.tool_calls import Toolbox, answer_pending, check_cancelled, run_calls
from palimpsest.engine.policies import compact_focus
from palimpsest.engine.session import Session

BLOCKED = "blocked"


class Loop(Struct, frozen=True):
    """What a turn needs: session, tools, limits, context, hooks, what recalls notes, and the feed that user interfaces follow.

    `meter` measures the turn; without one, the turn makes its own, which knows of no sub-agents.
    """

    session: Session
    toolbox: Toolbox
    feed: Feed
    limits: Limits = NO_LIMITS
    context: ContextStating = field(default_factory=NoContext)
    hooks: SessionHooks = field(default_factory=SessionHooks)
    meter: TurnMeter | None = None
    recalling: Recalling = field(default_factory=NoRecall)


async def run_turn(loop: Loop) -> str:
    """Work on the queued input, or go on where an interrupted turn stopped, until a reply asks for no tool. Returns the stop reason.

    The reason is `done`, that of the last reply if it was cut off or refused, the limit that was reached, `blocked` if a hook withdrew
    the input, or why the model got nowhere (`loop`, `empty`, `written_call`), which it was told once before. If the task is cancelled, or
    the turn fails, every call is answered and the end of the turn recorded before the error is raised.
    """
    session, meter = loop.session, loop.meter or TurnMeter(loop.session, loop.limits)
    # That of the turn of the parent, in a sub-agent.
    above = session.spent_out
    session.spent_out = lambda: meter.spent_out() or (None if above is None else above())
    try:
        return await _run_turn(loop, meter)
    finally:
        session.spent_out = above


async def _run_turn(loop: Loop, meter: TurnMeter) -> str:
    session = loop.session
    try:
        stop = await within_seconds(loop.limits.seconds, _within_budget(loop, meter))
        answer_pending(session, stop)
        await loop.toolbox.files.after_turn(session)
    except BaseException as error:
        # What cannot be recorded now, such as on a full disk, is recorded by the recovery when the session is opened again.
        with suppress(PalimpsestError):
            await break_off(session, loop.toolbox.files, INTERRUPTED if isinstance(error, asyncio.CancelledError) else FAILED)
            loop.feed.events()
        raise
    await end_turn(session, stop)
    loop.feed.events()
    return stop


async def _within_budget(loop: Loop, meter: TurnMeter) -> str:
    """Return the stop reason of a turn, or the limit in dollars or tokens for which a call was not made."""
    try:
        return await _work(loop, meter)
    except OverBudget:
        limit = meter.spent_out()
        if limit is None:
            raise
        return limit


async def _work(loop: Loop, meter: TurnMeter) -> str:
    session = loop.session
    if session.log.health.turn is None:
        await start_turn(session, incoming=queued_tokens(session), typed=session.log.inbox)
    pending = [item.content for item in pending_calls(session.log.view.items) if isinstance(item.content, ToolCall)]
    await loop.context.prepare(frozenset(call.tool for call in pending))
    await run_calls(session, loop.toolbox, pending, loop.feed, loop.hooks)
    await loop.context.observe()
    await loop.hooks.begin(session)
    accepted = await _accept(loop, steering=False)
    if accepted.withdrawn and not accepted.said:
        return BLOCKED
    await loop.toolbox.files.before_calls(session)
    progress = Progress(session, loop.toolbox.tools)
    while True:
        check_cancelled()
        loop.feed.events()
        reply = await call(session, observe=loop.feed.delta, after_fold=lambda: _restate(loop))
        calls = [part for part in reply.parts if isinstance(part, ToolCall)]
        most, meter.tools = meter.tools_left, meter.tools + len(calls)
        await run_calls(session, loop.toolbox, calls, loop.feed, loop.hooks, most=most)
        focus = compact_focus(reply) if "compact" in loop.toolbox.tools else None
        if focus is not None:
            await loop.hooks.compact(session, focus)
        await _restate(loop)
        joined = (await _accept(loop, steering=True)).said
        finished = stop_reason(reply.stop) != "pause" and not calls and not joined
        stop = (_end_of(progress, reply) if finished else progress.repeats()) or meter.reached()
        if stop is not None and not await _goes_on(loop, stop, reply):
            return stop
        if stop is not None and (limit := meter.reached()) is not None:
            # A hook that lets a finished turn go on does not lift its limits.
            return limit


def _end_of(progress: Progress, reply: ModelReplied) -> str | None:
    """Return why a turn ends with a reply without calls; `None` if the model has to answer once more."""
    stop = stop_of(reply)
    missing = progress.unanswered(reply) if stop == "done" else None
    if missing is None:
        return stop
    return missing if progress.was_told(missing) else None


async def _accept(loop: Loop, *, steering: bool) -> Accepted:
    accepted = await accept_input(loop.session, loop.context, loop.hooks, loop.recalling, steering=steering)
    if loop.hooks.has_moved():
        # The state that a hook of the prompt wants holds for this request.
        loop.context.restate()
    return accepted


async def _restate(loop: Loop) -> None:
    loop.context.restate()
    await loop.hooks.folded(loop.session)


async def _goes_on(loop: Loop, stop: str, reply: ModelReplied) -> bool:
    """Whether a turn that could end goes on, for a hook or for input that was typed while hooks ran."""
    goes_on = await loop.hooks.turn_end(loop.session, stop, reply)
    return stop == "done" and (goes_on or (await _accept(loop, steering=True)).said > 0)
