"""Adds memory to an agent that is being equipped for coding."""

from palimpsest.engine.agent import Agent
from palimpsest.engine.memory.session_memory import session_memory
from palimpsest.engine.memory.tools import memory_tools
from palimpsest.stores.config.memory_config import MemoryConfig
from palimpsest.stores.home import AnyHome
from palimpsest.tools.tool import AgentTool


def equip_memory(agent: Agent, home: AnyHome, config: MemoryConfig) -> tuple[AgentTool, ...]:
    """Give an agent its memory, and return the tools of it; none if memory is turned off, or the home keeps nothing."""
    memory = session_memory(agent, home, config)
    return () if memory is None else memory_tools(memory)
