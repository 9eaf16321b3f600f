"""Memory in one session: the notes it may see, and what memory adds to it in tools, jobs, context and recalled notes."""

from palimpsest.engine.agent import Agent
from palimpsest.engine.memory.project_memory import ProjectMemory, opened_once
from palimpsest.stores.config.memory_config import MemoryConfig
from palimpsest.stores.home import AnyHome


class SessionMemory(ProjectMemory, frozen=True, kw_only=True):
    """What memory is to one agent."""

    agent: Agent


def session_memory(agent: Agent, home: AnyHome, config: MemoryConfig) -> SessionMemory | None:
    """Return the memory of an agent; `None` if it is turned off, or the home keeps nothing."""
    if home.folder is None or not config.use:
        return None
    root = agent.toolbox.workspace.root
    return SessionMemory(home=home, root=root, given=opened_once(home, root), config=config, agent=agent)
