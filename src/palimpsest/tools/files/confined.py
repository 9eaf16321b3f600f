"""File access that stays in the workspace while others change it: folders are opened step by step, and no step follows a link."""

import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from palimpsest.tools.tool import ToolError
from palimpsest.tools.workspace import OutsideWorkspace, Workspace

LARGEST_FILE: Final = 20_000_000
"""Bytes of a file that a tool reads at most."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without blocking, because a pipe that nothing writes to would hold the session up.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK: Final = 1_000_000


@contextmanager
def opened_folder(roots: tuple[Path, ...], folder: Path, *, create: bool = False) -> Iterator[int]:
    """A descriptor of a folder below one of the roots; missing folders are made if `create`.

    A path is resolved first, when links are followed and checked. Between that check and the use a command may put a link in the place of
    a folder; opening each folder in the one before, with links refused, then fails instead of leading outside. Raises
    `OutsideWorkspace` if it lies below none of them, `OSError` if a step is missing, a link or no folder.
    """
    root = next((root for root in roots if folder == root or root in folder.parents), None)
    if root is None:
        raise OutsideWorkspace("the path leads out of the project folder", where=str(folder))
    handle = os.open(root, _FOLDER)
    try:
        for part in folder.relative_to(root).parts:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=handle)
            inner = os.open(part, _FOLDER, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


def roots_of(workspace: Workspace) -> tuple[Path, ...]:
    """The folders of a workspace."""
    return (workspace.root, *workspace.extra)


def read_file(workspace: Workspace, path: Path, most: int) -> bytes | None:
    """The content of a regular file, at a path that was resolved; `None` if there is none.

    Raises `ToolError` if it is no regular file, has more than `most` bytes or cannot be read.
    """
    name = workspace.shown(path)
    try:
        with opened_folder(roots_of(workspace), path.parent) as folder:
            handle = os.open(path.name, _FILE, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ToolError(f"{name} cannot be read: {error.strerror or error}", where=name) from error
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ToolError(f"{name} is no regular file", where=name)
        with open(handle, "rb", closefd=False) as file:  # it is a descriptor
            data = file.read(most + 1)
    except OSError as error:
        raise ToolError(f"{name} cannot be read: {error.strerror or error}", where=name) from error
    finally:
        os.close(handle)
    if len(data) > most:
        raise ToolError(f"{name} has more than {most:,} bytes; use grep to find the part that you need", where=name)
    return data


def entries_of(workspace: Workspace, path: Path) -> list[str]:
    """The sorted names in a folder at a path that was resolved, folders with a slash at the end. Raises `OSError`."""
    with opened_folder(roots_of(workspace), path) as folder, os.scandir(folder) as entries:
        return sorted(f"{each.name}/" if each.is_dir() else each.name for each in entries)


def make_folders(workspace: Workspace, folder: Path) -> None:
    """Make a folder and those above it, at a path that was resolved. Raises `OSError` if a link or a file is in the way."""
    with opened_folder(roots_of(workspace), folder, create=True):
        pass


def remove_file(workspace: Workspace, path: Path) -> None:
    """Delete a file, if it exists, at a path that was resolved. Raises `OSError`."""
    with opened_folder(roots_of(workspace), path.parent) as folder, suppress(FileNotFoundError):
        os.unlink(path.name, dir_fd=folder)


def confined_writer(*roots: Path) -> Callable[[Path, bytes], None]:
    """A function for `Workspace.write`: replaces a file below one of the roots atomically, and keeps its permissions.

    The new content is another file that takes the name. So a hard link that the file shares with one outside of the workspace is cut, and
    the other file stays as it is; there is no need to refuse files with several links, which package managers make. The function raises
    `OutsideWorkspace` and `OSError`.
    """
    real = tuple(root.resolve() for root in roots)

    def write(path: Path, data: bytes) -> None:
        with opened_folder(real, path.parent, create=True) as folder:
            _replace(folder, path.name, data)

    return write


def _replace(folder: int, name: str, data: bytes) -> None:
    mode = _mode_of(folder, name)
    temporary = f".pal-{secrets.token_hex(8)}"
    handle = os.open(temporary, _NEW, 0o666, dir_fd=folder)
    try:
        try:
            if mode is not None:
                os.fchmod(handle, mode)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(handle, rest[:_CHUNK]) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def _mode_of(folder: int, name: str) -> int | None:
    """The permission bits of an existing file, without those that change the user. Raises `OSError` if it is no regular file."""
    try:
        facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(facts.st_mode):
        raise OSError(f"{name} is no regular file")
    return stat.S_IMODE(facts.st_mode) & 0o777
