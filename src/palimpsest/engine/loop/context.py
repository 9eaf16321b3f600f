"""States the context of a session: observes the sources of its profile and records what the view does not say yet."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from palimpsest.core.events import Event
from palimpsest.core.items import Part, Text
from palimpsest.engine.session import Session
from palimpsest.sources.reconcile import reconcile
from palimpsest.sources.skills.mentions import mentioned_bodies, mentioned_skills, mentions_in
from palimpsest.sources.source import Fields, SourceSet, World, observe

LIVE: Final = frozenset({"business_state", "deferred_tools", "mode", "permissions"})
"""Sources whose values tools, the developer's code or the user change during a turn."""
_TASKS: Final = "tasks"


class ContextStating(Protocol):
    """States what the model should know about the world."""

    async def prepare(self, tools: frozenset[str]) -> None:
        """Make tools of these names available if they join a session late: pending calls need them before anything is observed."""
        ...

    async def observe(self) -> None:
        """Observe every source, and state what changed since it was last stated."""
        ...

    def restate(self) -> None:
        """State what the view no longer shows of the last observation, because a fold removed it."""
        ...

    def mention(self, parts: tuple[Part, ...]) -> None:
        """State what the input of the user mentions by name, such as the body of a skill."""
        ...


class NoContext:
    """States nothing, for agents that have their whole context in the log already."""

    async def prepare(self, tools: frozenset[str]) -> None:
        """Do nothing."""

    async def observe(self) -> None:
        """Do nothing."""

    def restate(self) -> None:
        """Do nothing."""

    def mention(self, parts: tuple[Part, ...]) -> None:
        """Do nothing."""


class SourcedContext:
    """States the sources of the profile of a session. `world` returns the world as it is now; it is called once for each turn.

    `renewed` returns that world with what the session itself changed since, for the sources in `LIVE`, which are stated during a turn too.
    """

    def __init__(self, session: Session, world: Callable[[], World], renewed: Callable[[], World | None] = lambda: None) -> None:
        self._session = session
        self._world_now = world
        self._renewed = renewed
        self._world: World | None = None
        self._observed: Mapping[str, Fields | None] = {}

    async def prepare(self, tools: frozenset[str]) -> None:
        """Do nothing: sources have no tools."""

    async def observe(self) -> None:
        """Observe every source outside the event loop, and state what changed since it was last stated."""
        session = self._session

        def observed() -> Mapping[str, Fields | None]:
            self._world = self._world_now()
            return observe(session.profile.sources, self._world)

        self._observed = await session.environment.offload(observed)
        self.restate()

    def restate(self) -> None:
        """State what the view does not show of the last observation, or what the session itself changed since."""
        if self._observed:
            self._renew()
            stated = reconcile(self._session.log.view, self._session.profile.sources, self._observed)
            if stated is not None:
                self._session.log.append(stated)

    def _renew(self) -> None:
        """Observe the sources again whose values the session itself changes, and open tasks if a fold removed them."""
        world = self._renewed()
        if world is None:
            return
        keys = LIVE if _TASKS in self._session.log.view.facts else LIVE | {_TASKS}
        live = SourceSet(tuple(source for source in self._session.profile.sources.sources if source.key in keys))
        self._observed = {**self._observed, **observe(live, world)}

    def mention(self, parts: tuple[Part, ...]) -> None:
        """State the bodies of the skills that the input mentions as `$name`."""
        find = self._session.profile.mentioned_skills
        names = mentions_in("\n".join(part.text for part in parts if isinstance(part, Text)))
        if find is None or self._world is None or not (names.names or names.paths):
            return
        stated, _ = mentioned_bodies(self._world, mentioned_skills(names, find(self._world)))
        if stated is not None:
            self._session.log.append(stated)


async def state_context(session: Session, world: World) -> Event | None:
    """Record the statements that make the view current and return the event; `None` if the view is current.

    It belongs before the user's message of each turn and after each fold: what a fold removed is stated again then. Observing runs outside
    the event loop.
    """
    observations = await session.environment.offload(lambda: observe(session.profile.sources, world))
    stated = reconcile(session.log.view, session.profile.sources, observations)
    return None if stated is None else session.log.append(stated)
