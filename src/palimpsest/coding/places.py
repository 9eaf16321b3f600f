"""Where the words of a command lead on disk, and which files of a project are changed only after a question."""

import glob
import os
import re
import shutil
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain, islice, product
from pathlib import Path
from typing import Final

from palimpsest.agent.workspace import PROTECTED_FILES, PROTECTED_FOLDERS, Workspace
from palimpsest.coding.shell_lines import Word

_MOST_LINKS: Final = 40
_MOST_MATCHES: Final = 2_000
# What these hold depends on the process that looks.
_VOLATILE: Final = (Path("/proc"), Path("/sys"), Path("/dev"))
_MOST_STARS: Final = 2
_GLOB: Final = re.compile(r"[*?\[]")


def protected_name(path: Path, workspace: Workspace) -> str:
    """The part of a path that makes it one of those files, in lower case; empty if it is none."""
    parts = [part.casefold() for part in Path(workspace.shown(path)).parts]
    folder = next((part for part in parts if part in PROTECTED_FOLDERS), "")
    return folder or (parts[-1] if parts and parts[-1] in PROTECTED_FILES else "")


def real_path(path: Path) -> Path | None:
    """The absolute path with all links followed; `None` if it passes through a folder that differs by process, or through a loop."""
    parts = list(reversed(path.parts[1:]))
    current = Path("/")
    links = 0
    while parts:
        part = parts.pop()
        if part == "..":
            current = current.parent
            continue
        step = current / part
        if step in _VOLATILE or any(folder in step.parents for folder in _VOLATILE):
            return None
        try:
            target = step.readlink()
        except OSError:
            current = step
            continue
        links += 1
        if links > _MOST_LINKS:
            return None
        if target.is_absolute():
            current = Path("/")
        parts += reversed(target.parts[1:] if target.is_absolute() else target.parts)
    return current


@dataclass(frozen=True, slots=True)
class Places:
    """Resolves the words of a command. `folders` are the working directories that it may run in, absolute and without links.

    `dots` is whether a star may stand for a hidden name too, which takes a setting of the shell.
    """

    workspace: Workspace
    folders: tuple[Path, ...]
    home: Path
    search_path: str
    dots: bool = True

    def contains(self, path: Path) -> bool:
        """Whether a path without links lies in the workspace."""
        return any(path == folder or folder in path.parents for folder in self.workspace.folders)

    def shows(self, path: Path) -> bool:
        """Whether a path without links may be read: it lies in the workspace or on its shelf."""
        return self.contains(path) or self.workspace.on_shelf(path)

    def named(self, word: Word) -> tuple[tuple[Path, Path], ...] | None:
        """All paths that a word names, as they are written and with links followed, for each working directory.

        `None` if that is not certain.
        """
        if not word.static or "\0" in word.text:
            return None
        text = word.text
        if text == "~" or text.startswith("~/"):
            text = f"{self.home}{text[1:]}"
        found: list[tuple[Path, Path]] = []
        for folder in self.folders:
            names = _expanded(text, folder, dots=self.dots) if word.glob else [text]
            if names is None:
                return None
            for name in names:
                real = real_path(folder / name)
                if real is None:
                    return None
                found.append((folder / name, real))
        return tuple(found)

    def targets(self, word: Word) -> tuple[Path, ...] | None:
        """All paths that a word names, links followed, for each working directory; `None` if that is not certain."""
        found = self.named(word)
        return None if found is None else tuple(real for _, real in found)

    def inside(self, word: Word) -> tuple[Path, ...] | None:
        """The paths that a word names if all of them may be read, else `None`."""
        found = self.targets(word)
        return found if found is not None and all(self.shows(path) for path in found) else None

    def moved(self, word: Word) -> "Places | None":
        """The same after `cd`, which may or may not have happened; `None` if it leads out of the workspace or through a link."""
        if word.glob or not word.static or word.text in ("", "-"):
            return None
        found = self.inside(word)
        if found is None or not all(map(self.contains, found)):
            return None
        if any(Path(os.path.normpath(folder / word.text)) not in found for folder in self.folders):
            return None
        folders = tuple(dict.fromkeys((*self.folders, *found)))
        return replace(self, folders=folders) if len(folders) <= _MOST_LINKS else None

    def runs_from_outside(self, program: str) -> bool:
        """Whether a program that is named without a folder is not taken from the workspace, whose files the agent can change."""
        entries = self.search_path.split(os.pathsep)
        if "/" in program or not all(os.path.isabs(entry) for entry in entries):  # noqa: PTH117  # an empty entry is the current folder
            return False
        place = shutil.which(program, path=self.search_path)
        if place is None:
            return True
        real = real_path(Path(place))
        return real is not None and not self.contains(real) and not self.contains(Path(place))


def _expanded(pattern: str, folder: Path, *, dots: bool) -> list[str] | None:
    """The names that a glob matches and, because bash keeps a pattern without matches, itself; `None` for too many.

    Brackets are read by bash and by Python in slightly different ways, so a star stands for them. Patterns for more than two folders are
    not looked up, because the whole tree could have to be read.
    """
    parts = pattern.split("/")
    if sum(_GLOB.search(part) is not None for part in parts) > _MOST_STARS:
        return None
    wider = [_GLOB.sub("*", re.sub(r"\[.*", "*", part)) for part in parts]
    # Before version 5.2, bash also finds the folder itself and the one above it where the pattern begins with a dot.
    choices = [(part, *(name for name in (".", "..") if part[:1] == "." and "*" in part and fnmatchcase(name, part))) for part in wider]
    ways = ["/".join(each) for each in product(*choices)]
    found = (glob.iglob(way, root_dir=folder, include_hidden=dots, recursive=False) for way in ways)  # noqa: PTH207  # Path.glob follows other rules
    certain = [way for way in ways if "*" not in way]
    matches = list(islice(chain.from_iterable(found), _MOST_MATCHES + 1))
    return [pattern, *certain, *matches] if len(matches) <= _MOST_MATCHES else None
