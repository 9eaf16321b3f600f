"""Imports of instruction files: `@path` in a file adds the named file behind it, within bounds."""

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Final

from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.sources.instructions.files import FILE_BYTES, InstructionFile, read_file
from palimpsest.sources.source import World

DEEPEST: Final = 5
MOST_FILES: Final = 40
# A fence that is never closed reaches to the end.
_CODE: Final = lazy_pattern(r"^(```|~~~).*?(?:^\1[^\n]*$|\Z)|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_IMPORT: Final = lazy_pattern(r"(?:^|(?<=\s))@(~?[^\s@`'\"<>|*?，。；：！？、（）]+)")
_AFTER: Final = ".,;:!)]}"


def imported_paths(text: str) -> tuple[str, ...]:
    """Return the paths after `@` in a text, in order and each once; code spans and fenced blocks are skipped."""
    found = (path.rstrip(_AFTER) for path in _IMPORT.findall(_CODE.sub(" ", text)))
    return tuple(dict.fromkeys(path for path in found if path))


def with_imports(
    world: World, files: Sequence[InstructionFile], allowed: Sequence[str], limit: int = 4 * FILE_BYTES
) -> tuple[InstructionFile, ...]:
    """Return files with those that they import directly behind them, in depth at most 5, in all at most 40 more and `limit` bytes.

    A file appears once, so that circles end. A path that is no file in an allowed folder imports nothing.
    """
    seen = {real for file in files if (real := world.real_path(file.path)) is not None}
    importing = _Importing(world, allowed, seen, MOST_FILES, limit)
    found: list[InstructionFile] = []
    for file in files:
        found.append(file)
        found.extend(importing.behind(file, 1))
    return tuple(found)


class _Importing:
    """The bounds that all imports of one observation share."""

    def __init__(self, world: World, allowed: Sequence[str], seen: set[str], files: int, room: int) -> None:
        self._world, self._allowed, self._seen = world, allowed, seen
        self._files, self._room = files, room

    def behind(self, file: InstructionFile, depth: int) -> Iterator[InstructionFile]:
        """Yield the files that a file imports, each followed by its own imports."""
        if depth > DEEPEST or "://" in file.path:
            return
        for path in imported_paths(file.text):
            if self._files <= 0 or self._room <= 0:
                return
            target = self._target(path, posixpath.dirname(file.path))
            real = None if target is None else self._world.real_path(target)
            if target is None or real is None or real in self._seen:
                continue
            imported = read_file(self._world, target, self._allowed, min(FILE_BYTES, self._room))
            if imported is None:
                continue
            self._seen.add(real)
            self._files -= 1
            self._room -= len(imported.text.encode("utf-8", "replace"))
            yield imported
            yield from self.behind(imported, depth + 1)

    def _target(self, path: str, folder: str) -> str | None:
        if path == "~" or (path.startswith("~") and not path.startswith("~/")):
            return None
        if path.startswith("~/"):
            home = self._world.state.home
            return posixpath.normpath(posixpath.join(home, path[2:])) if home else None
        return posixpath.normpath(posixpath.join(folder, path))
