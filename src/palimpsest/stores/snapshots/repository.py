"""Reads the repository of a user through a git folder of ours that borrows its objects and names, and never its configuration."""

import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from palimpsest.core.errors import StoreError
from palimpsest.stores.snapshots.git import ShadowGit, Wrap, find_git

_LARGEST_POINTER: Final = 4_096
_LARGEST_CONFIG: Final = 1_000_000
_LARGEST_LIST: Final = 64 * 1024 * 1024
_HEAD: Final = re.compile(rb"ref: refs/[^\x00-\x20\x7f]+\n?|[0-9a-f]{40,64}\n?")
_SHA256: Final = re.compile(rb"^\s*objectformat\s*=\s*\"?sha256\"?\s*$", re.IGNORECASE | re.MULTILINE)
# What a file system can do, as `git init` found out. These are the only values that are taken from a configuration.
_FILE_SYSTEM: Final = re.compile(
    rb"^\s*(filemode|symlinks|ignorecase|precomposeunicode)\s*=\s*(true|false)\s*$", re.IGNORECASE | re.MULTILINE
)


class Repository(NamedTuple):
    """A repository of the user: its work tree, its git folder, and the folder with the objects and names, which work trees share."""

    tree: Path
    folder: Path
    shared: Path

    @property
    def branch(self) -> str:
        """The branch that is checked out; empty if it is none, or its name is kept in a table, where HEAD names an invalid one."""
        head = bounded_file(self.folder / "HEAD", _LARGEST_POINTER).decode("utf-8", "replace")
        return "" if head.startswith("ref: refs/heads/.invalid") or not head.startswith("ref: refs/heads/") else head[16:].rstrip("\n")


class BorrowedGit(NamedTuple):
    """Git on a repository of the user: reading commands, and `run` for those that add an object and a name."""

    git: ShadowGit
    repository: Repository
    settings: tuple[str, ...]

    def run(self, *arguments: str, data: bytes = b"", settings: tuple[str, ...] = ()) -> bytes:
        """The output of a command. Raises `StoreError` if it fails, takes too long or prints too much."""
        given = (*self.settings, *settings)
        return self.git.run("--no-optional-locks", *arguments, tree=self.repository.tree, index=self._index, data=data, settings=given)

    def answers(self, *commands: tuple[str, ...], wrap: Wrap, most: int) -> tuple[str | None, ...]:
        """The output of each command in a sandbox; `None` for one that failed."""
        return self.git.answers(commands, self.repository.tree, self._index, wrap, most=most, settings=self.settings)

    @property
    def _index(self) -> Path:
        return self.repository.folder / "index"


def find_repository(folder: Path) -> Repository | None:
    """The repository that holds a folder. `None` if there is none.

    Raises `StoreError` for one that is not read, since it leads out of its own folder: by links, by other object folders, or by a file
    that names a git folder which does not name it in turn. Such files come with an archive, or from a command in a sandbox.
    """
    for place in (folder, *folder.parents):
        entry = place / ".git"
        try:
            facts = entry.lstat()
        except (OSError, ValueError):
            continue
        if stat.S_ISDIR(facts.st_mode):
            if not os.path.lexists(entry / "HEAD"):
                # Git goes on above a folder that only has the name.
                continue
            return _plain(Repository(place, entry, entry))
        if stat.S_ISREG(facts.st_mode):
            return _plain(_linked(entry))
        raise _refused(entry, "is a link")
    return None


@contextmanager
def borrowed_git(folder: Path, *, seconds: float, temp: Path | None = None) -> Iterator[BorrowedGit | None]:
    """Git for the repository that holds a folder; `None` if there is no repository or no git. Raises `StoreError` as `find_repository`.

    Git gets a new git folder with a configuration of ours. Settings, hooks, attributes, remotes, replaced objects and work trees that the
    repository configures are in its own git folder, which git does not look into. `temp` is where the new folder is made.
    """
    root = folder.resolve()
    repository = find_repository(root)
    program = None if repository is None else find_git(repository.tree)
    if repository is None or program is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="pal-git-", dir=temp) as name:
        # A command in the sandbox may put a link in its place at any moment: what is written goes to the folder that is open here.
        place = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            settings = _borrow(repository, place)
        finally:
            os.close(place)
        yield BorrowedGit(ShadowGit(program, Path(name), seconds, umask=-1), repository, settings)


