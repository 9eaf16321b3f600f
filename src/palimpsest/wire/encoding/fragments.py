"""Fragments: the encoded bytes of single items, cached while their item is in the view."""

from collections.abc import Callable
from typing import Final, Protocol

import msgspec
from msgspec import Raw, Struct

from palimpsest.core.items import Form, Item
from palimpsest.core.view import View
from palimpsest.wire.request import RequestRepair

_encoder = msgspec.json.Encoder()


class BlockKind:
    """What a fragment is; everything from ASSISTANT on comes from the model. Plain integers, because they are compared for each item."""

    NOTHING: Final = 0
    USER: Final = 1
    RESULT: Final = 2
    ASSISTANT: Final = 3
    THINKING: Final = 4
    CALL: Final = 5


class Fragment(Struct, frozen=True):
    """The encoded bytes of an item, and what assembling needs to know about them.

    `key` pairs a result with its call, `wire_id` is the id that both are sent under, `provider_id` one that they may get instead.
    Adjacent fragments of one `group` share `opening` and `closing`. `aside` is sent elsewhere than the body. `erased` asks the provider to
    clear the result before the model reads it.
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
    """An assembled body, with the labels of its cache breakpoints, the repairs that it needed, and its beta values of Anthropic."""

    body: bytes
    breakpoints: tuple[str, ...] = ()
    repairs: tuple[RequestRepair, ...] = ()
    betas: tuple[str, ...] = ()


class Wire(Protocol):
    """Encoder of one wire: encodes single items and assembles the body."""

    def head(self, item: Item) -> Fragment:
        """Encode an item of the head."""
        ...

    def fragment(self, item: Item, wire_id: str = "") -> Fragment:
        """Encode an item of the conversation; `wire_id` overrides its call id."""
        ...

    def assemble(self, view: View, heads: list[Fragment], fragments: list[Fragment]) -> Assembled:
        """Join repaired fragments into a body."""
        ...


class FragmentCache:
    """Fragments by the identity of their item; a fragment holds its item, so that the identity is not reused while it is cached."""

    def __init__(self, encode_item: Callable[[Item], Fragment]) -> None:
        self._encode_item = encode_item
        self.items: tuple[Item, ...] = ()
        self.fragments: list[Fragment] = []
        self.by_identity: dict[int, Fragment] = {}

    def fragments_of(self, items: tuple[Item, ...]) -> list[Fragment]:
        """The fragments of all items, in order; only items that were not in the previous view are encoded."""
        previous_count = len(self.items)
        if items[:previous_count] == self.items:
            self.fragments += [self._fragment(item) for item in items[previous_count:]]
        else:
            self.fragments = [self._fragment(item) for item in items]
        if len(self.by_identity) > len(items):
            self.by_identity = {id(fragment.item): fragment for fragment in self.fragments}
        self.items = items
        return list(self.fragments)

    def _fragment(self, item: Item) -> Fragment:
        found = self.by_identity.get(id(item))
        if found is None:
            found = self.by_identity[id(item)] = self._encode_item(item)
        return found

    def adopt(self, other: "FragmentCache") -> None:
        """Copy the contents of another cache."""
        self.items, self.fragments, self.by_identity = other.items, list(other.fragments), dict(other.by_identity)


def empty_fragment(item: Item) -> Fragment:
    """The fragment of an item that is not sent."""
    return Fragment(item, BlockKind.NOTHING)


def object_members(fields: dict[str, object]) -> bytes:
    """The members of a JSON object, in order and without the braces."""
    return dump(fields)[1:-1]


def dump(value: object) -> bytes:
    """Encode a value as JSON; keys keep their order."""
    return _encoder.encode(value)


def extra_members(raw: Raw) -> bytes:
    """The members of a raw JSON object with a leading comma, to append to another object."""
    inside = bytes(raw).strip()[1:-1].strip()
    return b"," + inside if inside else b""
