"""Memory in one session: the notes it may see, and what memory adds to it in tools, jobs, context and recalled notes."""

from typing import TYPE_CHECKING

from msgspec import Struct, field

from palimpsest.engine.agent import Agent
from palimpsest.engine.memory.memories import Memories, memories_of
from palimpsest.stores.config.memory_config import MemoryConfig
from palimpsest.stores.home import AnyHome

if TYPE_CHECKING:
    from palimpsest.engine.memory.indexes.note_index import NoteIndex


class SessionMemory(Struct, frozen=True):
    """What memory is to one agent: its notes, its settings, and the home that keeps them."""

    agent: Agent
    home: AnyHome
    memories: Memories
    config: MemoryConfig
    _made: "list[NoteIndex]" = field(default_factory=list)

    def index(self) -> "NoteIndex | None":
        """Return the index over the notes, which is made when there is a first one; `None` before that."""
        if not self._made and any(notebook.has_notes() for notebook in self.memories.notebooks):
            from palimpsest.engine.memory.indexes.note_index import NoteIndex  # noqa: PLC0415 - a session without notes needs no index

            self._made.append(NoteIndex(self.memories))
        return self._made[0] if self._made else None


def session_memory(agent: Agent, home: AnyHome, config: MemoryConfig) -> SessionMemory | None:
    """Return the memory of an agent; `None` if it is turned off, or the home keeps nothing."""
    memories = memories_of(home, agent.toolbox.workspace.root) if config.use else None
    return None if memories is None else SessionMemory(agent, home, memories, config)
