"""Encoded pieces of a view, one per item, made once and kept while the item is in the view."""

from collections.abc import Callable
from typing import Final, Protocol

import msgspec
from msgspec import Raw, Struct

from palimpsest.core.items import Form, Item
from palimpsest.core.view import View
from palimpsest.wire.request import RequestRepair

_encoder = msgspec.json.Encoder()


class Place:
    """Where a fragment goes; everything from ASSISTANT on is said by the model. Plain numbers: they are compared for every item."""

    NOTHING: Final = 0
    USER: Final = 1
    RESULT: Final = 2
    ASSISTANT: Final = 3
    THINKING: Final = 4
    CALL: Final = 5


class Fragment(Struct, frozen=True):
    """The bytes of an item, and the little that must be known to put them in place without looking into them.

    `key` pairs a result with its call, `wire_id` is the id both are sent under, and `provider_id` one that they may carry instead.
    Neighbours of one `group` share `opening` and `closing`. `aside` is what stands elsewhere than the body, and `erased` says that the
    provider shall drop it from its cache.
    """

    item: Item
    place: int
    body: bytes = b""
    key: str = ""
    wire_id: str = ""
    form: Form = "json"
    group: str = ""
    opening: bytes = b""
    closing: bytes = b""
    aside: bytes = b""
    erased: bool = False
    provider_id: str = ""


class Assembled(Struct, frozen=True):
    """A body, with the places that carry breakpoints and what had to be added to it."""

    body: bytes
    breakpoints: tuple[str, ...] = ()
    repairs: tuple[RequestRepair, ...] = ()


class Wire(Protocol):
    """One provider's shape: how an item is encoded, and how the encoded items make a request."""

    def head(self, item: Item) -> Fragment:
        """An item of the head."""
        ...

    def fragment(self, item: Item, wire_id: str = "") -> Fragment:
        """An item of the conversation, under the id it has or under another one."""
        ...

    def assemble(self, view: View, heads: list[Fragment], fragments: list[Fragment]) -> Assembled:
        """The body, from fragments that were repaired."""
        ...


class FragmentCache:
    """Fragments by the identity of their items; each holds its item, so an identity cannot be used again while it is here."""

    def __init__(self, make: Callable[[Item], Fragment]) -> None:
        self._make = make
        self.items: tuple[Item, ...] = ()
        self.fragments: list[Fragment] = []
        self.by_identity: dict[int, Fragment] = {}

    def fragments_of(self, items: tuple[Item, ...]) -> list[Fragment]:
        """The fragments of all items, in order; only those not seen in the last view are made."""
        known = len(self.items)
        if items[:known] == self.items:
            self.fragments += [self._fragment(item) for item in items[known:]]
        else:
            self.fragments = [self._fragment(item) for item in items]
        if len(self.by_identity) > len(items):
            self.by_identity = {id(fragment.item): fragment for fragment in self.fragments}
        self.items = items
        return list(self.fragments)

    def _fragment(self, item: Item) -> Fragment:
        found = self.by_identity.get(id(item))
        if found is None:
            found = self.by_identity[id(item)] = self._make(item)
        return found

    def adopt(self, other: "FragmentCache") -> None:
        """Take over what another memo holds."""
        self.items, self.fragments, self.by_identity = other.items, list(other.fragments), dict(other.by_identity)


def empty_fragment(item: Item) -> Fragment:
    """A fragment of an item that is not sent."""
    return Fragment(item, Place.NOTHING)


def object_members(fields: dict[str, object]) -> bytes:
    """Fields as the inside of a JSON object, in their order, without the braces; raw JSON stays as it is."""
    return dump(fields)[1:-1]


def dump(value: object) -> bytes:
    """A value as JSON, keys in the order they were given."""
    return _encoder.encode(value)


def extra_members(raw: Raw) -> bytes:
    """The members of a raw JSON object, with a leading comma, ready to be appended to an object."""
    inside = bytes(raw).strip()[1:-1].strip()
    return b"," + inside if inside else b""
