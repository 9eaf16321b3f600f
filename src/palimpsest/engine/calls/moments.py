"""The moments outside of calls at which policies run: turn start and end, compaction on request, idle, resume and model switch."""

from palimpsest.core.events import TurnEnded, TurnStarted
from palimpsest.engine.calls.plans import carry_out
from palimpsest.engine.policies import PolicyRun, run_policies
from palimpsest.engine.session import Session
from palimpsest.wire.models.cards import ModelCard


async def start_turn(session: Session, *, incoming: int = 0, typed: tuple[int, ...] = ()) -> PolicyRun:
    """Start a turn, and let policies make room for `incoming` tokens of queued input before it enters the view."""
    session.log.append(TurnStarted(typed))
    return await carry_out(run_policies(session, "turn_starts", incoming=incoming), session)


async def end_turn(session: Session, stop: str = "done") -> PolicyRun:
    """End the turn, make it durable, and run the policies for that."""
    session.log.append(TurnEnded(stop))
    await session.environment.offload(session.log.sync)
    return await carry_out(run_policies(session, "turn_ends"), session)


async def compact(session: Session, focus: str = "") -> PolicyRun:
    """Fold at the request of the user or the model; `focus` is what the summary should concentrate on."""
    return await carry_out(run_policies(session, "asked", asked=focus), session)


async def idle(session: Session) -> PolicyRun:
    """Run the policies for an idle session."""
    return await carry_out(run_policies(session, "idle"), session)


async def resumed(session: Session) -> PolicyRun:
    """Run the policies for a session that was just resumed; if that was with another model, first those for a switch."""
    ran = PolicyRun()
    if session.left_model is not None:
        (previous, used), session.left_model = session.left_model, None
        ran = await carry_out(run_policies(session, "switched", previous=previous, used=used), session)
    return ran.then(await carry_out(run_policies(session, "resumed"), session))


async def switch(session: Session, model: ModelCard) -> PolicyRun:
    """Switch to another model and run the policies for that.

    Policies get the size that the previous model reported, and may ask the previous model once more.
    """
    previous, used = session.card, session.used
    session.switch(model)
    return await carry_out(run_policies(session, "switched", previous=previous, used=used), session)
