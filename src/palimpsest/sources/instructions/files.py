"""Finds instruction files from the project root to the working directory, and reads them within limits and allowed folders."""

import posixpath
from collections.abc import Iterable, Sequence
from typing import Final

from palimpsest.core.items import Value
from palimpsest.sources.source import World

FILE_BYTES: Final = 32 * 1024
"""Most bytes of one instruction file, and of all files of a project together under Codex."""

MARKERS: Final = (".git",)
_DEEPEST: Final = 64


class InstructionFile(Value, frozen=True):
    """An instruction file or page: where it comes from, and its text."""

    path: str
    text: str


def ancestors(folder: str) -> tuple[str, ...]:
    """Return a folder and all folders above it, nearest first; at most 64."""
    found = [posixpath.normpath(folder)]
    while len(found) < _DEEPEST and posixpath.dirname(found[-1]) != found[-1]:
        found.append(posixpath.dirname(found[-1]))
    return tuple(found)


def project_root(world: World, markers: Iterable[str] = MARKERS) -> str | None:
    """Return the nearest folder at or above the working directory that holds one of the markers; `None` if there is none."""
    wanted = tuple(markers)
    for folder in ancestors(world.state.cwd):
        if any(world.real_path(posixpath.join(folder, marker)) is not None for marker in wanted):
            return folder
    return None


def folders_of_project(world: World, markers: Iterable[str] = MARKERS) -> tuple[str, ...]:
    """Return the folders from the project root down to the working directory; without a marker only the latter."""
    cwd = posixpath.normpath(world.state.cwd)
    root = project_root(world, markers)
    if root is None:
        return (cwd,)
    upwards = ancestors(cwd)
    return tuple(reversed(upwards[: upwards.index(root) + 1]))


def is_within(path: str, folders: Iterable[str]) -> bool:
    """Return whether a path is one of the folders or lies below one."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def allowed_folders(world: World, markers: Iterable[str] = MARKERS, *more: str) -> tuple[str, ...]:
    """Return the real paths of the folders from which files may be stated: the project, granted ones, and `more`."""
    wanted = (folders_of_project(world, markers)[0], *world.state.folders, *more)
    return tuple(dict.fromkeys(real for folder in wanted if folder and (real := world.real_path(folder)) is not None))


def read_file(world: World, path: str, allowed: Sequence[str], limit: int = FILE_BYTES) -> InstructionFile | None:
    """Return a file cut to `limit` bytes; `None` if it is blank, cannot be read, or really lies outside of the allowed folders.

    A link is followed only to a target inside, so that a foreign project cannot show files of the user to a model.
    """
    real = world.real_path(path)
    if real is None or not is_within(real, allowed):
        return None
    data = world.read(real, limit)
    if data is None:
        return None
    text = data[:limit].decode("utf-8", "replace").lstrip("\ufeff")
    return InstructionFile(path, text) if text.strip() else None


def first_file(world: World, folder: str, names: Iterable[str], allowed: Sequence[str], limit: int = FILE_BYTES) -> InstructionFile | None:
    """Return the first of the names that is a readable file in a folder and not blank."""
    found = (read_file(world, posixpath.join(folder, name), allowed, limit) for name in names)
    return next((file for file in found if file is not None), None)


def config_folder(world: World, default: str) -> str:
    """Return the folder of the user's own files: the configured one, else `default` below the home folder; empty without a home."""
    state = world.state
    if state.config:
        return state.config
    return posixpath.join(state.home, default) if state.home else ""
