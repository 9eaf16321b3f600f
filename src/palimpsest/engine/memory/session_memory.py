"""Memory in one session: the notes it may see, and what memory adds to it in tools, jobs, context and recalled notes."""

from typing import TYPE_CHECKING

from palimpsest.core.errors import PalimpsestError
from palimpsest.engine.agent import Agent
from palimpsest.engine.memory.project_memory import ProjectMemory, opened_once
from palimpsest.stores.config.memory_config import MemoryConfig
from palimpsest.stores.home import AnyHome

if TYPE_CHECKING:
    from palimpsest.engine.memory.topics.folder import TopicFolder


class SessionMemory(ProjectMemory, frozen=True, kw_only=True):
    """What memory is to one agent. `topics` are its notes if they are plain files; then those of the home are not used.

    `problem` says why there are none although they should be: the rest of memory works without.
    """

    agent: Agent
    topics: "TopicFolder | None" = None
    problem: str = ""

    @property
    def in_files(self) -> bool:
        """Whether the notes are plain files, also if their folder cannot be used."""
        return self.topics is not None or bool(self.problem)


def session_memory(agent: Agent, home: AnyHome, config: MemoryConfig) -> SessionMemory | None:
    """Return the memory of an agent; `None` if it is turned off, or the home keeps nothing.

    Raises `BadInput` if the settings name a model for recall that is not known.
    """
    if home.folder is None or not config.use:
        return None
    if config.recall_model:
        agent.session.named_card(config.recall_model)
    root = agent.toolbox.workspace.root
    topics, problem = None, ""
    if agent.session.profile.notes.folder == "claude":
        from palimpsest.engine.memory.topics.folder import open_topics  # one profile needs it

        try:
            topics = open_topics(home.folder, root)
        except PalimpsestError as error:
            problem = f"this session has no notes: {error}"
    return SessionMemory(home=home, root=root, given=opened_once(home, root), config=config, agent=agent, topics=topics, problem=problem)
