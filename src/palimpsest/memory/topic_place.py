"""Where Claude Code keeps the notes of a project, also before there are any."""

import os
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

from palimpsest.core.errors import StoreError
from palimpsest.stores.shadow_git import find_repository

_SLUG: Final = re.compile(r"[^A-Za-z0-9]")
# Claude Code cuts the names of longer folders and adds a digest of its own.
_LONGEST_SLUG: Final = 200
_DIGEST_LETTERS: Final = 8


def claude_folder() -> Path:
    """Return the folder of Claude Code's settings."""
    return Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")


def project_slug(root: Path) -> str:
    """Return the name by which Claude Code keeps what belongs to a project folder; it may be too long for a file system."""
    return _SLUG.sub("-", str(root))


def existing_projects(projects: Path, slug: str) -> Iterator[Path]:
    """Yield the folder of a project, whether or not it exists; of a long name only the beginning is in the folder's name."""
    if len(slug) <= _LONGEST_SLUG:
        yield projects / slug
        return
    try:
        yield from sorted(Path(entry.path) for entry in os.scandir(projects) if entry.name.startswith(f"{slug[:_LONGEST_SLUG]}-"))
    except OSError:
        return


def notes_root(folder: Path) -> Path:
    """Return the folder by which Claude Code names the notes of a project: the same for all folders and work trees of a repository."""
    try:
        found = find_repository(folder.resolve())
    except StoreError:
        found = None
    if found is None:
        return folder
    return found.shared.parent if found.shared.name == ".git" else found.tree


def notes_place(root: Path) -> Path:
    """Return the folder of the notes of a project: the one that is there, else the one that is to be made."""
    projects, slug = claude_folder() / "projects", project_slug(notes_root(root))
    found = next(existing_projects(projects, slug), None)
    if found is None:
        found = projects / f"{slug[:_LONGEST_SLUG]}-{sha256(slug.encode()).hexdigest()[:_DIGEST_LETTERS]}"
    return found / "memory"
