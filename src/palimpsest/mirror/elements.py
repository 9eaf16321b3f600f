"""The elements of a followed list and the items that each became, as the events of the log record them."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw

from palimpsest.core.edits import Mask
from palimpsest.core.events import Body, ContextStated, Event, ForeignNoted, ViewEdited
from palimpsest.core.events.event_items import all_items_of
from palimpsest.core.items import EMPTY_MAPPING, Value

OWNER: Final = "owner"
"""Author of the edits that the program made which owns the list."""
FORMAT: Final = "mirror"
"""The format of the records in the field `foreign` of events."""
# An element with the number of items that the event adds to it; an element without a digest is continued from the event before.
Added: TypeAlias = tuple[str, int]


class Element(Value, frozen=True):
    """A message of the list: its digest, the ids of its items, and the event that added the last of them.

    `covers` are texts by which the owner replaced the content of items later.
    """

    digest: str
    items: tuple[str, ...]
    seq: int
    covers: Mapping[str, str] = EMPTY_MAPPING


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
    """A record with the name of its format, by which records of importers are told apart."""

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
    """The elements of a list, from the events of a log; the same events give the same elements, live and after a restart."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.head = ""
        self.known: list[Element] = []
        self._places: dict[str, Place] | None = {}
        for event in events:
            self.take(event)

    @property
    def places(self) -> dict[str, Place]:
        """The place of each item."""
        if self._places is None:
            self._places = {}
            for index, element in enumerate(self.known):
                _place(self._places, index, element.items)
        return self._places

    def take(self, event: Event) -> None:
        """Apply one event; events without a record change nothing."""
        splice = splice_of(event.body)
        if splice is None:
            return
        if splice.head is not None:
            self.head = splice.head
        if splice.at is None:
            self._append(splice.added, _item_ids(event), event.seq)
            return
        kept = [Element(digest, ids, event.seq) for digest, ids in splice.kept]
        if isinstance(event.body, ViewEdited) and splice.kept:
            covers = _covers(event.body)
            kept = [msgspec.structs.replace(one, covers={each: covers[each] for each in one.items if each in covers}) for one in kept]
        self._places = None
        following = self.known[splice.at + splice.drop :]
        self.known[splice.at :] = kept
        self._append(splice.added, _item_ids(event), event.seq)
        self.known += following

    def _append(self, added: tuple[Added, ...], ids: list[str], seq: int) -> None:
        start = 0
        for digest, count in added:
            names = tuple(ids[start : start + count])
            start += count
            before: tuple[str, ...] = ()
            if digest or not self.known:
                self.known.append(Element(digest, names, seq))
            else:
                last = self.known[-1]
                before = last.items
                self.known[-1] = Element(last.digest, before + names, seq, last.covers)
            if self._places is not None:
                _place(self._places, len(self.known) - 1, names, len(before))


def _place(places: dict[str, Place], index: int, names: tuple[str, ...], first: int = 0) -> None:
    for part, name in enumerate(names, first):
        places[name] = Place(index, part, len(places))


def _item_ids(event: Event) -> list[str]:
    """The ids of the items that an event adds to the conversation; those of a head are not part of it."""
    body = event.body
    if isinstance(body, ForeignNoted):
        return []
    heads = len(body.head or ()) if isinstance(body, ContextStated) else 0
    return [item.id for item in all_items_of(event)][heads:]


def _covers(edited: ViewEdited) -> dict[str, str]:
    return {name: edit.text for edit in edited.edits if isinstance(edit, Mask) for name in edit.ids}
