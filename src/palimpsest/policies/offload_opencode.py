"""Bounds what a tool gives back as OpenCode does: by lines and bytes, the whole kept in a file that the rest names."""

from collections.abc import Generator

from msgspec.structs import replace

from palimpsest.core.bound import OPENCODE_BYTES, OPENCODE_LINES, cut_lines
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import ToolReturned
from palimpsest.core.items import Text
from palimpsest.core.policy import Answer, Save, Want, save

_SHELLS = frozenset({"bash", "shell"})


class Spill:
    """The rule with its numbers; a measured variant keeps the end of what a shell printed."""

    def __init__(self, lines: int = OPENCODE_LINES, size: int = OPENCODE_BYTES, *, shell_tail: bool = False) -> None:
        self._lines = lines
        self._size = size
        self._shell_tail = shell_tail

    def __call__(self, returned: ToolReturned) -> Generator[Want, Answer, ToolReturned]:
        """The result as it is recorded."""
        result = returned.result
        text = "\n".join(part.text for part in result.parts if isinstance(part, Text))
        tail = self._shell_tail and returned.tool in _SHELLS
        bounded = cut_lines(text, self._lines, self._size, "tail" if tail else "head")
        if not bounded.cut:
            return returned
        try:
            address = yield from save(Save(text.encode("utf-8", "surrogatepass")))
        except PalimpsestError:
            return returned
        notice = f"...{bounded.cut} {bounded.unit} truncated...\nAll of it is kept as {address}; search it or read it with an offset."
        shown = f"{notice}\n\n{bounded.text}" if tail else f"{bounded.text}\n\n{notice}"
        others = tuple(part for part in result.parts if not isinstance(part, Text))
        return replace(returned, result=replace(result, parts=(Text(shown), *others), blob=address))
