"""Completes what is typed: commands after a slash, files after @, skills after $."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

_MOST: Final = 50
# Entries of the project that are looked at for one completion.
_MOST_LOOKED_AT: Final = 20_000
_LEFT_OUT: Final = frozenset({".git", "node_modules", "__pycache__", ".venv", ".mypy_cache", ".ruff_cache", "target"})


class TerminalCompleter(Completer):
    """Completes in the input line. `commands` yields what completes a line of a command, `root` is the folder of the project."""

    def __init__(self, commands: Callable[[str], Iterable[tuple[str, str]]], root: Path) -> None:
        self._commands = commands
        self._root = root

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield completions of the word before the cursor."""
        line = document.text_before_cursor
        if line.startswith("/") and "\n" not in line:
            word = line.rpartition(" ")[2]
            for text, meta in self._commands(line):
                yield Completion(text, -len(word), display_meta=meta)
            return
        word = document.get_word_before_cursor(WORD=True)
        if word.startswith("@"):
            for path in files_like(self._root, word[1:]):
                yield Completion(f"@{path}", -len(word))


def files_like(root: Path, typed: str) -> Iterable[str]:
    """Yield paths below a folder whose names contain the typed text in order, those that begin with it first; bounded."""
    folded = typed.casefold()
    found: list[tuple[int, int, str]] = []
    looked_at = 0
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        for name in sorted(files):
            looked_at += 1
            path = (Path(folder) / name).relative_to(root).as_posix()
            # A direction character in a name would turn the line round.
            rank = _rank(path.casefold(), folded) if path.isprintable() else None
            if rank is not None:
                found.append((rank, len(path), path))
        if looked_at > _MOST_LOOKED_AT:
            break
    return [path for _, _, path in sorted(found)[:_MOST]]


def _rank(path: str, typed: str) -> int | None:
    """Return how well a path fits, 0 is best; `None` if it does not contain the typed letters in order."""
    name = path.rpartition("/")[2]
    if path.startswith(typed) or name.startswith(typed):
        return 0
    if typed in path:
        return 1
    letters = iter(path)
    return 2 if all(letter in letters for letter in typed) else None
