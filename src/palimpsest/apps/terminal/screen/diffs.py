"""The changes of a file as numbered lines: what went, what came, and some lines around."""

import difflib
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from palimpsest.apps.terminal.screen.blocks import ToolBlock
from palimpsest.apps.terminal.screen.tool_titles import arguments_of

LineKind: TypeAlias = Literal["added", "removed", "same", "gap"]
_AROUND: Final = 2
# Lines of each side that are compared; difflib takes quadratic time in the worst case.
MOST_COMPARED: Final = 2_000
_OLD: Final = ("old", "old_string", "old_str")
_NEW: Final = ("new", "new_string", "new_str", "content", "file_text")


class DiffLine(Struct, frozen=True):
    """A line of a diff; `number` is its number in the new file, or in the old one if it went. 0: not known."""

    kind: LineKind
    text: str = ""
    number: int = 0


def diff(old: str, new: str, first: int = 1) -> tuple[DiffLine, ...]:
    """Return the changes between two texts; `first` is the number of their first line in the file."""
    before, after = old.splitlines(), new.splitlines()
    if len(before) > MOST_COMPARED or len(after) > MOST_COMPARED:
        return (
            *(DiffLine("removed", line, first + place) for place, line in enumerate(before[:MOST_COMPARED])),
            *(DiffLine("added", line, first + place) for place, line in enumerate(after[:MOST_COMPARED])),
        )
    return tuple(_lines(before, after, first))


def diff_of(block: ToolBlock) -> tuple[str, tuple[DiffLine, ...]] | None:
    """Return the path and the changes that a call of an edit or write tool states; `None` for calls of other tools."""
    arguments = arguments_of(block)
    if isinstance(arguments, str):
        return None
    path = next((value for key in ("path", "file_path") if isinstance(value := arguments.get(key), str)), "")
    old = next((value for key in _OLD if isinstance(value := arguments.get(key), str)), None)
    new = next((value for key in _NEW if isinstance(value := arguments.get(key), str)), None)
    if not path or new is None:
        return None
    return path, diff(old or "", new, block.first_line)


def counts(lines: tuple[DiffLine, ...]) -> str:
    """Return how many lines came and went, such as `+3 -1`."""
    added, removed = (sum(line.kind == kind for line in lines) for kind in ("added", "removed"))
    return " ".join(part for part in (f"+{added}" if added else "", f"-{removed}" if removed else "") if part) or "no change"


def _lines(before: list[str], after: list[str], first: int) -> Iterator[DiffLine]:
    groups = difflib.SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(_AROUND)
    for place, group in enumerate(groups):
        if place:
            yield DiffLine("gap")
        for tag, old_start, old_end, new_start, new_end in group:
            if tag == "equal":
                yield from (DiffLine("same", after[at], first + at) for at in range(new_start, new_end))
                continue
            yield from (DiffLine("removed", before[at], first + at) for at in range(old_start, old_end))
            yield from (DiffLine("added", after[at], first + at) for at in range(new_start, new_end))
