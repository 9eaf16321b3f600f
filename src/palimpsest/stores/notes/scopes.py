"""The folders of notes: one for the user, and one for each project, which all work trees of a repository share."""

import os
from hashlib import sha256
from pathlib import Path
from typing import Final

from palimpsest.core.errors import StoreError
from palimpsest.stores.files import store_errors, write_atomically
from palimpsest.stores.snapshots.repository import borrowed_git

USER_SCOPE: Final = "user"
TEAM_SCOPE: Final = "team"
TEAM_FOLDER: Final = ".palimpsest/memory"
_ID_LENGTH: Final = 12
# What a repository shares of a team folder: the notes and their index, and nothing that a process keeps for itself.
_SHARED: Final = "# Only the notes and their index are shared.\n*\n!.gitignore\n!MEMORY.md\n!notes/\n!notes/*.md\n"
_SECONDS: Final = 10.0


def project_scope(root: Path) -> str:
    """Return the scope of a project: by the first commit of its repository, else by its real path."""
    identity = _first_commit(root) or os.path.realpath(root)
    return f"project-{sha256(os.fsencode(identity)).hexdigest()[:_ID_LENGTH]}"


def team_folder(root: Path) -> Path | None:
    """Return the folder of the team's notes in a project; `None` if there is none, or a link, which could lead out of the project."""
    folder = root / TEAM_FOLDER
    links = any(each.is_symlink() for each in (folder.parent, folder, folder / "notes"))
    return folder if folder.is_dir() and not links else None


def make_team_folder(root: Path) -> Path:
    """Make the folder of the team's notes in a project and return it. Raises `StoreError` if it cannot be made, or is a link."""
    folder = root / TEAM_FOLDER
    with store_errors(folder, "create"):
        for each in (folder.parent, folder, folder / "notes"):
            if each.is_symlink():
                raise StoreError("this is a link; notes of a team are kept in the project itself", where=str(each))
            each.mkdir(exist_ok=True)
    write_ignore_file(folder)
    return folder


def write_ignore_file(folder: Path) -> None:
    """Write the file by which git takes only the notes and their index of a team folder, unless there is one."""
    place = folder / ".gitignore"
    if not place.exists():
        write_atomically(place, (_SHARED.encode(),), replace=False)


def scope_folder(home: Path, scope: str) -> Path:
    """Return the folder of a scope in a home."""
    return home / "memory" / scope


def is_scope_name(name: str) -> bool:
    """Return whether a folder of this name is that of a scope: of the user, of a project, or of what is kept beside the notes of a team."""
    return name == USER_SCOPE or name.startswith(("project-", "team-"))


def _first_commit(root: Path) -> str:
    """Return the oldest of the commits without a parent that HEAD leads to; empty if there is none that can be read."""
    try:
        with borrowed_git(root, seconds=_SECONDS) as git:
            lines = [] if git is None else git.run("rev-list", "--max-parents=0", "HEAD").decode("ascii", "replace").split()
    except (OSError, StoreError):
        return ""
    return lines[-1] if lines else ""
