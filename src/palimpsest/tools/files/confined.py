"""File access that stays in the workspace while others change it: folders are opened step by step, and no step follows a link."""

import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO, Final

from palimpsest.core.errors import StoreError
from palimpsest.tools.tool import ToolError
from palimpsest.tools.workspace import OutsideWorkspace, Workspace

LARGEST_FILE: Final = 20_000_000
"""Bytes of a file that a tool reads at most."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without blocking, because a pipe that nothing writes to would hold the session up.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK: Final = 1_000_000


class IrregularFile(OSError):
    """What has the name of a file is a folder, a pipe or a device."""


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


@contextmanager
def opened_file(roots: tuple[Path, ...], path: Path) -> Iterator[IO[bytes]]:
    """A regular file below one of the roots, to be read. Raises `IrregularFile`, and errors as `opened_folder`."""
    with opened_folder(roots, path.parent) as folder:
        handle = os.open(path.name, _FILE, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise IrregularFile("it is no regular file")
        with open(handle, "rb", closefd=False) as file:  # it is a descriptor
            yield file
    finally:
        os.close(handle)


def roots_of(workspace: Workspace) -> tuple[Path, ...]:
    """The folders of a workspace."""
    return workspace.folders


def _readable_roots(workspace: Workspace) -> tuple[Path, ...]:
    """The folders below which files are read: also the shelf, of which a file is reached by its folder."""
    return (*roots_of(workspace), *(place if place.is_dir() else place.parent for place in workspace.shelf()))


def read_file(workspace: Workspace, path: Path, most: int) -> bytes | None:
    """The content of a regular file, at a path that was resolved; `None` if there is none.

    Raises `ToolError` if it is no regular file, has more than `most` bytes or cannot be read.
    """
    name = workspace.shown(path)
    try:
        with opened_file(_readable_roots(workspace), path) as file:
            data = file.read(most + 1)
    except FileNotFoundError:
        return None
    except IrregularFile as error:
        raise ToolError(f"{name} is no regular file", where=name) from error
    except OSError as error:
        raise ToolError(f"{name} cannot be read: {error.strerror or error}", where=name) from error
    if len(data) > most:
        raise ToolError(f"{name} has more than {most:,} bytes; use grep to find the part that you need", where=name)
    return data


def entries_of(workspace: Workspace, path: Path) -> list[str]:
    """The sorted names in a folder at a path that was resolved, folders with a slash at the end. Raises `OSError`."""
    with opened_folder(_readable_roots(workspace), path) as folder, os.scandir(folder) as entries:
        return sorted(f"{each.name}/" if each.is_dir() else each.name for each in entries)


def make_folders(workspace: Workspace, folder: Path) -> None:
    """Make a folder and those above it, at a path that was resolved. Raises `OSError` if a link or a file is in the way."""
    with opened_folder(roots_of(workspace), folder, create=True):
        pass


def remove_file(workspace: Workspace, path: Path) -> None:
    """Delete a file, if it exists, at a path that was resolved. Raises `OSError`."""
    workspace.before_removal(path)
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


def file_creator(root: Path) -> Callable[[str, bytes], str]:
    """A function that makes a new file below a folder and returns its relative path, with a number in it if the name is taken.

    The function raises `OutsideWorkspace` and `StoreError`.
    """
    workspace = Workspace(root)

    def create(name: str, data: bytes) -> str:
        wanted = workspace.resolve(name)
        for number in count(1):
            path = wanted if number == 1 else wanted.with_stem(f"{wanted.stem}-{number}")
            try:
                with opened_folder((workspace.root,), path.parent, create=True) as folder:
                    _write_new(folder, path.name, data)
                return workspace.shown(path)
            except FileExistsError:
                continue
            except OSError as error:
                raise StoreError(f"{name} cannot be written: {error.strerror or error}", where=name) from error
        raise AssertionError("numbers do not end")

    return create


def _write_new(folder: int, name: str, data: bytes) -> None:
    """Write a file that does not exist yet. Raises `FileExistsError` if it does, and another `OSError` if nothing was left behind."""
    handle = os.open(name, _NEW, 0o666, dir_fd=folder)
    try:
        _write_all(handle, data)
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise
    os.fsync(folder)


def _write_all(handle: int, data: bytes) -> None:
    """Write all bytes durably and close the file."""
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(handle, rest[:_CHUNK]) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def _replace(folder: int, name: str, data: bytes) -> None:
    mode = _mode_of(folder, name)
    temporary = f".pal-{secrets.token_hex(8)}"
    handle = os.open(temporary, _NEW, 0o666, dir_fd=folder)
    try:
        if mode is not None:
            _set_mode(handle, mode)
        _write_all(handle, data)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def _set_mode(handle: int, mode: int) -> None:
    try:
        os.fchmod(handle, mode)
    except BaseException:
        os.close(handle)
        raise


def _mode_of(folder: int, name: str) -> int | None:
    """The permission bits of an existing file, without those that change the user. Raises `OSError` if it is no regular file."""
    try:
        facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(facts.st_mode):
        raise OSError(f"{name} is no regular file")
    return stat.S_IMODE(facts.st_mode) & 0o777
