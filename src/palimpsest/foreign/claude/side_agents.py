"""Sub-agents that older versions of Claude Code wrote into the file of their parent: the lines of each, found in one pass."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from palimpsest.foreign.reading.files import FileLine, changed, decoded, whole_lines
from palimpsest.foreign.reading.opening import open_regular
from palimpsest.foreign.reading.parts import milliseconds
from palimpsest.wire.json_reading import is_json, text

_SIDECHAIN = re.compile(rb'"isSidechain"\s*:\s*true')


class _LinePlace(NamedTuple):
    """A line: its number, the byte offsets where it starts and stops, and the time of the newest line before it in milliseconds."""

    number: int
    start: int
    stop: int
    at: int


class SideAgents:
    """The lines of each sub-agent in one file, by the id of its first line, and the offset where the last line of the file stops."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = changed(path)
        self._places: dict[str, list[_LinePlace]] = {}
        self.stop = 0
        self._find()

    def _find(self) -> None:
        root_of: dict[str, str] = {}
        at = 0
        for line in whole_lines(self._path):
            self.stop = line.stop
            # Before the first sub-agent, only a line that begins one matters, and its mark is found without decoding.
            value = decoded(line.data) if root_of or _SIDECHAIN.search(line.data) else None
            if not is_json(value):
                continue
            uuid, parent = text(value, "uuid"), text(value, "parentUuid")
            root = root_of.get(parent, "")
            if not parent and uuid and value.get("isSidechain") is True:
                root = uuid
            if root:
                root_of[uuid] = root
                self._places.setdefault(root, []).append(_LinePlace(line.number, line.start, line.stop, at))
            at = milliseconds(value.get("timestamp")) or at

    @property
    def roots(self) -> tuple[str, ...]:
        """The ids of the first lines of all sub-agents, in the order of the file."""
        return tuple(self._places)

    def is_current(self, path: Path) -> bool:
        """Whether this is about a file as it is now."""
        return path == self._path and changed(path) == self._stamp

    def lines(self, root: str) -> Iterator[tuple[FileLine, int]]:
        """The lines of a sub-agent, each with the time of the newest line before it in milliseconds. Nothing else of the file is read."""
        places = self._places.get(root, [])
        with open_regular(self._path) as file:
            for place in places:
                file.seek(place.start)
                yield FileLine(place.number, place.start, place.stop, file.read(place.stop - place.start)), place.at
