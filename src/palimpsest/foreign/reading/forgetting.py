"""The edits by which another program lets go of parts of a conversation, or covers them."""

from collections.abc import Iterable

from palimpsest.core.edits import Fold, Insert, Into, Keep, Mask, Put
from palimpsest.core.events import Body, ForeignNoted, ViewEdited
from palimpsest.foreign.reading.transcript import Desk


class Covering:
    """The items of a fact show other words, or none."""

    def __init__(self, by: str, why: str, key: str, words: str) -> None:
        self._by = by
        self._why = why
        self._key = key
        self._words = words

    def __call__(self, desk: Desk) -> Body:
        """The edit, made when it is known where the fact went."""
        ids = desk.ids(self._key)
        return ViewEdited((Mask(ids, self._words),), self._by, self._why) if ids else ForeignNoted(self._by)


class Forgetting:
    """The items of some facts leave the view, and other pieces stand where the first of them was; what lies between stays."""

    def __init__(self, by: str, why: str, keys: Iterable[str], instead: tuple[Put, ...] = ()) -> None:
        self._by = by
        self._why = why
        self._keys = tuple(keys)
        self._instead = instead

    def __call__(self, desk: Desk) -> Body:
        """The edit, made when it is known where the facts went."""
        gone = {name for key in self._keys for name in desk.ids(key)}
        ids = desk.view.ids
        places = [place for place, name in enumerate(ids) if name in gone]
        if not places:
            # What finds nothing to edit is noted, so that it is not tried again on a later view.
            return ViewEdited((Insert(self._instead),), self._by, self._why) if self._instead else ForeignNoted(self._by)
        run = ids[places[0] : places[-1] + 1]
        into: Into = (*self._instead, *(Keep(name) for name in run if name not in gone))
        return ViewEdited((Fold(run[0], run[-1], into),), self._by, self._why)
