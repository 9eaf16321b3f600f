"""File access that stays in the workspace and follows no link, and single entries brought to a known state."""

import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import IO, Final, Literal, NamedTuple, TypeAlias

from palimpsest.agent.tool import ToolError
from palimpsest.agent.workspace import OutsideWorkspace, Workspace
from palimpsest.core.errors import PalimpsestError, StoreError

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


EntryKind: TypeAlias = Literal["file", "program", "link", "large"]
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PLACING_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PLACING_CHUNK: Final = 1_000_000


class EntryChanged(PalimpsestError):
    """An entry is not as expected, so it was left as it is."""

    kind = "changed"


class Entry(NamedTuple):
    """A file, an executable or a link, and its content; that of a link is its target.

    A `large` file is not read: its data are its size in bytes and its time of change in nanoseconds, with a hyphen between.
    """

    kind: EntryKind
    data: bytes


def place_entry(root: Path, path: str, wanted: Entry | None, is_expected: Callable[[Entry | None], bool], largest: int) -> bool:
    """Bring an entry below a folder to a state; `None` deletes it. Returns false if it is so already. `largest` is that of `read_entry`.

    The entry is looked at once more right before. Raises `EntryChanged` if it is not as expected or is a folder with entries, `OSError`
    if a folder above is a link or it cannot be written. A file that exists keeps its permissions, but for the executable bit.
    """
    place = root / path
    try:
        with opened_folder((root,), place.parent, create=wanted is not None) as folder:
            if wanted is not None:
                # An empty folder takes nothing with it; one with entries stays, and is then no expected entry.
                with suppress(OSError):
                    os.rmdir(place.name, dir_fd=folder)
            present = read_entry(folder, place.name, largest)
            if present == wanted:
                return False
            if not is_expected(present):
                raise EntryChanged("it was changed meanwhile and was left as it is", where=path)
            if wanted is None:
                os.unlink(place.name, dir_fd=folder)
            else:
                _write_entry(folder, place.name, wanted, had_file=present is not None and present.kind != "link")
            os.fsync(folder)
    except (FileNotFoundError, NotADirectoryError):
        if wanted is None:
            # A folder above has gone, and the entry with it.
            return False
        raise
    return True


def read_entry(folder: int, name: str, largest: int) -> Entry | None:
    """The entry of that name in an open folder; `None` if there is none. A file of more than `largest` bytes is not read.

    Raises `EntryChanged` if it is neither a file nor a link, and `OSError`.
    """
    try:
        facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(facts.st_mode):
        return Entry("link", os.fsencode(os.readlink(name, dir_fd=folder)))
    if not stat.S_ISREG(facts.st_mode):
        raise EntryChanged("it is neither a file nor a link now, and was left as it is", where=name)
    if facts.st_size > largest:
        return Entry("large", f"{facts.st_size}-{facts.st_mtime_ns}".encode())
    with os.fdopen(os.open(name, _READ, dir_fd=folder), "rb") as file:
        return Entry("program" if facts.st_mode & stat.S_IXUSR else "file", file.read())


def _write_entry(folder: int, name: str, wanted: Entry, *, had_file: bool) -> None:
    # The name depends on the entry alone, so that writing it again removes what a crash left.
    temporary = f".pal-{sha256(os.fsencode(name)).hexdigest()[:16]}"
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=folder)
    try:
        if wanted.kind == "link":
            os.symlink(os.fsdecode(wanted.data), temporary, dir_fd=folder)
        else:
            _fill(folder, temporary, wanted, stat.S_IMODE(os.stat(name, dir_fd=folder).st_mode) & 0o777 if had_file else None)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _fill(folder: int, name: str, wanted: Entry, mode: int | None) -> None:
    runs = wanted.kind == "program"
    handle = os.open(name, _PLACING_NEW, 0o777 if runs else 0o666, dir_fd=folder)
    try:
        if mode is not None:
            # Those who may read it may run it.
            os.fchmod(handle, mode | (mode & 0o444) >> 2 if runs else mode & ~0o111)
        rest = memoryview(wanted.data)
        while rest:
            rest = rest[os.write(handle, rest[:_PLACING_CHUNK]) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_empty_folders(root: Path, folders: Iterable[str]) -> tuple[str, ...]:
    """Delete those of the folders that are empty, inner ones first, and return them."""
    removed: list[str] = []
    for path in sorted(folders, reverse=True):
        place = root / path
        with suppress(OSError), opened_folder((root,), place.parent) as folder:
            os.rmdir(place.name, dir_fd=folder)
            removed.append(path)
    return tuple(removed)


def make_missing_folders(root: Path, folders: Iterable[str]) -> None:
    """Make folders below a folder; those for which a file or link is in the way are left out."""
    for path in sorted(folders):
        with suppress(OSError), opened_folder((root,), root / path, create=True):
            pass
