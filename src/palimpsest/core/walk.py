"""The views along a path, one after the other, each event read once."""

from palimpsest.core.path import Path
from palimpsest.core.projections.view import ViewProjection
from palimpsest.core.reading import Reader
from palimpsest.core.view import View


class Walk:
    """Views along a path as if the edits that it undoes had never been made: for exports, which show what is left."""

    def __init__(self, reader: Reader, path: Path) -> None:
        self._projection = ViewProjection(skip=reader.skip(path), find=reader.item)
        self._events = reader.along(path)

    def view_at(self, seq: int) -> View:
        """The view after an event; the next one asked for must not be earlier."""
        while self._projection.seq < seq:
            event = next(self._events, None)
            if event is None:
                break
            self._projection.take(event)
        return self._projection.view
