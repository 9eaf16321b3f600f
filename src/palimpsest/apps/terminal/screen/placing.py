"""Where the text that an edit changed stands in its file, so that a diff has the line numbers of the file."""

from pathlib import Path
from typing import Final

from msgspec.structs import replace

from palimpsest.apps.terminal.screen.blocks import Block, ToolBlock
from palimpsest.apps.terminal.screen.tool_titles import arguments_of

# Bytes of a file that are searched; a larger one gets no line numbers of its own.
_LARGEST: Final = 2 * 1024 * 1024


def placed(block: Block, root: Path | None) -> Block:
    """Return the block of an edit with the line where its text begins in the file now; any other block as it is."""
    if not isinstance(block, ToolBlock) or block.state not in ("done", "writing") or root is None:
        return block
    return replace(block, first_line=_first_line(block, root))


def _first_line(block: ToolBlock, root: Path) -> int:
    """Return the number of the line where the new text of an edit, or the old one before it ran, begins; 1 if it is not found."""
    arguments = arguments_of(block)
    if isinstance(arguments, str):
        return 1
    path = arguments.get("path") or arguments.get("file_path")
    old = arguments.get("old") or arguments.get("old_string")
    new = arguments.get("new") or arguments.get("new_string")
    sought = old if block.state == "writing" else new
    if not isinstance(path, str) or not isinstance(sought, str) or not sought:
        return 1
    try:
        with (root / path).open("rb") as file:
            text = file.read(_LARGEST).decode("utf-8", "replace")
    except (OSError, ValueError):
        return 1
    place = text.find(sought)
    return text.count("\n", 0, place) + 1 if place >= 0 else 1
