"""Requests rebuilt from a log: any that was sent, as its bytes were, and the one that would be sent next."""

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from palimpsest.core.errors import BadInput, BadLog
from palimpsest.core.events import CallStarted, Event
from palimpsest.core.format.side_requests import decode_side_request
from palimpsest.core.items import Value
from palimpsest.core.log.log import Log
from palimpsest.core.view import View
from palimpsest.wire.encode import encode
from palimpsest.wire.encoding.media import Fetch
from palimpsest.wire.models.cards import CARDS, ModelCard, WireName, card, recorded_card
from palimpsest.wire.request import Params, Request, Tool, for_another

_params = msgspec.json.Decoder(Params)
_tools = msgspec.json.Decoder(tuple[Tool, ...])
# Who speaks a wire, so that what one maker sealed is not sent to another.
_MAKERS: dict[WireName, str] = {"anthropic": "anthropic", "responses": "openai", "chat": "openai-compatible"}


class Past(Value, frozen=True):
    """A request of the log, rebuilt. `verified` means that its digest is the one recorded when it left.

    `missing` is what the log does not have of it: the file of another program may keep neither its instructions nor its tools.
    """

    request: Request
    seq: int
    recorded_digest: str = ""
    verified: bool = False
    missing: tuple[str, ...] = ()


def calls_of(log: Log) -> Iterator[Event]:
    """The events with which requests left, on every branch, in the order of the file."""
    return (event for event in log.reader.run(0, log.tip) if isinstance(event.body, CallStarted))


def past_request(
    log: Log, number: int, fetch: Fetch, cards: Iterable[ModelCard] = CARDS, *, wire: WireName | None = None, model: str = ""
) -> Past:
    """Request `number` of a session, counted from 1; another `wire` or `model` shows what they would have been sent."""
    count = 0
    for count, event in enumerate(calls_of(log), 1):
        if count == number and isinstance(event.body, CallStarted):
            return _rebuild(log, event, event.body, fetch, cards, wire=wire, model=model)
    held = "no request was ever sent" if count == 0 else f"it has {count}" if count > 1 else "it has one"
    raise BadInput(f"there is no request {number} in this session: {held}", where=log.session)


def next_request(
    view: View,
    fetch: Fetch,
    cards: Iterable[ModelCard] = CARDS,
    *,
    wire: WireName | None = None,
    model: str = "",
    params: Params | None = None,
) -> Request:
    """The request that would show this view, with the tools and parameters of the call before it."""
    call = view.call
    tools = tools_of(call.tools, fetch) if call is not None else ()
    name = model or view.model
    if not name:
        raise BadInput("the session names no model, so name one with --model", where="model")
    spoken = on_wire(card(model, cards) if model else recorded_card(name, cards), wire)
    if params is None:
        params = Params() if call is None else _params_of(call.params)
        if call is not None and (name, spoken.wire) != (call.model, call.wire):
            params = for_another(params, spoken)
    return encode(view, spoken, tools, params, fetch)


def on_wire(model: ModelCard, wire: WireName | None) -> ModelCard:
    """The same model spoken to in another shape, through somebody who speaks it."""
    if wire is None or wire == model.wire:
        return model
    cache = "breakpoints" if wire == "anthropic" else "automatic"
    return replace(model, wire=wire, provider=_MAKERS[wire], family="", cache=cache, call_ids="claude" if wire == "anthropic" else "any")


def _rebuild(
    log: Log, event: Event, call: CallStarted, fetch: Fetch, cards: Iterable[ModelCard], *, wire: WireName | None, model: str
) -> Past:
    sent: WireName | None = call.wire if call.wire in _MAKERS else None
    spoken = on_wire(card(model, cards) if model else recorded_card(call.model, cards), wire or (None if model else sent))
    view = log.state_at(event.parent).view
    if call.request:
        view = decode_side_request(fetch(call.request), call, view)
    same = not model and (wire is None or wire == sent)
    params = _params_of(call.params)
    request = encode(view, spoken, tools_of(call.tools, fetch), params if same else for_another(params, spoken), fetch)
    recorded = call.digest if same else ""
    # What a request beside the conversation showed is recorded whole.
    missing = () if call.request else (*(() if view.head else ("instructions",)), *(() if call.tools else ("tools",)))
    return Past(request, event.seq, recorded, bool(recorded) and recorded == request.digest, missing)


def _params_of(raw: Raw) -> Params:
    try:
        return _params.decode(raw)
    except msgspec.DecodeError as error:
        raise BadLog(f"the parameters of a request cannot be read ({error})", where="params") from error


def tools_of(address: str, fetch: Fetch) -> tuple[Tool, ...]:
    """The tools of a call, from the blob that holds them."""
    if not address:
        return ()
    try:
        return _tools.decode(fetch(address))
    except msgspec.DecodeError as error:
        raise BadLog(f"the tools of a request cannot be read ({error})", where=f"blob {address}") from error
