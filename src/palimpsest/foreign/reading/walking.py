"""Walks folders of other programs for all formats at once: each folder is read once, within limits and never in a pseudo file system."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple

from palimpsest.core.format.texts import counted
from palimpsest.core.items import Value
from palimpsest.foreign.reading.transcript import ReadProblem

PSEUDO: Final = "a file system that stores no files, such as /proc; a session is not there"


class WalkLimits(Value, frozen=True):
    """Limits of one search: entries that are read, folders below each other, and seconds."""

    entries: int = 1_000_000
    levels: int = 64
    seconds: float = 300


class Listing(NamedTuple):
    """The names in a folder, each list sorted: folders, links to folders, regular files, and links to files or special files."""

    folders: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


class FolderWalk:
    """The folders that one search has read so far; `on_entries` gets the number of their entries after each folder."""

    def __init__(self, limits: WalkLimits | None = None, on_entries: Callable[[int], None] = lambda _: None) -> None:
        self._limits = limits or WalkLimits()
        self._on_entries = on_entries
        self._listings: dict[str, Listing] = {}
        self._entries = 0
        self._until = time.monotonic() + self._limits.seconds

    def folders(self, root: str) -> Iterator[tuple[str, list[str], Listing] | ReadProblem]:
        """A folder and those below it, parents first, each with the names of its folders and with its listing.

        A caller may remove names from the list, as with `os.walk`, so that those folders are left out. Links are not followed.
        A folder that is not read is a problem; once a limit of the whole search is reached, no further one is read.
        """
        waiting = [(root, 0, -1)]
        while waiting:
            folder, level, device_above = waiting.pop()
            listing, device = self._listing(root, folder, level, device_above)
            if isinstance(listing, ReadProblem):
                yield listing
                if listing.where != folder:
                    return
                continue
            descended = list(listing.folders)
            yield folder, descended, listing
            waiting += [(os.path.join(folder, name), level + 1, device) for name in reversed(descended)]  # noqa: PTH118 - a million times

    def _listing(self, root: str, folder: str, level: int, device_above: int) -> tuple[Listing | ReadProblem, int]:
        """The listing of a folder, or why it is not read, and its device; a problem with the place `root` ends the walk."""
        try:
            device = os.stat(folder).st_dev  # noqa: PTH116 - as above
            if device != device_above and is_pseudo(folder):
                return ReadProblem(folder, PSEUDO), device
            if level > self._limits.levels:
                deep = counted(self._limits.levels, "folder")
                return ReadProblem(folder, f"not searched: it is deeper than {deep}; name it to search it"), device
            if folder not in self._listings:
                if folder != root and (limit := self._limit_reached()):
                    return ReadProblem(root, f"the search ended at {folder}, {limit}; name a folder further down"), device
                self._listings[folder] = self._read(folder)
        except OSError as error:
            return ReadProblem(folder, (error.strerror or str(error)).lower()), device_above
        return self._listings[folder], device

    def _limit_reached(self) -> str:
        """The limit after which no further folder is read; empty before it."""
        if self._entries >= self._limits.entries:
            return f"after {self._limits.entries:,} files and folders"
        return f"after {self._limits.seconds:g} seconds" if time.monotonic() >= self._until else ""

    def _read(self, folder: str) -> Listing:
        folders: list[str] = []
        links: list[str] = []
        files: list[str] = []
        others: list[str] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                self._entries += 1
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    files.append(entry.name)
                else:
                    (links if _is_folder(entry) else others).append(entry.name)
        self._on_entries(self._entries)
        return Listing(*(tuple(sorted(names)) for names in (folders, links, files, others)))


def is_pseudo(folder: str) -> bool:
    """Whether a folder is in a file system without blocks, such as /proc or /sys. Raises `OSError` if it cannot be examined."""
    return os.statvfs(folder).f_blocks == 0


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder or leads to one; a link that leads in circles does not."""
    try:
        return entry.is_dir()
    except OSError:
        return False


_walk: ContextVar[FolderWalk | None] = ContextVar("_walk", default=None)


@contextmanager
def shared_walk(walk: FolderWalk) -> Iterator[None]:
    """Walk with this one within the block, so that all formats share what it has read."""
    token = _walk.set(walk)
    try:
        yield
    finally:
        _walk.reset(token)


def current_walk() -> FolderWalk:
    """Return the walk of the search that runs, or a new one."""
    return _walk.get() or FolderWalk()
