"""Rebuilds from the log any request that was sent, byte for byte, and builds the request that would be sent next."""

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
from palimpsest.wire.request import Params, Request, Tool, adapted_params

_params = msgspec.json.Decoder(Params)
_tools = msgspec.json.Decoder(tuple[Tool, ...])
# The provider that a model is taken to have on another wire; signatures of one provider are not sent to another.
_PROVIDERS: dict[WireName, str] = {"anthropic": "anthropic", "responses": "openai", "chat": "openai-compatible"}


class PastRequest(Value, frozen=True):
    """A request rebuilt from the log; `verified` means that its digest equals the recorded one.

    `missing` names the parts that the log lacks: imported sessions may have neither instructions nor tools.
    """

    request: Request
    seq: int
    recorded_digest: str = ""
    verified: bool = False
    missing: tuple[str, ...] = ()


def call_events(log: Log) -> Iterator[Event]:
    """The `CallStarted` events of all branches, in file order."""
    return (event for event in log.reader.run(0, log.tip) if isinstance(event.body, CallStarted))


def past_request(
    log: Log, number: int, fetch: Fetch, cards: Iterable[ModelCard] = CARDS, *, wire: WireName | None = None, model: str = ""
) -> PastRequest:
    """Rebuild request `number`, counted from 1, as it was sent, or as it would be encoded for another `wire` or `model`.

    Raises `BadInput` if there is no such request, `BadLog` if its parameters or tools cannot be decoded.
    """
    count = 0
    for count, event in enumerate(call_events(log), 1):
        if count == number and isinstance(event.body, CallStarted):
            return _rebuild(log, event, event.body, fetch, cards, wire=wire, model=model)
    count_text = "no request was ever sent" if count == 0 else f"it has {count}" if count > 1 else "it has one"
    raise BadInput(f"there is no request {number} in this session: {count_text}", where=log.session)


def next_request(view: View, fetch: Fetch, cards: Iterable[ModelCard] = CARDS, *, wire: WireName | None = None, model: str = "") -> Request:
    """The request for this view, with the tools and parameters of the previous call. Raises `BadInput` if no model is known."""
    call = view.call
    tools = recorded_tools(call.tools, fetch) if call is not None else ()
    name = model or view.model
    if not name:
        raise BadInput("the session names no model, so name one with --model", where="model")
    target = card_on_wire(card(model, cards) if model else recorded_card(name, cards), wire)
    params = Params() if call is None else _params_of(call.params)
    if call is not None and (name, target.wire) != (call.model, call.wire):
        params = adapted_params(params, target)
    return encode(view, target, tools, params, fetch)


def card_on_wire(model: ModelCard, wire: WireName | None) -> ModelCard:
    """The card of a model as served on another wire, by the default provider of that wire."""
    if wire is None or wire == model.wire:
        return model
    cache = "breakpoints" if wire == "anthropic" else "automatic"
    return replace(model, wire=wire, provider=_PROVIDERS[wire], family="", cache=cache, call_ids="claude" if wire == "anthropic" else "any")


def _rebuild(
    log: Log, event: Event, call: CallStarted, fetch: Fetch, cards: Iterable[ModelCard], *, wire: WireName | None, model: str
) -> PastRequest:
    sent: WireName | None = call.wire if call.wire in _PROVIDERS else None
    target = card_on_wire(card(model, cards) if model else recorded_card(call.model, cards), wire or (None if model else sent))
    view = log.state_at(event.parent).view
    if call.request:
        view = decode_side_request(fetch(call.request), call, view)
    as_sent = not model and (wire is None or wire == sent)
    params = _params_of(call.params)
    request = encode(view, target, recorded_tools(call.tools, fetch), params if as_sent else adapted_params(params, target), fetch)
    recorded = call.digest if as_sent else ""
    # A side request is recorded whole.
    missing = () if call.request else (*(() if view.head else ("instructions",)), *(() if call.tools else ("tools",)))
    return PastRequest(request, event.seq, recorded, bool(recorded) and recorded == request.digest, missing)


def _params_of(raw: Raw) -> Params:
    try:
        return _params.decode(raw)
    except msgspec.DecodeError as error:
        raise BadLog(f"the parameters of a request cannot be read ({error})", where="params") from error


def recorded_tools(address: str, fetch: Fetch) -> tuple[Tool, ...]:
    """The tools of a call, decoded from their blob. Raises `BadLog` if it cannot be decoded."""
    if not address:
        return ()
    try:
        return _tools.decode(fetch(address))
    except msgspec.DecodeError as error:
        raise BadLog(f"the tools of a request cannot be read ({error})", where=f"blob {address}") from error
