"""The contents of a side request, stored as a blob: items of the view by their ids, and other items in full."""

import msgspec

from palimpsest.core.errors import BadLog
from palimpsest.core.events import CallStarted
from palimpsest.core.items import Item, Value
from palimpsest.core.view import View


class SideRequest(Value, frozen=True):
    """Head and items of a side request; an item that equals the one in the view is stored as its id."""

    head: tuple[str | Item, ...] = ()
    items: tuple[str | Item, ...] = ()


_decoder = msgspec.json.Decoder(SideRequest)
_encode = msgspec.json.Encoder().encode


def encode_side_request(asked: View, view: View) -> bytes:
    """Return the contents of the request that shows `asked`, encoded relative to the `view` at that time."""
    visible = {item.id: item for item in (*view.head, *view.items)}

    def by_id(items: tuple[Item, ...]) -> tuple[str | Item, ...]:
        return tuple(item.id if visible.get(item.id) == item else item for item in items)

    return _encode(SideRequest(by_id(asked.head), by_id(asked.items)))


def decode_side_request(data: bytes, call: CallStarted, view: View) -> View:
    """Return the view that a side request showed; `view` is that of the conversation at that time.

    Raises `BadLog` if the blob cannot be decoded or refers to an item that the view lacks.
    """
    try:
        request = _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise BadLog(f"the contents of a side request cannot be read ({error})", where=f"blob {call.request}") from error
    visible = {item.id: item for item in (*view.head, *view.items)}

    def items_of(items: tuple[str | Item, ...]) -> tuple[Item, ...]:
        return tuple(visible[item] if isinstance(item, str) else item for item in items)

    try:
        return View(head=items_of(request.head), items=items_of(request.items), call=view.call, model=call.model)
    except KeyError as error:
        raise BadLog(f"a side request shows item {error}, which the view before it lacks", where=f"blob {call.request}") from error
