"""The memory of a project and of a session: its notebooks, indexes, budget and settings."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from palimpsest.agent.session import Session
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.stores.home import Home
from palimpsest.stores.memory_config import MemoryConfig

if TYPE_CHECKING:
    from palimpsest.memory.notebook import Memories
    from palimpsest.memory.topics import TopicFolder


# As in `memory.store`, which a start without notes need not load.
_TEAM_FOLDER: Final = ".palimpsest/memory"


class ProjectMemory(Struct, frozen=True, kw_only=True):
    """What memory is in one project folder: its notes, its settings, and the home that keeps them.

    `given` are the notes, or a function that opens them with their first use: a session that needs none does not look for them. `made` is
    what is made once when it is first needed, such as the index over the notes.
    """

    home: Home
    root: Path
    given: "Memories | Callable[[], Memories]"
    config: MemoryConfig
    made: list[object] = field(default_factory=list)

    def is_used(self) -> bool:
        """Return whether there are or were notes in this home or of this team, without asking which belong to the project."""
        folder = self.home.local_folder
        return folder is not None and ((folder / "memory").is_dir() or (self.root / _TEAM_FOLDER).is_dir())

    def has_notes(self) -> bool:
        """Return whether there is a note that may be shown, without reading any."""
        return self.is_used() and any(notebook.has_notes() for notebook in self.memories.notebooks)

    def has_summaries(self) -> bool:
        """Return whether there may be summaries of past sessions, without reading any."""
        folder = self.home.local_folder
        return folder is not None and (folder / "memory" / "jobs.sqlite").is_file()

    @property
    def memories(self) -> "Memories":
        """The notes that may be seen and changed."""
        return self.given() if callable(self.given) else self.given


def project_memory(home: Home, root: Path, config: MemoryConfig) -> ProjectMemory | None:
    """Return the memory of a project folder outside of any session; `None` if it is turned off, or the home keeps nothing."""
    if home.local_folder is None or not config.use:
        return None
    return ProjectMemory(home=home, root=root, given=opened_once(home, root), config=config)


def opened_once(home: Home, root: Path) -> "Callable[[], Memories]":
    """Return a function that opens the notes of a project folder with its first call."""

    @cache
    def memories() -> "Memories":
        from palimpsest.memory.notebook import memories_of  # the scope is asked of git; a start takes milliseconds

        found = memories_of(home, root)
        if found is None:
            raise BadInput("this home keeps no notes", where="memory")
        return found

    return memories


class SessionMemory(ProjectMemory, frozen=True, kw_only=True):
    """What memory is to one session. `topics` are its notes if they are plain files; then those of the home are not used.

    `problem` says why there are none although they should be: the rest of memory works without.
    """

    session: Session
    topics: "TopicFolder | None" = None
    problem: str = ""

    @property
    def in_files(self) -> bool:
        """Whether the notes are plain files, also if their folder cannot be used."""
        return self.topics is not None or bool(self.problem)


def session_memory(session: Session, root: Path, home: Home, config: MemoryConfig) -> SessionMemory | None:
    """Return the memory of a session that works in a folder; `None` if it is turned off, or the home keeps nothing.

    Raises `BadInput` if the settings name a model for recall that is not known.
    """
    if home.local_folder is None or not config.use:
        return None
    if config.recall_model:
        session.named_card(config.recall_model)
    topics, problem = None, ""
    if session.profile.notes.folder == "claude":
        from palimpsest.memory.topics import open_topics  # one profile needs it

        try:
            topics = open_topics(home.local_folder, root)
        except PalimpsestError as error:
            problem = f"this session has no notes: {error}"
    return SessionMemory(
        home=home, root=root, given=opened_once(home, root), config=config, session=session, topics=topics, problem=problem
    )
