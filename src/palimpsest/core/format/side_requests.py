"""What a request beside the conversation was made of: items of the view by their ids, and the contents that only it shows."""

import msgspec

from palimpsest.core.errors import BadLog
from palimpsest.core.events import CallStarted
from palimpsest.core.items import Item, Value
from palimpsest.core.view import View


class SideRequest(Value, frozen=True):
    """The head and the items of a request; one that shows in the view just as it is there is named by its id."""

    head: tuple[str | Item, ...] = ()
    items: tuple[str | Item, ...] = ()


_decoder = msgspec.json.Decoder(SideRequest)
_encode = msgspec.json.Encoder().encode


def encode_side_request(asked: View, view: View) -> bytes:
    """What `asked` shows, in terms of the `view` at the time of the request."""
    known = {item.id: item for item in (*view.head, *view.items)}

    def named(items: tuple[Item, ...]) -> tuple[str | Item, ...]:
        return tuple(item.id if known.get(item.id) == item else item for item in items)

    return _encode(SideRequest(named(asked.head), named(asked.items)))


def decode_side_request(data: bytes, call: CallStarted, view: View) -> View:
    """The view that a side request showed; `view` is that of the conversation when it left. Raises `BadLog`."""
    try:
        request = _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise BadLog(f"what a request was made of cannot be read ({error})", where=f"blob {call.request}") from error
    known = {item.id: item for item in (*view.head, *view.items)}

    def shown(items: tuple[str | Item, ...]) -> tuple[Item, ...]:
        return tuple(known[item] if isinstance(item, str) else item for item in items)

    try:
        return View(head=shown(request.head), items=shown(request.items), call=view.call, model=call.model)
    except KeyError as error:
        raise BadLog(f"a request shows item {error}, which the view before it does not have", where=f"blob {call.request}") from error
