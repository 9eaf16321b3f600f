"""Paths in the tree of the memory tool: what is accepted, and what would lead out of it."""

import re
from typing import Final

from palimpsest.tools.tool import ToolError, one_line

ROOT: Final = "/memories"
LONGEST_PATH: Final = 300
MOST_FOLDERS: Final = 8
# An encoded character, once or several times over: the path is a name here and is never decoded.
_ENCODED: Final = re.compile(r"%(?:25)*[0-9A-Fa-f]{2}")


def checked_path(path: str) -> str:
    """Return a path below `/memories`, without a slash at its end. Raises `ToolError` if it could mean something else or lie elsewhere."""
    shown = one_line(path, 80)
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise ToolError(f"a path begins with {ROOT}, and {shown!r} does not")
    if len(path) > LONGEST_PATH:
        raise ToolError(f"a path has at most {LONGEST_PATH} characters")
    if "\\" in path or _ENCODED.search(path) or not path.isprintable():
        raise ToolError(f"the path {shown!r} has a backslash, an encoded or a control character; use plain names and /")
    parts = path.removeprefix(ROOT).removesuffix("/").split("/")[1:]
    if len(parts) > MOST_FOLDERS:
        raise ToolError(f"a path has at most {MOST_FOLDERS} parts below {ROOT}")
    for part in parts:
        if not part.strip(". ") or part != part.strip() or part.startswith(("~", ".")):
            raise ToolError(f"the path {shown!r} has an empty, hidden or relative part; name each folder and file plainly")
    return "/".join((ROOT, *parts))


def is_below(path: str, folder: str) -> bool:
    """Whether a path lies in a folder, at any depth."""
    return path.startswith(f"{folder}/")
