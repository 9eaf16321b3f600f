"""The folders in which git keeps the repository of a project, as far as commands in a sandbox may write there."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

_LARGEST: Final = 4_096
_MOST_MODULES: Final = 100
_SETTINGS: Final = ("config", "config.worktree", "commondir", "gitdir")


def git_folders(project: Path, home: Path | None = None) -> tuple[Path, ...]:
    """The git folders of a project: its own, those of its submodules, and for a work tree the ones of the repository it belongs to.

    A project that is a folder of a repository has that repository, unless it holds the `home` of the user.
    The file `.git` of a work tree may name any folder, and a command or an archive can have written it. So the folder counts only if it
    names the work tree in turn, which a command inside the sandbox cannot have written.
    """
    entry = _entry(project, Path.home() if home is None else home)
    if entry is None or entry.is_symlink():
        return ()
    if entry.is_dir():
        return entry, *(_modules(entry) or ())
    folder = _named(entry, "gitdir: ")
    if folder is not None and any((parent / ".git" / "modules") in folder.parents for parent in entry.parent.parents):
        return (folder,)
    if folder is None or _named(folder / "gitdir", "") != entry:
        return ()
    common = _named(folder / "commondir", "")
    return (common, folder) if common is not None and common / "worktrees" == folder.parent else ()


def kept_settings(folder: Path) -> Iterator[Path]:
    """What git obeys in one of the folders of `git_folders`, so that no command may change it; not all of it need be there.

    The settings of other work trees are among it. Where there are too many work trees or submodules, all of them are.
    """
    yield from (folder / name for name in ("hooks", *_SETTINGS))
    trees = list(islice((folder / "worktrees").glob("*"), _MOST_MODULES + 1))
    yield from [folder / "worktrees"] if len(trees) > _MOST_MODULES else (tree / name for tree in trees for name in _SETTINGS)
    yield from [folder / "modules"] if _modules(folder) is None else ()


def _modules(folder: Path) -> tuple[Path, ...] | None:
    """The git folders of submodules, whose names may have slashes, and of theirs; `None` if there are too many."""
    found: list[Path] = []
    around = [folder / "modules"]
    for place in around:
        inner = [path for path in place.glob("*") if path.is_dir() and not path.is_symlink()]
        found += (modules := [path for path in inner if os.path.lexists(path / "HEAD") or (path / "config").exists()])
        around += [path for path in inner if path not in modules] + [path / "modules" for path in modules]
        if len(around) + len(found) > 4 * _MOST_MODULES:
            return None
    return tuple(found)


def repository_tree(project: Path, home: Path) -> Path | None:
    """The folder of the repository that a project is a part of, if it is not the project itself: builds read what lies beside."""
    entry = _entry(project, home)
    return None if entry is None or entry.parent == project else entry.parent


def _entry(project: Path, home: Path) -> Path | None:
    """The entry `.git` of the project or of the nearest folder around it that has one, below the home folder of the user."""
    around = (folder for folder in project.parents if folder != home and folder not in home.parents)
    return next((folder / ".git" for folder in (project, *around) if os.path.lexists(folder / ".git")), None)


def _named(file: Path, prefix: str) -> Path | None:
    """The folder or file that a small file names, relative to its own folder; `None` if it does not."""
    try:
        if not file.is_file() or file.stat().st_size > _LARGEST:
            return None
        text = file.read_text(encoding="utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return (file.parent / text.removeprefix(prefix)).resolve() if text.startswith(prefix) and "\0" not in text else None
