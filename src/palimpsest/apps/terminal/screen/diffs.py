"""The changes of a file as numbered lines: what went, what came, and some lines around."""

import difflib
import re
from collections.abc import Iterator
from typing import Final

from palimpsest.apps.terminal.screen.blocks import DiffLine, ToolBlock
from palimpsest.apps.terminal.screen.tool_titles import arguments_of

_AROUND: Final = 2
# Lines of each side that are compared; difflib takes quadratic time in the worst case.
MOST_COMPARED: Final = 2_000
_OLD: Final = ("old", "old_string", "old_str")
_HUNK: Final = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_SECTION: Final = "diff --git "
_NEW: Final = ("new", "new_string", "new_str", "content", "file_text")


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


def patch_files(patch: str) -> dict[str, tuple[DiffLine, ...]]:
    """Return the lines of each file of a unified diff in the form of git, by its path; those of a binary file are none."""
    sections = f"\n{patch}".split(f"\n{_SECTION}")[1:]
    return {_path_of(section): tuple(_patch_lines(section)) for section in sections}


def _path_of(section: str) -> str:
    """The path of a section: behind its `+++`, that of a deleted file behind its `---`, else from its first line."""
    head, *lines = section.split("\n@@ ", 1)[0].split("\n")
    names = {line[:4]: line[4:].rstrip("\t") for line in lines if line[:4] in ("+++ ", "--- ")}
    found = names.get("+++ ", "/dev/null")
    found = names.get("--- ", found) if found == "/dev/null" else found
    if found == "/dev/null":
        # Both names of the first line are equal, because renames are not looked for.
        found = head[: len(head) // 2]
    return found.strip('"')[2:]


def _patch_lines(section: str) -> Iterator[DiffLine]:
    old = new = 0
    # Other marks that Python takes for the end of a line are part of a line to git.
    for line in section.split("\n"):
        hunk = _HUNK.match(line)
        if hunk is not None:
            if new:
                yield DiffLine("gap")
            old, new = int(hunk[1]) or 1, int(hunk[2]) or 1
        elif new and line[:1] == "+":
            yield DiffLine("added", line[1:], new)
            new += 1
        elif new and line[:1] == "-":
            yield DiffLine("removed", line[1:], old)
            old += 1
        elif new and line[:1] == " ":
            yield DiffLine("same", line[1:], new)
            old, new = old + 1, new + 1


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
