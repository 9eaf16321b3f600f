"""The workspace of an agent: its folders, the files it has read, and how paths of the model become paths of the disk."""

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from palimpsest.core.errors import BadInput

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


class OutsideWorkspace(BadInput):
    """A path leads out of the folders that the agent may use."""


class FileVersion(Struct, frozen=True):
    """The content of a file when the agent last read or wrote it, by size and SHA-256."""

    size: int
    digest: str

    @classmethod
    def of(cls, data: bytes) -> "FileVersion":
        """The version that some bytes are."""
        return cls(len(data), sha256(data).hexdigest())


def no_blobs(_: bytes) -> str:
    """A workspace that keeps no blobs. Raises `BadInput`."""
    raise BadInput("images cannot be kept here")


def read_only(path: Path, _: bytes) -> None:
    """A workspace in which nothing can be written. Raises `BadInput`."""
    raise BadInput("files cannot be written here", where=str(path))


class Workspace(Struct):
    """The folders in which an agent works. `root` is the project; `extra` are other folders that the user granted.

    `keep` stores bytes as a blob and returns its address. `write` replaces the content of a file atomically. `versions` remembers what
    the agent has seen of each file, so that an edit of a file that changed since is refused.
    """

    root: Path
    extra: tuple[Path, ...] = ()
    keep: Callable[[bytes], str] = no_blobs
    write: Callable[[Path, bytes], None] = read_only
    versions: dict[Path, FileVersion] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root = self.root.resolve()
        self.extra = tuple(folder.resolve() for folder in self.extra)

    def resolve(self, path: str) -> Path:
        """The absolute path, links followed. Raises `OutsideWorkspace` if it lies in none of the folders, `BadInput` if it is none."""
        if not path or "\0" in path:
            raise BadInput("an empty path names no file; give a path below the project folder")
        try:
            real = (self.root / os.path.expanduser(path)).resolve()  # noqa: PTH111  # Path.expanduser raises for unknown users
        except (OSError, RuntimeError) as error:
            raise BadInput(f"the path cannot be resolved ({error})", where=path) from error
        if not any(real == folder or folder in real.parents for folder in (self.root, *self.extra)):
            raise OutsideWorkspace(f"the path leads out of the project folder {self.root}", where=path)
        return real

    def shown(self, path: Path) -> str:
        """A path as the model should write it: relative to the project where it lies there."""
        return str(path.relative_to(self.root)) if path == self.root or self.root in path.parents else str(path)

    def saw(self, path: Path, data: bytes) -> None:
        """Remember the content of a file that was read or written whole."""
        self.versions[path] = FileVersion.of(data)

    def check_unchanged(self, path: Path, data: bytes) -> None:
        """Raise `BadInput` if the agent has not read this content of an existing file."""
        known = self.versions.get(path)
        name = self.shown(path)
        if known is None:
            raise BadInput(f"{name} has not been read in this session; read it before changing it", where=name)
        if known != FileVersion.of(data):
            raise BadInput(f"{name} has changed since it was read; read it again before changing it", where=name)
