"""Paths that a call touches and how, and the files that a patch changes."""

import re
from typing import Literal, TypeAlias

from palimpsest.core.items import Value

AccessKind: TypeAlias = Literal["read", "edit", "write", "remove", "search"]


class FileAccess(Value, frozen=True):
    """A path as it was written, how it was touched, and the lines that were read; without lines it was the whole.

    `write` replaces the whole content or creates the file, `remove` leaves none at that path.
    """

    path: str
    how: AccessKind
    first: int | None = None
    last: int | None = None

    @property
    def whole(self) -> bool:
        """Whether all of it was touched."""
        return (self.first is None or self.first <= 1) and self.last is None

    @property
    def changes(self) -> bool:
        """Whether the file is another one afterwards, so that what was read of it before is out of date."""
        return self.how in ("edit", "write", "remove")

    def covers(self, other: "FileAccess") -> bool:
        """Whether everything that another touch showed of the same path shows here too."""
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
    """The files of the search-and-replace blocks that some models write into their replies."""
    return tuple(dict.fromkeys(_BLOCK.findall(text))) if "<<<< SEARCH" in text else ()


def is_patch(text: str) -> bool:
    """Whether a text is a patch in its envelope and nothing else: from `*** Begin Patch` to `*** End Patch`, with a file in between."""
    return "*** Begin Patch" in text[:200] and _ENVELOPE.fullmatch(text) is not None


def patched_files(text: str) -> tuple[FileAccess, ...]:
    """Each file of a patch once, in order: one that it adds is written, any other edited."""
    found: dict[str, FileAccess] = {}
    own = "*** Begin Patch" in text or "*** Update File: " in text or "*** Add File: " in text
    for match in _FILES.finditer(text):
        # Lines of a changed file may look like the header of a diff; in a patch of the other form they are no headers.
        path = match["path"] or match["moved"] or ("" if own else match["new"] or match["old"])
        if not path or path == "/dev/null":
            continue
        path = path.strip()
        found.setdefault(path, FileAccess(path, "write" if match["verb"] == "Add" else "edit"))
    return tuple(found.values())
