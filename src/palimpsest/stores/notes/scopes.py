"""The folders of notes: one for the user, and one for each project, which all work trees of a repository share."""

import os
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Final

USER_SCOPE: Final = "user"
TEAM_SCOPE: Final = "team"
TEAM_FOLDER: Final = ".palimpsest/memory"
_ID_LENGTH: Final = 12
_SECONDS: Final = 10


def project_scope(root: Path) -> str:
    """Return the scope of a project: by the first commit of its repository, else by its real path."""
    identity = _first_commit(root) or os.path.realpath(root)
    return f"project-{sha256(os.fsencode(identity)).hexdigest()[:_ID_LENGTH]}"


def scope_folder(home: Path, scope: str) -> Path:
    """Return the folder of a scope in a home."""
    return home / "memory" / scope


def _first_commit(root: Path) -> str:
    """Return the oldest of the commits without a parent that HEAD leads to; empty if there is none, or no git."""
    command = ("git", "-C", str(root), "rev-list", "--max-parents=0", "HEAD")
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False)  # noqa: S603 - fixed words
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = done.stdout.decode("ascii", "replace").split()
    return lines[-1] if done.returncode == 0 and lines else ""
