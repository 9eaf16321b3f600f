"""How a turn ends: the reason after its last reply, and what is recorded if it is cancelled or fails."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from palimpsest.core.events import ContextStated, ModelReplied, Statement, TurnEnded
from palimpsest.core.events.stops import stop_reason
from palimpsest.engine.loop.tool_calls import answer_pending
from palimpsest.engine.session import Session
from palimpsest.engine.undo_files.turn_snapshots import TurnFiles

Result = TypeVar("Result")
INTERRUPTED: Final = "interrupted"
FAILED: Final = "failed"


def stop_of(reply: ModelReplied) -> str:
    """Return why a turn ends after a reply without calls: `done`, or the reason for which the reply itself was cut off or refused."""
    return reason if (reason := stop_reason(reply.stop)) in ("refusal", "max_tokens", "context_window", "error") else "done"


async def break_off(session: Session, files: TurnFiles, stop: str) -> None:
    """Answer pending calls and record the end of a turn without running policies, and make it durable."""
    answer_pending(session, stop)
    if stop == INTERRUPTED and session.profile.interrupted_notice:
        session.log.append(ContextStated((Statement("interrupted", session.profile.interrupted_notice),)))
    with suppress(asyncio.CancelledError):
        await files.after_turn(session)
    if session.log.health.turn is not None:
        session.log.append(TurnEnded(stop))
    session.log.sync()


async def uncancelled(work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of work that must be finished; a cancellation meanwhile is raised after it."""
    task, cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        # Retrieved, because asyncio reports exceptions that were never retrieved.
        task.cancelled() or task.exception()
        raise asyncio.CancelledError
    return task.result()
