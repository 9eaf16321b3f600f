"""The notes that a session in one project may see and change: those of the user, of the project and of its team."""

from collections.abc import Iterator
from pathlib import Path

from palimpsest.core.errors import BadInput
from palimpsest.core.ports import Clock
from palimpsest.engine.memory.notebook import Notebook
from palimpsest.memory.note import Note, NoteKind
from palimpsest.stores.home import AnyHome
from palimpsest.stores.notes.folder import NoteFolder
from palimpsest.stores.notes.scopes import TEAM_FOLDER, TEAM_SCOPE, USER_SCOPE, project_scope, scope_folder


class Memories:
    """The notebooks that belong to a project folder. `team` is there if the project's repository has a folder of notes."""

    def __init__(self, user: Notebook, project: Notebook, team: Notebook | None = None) -> None:
        self.user = user
        self.project = project
        self.team = team

    @property
    def notebooks(self) -> tuple[Notebook, ...]:
        """All of them; a note of an earlier one holds against one of the same name in a later one."""
        return (self.user, self.project) if self.team is None else (self.user, self.project, self.team)

    def of_scope(self, scope: str) -> Notebook:
        """Return a notebook by its scope, or by the words `user`, `project` and `team`. Raises `BadInput` if there is none."""
        words = {"user": self.user, "project": self.project, **({} if self.team is None else {"team": self.team})}
        found = words.get(scope) or next((each for each in self.notebooks if each.scope == scope), None)
        if found is None:
            advice = f"a team has notes if the project has a folder {TEAM_FOLDER}" if scope == "team" else f"there are {', '.join(words)}"
            raise BadInput(f"there are no notes of {scope[:80]!r}; {advice}", where="memory")
        return found

    def place_of(self, kind: NoteKind) -> Notebook:
        """Return the notebook that new notes of a kind go to: what is about the user holds in every project, all else in this one."""
        return self.user if kind == "user" else self.project

    def active(self) -> Iterator[tuple[Notebook, Note]]:
        """Yield each active note with its notebook, as the files state them now."""
        for notebook in self.notebooks:
            for note in notebook.notes().active.values():
                yield notebook, note

    def find(self, name: str) -> tuple[Notebook, Note]:
        """Return the active note of a name with its notebook. Raises `BadInput` if there is none."""
        for notebook, note in self.active():
            if note.name == name:
                return notebook, note
        raise BadInput(f"there is no note {name[:80]!r}; `pal memory list` lists them", where="memory")


def memories_of(home: AnyHome, root: Path) -> Memories | None:
    """Return the notes of a project folder; `None` in a home without a folder, which keeps nothing."""
    if home.folder is None:
        return None
    team = root / TEAM_FOLDER
    project = _notebook(scope_folder(home.folder, scope := project_scope(root)), scope, home.clock)
    return Memories(
        _notebook(scope_folder(home.folder, USER_SCOPE), USER_SCOPE, home.clock),
        project,
        # The folder of a team belongs to the repository of the project, and no database into it.
        _notebook(team, TEAM_SCOPE, home.clock, project.index_file) if team.is_dir() and not team.is_symlink() else None,
    )


def _notebook(folder: Path, scope: str, clock: Clock, index_file: Path | None = None) -> Notebook:
    return Notebook(NoteFolder(folder, scope, clock), clock, index_file)
