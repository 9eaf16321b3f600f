"""The memory of a project folder: the notes that belong to it, the settings of memory, and the home that keeps them."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from palimpsest.core.errors import BadInput
from palimpsest.stores.config.memory_config import MemoryConfig
from palimpsest.stores.home import AnyHome

if TYPE_CHECKING:
    from palimpsest.engine.memory.memories import Memories


# As in `stores.notes.scopes`, which a start without notes need not load.
_TEAM_FOLDER: Final = ".palimpsest/memory"


class ProjectMemory(Struct, frozen=True, kw_only=True):
    """What memory is in one project folder: its notes, its settings, and the home that keeps them.

    `given` are the notes, or a function that opens them with their first use: a session that needs none does not look for them. `made` is
    what is made once when it is first needed, such as the index over the notes.
    """

    home: AnyHome
    root: Path
    given: "Memories | Callable[[], Memories]"
    config: MemoryConfig
    made: list[object] = field(default_factory=list)

    def is_used(self) -> bool:
        """Return whether there are or were notes in this home or of this team, without asking which belong to the project."""
        folder = self.home.folder
        return folder is not None and ((folder / "memory").is_dir() or (self.root / _TEAM_FOLDER).is_dir())

    def has_notes(self) -> bool:
        """Return whether there is a note that may be shown, without reading any."""
        return self.is_used() and any(notebook.has_notes() for notebook in self.memories.notebooks)

    def has_summaries(self) -> bool:
        """Return whether there may be summaries of past sessions, without reading any."""
        folder = self.home.folder
        return folder is not None and (folder / "memory" / "jobs.sqlite").is_file()

    @property
    def memories(self) -> "Memories":
        """The notes that may be seen and changed."""
        return self.given() if callable(self.given) else self.given


def project_memory(home: AnyHome, root: Path, config: MemoryConfig) -> ProjectMemory | None:
    """Return the memory of a project folder outside of any session; `None` if it is turned off, or the home keeps nothing."""
    if home.folder is None or not config.use:
        return None
    return ProjectMemory(home=home, root=root, given=opened_once(home, root), config=config)


def opened_once(home: AnyHome, root: Path) -> "Callable[[], Memories]":
    """Return a function that opens the notes of a project folder with its first call."""

    @cache
    def memories() -> "Memories":
        from palimpsest.engine.memory.memories import memories_of  # the scope is asked of git; a start takes milliseconds

        found = memories_of(home, root)
        if found is None:
            raise BadInput("this home keeps no notes", where="memory")
        return found

    return memories
