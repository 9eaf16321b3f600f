"""Instruction files of folders below the working directory: attached to the result of a read in such a folder."""

import posixpath
from collections.abc import Sequence
from typing import Final

from palimpsest.core.items import Text, ToolResult
from palimpsest.core.view import CHANGED, View
from palimpsest.sources.instructions.files import FILE_BYTES, allowed_folders, ancestors, first_file, is_within
from palimpsest.sources.instructions.statements import NAMES, instructions_from
from palimpsest.sources.source import World

_MOST_BYTES: Final = 2 * FILE_BYTES
_KEY: Final = "instructions"


def nested_instructions(view: View, world: World, path: str, names: Sequence[str] = NAMES, key: str = _KEY) -> tuple[Text, ...]:
    """Return the parts to add to the result of reading the file `path`: the instructions of its folder and those above it.

    The working directory and folders above it are left out, and so are the file itself, files that are stated already, and files that
    a visible result has attached. A result that was masked or folded does not count, so that the next read attaches them again.
    """
    state = world.state
    cwd = posixpath.normpath(state.cwd)
    file = posixpath.normpath(posixpath.join(cwd, path))
    if not is_within(file, (cwd,)):
        return ()
    allowed = allowed_folders(world)
    upwards = ancestors(posixpath.dirname(file))
    attached = attached_paths(view)
    parts: list[Text] = []
    room = _MOST_BYTES
    for folder in upwards[: upwards.index(cwd)] if cwd in upwards else ():
        found = first_file(world, folder, names, allowed, min(FILE_BYTES, max(1, room)))
        if found is None or found.path == file or found.path in attached or _is_stated(view, key, found.path) or room <= 0:
            continue
        room -= len(found.text.encode("utf-8", "replace"))
        parts.append(Text(instructions_from(found.path, found.text.strip())))
    return tuple(parts)


def attached_paths(view: View) -> frozenset[str]:
    """Return the paths of the instruction files that visible results have attached, which are parts behind their own output."""
    opening = instructions_from("", "").removesuffix("\n")
    found: set[str] = set()
    for item in view.items:
        if not isinstance(item.content, ToolResult) or item.mask is not None:
            continue
        # The first part is the output of the tool itself, which may hold any text.
        for part in item.content.parts[1:]:
            if isinstance(part, Text) and part.text.startswith(opening):
                found.add(part.text.partition("\n")[0].removeprefix(opening))
    return frozenset(found)


def _is_stated(view: View, key: str, path: str) -> bool:
    sources = {key, key + CHANGED}
    opening = instructions_from(path, "")
    stated = (item.content for item in (*view.head, *view.items) if item.source in sources and item.mask is None)
    return any(isinstance(content, Text) and opening in content.text for content in stated)
