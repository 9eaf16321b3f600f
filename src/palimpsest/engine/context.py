"""States the context of a session: observes the sources of its profile and records what the view does not say yet."""

from palimpsest.core.events import Event
from palimpsest.engine.session import Session
from palimpsest.sources.reconcile import reconcile
from palimpsest.sources.source import World, observe


async def state_context(session: Session, world: World) -> Event | None:
    """Record the statements that make the view current and return the event; `None` if the view is current.

    It belongs before the user's message of each turn and after each fold: what a fold removed is stated again then. Observing runs outside
    the event loop.
    """
    observations = await session.environment.offload(lambda: observe(session.profile.sources, world))
    stated = reconcile(session.log.view, session.profile.sources, observations)
    return None if stated is None else session.log.append(stated)
