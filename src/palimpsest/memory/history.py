"""A small git history of a folder of notes: one commit a change, without the user's configuration, and none of what was forgotten."""

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from palimpsest.core.errors import StoreError
from palimpsest.stores.files import store_errors, write_private

if TYPE_CHECKING:
    from palimpsest.stores.shadow_git import ShadowGit


# Seconds for one git command.
SECONDS: Final = 10.0
_MESSAGE_CHARACTERS: Final = 200
_AUTHOR: Final = ("user.name=palimpsest", "user.email=notes@palimpsest.invalid", "commit.gpgSign=false", "commit.cleanup=verbatim")
# Local state, which changes with every use, and notes that no person has looked at yet.
_EXCLUDED: Final = "/.*\n/memory.*\n/index.sqlite*\n/quarantine/\n/tombstones.jsonl\n"
# Loose objects in one of 256 folders from which they are packed; git's own limit is the same.
_MOST_LOOSE: Final = 27
# Seconds after which the lock of a git process that was killed is removed.
_LOCK_SECONDS: Final = 60.0


class NoteHistory:
    """The history of one folder. Its failure never fails a change of the notes: `problem` says why the last commit was not made."""

    def __init__(self, folder: Path, search_path: str | None = None) -> None:
        self._folder = folder
        self._search_path = search_path
        self.problem = ""

    @property
    def place(self) -> Path:
        """The repository."""
        return self._folder / ".git"

    def commit(self, message: str) -> None:
        """Record the files as they are now; two git processes, and one more for the first commit."""
        git = self._git()
        if git is None:
            return
        self.problem = ""
        line = " ".join(message.split())[:_MESSAGE_CHARACTERS]
        try:
            self._prepare(git)
            git.run("add", "-A", ".", tree=self._folder)
            git.run("commit", "-q", "--no-verify", "--allow-empty", "-m", line, tree=self._folder, settings=_AUTHOR)
            if self._loose() > _MOST_LOOSE:
                git.run("gc", "-q", "--prune=now", tree=self._folder)
        except (StoreError, OSError) as error:
            self.problem = str(error)

    def found_problem(self) -> str:
        """Return why the notes as they are now are in no commit; empty if they are in one, or there are none. Writes nothing."""
        if not self._folder.is_dir():
            return ""
        git = self._git()
        if git is None:
            return self.problem
        if not (self.place / "HEAD").is_file():
            return "no change is in the history yet" if any(self._folder.glob("notes/*.md")) else ""
        try:
            # Without the lock of the index: a status may not hold up a change.
            changed = git.run("--no-optional-locks", "status", "--porcelain", "-z", "--", "notes", tree=self._folder).split(b"\0")
        except (StoreError, OSError) as error:
            return str(error)
        count = sum(1 for each in changed if each)
        return f"{count:,} changed notes are in no commit yet" if count else ""

    def restart(self, message: str) -> None:
        """Remove the whole history with all its objects, and begin a new one with the files as they are now.

        Raises `StoreError` if it cannot be removed: what was forgotten must not stay.
        """
        if self.place.is_dir() and not self.place.is_symlink():
            with store_errors(self.place, "delete the history in"):
                shutil.rmtree(self.place)
            self.commit(message)

    def _git(self) -> "ShadowGit | None":
        # Imported with the first change: starts of a session, which only read, do without it.
        from palimpsest.stores.shadow_git import (
            ShadowGit,
            find_git,
        )

        program = find_git(self._folder, self._search_path)
        if program is None:
            self.problem = "there is no git, so the notes have no history"
            return None
        if self.place.is_symlink() or self.place.is_file():
            self.problem = f"{self.place} is not a folder, so the notes have no history"
            return None
        return ShadowGit(program, self.place, SECONDS)

    def _prepare(self, git: "ShadowGit") -> None:
        if not (self.place / "HEAD").is_file():
            self.place.mkdir(mode=0o700, exist_ok=True)
            git.run("init", "-q", "--template=", "--initial-branch=main")
            (self.place / "info").mkdir(mode=0o700, exist_ok=True)
            write_private(self.place / "info" / "exclude", _EXCLUDED.encode())
        lock = self.place / "index.lock"
        if lock.exists() and time.time() - lock.stat().st_mtime > _LOCK_SECONDS:
            lock.unlink(missing_ok=True)

    def _loose(self) -> int:
        try:
            return sum(1 for _ in (self.place / "objects" / "17").iterdir())
        except FileNotFoundError:
            return 0
