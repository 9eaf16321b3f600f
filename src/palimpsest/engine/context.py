"""States the context of a turn: observes the sources of the profile and records what changed."""

from typing import Protocol

from palimpsest.core.items import Part


class ContextStating(Protocol):
    """States what the model should know about the world."""

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

    async def observe(self) -> None:
        """Do nothing."""

    def restate(self) -> None:
        """Do nothing."""

    def mention(self, parts: tuple[Part, ...]) -> None:
        """Do nothing."""
