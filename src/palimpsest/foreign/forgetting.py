"""The edit by which another program lets go of parts of a conversation, and of what it puts in their place."""

from collections.abc import Iterable

from palimpsest.core.edits import Fold, Insert, Keep, Put
from palimpsest.core.events import ViewEdited
from palimpsest.foreign.transcript import Desk


class Forgetting:
    """The items of some facts leave the view, and other pieces stand where the first of them was; what lies between stays."""

    def __init__(self, by: str, why: str, keys: Iterable[str], instead: tuple[Put, ...] = ()) -> None:
        self._by = by
        self._why = why
        self._keys = tuple(keys)
        self._instead = instead

    def __call__(self, desk: Desk) -> ViewEdited | None:
        """The edit, made when it is known where the facts went."""
        gone = {name for key in self._keys for name in desk.ids(key)}
        ids = desk.view.ids
        places = [place for place, name in enumerate(ids) if name in gone]
        if not places:
            return ViewEdited((Insert(self._instead),), self._by, self._why) if self._instead else None
        run = ids[places[0] : places[-1] + 1]
        into = (*self._instead, *(Keep(name) for name in run if name not in gone))
        return ViewEdited((Fold(run[0], run[-1], into),), self._by, self._why)
