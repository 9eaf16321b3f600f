"""Memory in one session: the notes it may see, and what memory adds to it in tools, jobs, context and recalled notes."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from palimpsest.core.errors import BadInput
from palimpsest.engine.agent import Agent
from palimpsest.stores.config.memory_config import MemoryConfig
from palimpsest.stores.home import AnyHome

if TYPE_CHECKING:
    from palimpsest.engine.memory.memories import Memories


# As in `stores.notes.scopes`, which a start without notes need not load.
_TEAM_FOLDER: Final = ".palimpsest/memory"


class SessionMemory(Struct, frozen=True):
    """What memory is to one agent: its notes, its settings, and the home that keeps them.

    `given` are the notes, or a function that opens them with their first use: a session that needs none does not look for them. `made` is
    what is made once for a session when it is first needed, such as the index over its notes.
    """

    agent: Agent
    home: AnyHome
    given: "Memories | Callable[[], Memories]"
    config: MemoryConfig
    made: list[object] = field(default_factory=list)

    def is_used(self) -> bool:
        """Return whether there are or were notes in this home or of this team, without asking which belong to the project."""
        folder = self.home.folder
        return folder is not None and ((folder / "memory").is_dir() or (self.agent.toolbox.workspace.root / _TEAM_FOLDER).is_dir())

    def has_notes(self) -> bool:
        """Return whether there is a note that may be shown, without reading any."""
        return self.is_used() and any(notebook.has_notes() for notebook in self.memories.notebooks)

    def has_summaries(self) -> bool:
        """Return whether there may be summaries of past sessions, without reading any."""
        folder = self.home.folder
        return folder is not None and (folder / "memory" / "jobs.sqlite").is_file()

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
