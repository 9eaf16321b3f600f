"""The moments of a session beside its calls, each fired here and nowhere else."""

from palimpsest.core.events import TurnEnded, TurnStarted
from palimpsest.engine.plans import carry_out
from palimpsest.engine.policies import PolicyRun, run_policies
from palimpsest.engine.session import Session
from palimpsest.wire.models.cards import ModelCard


async def start_turn(session: Session, *, incoming: int = 0, typed: tuple[int, ...] = ()) -> PolicyRun:
    """Begin a turn: policies may make room for `incoming` tokens of queued input before it enters the view."""
    session.log.append(TurnStarted(typed))
    return await carry_out(run_policies(session, "turn_starts", incoming=incoming), session)


async def end_turn(session: Session, stop: str = "done") -> PolicyRun:
    """Hand back to the user, and make the turn durable."""
    session.log.append(TurnEnded(stop))
    await session.environment.offload(session.log.sync)
    return await carry_out(run_policies(session, "turn_ends"), session)


async def compact(session: Session, focus: str = "") -> PolicyRun:
    """Fold now, because the user or the model asked for it."""
    return await carry_out(run_policies(session, "asked", asked=focus), session)


async def idle(session: Session) -> PolicyRun:
    """Let policies use that nothing is going on."""
    return await carry_out(run_policies(session, "idle"), session)


async def resumed(session: Session) -> PolicyRun:
    """Let policies look at a session that was just resumed."""
    return await carry_out(run_policies(session, "resumed"), session)


async def switch(session: Session, model: ModelCard) -> PolicyRun:
    """Go on with another model. What the one before reported still says how full the view is; a plan may ask that one once more."""
    previous, used = session.card, session.used
    session.switch(model)
    return await carry_out(run_policies(session, "switched", previous=previous, used=used), session)
