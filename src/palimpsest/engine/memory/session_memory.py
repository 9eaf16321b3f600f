"""Memory in one session: the notes it may see, and what memory adds to it in tools, jobs, context and recalled notes."""

from msgspec import Struct

from palimpsest.engine.agent import Agent
from palimpsest.engine.memory.memories import Memories, memories_of
from palimpsest.stores.config.memory_config import MemoryConfig
from palimpsest.stores.home import AnyHome


class SessionMemory(Struct, frozen=True):
    """What memory is to one agent: its notes, its settings, and the home that keeps them."""

    agent: Agent
    home: AnyHome
    memories: Memories
    config: MemoryConfig


def session_memory(agent: Agent, home: AnyHome, config: MemoryConfig) -> SessionMemory | None:
    """Return the memory of an agent; `None` if it is turned off, or the home keeps nothing."""
    memories = memories_of(home, agent.toolbox.workspace.root) if config.use else None
    return None if memories is None else SessionMemory(agent, home, memories, config)
