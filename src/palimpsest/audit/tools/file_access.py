"""File accesses: a path, the kind of access and its lines; and the files that a patch changes."""

import re
from typing import Literal, TypeAlias

from palimpsest.core.items import Value

AccessKind: TypeAlias = Literal["read", "edit", "write", "remove", "search"]


class FileAccess(Value, frozen=True):
    """An access to a path as written: its kind, and the lines that were read; without lines the whole file.

    `write` creates the file or replaces its content, `remove` deletes it.
    """

    path: str
    how: AccessKind
    first: int | None = None
    last: int | None = None

    @property
    def whole(self) -> bool:
        """Whether the access covers the whole file."""
        return (self.first is None or self.first <= 1) and self.last is None

    @property
    def changes(self) -> bool:
        """Whether the access changes the file, so that earlier reads are out of date."""
        return self.how in ("edit", "write", "remove")

    def covers(self, other: "FileAccess") -> bool:
        """Whether this access shows every line that another access to the same path showed."""
        if self.path != other.path:
            return False
        if self.whole:
            return True
        if other.whole or (other.last is None and self.last is not None):
            return False
        starts = (self.first or 1) <= (other.first or 1)
        return starts and (self.last is None or other.last is None or self.last >= other.last)


_FILES = re.compile(
    r"^(?:\*\*\* (?P<verb>Update|Add|Delete) File: (?P<path>.+?)"
    r"|\*\*\* Move to: (?P<moved>.+?)"
    r"|\+\+\+ (?:b/)?(?P<new>[^\t\n]+?)"
    r"|--- (?:a/)?(?P<old>[^\t\n]+?))(?:\t.*)?\r?$",
    re.MULTILINE,
)

_ENVELOPE = re.compile(r"\s*\*\*\* Begin Patch[ \t]*\r?\n(?:.*\n)??\*\*\* (?:Update|Add|Delete) File: .+\n(?:.*\n)*\*\*\* End Patch\s*")
_BLOCK = re.compile(r"^[#*` ]*([^\s`*#<>|][^\n`*]{0,300}?)[`*: ]*\n(?:```[^\n]*\n)?<{5,9} SEARCH\b", re.MULTILINE)


def edit_blocks(text: str) -> tuple[str, ...]:
    """The files of search-and-replace blocks in a reply."""
    return tuple(dict.fromkeys(_BLOCK.findall(text))) if "<<<< SEARCH" in text else ()


def is_patch(text: str) -> bool:
    """Whether a text is nothing but a patch in its envelope, from `*** Begin Patch` to `*** End Patch`, with at least one file."""
    return "*** Begin Patch" in text[:200] and _ENVELOPE.fullmatch(text) is not None


def patched_files(text: str) -> tuple[FileAccess, ...]:
    """The accesses to each file of a patch, in order: added files are written, others edited."""
    found: dict[str, FileAccess] = {}
    own = "*** Begin Patch" in text or "*** Update File: " in text or "*** Add File: " in text
    for match in _FILES.finditer(text):
        # Changed lines may look like diff headers, which such a patch does not have.
        path = match["path"] or match["moved"] or ("" if own else match["new"] or match["old"])
        if not path or path == "/dev/null":
            continue
        path = path.strip()
        found.setdefault(path, FileAccess(path, "write" if match["verb"] == "Add" else "edit"))
    return tuple(found.values())
