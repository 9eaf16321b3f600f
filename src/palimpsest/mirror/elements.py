"""The elements of a followed list and the items that each became, as the events of the log record them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw

from palimpsest.core.edits import Mask
from palimpsest.core.events import Body, ContextStated, Event, ForeignNoted, ModelReplied, ViewEdited
from palimpsest.core.events.event_items import all_items_of
from palimpsest.core.items import EMPTY_MAPPING, Value, frozen

OWNER: Final = "owner"
"""Author of the edits that the program made which owns the list."""
ASKED: Final = "asked"
"""The moment of its folds: as those that a user asks for, they do not count as folds of the policies."""
FORMAT: Final = "mirror"
"""The format of the records in the field `foreign` of events."""
# An element with the number of items that the event adds to it; an element without a digest is continued from the event before.
Added: TypeAlias = tuple[str, int]
Origin: TypeAlias = Literal["", "model", "edit"]


class Element(Value, frozen=True):
    """A message of the list: its digest and the ids of its items.

    The list was the same up to this message right after event `seq`, and had `length` messages then. `covers` are texts by which the owner
    replaced the content of items later. `origin` says who made it: the model, an edit of the owner, or the user, a tool or a system.
    """

    digest: str
    items: tuple[str, ...]
    seq: int = 0
    length: int = 0
    covers: Mapping[str, str] = EMPTY_MAPPING
    origin: Origin = ""


class Splice(Value, frozen=True):
    """The record of an event: `drop` elements from `at` on are replaced by those of the event; without `at` these are appended.

    `kept` are elements of items that are in the log already, with their ids. `head` is the digest of system prompt and leading messages.
    """

    added: tuple[Added, ...] = ()
    at: int | None = None
    drop: int = 0
    kept: tuple[tuple[str, tuple[str, ...]], ...] = ()
    head: str | None = None


class MirrorRecord(Value, frozen=True):
    """A record with the name of its format, by which it differs from records of importers."""

    mirror: Splice


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(MirrorRecord)


def record_of(splice: Splice) -> Raw:
    """Return the record as the field `foreign` of an event body."""
    return Raw(_encode(MirrorRecord(splice)))


def splice_of(body: Body) -> Splice | None:
    """Return the record of an event body, or `None` if it has none."""
    if bytes(body.foreign) == b"null":
        return None
    try:
        return _decoder.decode(body.foreign).mirror
    except msgspec.DecodeError:
        return None


class Place(NamedTuple):
    """Where an item stands in the list: the number of its element, its number in that element, and its number among all items."""

    element: int
    part: int
    number: int


class Elements:
    """The elements of a list and the place of each item, from the events of a log; the same events give the same, also after a restart."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.head = ""
        self.known: list[Element] = []
        self.places: dict[str, Place] = {}
        for event in events:
            self.take(event)

    def take(self, event: Event) -> None:
        """Apply one event; events without a record change nothing."""
        splice = splice_of(event.body)
        if splice is None:
            return
        if splice.head is not None:
            self.head = splice.head
        following: list[Element] = []
        first = len(self.known)
        if splice.at is not None:
            first = splice.at
            cut = self._cut(first)
            following = cut[splice.drop :]
            for element in _kept(splice, event.body, cut[: splice.drop]):
                self._add(element)
        first = min(first, self._append(splice.added, _item_ids(event), _origin(event.body)))
        for element in following:
            self._add(element)
        for index in range(first, len(self.known)):
            self.known[index] = msgspec.structs.replace(self.known[index], seq=event.seq, length=len(self.known))

    def _cut(self, start: int) -> list[Element]:
        """Remove the elements from a number on, and return them."""
        cut = self.known[start:]
        del self.known[start:]
        for element in cut:
            for name in element.items:
                self.places.pop(name, None)
        return cut

    def _add(self, element: Element) -> None:
        self.known.append(element)
        _place(self.places, len(self.known) - 1, element.items)

    def _append(self, added: tuple[Added, ...], ids: list[str], origin: Origin) -> int:
        """Append elements, and return the number of the first that is new or longer."""
        start, first = 0, len(self.known)
        for digest, count in added:
            names = tuple(ids[start : start + count])
            start += count
            if digest or not self.known:
                self._add(Element(digest, names, origin=origin))
                continue
            last = self.known[-1]
            first = min(first, len(self.known) - 1)
            self.known[-1] = msgspec.structs.replace(last, items=last.items + names)
            _place(self.places, len(self.known) - 1, names, len(last.items))
        return first


def _kept(splice: Splice, body: Body, dropped: Sequence[Element]) -> Iterator[Element]:
    """The elements whose items were in the log already, with the texts by which an edit of the owner covers them."""
    origins = {name: element.origin for element in dropped for name in element.items}
    covers = _covers(body) if isinstance(body, ViewEdited) else {}
    for digest, names in splice.kept:
        covered = frozen({name: covers[name] for name in names if name in covers})
        yield Element(digest, names, covers=covered, origin=origins.get(names[0], "") if names else "")


def _place(places: dict[str, Place], index: int, names: tuple[str, ...], first: int = 0) -> None:
    for part, name in enumerate(names, first):
        places[name] = Place(index, part, len(places))


def _origin(body: Body) -> Origin:
    return "model" if isinstance(body, ModelReplied) else "edit" if isinstance(body, ViewEdited) else ""


def _item_ids(event: Event) -> list[str]:
    """The ids of the items that an event adds to the conversation; those of a head are not part of it."""
    body = event.body
    if isinstance(body, ForeignNoted):
        return []
    heads = len(body.head or ()) if isinstance(body, ContextStated) else 0
    return [item.id for item in all_items_of(event)][heads:]


def _covers(edited: ViewEdited) -> dict[str, str]:
    return {name: edit.text for edit in edited.edits if isinstance(edit, Mask) for name in edit.ids}
