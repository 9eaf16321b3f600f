"""Which files come to be where `cp`, `mv` and `ln` bring others: the words of a command name the folder and not the new file."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from palimpsest.tools.permissions.command_line import LineCommand, Word
from palimpsest.tools.permissions.denied_files import FileRules
from palimpsest.tools.permissions.places import Places
from palimpsest.tools.permissions.rules import Rule

_BRINGING: Final = frozenset({"cp", "mv", "ln"})
_MOST_FILES: Final = 5_000


def brought(commands: Iterable[LineCommand], places: Places, edited: FileRules, *, alone: bool) -> Iterator[Rule]:
    """The rules that restrict files which commands of a line bring to a new place. `alone` is whether nothing else of the line writes.

    Raises `ValueError` where that is not certain.
    """
    for command in commands:
        if command.texts[:1] and command.texts[0] in _BRINGING:
            yield from _brought(command, places, edited, alone=alone)


def values_of_options(words: Iterable[Word]) -> Iterator[Word]:
    """What may stand in the same word as an option: `--target-directory=FOLDER`, `-tFOLDER`, and behind other letters, `-vtFOLDER`."""
    for word in words:
        text = word.text
        long = text.startswith("--")
        values = [text.partition("=")[2]] if long else [text[place:] for place in range(2, len(text))] if text.startswith("-") else []
        yield from (Word(value, word.static, word.glob) for value in values if value)


def _brought(command: LineCommand, places: Places, edited: FileRules, *, alone: bool) -> Iterator[Rule]:
    options, operands = _divided(command.words[1:])
    if any(map(_keeps_backups, options)):
        raise ValueError("it keeps backups under other names")
    # `-t` names the folder; without it the last word does.
    before = any(word.text.startswith("--t") or (not word.text.startswith("--") and "t" in word.text) for word in options)
    sources = _named(operands if before else operands[:-1], places)
    # What another command of the line makes, or finds by a link, is not there yet.
    if not alone and (command.texts[0] == "ln" or any(written.is_symlink() or not real.is_file() for written, real in sources)):
        raise ValueError("what it brings may be another file when it runs")
    targets = [real for _, real in _named([*operands, *values_of_options(options)] if before else operands[-1:], places)]
    count = 0
    for written, real in sources:
        for inner in _inside(real):
            count += len(targets)
            if count > _MOST_FILES:
                raise ValueError(f"it brings more than {_MOST_FILES:,} files")
            names = {"", written.name, real.name}
            places_of = (target / name / inner for target in targets for name in names)
            yield from filter(None, (edited.restricting(place) for place in places_of))


def _divided(words: tuple[Word, ...]) -> tuple[list[Word], list[Word]]:
    """The options and the operands of a command."""
    end = next((place for place, word in enumerate(words) if word.text == "--"), len(words))
    options = [word for word in words[:end] if word.text.startswith("-") and word.text != "-"]
    return options, [word for word in words[:end] if word not in options] + list(words[end + 1 :])


def _keeps_backups(option: Word) -> bool:
    letters = "" if option.text.startswith("--") else option.text[1:].partition("t")[0]
    return option.text.startswith(("--b", "--su")) or not {"b", "S"}.isdisjoint(letters)


def _named(words: list[Word], places: Places) -> list[tuple[Path, Path]]:
    return [each for word in words for each in places.named(word) or ()]


def _inside(path: Path) -> Iterator[str]:
    """The path itself, as an empty text, and all that lies in it, relative to it."""
    yield ""
    for folder, folders, names in os.walk(path):
        yield from (os.path.relpath(os.path.join(folder, name), path) for name in (*folders, *names))  # noqa: PTH118  # texts are faster
