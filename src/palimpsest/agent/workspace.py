"""The workspace of an agent: its folders, the files it has read, and how paths of the model become paths of the disk."""

import os
import shutil
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from msgspec import Struct

from palimpsest.audit.working_state import KnownFile
from palimpsest.core.errors import BadInput
from palimpsest.core.events import SeenFile

PROTECTED_FOLDERS: Final = frozenset(
    {".git", ".hg", ".svn", ".husky", ".githooks", ".vscode", ".idea", ".devcontainer", ".claude", ".codex", ".palimpsest"}
)
PROTECTED_FILES: Final = frozenset(
    {
        *(".gitconfig", ".gitmodules", ".bashrc", ".bash_profile", ".bash_login", ".bash_aliases", ".bash_logout", ".profile"),
        *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".inputrc", ".envrc", ".mcp.json"),
        *(".pre-commit-config.yaml", ".ripgreprc", ".netrc", ".npmrc", ".pypirc"),
    }
)
"""Files that other programs run or obey later, outside of any sandbox."""


def program_outside(name: str, *folders: Path) -> str | None:
    """The path of a program in the search path; `None` if there is none. Relative entries and those in the folders are not searched.

    A project could bring a program of its own, and the agent could write one.
    """
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    safe = (entry for entry in entries if Path(entry).is_absolute() and not _lies_in(Path(entry), folders))
    found = shutil.which(name, path=os.pathsep.join(safe))
    return None if found is None or _lies_in(Path(found), folders) else found


def _lies_in(path: Path, folders: tuple[Path, ...]) -> bool:
    real = Path(os.path.realpath(path))
    return any(real.is_relative_to(os.path.realpath(folder)) for folder in folders)


class OutsideWorkspace(BadInput):
    """A path leads out of the folders that the agent may use."""


def nothing_known() -> Mapping[str, KnownFile]:
    """Return the known files of an agent that has read nothing."""
    return {}


def no_shelf() -> tuple[Path, ...]:
    """Return the shelf of an agent without saved results."""
    return ()


def no_blobs(_: bytes) -> str:
    """A workspace that keeps no blobs. Raises `BadInput`."""
    raise BadInput("images cannot be kept here")


def read_only(path: Path, _: bytes) -> None:
    """A workspace in which nothing can be written. Raises `BadInput`."""
    raise BadInput("files cannot be written here", where=str(path))


def nothing_before(_: Path) -> None:
    """Do nothing before a file is deleted."""


class Workspace(Struct):
    """The folders in which an agent works. `root` is the project; `extra` are other folders that the user granted.

    `keep` stores bytes as a blob and returns its address. `write` replaces the content of a file atomically. `known` returns the files
    that the agent has read or written, as its log tells, so that an edit of a file that changed since is refused. `shelf` returns the
    files and folders outside of these that the agent may read and never write: what its session has saved. `notes` is the folder of the
    agent's own notes, whose files it reads and changes without a question; `before_removal` runs before a file is deleted. With
    `reads_first` an existing file is changed only if the agent has read what it says now.
    """

    root: Path
    extra: tuple[Path, ...] = ()
    keep: Callable[[bytes], str] = no_blobs
    write: Callable[[Path, bytes], None] = read_only
    known: Callable[[], Mapping[str, KnownFile]] = nothing_known
    shelf: Callable[[], tuple[Path, ...]] = no_shelf
    notes: Path | None = None
    before_removal: Callable[[Path], None] = nothing_before
    reads_first: bool = True

    def __post_init__(self) -> None:
        self.root = self.root.resolve()
        self.extra = tuple(folder.resolve() for folder in self.extra)
        self.notes = None if self.notes is None else self.notes.resolve()

    @property
    def folders(self) -> tuple[Path, ...]:
        """All folders in which files may be named: the project, those that were granted, and that of the notes."""
        return (self.root, *self.extra, *(() if self.notes is None else (self.notes,)))

    def is_note(self, path: Path) -> bool:
        """Whether a path that was resolved lies in the folder of the notes."""
        return self.notes is not None and self.notes in path.parents

    def resolve(self, path: str) -> Path:
        """The absolute path, links followed. Raises `OutsideWorkspace` if it lies in none of the folders, `BadInput` if it is none."""
        return self._resolved(path, self.folders)

    def resolve_to_read(self, path: str) -> Path:
        """The same for a file that is only read, which may lie on the shelf too."""
        return self._resolved(path, (*self.folders, *self.shelf()))

    def on_shelf(self, path: Path) -> bool:
        """Whether a resolved path lies on the shelf, which may itself lie in the project, such as that of a home folder."""
        return _lies_below(path, self.shelf())

    def _resolved(self, path: str, places: tuple[Path, ...]) -> Path:
        if not path or "\0" in path:
            raise BadInput("an empty path names no file; give a path below the project folder")
        try:
            real = (self.root / os.path.expanduser(path)).resolve()  # noqa: PTH111  # Path.expanduser raises for unknown users
        except (OSError, RuntimeError) as error:
            raise BadInput(f"the path cannot be resolved ({error})", where=path) from error
        if not _lies_below(real, places):
            raise OutsideWorkspace(f"the path leads out of the project folder {self.root}", where=path)
        return real

    def shown(self, path: Path) -> str:
        """A path as the model should write it: relative to the project where it lies there."""
        return str(path.relative_to(self.root)) if path == self.root or self.root in path.parents else str(path)

    def seen(self, path: Path, data: bytes | None) -> SeenFile:
        """The version of a file that a tool read or wrote whole, for its output; without data, the file was deleted."""
        return SeenFile(self.shown(path), "" if data is None else sha256(data).hexdigest())

    def check_unchanged(self, path: Path, data: bytes) -> None:
        """Raise `BadInput` if the agent has not read this content of an existing file and must have."""
        if not self.reads_first:
            return
        known, name = self._known(path), self.shown(path)
        if known is None:
            raise BadInput(f"{name} has not been read in this session; read it before changing it", where=name)
        if known.digest != sha256(data).hexdigest() if known.digest else known.at < _changed_at(path):
            raise BadInput(f"{name} has changed since it was read; read it again before changing it", where=name)

    def _known(self, path: Path) -> KnownFile | None:
        """What the log tells about a file. Other programs name files by any path that leads there."""
        files = self.known()
        found = files.get(self.shown(path))
        if found is not None:
            return found
        same_name = (file for name, file in files.items() if name.rpartition("/")[2] == path.name)
        return next((file for file in same_name if self._leads_to(file.path, path)), None)

    def _leads_to(self, name: str, path: Path) -> bool:
        try:
            return self.resolve(name) == path
        except BadInput:
            return False


def _lies_below(path: Path, places: tuple[Path, ...]) -> bool:
    return any(path == place or place in path.parents for place in places)


def _changed_at(path: Path) -> int:
    """The time of the last change of a file or of its place, in milliseconds: a copy may keep the time of its original."""
    stated = path.stat()
    return max(stated.st_mtime_ns, stated.st_ctime_ns) // 1_000_000
