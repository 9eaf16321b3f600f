"""Memory in one session: the notes it may see, and what memory adds to it in tools, jobs, context and recalled notes."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from palimpsest.core.errors import BadInput
from palimpsest.engine.agent import Agent
from palimpsest.stores.config.memory_config import MemoryConfig
from palimpsest.stores.home import AnyHome

if TYPE_CHECKING:
    from palimpsest.engine.memory.memories import Memories


class SessionMemory(Struct, frozen=True):
    """What memory is to one agent: its notes, its settings, and the home that keeps them.

    `given` are the notes, or a function that opens them with their first use: a session that needs none does not look for them.
    """

    agent: Agent
    home: AnyHome
    given: "Memories | Callable[[], Memories]"
    config: MemoryConfig

    @property
    def memories(self) -> "Memories":
        """The notes that the agent may see and change."""
        return self.given() if callable(self.given) else self.given


def session_memory(agent: Agent, home: AnyHome, config: MemoryConfig) -> SessionMemory | None:
    """Return the memory of an agent; `None` if it is turned off, or the home keeps nothing."""
    if home.folder is None or not config.use:
        return None
    root = agent.toolbox.workspace.root

    @cache
    def memories() -> "Memories":
        from palimpsest.engine.memory.memories import memories_of  # noqa: PLC0415 - the scope is asked of git; a start takes milliseconds

        found = memories_of(home, root)
        if found is None:
            raise BadInput("this home keeps no notes", where="memory")
        return found

    return SessionMemory(agent, home, memories, config)
