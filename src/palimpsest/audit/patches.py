"""The files that a patch changes, in the forms that models write."""

import re

from palimpsest.audit.touched import Touched

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


def patched(text: str) -> tuple[Touched, ...]:
    """Each file of a patch once, in order: one that it adds is written, any other edited."""
    found: dict[str, Touched] = {}
    own = "*** Begin Patch" in text or "*** Update File: " in text or "*** Add File: " in text
    for match in _FILES.finditer(text):
        # Lines of a changed file may look like the header of a diff; in a patch of the other form they are no headers.
        path = match["path"] or match["moved"] or ("" if own else match["new"] or match["old"])
        if not path or path == "/dev/null":
            continue
        path = path.strip()
        found.setdefault(path, Touched(path, "write" if match["verb"] == "Add" else "edit"))
    return tuple(found.values())
