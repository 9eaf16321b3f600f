"""Brings single entries of a folder to a known state: files, executables and links, atomically and without following a link."""

import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from palimpsest.core.errors import PalimpsestError
from palimpsest.tools.files.confined import opened_folder

EntryKind: TypeAlias = Literal["file", "program", "link", "large"]
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK: Final = 1_000_000


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
                _write(folder, place.name, wanted, had_file=present is not None and present.kind != "link")
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


def _write(folder: int, name: str, wanted: Entry, *, had_file: bool) -> None:
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
    handle = os.open(name, _NEW, 0o777 if runs else 0o666, dir_fd=folder)
    try:
        if mode is not None:
            # Those who may read it may run it.
            os.fchmod(handle, mode | (mode & 0o444) >> 2 if runs else mode & ~0o111)
        rest = memoryview(wanted.data)
        while rest:
            rest = rest[os.write(handle, rest[:_CHUNK]) :]
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