def bounded_file(path: Path, most: int) -> bytes:
    """The content of a regular file that is no link; empty if there is none, or it is larger."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            data = file.read(most + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except (OSError, ValueError):
        return b""
    return data if len(data) <= most else b""


def _refused(place: Path, why: str) -> StoreError:
    return StoreError(f"the repository is not read: this {why}", where=str(place))


def _linked(entry: Path) -> Repository:
    """The repository of a work tree or a submodule, whose `.git` is a file."""
    folder = _named(entry, "gitdir: ")
    if folder is None:
        raise _refused(entry, "does not name a git folder")
    if _named(folder / "gitdir", "") == entry:
        shared = _named(folder / "commondir", "")
        if shared is not None and folder.parent == shared / "worktrees":
            return Repository(entry.parent, folder, shared)
    # The git folder of a submodule lies in the one of the repository around it.
    if any((parent / ".git" / "modules") in folder.parents for parent in entry.parent.parents):
        return Repository(entry.parent, folder, folder)
    raise _refused(entry, "names a git folder that does not belong to it")


def _named(file: Path, prefix: str) -> Path | None:
    text = os.fsdecode(bounded_file(file, _LARGEST_POINTER)).rstrip("\n")
    return (file.parent / text.removeprefix(prefix)).resolve() if text.startswith(prefix) and text and "\0" not in text else None


def _plain(found: Repository) -> Repository:
    """The same repository. Raises `StoreError` if one of its parts leads elsewhere."""
    if found.folder == found.shared and os.path.lexists(found.folder / "commondir"):
        raise _refused(found.folder / "commondir", "names another git folder")
    objects, names = found.shared / "objects", found.shared / "refs"
    for place in (found.folder, found.shared, objects, names):
        if place.is_symlink() or not place.is_dir():
            raise _refused(place, "is not a folder")
    for name in ("alternates", "http-alternates"):
        if os.path.lexists(objects / "info" / name):
            raise _refused(objects / "info" / name, "names objects of other repositories")
    # Git writes there for `notes`.
    for folder in (objects, names):
        with os.scandir(folder) as entries:
            if linked := next((entry.path for entry in entries if entry.is_symlink()), None):
                raise _refused(Path(linked), "is a link")
    return found


def _borrow(found: Repository, place: int) -> tuple[str, ...]:
    """Fill a new git folder that is open, and return the settings that describe the file system."""
    config = bounded_file(found.shared / "config", _LARGEST_CONFIG)
    tables = found.shared / "reftable"
    extensions = [("objectformat", "sha256")] * bool(_SHA256.search(config)) + [("refstorage", "reftable")] * tables.is_dir()
    lines = [f"[core]\nrepositoryformatversion = {int(bool(extensions))}\nbare = false\n[extensions]\n"]
    _put(place, "config", "".join((*lines, *(f"{name} = {value}\n" for name, value in extensions))).encode())
    head = bounded_file(found.folder / "HEAD", _LARGEST_POINTER)
    if not _HEAD.fullmatch(head):
        raise _refused(found.folder / "HEAD", "does not name a commit")
    _put(place, "HEAD", head)
    for name in ("packed-refs", "shallow"):
        if data := bounded_file(found.shared / name, _LARGEST_LIST):
            _put(place, name, data)
    os.mkdir("info", 0o700, dir_fd=place)
    info = os.open("info", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
    try:
        _put(info, "exclude", bounded_file(found.shared / "info" / "exclude", _LARGEST_CONFIG) + b"\n" + _user_excludes())
    finally:
        os.close(info)
    for source in (found.shared / "objects", found.shared / "refs", *([tables] if tables.is_dir() and not tables.is_symlink() else [])):
        os.symlink(source, source.name, dir_fd=place)
    return tuple(f"core.{name.decode()}={value.decode()}" for name, value in _FILE_SYSTEM.findall(config))


def _put(folder: int, name: str, data: bytes) -> None:
    """Write a new file in a folder that is open."""
    with os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder), "wb") as file:
        file.write(data)


def _user_excludes() -> bytes:
    """The ignore rules that the user has for all repositories, at their usual place."""
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return bounded_file(Path(folder) / "git" / "ignore", _LARGEST_CONFIG)
