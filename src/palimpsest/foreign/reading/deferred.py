"""Event bodies that name items of the log, and so can be built only when the import records them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from msgspec import structs

from palimpsest.core.edits import Fold, Insert, Into, Keep, Mask, Put
from palimpsest.core.events import Body, ForeignNoted, ToolReturned, ViewEdited
from palimpsest.core.items import ToolCall
from palimpsest.core.view import View


class ImportContext(Protocol):
    """State of an import at the moment when a body is built."""

    @property
    def view(self) -> View:
        """The view before the event."""
        ...

    def item_ids(self, key: str) -> tuple[str, ...]:
        """Ids of the items that the event of that key added; empty if the key is unknown or the event added none."""
        ...


# Returns None if nothing is to be recorded.
DeferredBody: TypeAlias = Callable[[ImportContext], Body | None]


@dataclass(frozen=True, slots=True)
class DeferredResult:
    """A tool result in a file that does not name the call: it answers part `number` of the reply of that key."""

    key: str
    number: int
    body: ToolReturned

    def __call__(self, context: ImportContext) -> Body:
        """The result with the recorded id of its call; with an empty id if the call is not in the view."""
        ids = context.item_ids(self.key)
        wanted = ids[self.number] if self.number < len(ids) else ""
        calls = (item.content for item in reversed(context.view.items) if item.id == wanted)
        call_id = next((call.call_id for call in calls if isinstance(call, ToolCall)), "")
        return structs.replace(self.body, result=structs.replace(self.body.result, call_id=call_id))


@dataclass(frozen=True, slots=True)
class DeferredMask:
    """An edit that covers the items of the event `key` with a text, or hides them if the text is empty."""

    by: str
    why: str
    key: str
    text: str

    def __call__(self, context: ImportContext) -> Body:
        """The edit, or `ForeignNoted` if the event added no items."""
        ids = context.item_ids(self.key)
        return ViewEdited((Mask(ids, self.text),), self.by, self.why) if ids else ForeignNoted(self.by)


class DeferredFold:
    """An edit that removes the items of some events and puts `instead` where the first of them was; items in between stay."""

    def __init__(self, by: str, why: str, keys: Iterable[str], instead: tuple[Put, ...] = ()) -> None:
        self._by = by
        self._why = why
        self._keys = tuple(keys)
        self._instead = instead

    def __call__(self, context: ImportContext) -> Body:
        """The edit, or `ForeignNoted` if there is nothing to remove and nothing to insert."""
        removed = {item_id for key in self._keys for item_id in context.item_ids(key)}
        ids = context.view.ids
        indexes = [index for index, item_id in enumerate(ids) if item_id in removed]
        if not indexes:
            # An edit without a target is noted, so that the next import does not try it on a later view.
            return ViewEdited((Insert(self._instead),), self._by, self._why) if self._instead else ForeignNoted(self._by)
        run = ids[indexes[0] : indexes[-1] + 1]
        into: Into = (*self._instead, *(Keep(item_id) for item_id in run if item_id not in removed))
        return ViewEdited((Fold(run[0], run[-1], into),), self._by, self._why)
