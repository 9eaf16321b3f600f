"""Encodes a view as the exact bytes of a request, rebuilds past requests byte for byte, and finds the thinking that still fits the next."""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from hashlib import sha256
from itertools import groupby, islice
from typing import Final, NamedTuple, Self

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from palimpsest.core.errors import BadInput, BadLog, PalimpsestError
from palimpsest.core.events import TURN, CallStarted, Event, Interrupted, ModelReplied, items_of
from palimpsest.core.items import Content, Item, Opaque, Text, Thinking, Value, seq_of, text_of
from palimpsest.core.lines import decode_side_request
from palimpsest.core.log import Log
from palimpsest.core.view import View
from palimpsest.core.view_projection import ViewProjection
from palimpsest.wire.binding import (
    ANY_PREFIX,
    Binding,
    BlockFactsCache,
    SentList,
    compaction_key,
    fitting,
    read_body,
    reply_bindings,
    signature_key,
    thinking_key,
)
from palimpsest.wire.encoding import BlockKind, FragmentCache, WireEncoder, empty_fragment, tool_name, wire_names
from palimpsest.wire.json_reading import is_object
from palimpsest.wire.media import Fetch, no_blobs
from palimpsest.wire.models import CARDS, ModelCard, WireName, card, recorded_card
from palimpsest.wire.repair import ProviderCallIds, RepairEncoder, repair_pairs
from palimpsest.wire.request import DEFAULTS, Params, Request, Tool, adapted_params, fitted_params
from palimpsest.wire.responses import reply_items
from palimpsest.wire.wires import WIRES, wire_called

_NOTHING: Final[frozenset[str]] = frozenset()


class Encoder:
    """Encodes successive views of one session; items of the previous view are not encoded again."""

    def __init__(self, card: ModelCard, tools: tuple[Tool, ...] = (), params: Params = DEFAULTS, fetch: Fetch = no_blobs) -> None:
        params = fitted_params(params, card)
        self._card = card
        self._tools = tools
        self._params = params
        self._fetch = fetch
        wire = WIRES[card.wire]
        self._wire: WireEncoder = wire.encoder(card, tools, params, fetch)
        names = wire_names(tools, card.wire)
        self._numbered_names = tuple(pair for pair in names.items() if pair[1] != tool_name(pair[0], card.wire))
        self._tool_names = tuple((sent, offered) for offered, sent in names.items() if sent != offered)
        self.heads = FragmentCache(self._wire.head)
        self.items = FragmentCache(self._wire.fragment)
        self.provider_ids = ProviderCallIds(self._wire.fragment)
        self._repair_encoder = RepairEncoder(self._wire.fragment, params.interrupted, wire.call_ids or card.call_ids)

    def revised(self, params: Params, tools: tuple[Tool, ...] | None = None) -> Self:
        """An encoder with other parameters or tools; it takes over the encoded items if their bytes do not depend on the change."""
        new = type(self)(self._card, self._tools if tools is None else tools, params, self._fetch)
        if self.fragment_settings() == new.fragment_settings():
            new.heads.adopt(self.heads)
            new.items.adopt(self.items)
            new.provider_ids.adopt(self.provider_ids)
        return new

    def fragment_settings(self) -> tuple[object, ...]:
        """The parameters and tool settings on which the bytes of a single item depend."""
        free = [tool.name for tool in self._tools if tool.form == "free"]
        return self._params.dialect, self._params.echo, self._params.is_stricter, self._numbered_names, free

    def encode(self, view: View, withheld: AbstractSet[str] = _NOTHING) -> Request:
        """Encode a view without the thinking items in `withheld`; a text takes the place of a blob that is missing or damaged."""
        heads = self.heads.fragments_of(view.head)
        shown = self.items.fragments_of(view.items)
        if withheld:
            shown = [empty_fragment(each.item) if each.item.id in withheld else each for each in shown]
        fragments, repairs = repair_pairs(self.provider_ids.apply(shown), self._repair_encoder)
        assembled = self._wire.assemble(view, heads, fragments)
        body = assembled.body
        digest = sha256(body).hexdigest()
        name = self._params.model or self._card.api_name or self._card.name
        return Request(
            self._card.wire,
            name,
            body,
            digest,
            assembled.breakpoints,
            repairs + assembled.repairs,
            self._params.endpoint,
            self._tool_names,
            assembled.betas,
        )

    def thinking_ids(self, view: View) -> tuple[str, ...]:
        """The ids of the thinking items of a view that this model can be sent."""
        return tuple(each.item.id for each in self.items.fragments_of(view.items) if each.place == BlockKind.THINKING)

    def reply_blocks(self, items: Iterable[Item]) -> tuple[Raw, ...]:
        """The items of one reply as they are sent back: blocks of Anthropic Messages, or items of Responses."""
        fragments = [self._wire.fragment(item) for item in items]
        fragments = [self._wire.fragment(each.item, each.provider_id) if each.provider_id else each for each in fragments]
        if WIRES[self._card.wire].is_flat:
            return reply_items(fragments)
        return tuple(Raw(each.body) for each in fragments if each.place)


def encode(
    view: View,
    card: ModelCard,
    tools: tuple[Tool, ...] = (),
    params: Params = DEFAULTS,
    fetch: Fetch = no_blobs,
    *,
    withheld: AbstractSet[str] = _NOTHING,
) -> Request:
    """Encode a single view without a reusable `Encoder`."""
    return Encoder(card, tools, params, fetch).encode(view, withheld)


_params = msgspec.json.Decoder(Params)
_tools = msgspec.json.Decoder(tuple[Tool, ...])


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


def next_request(
    view: View,
    fetch: Fetch,
    cards: Iterable[ModelCard] = CARDS,
    *,
    wire: WireName | None = None,
    model: str = "",
    log: Log | None = None,
) -> Request:
    """The request for this view, with the tools and parameters of the previous call. Raises `BadInput` if no model is known.

    By its `log`, thinking that no longer fits is left out, as it would be if the session went on.
    """
    call = view.call
    tools = recorded_tools(call.tools, fetch) if call is not None else ()
    name = model or view.model
    if not name:
        raise BadInput("the session names no model, so name one with --model", where="model")
    target = card_on_wire(card(model, cards) if model else recorded_card(name, cards), wire)
    # The next request will be compared with another one, and the provider that gets an export may not know the field.
    params = Params() if call is None else replace(_params_of(call.params), compared_reply=None)
    if call is not None and (name, target.wire) != (call.model, call.wire):
        params = adapted_params(params, target)
    if log is None:
        return encode(view, target, tools, params, fetch)
    return PastThinking(log, fetch, cards).encode(Encoder(target, tools, params, fetch), view, target)[0]


def card_on_wire(model: ModelCard, wire: WireName | None) -> ModelCard:
    """The card of a model as served on another wire, by the default provider of that wire."""
    if wire is None or wire == model.wire:
        return model
    other = WIRES[wire]
    return replace(model, wire=wire, provider=other.provider, family="", cache=other.cache, call_ids=other.call_ids or "any")


def _rebuild(
    log: Log, event: Event, call: CallStarted, fetch: Fetch, cards: Iterable[ModelCard], *, wire: WireName | None, model: str
) -> PastRequest:
    sent = _sent_wire(call)
    target = card_on_wire(card(model, cards) if model else recorded_card(call.model, cards), wire or (None if model else sent))
    view = log.state_at(event.parent).view
    if call.request:
        view = decode_side_request(fetch(call.request), call, view)
    as_sent = not model and (wire is None or wire == sent)
    params, withheld = _sent_params(call), frozenset(call.withheld)
    if not as_sent:
        params, withheld = adapted_params(params, target), frozenset[str]()
    request = encode(view, target, recorded_tools(call.tools, fetch), params, fetch, withheld=withheld)
    recorded = call.digest if as_sent else ""
    # A side request is recorded whole.
    missing = () if call.request else (*(() if view.head else ("instructions",)), *(() if call.tools else ("tools",)))
    return PastRequest(request, event.seq, recorded, bool(recorded) and recorded == request.digest, missing)


def _params_of(raw: Raw) -> Params:
    try:
        return _params.decode(raw)
    except msgspec.DecodeError as error:
        raise BadLog(f"the parameters of a request cannot be read ({error})", where="params") from error


def _sent_params(call: CallStarted) -> Params:
    """The parameters with which a request was sent: what the card of today would leave out was sent all the same."""
    return replace(_params_of(call.params), fitted=True)


def sent_effort(call: CallStarted) -> str:
    """The effort in the field of a request; empty if it had none. Raises `BadLog` if its parameters cannot be read."""
    return _params_of(call.params).effort


def recorded_tools(address: str, fetch: Fetch) -> tuple[Tool, ...]:
    """The tools of a call, decoded from their blob. Raises `BadLog` if it cannot be decoded."""
    if not address:
        return ()
    try:
        return _tools.decode(fetch(address))
    except msgspec.DecodeError as error:
        raise BadLog(f"the tools of a request cannot be read ({error})", where=f"blob {address}") from error


class ThinkingFit(NamedTuple):
    """The thinking of a request: what `CallStarted` records of it, and in `thinking` the ids of the items that are sent."""

    prefix: str = ""
    after: str = ""
    withheld: tuple[str, ...] = ()
    thinking: tuple[str, ...] = ()


class _FittedRequest(NamedTuple):
    """A request, its list as it was read, and the keys of the thinking in it that fits."""

    request: Request
    sent: SentList
    fits: frozenset[str] = frozenset()


class PastThinking:
    """What the thinking of a session is bound to, by its log: that of a reply to the request that it answers.

    Requests that recorded no prefix are rebuilt, in one pass over the path. What is not known, as in a session of another program, fits
    nothing, unless a model made it that binds its thinking to nothing. The `lock` is held while it works, for several threads.
    """

    def __init__(
        self, log: Log, fetch: Fetch, cards: Iterable[ModelCard] = CARDS, lock: AbstractContextManager[object] | None = None
    ) -> None:
        self._log = log
        self._fetch = fetch
        self._cards = tuple(cards)
        self._bindings: dict[str, Binding] = {}
        # The thinking items that were left out of the request which a reply answered, by the keys of its thinking.
        self._left_out: dict[str, frozenset[str]] = {}
        # Ends of the lists that compaction blocks summarise, by the key of the block; empty where that is not known.
        self._ends: dict[str, str] = {}
        self._read: set[int] = set()
        self._facts = BlockFactsCache()
        # Requests beside a turn are encoded in threads of their own.
        self._lock = lock or nullcontext()

    def encode(self, encoder: Encoder, view: View, card: ModelCard, *, sends_thinking: bool = True) -> tuple[Request, ThinkingFit]:
        """Encode a view without the thinking that does not fit any more, or without any."""
        with self._lock:
            return self._encode(encoder, view, card, sends_thinking=sends_thinking)

    def _encode(self, encoder: Encoder, view: View, card: ModelCard, *, sends_thinking: bool) -> tuple[Request, ThinkingFit]:
        if card.wire == "chat":
            return encoder.encode(view), ThinkingFit(ANY_PREFIX)
        if len(self._bindings) > _MOST_BINDINGS:
            # Those of the view are read again; a long session would keep those of all that was folded away.
            self._bindings, self._left_out, self._read = {}, {}, set()
        sendable = frozenset(encoder.thinking_ids(view))
        keys = {item.id: key for item in view.items if item.id in sendable and (key := content_key(item.content))}
        if not sends_thinking:
            request = encoder.encode(view, sendable)
            end = self._read_body(request, view).end if is_bound(card) else ANY_PREFIX
            return request, ThinkingFit(end, "", tuple(keys))
        request = encoder.encode(view)
        if not is_bound(card):
            return request, ThinkingFit(ANY_PREFIX, next(reversed(keys.values()), ""), (), tuple(keys))
        whole = self._read_body(request, view)
        places = {block.key: place for place, block in enumerate(whole.thinking)}
        ids = {key: name for name, key in keys.items() if key in places}
        shown = frozenset(ids.values())
        bindings = self._bindings_of([item for item in view.items if item.id in shown], whole)

        def narrowed(start: frozenset[str]) -> _FittedRequest:
            tried, withheld = _FittedRequest(request, whole), start
            while True:
                if withheld:
                    shorter = encoder.encode(view, withheld)
                    tried = _FittedRequest(shorter, self._read_body(shorter, view))
                fits = fitting(tried.sent.thinking, bindings)
                misfits = {ids[block.key] for block in tried.sent.thinking if block.key in ids and block.key not in fits}
                if misfits <= withheld:
                    return tried._replace(fits=fits)
                withheld |= misfits

        found = narrowed(frozenset())
        # White space goes with the thinking beside it, so that a list without some of it is another one: those that were sent are tried.
        earlier = dict.fromkeys(self._left_out[key] for key in reversed(ids) if key in self._left_out)
        for start in islice(earlier, _MOST_LISTS if len(found.fits) < len(ids) else 0):
            other = narrowed(start & shown)
            found = max(found, other, key=lambda each: (max(map(places.__getitem__, each.fits), default=-1), len(each.fits)))
        after = next((block.key for block in reversed(found.sent.thinking) if block.key in found.fits), "")
        fits = tuple(name for key, name in ids.items() if key in found.fits)
        withheld = tuple(name for key, name in ids.items() if key not in found.fits)
        return found.request, ThinkingFit(found.sent.end, after, withheld, fits)

    def _read_body(self, request: Request, view: View) -> SentList:
        """Read a request of a view, whose list may begin with the compaction of an earlier request."""
        block = view.items[0] if view.items else None
        if block is not None and (key := _compaction_key(block.content)) and key not in self._ends:
            self._ends[key] = self._summarised_end(block, key)
        return read_body(request.body, request.wire, self._facts, self._ends)

    def _summarised_end(self, block: Item, key: str) -> str:
        """The end of the list that a compaction block summarises, by the record of its request; empty if there is none that binds."""
        edit = seq_of(block.id)
        for seq in range(edit - 1, max(-1, edit - _NEAR_EDIT), -1):
            reply = self._log.event(seq).body
            if isinstance(reply, ModelReplied) and reply.call is not None and key in map(_compaction_key, reply.parts):
                call = self._log.event(reply.call).body
                return call.prefix if isinstance(call, CallStarted) and call.prefix != ANY_PREFIX else ""
        return ""

    def _bindings_of(self, items: Iterable[Item], sent: SentList) -> Mapping[str, Binding]:
        """What the thinking in these items of the view is bound to; `sent` is a list that shows it."""
        unread = {seq_of(item.id) for item in items if content_key(item.content) not in self._bindings} - self._read
        rebuilt: dict[int, Event] = {}
        for seq in sorted(unread):
            self._read.add(seq)
            # What a damaged log or a missing blob does not say is not known.
            with suppress(PalimpsestError):
                reply = self._log.event(seq)
                if not isinstance(reply.body, ModelReplied | Interrupted) or reply.body.call is None:
                    continue
                call = self._log.event(reply.body.call).body
                if isinstance(call, CallStarted) and call.prefix:
                    self._bind(call, reply)
                elif isinstance(call, CallStarted) and call.digest:
                    rebuilt[reply.body.call] = reply
        if rebuilt:
            with suppress(PalimpsestError):
                self._rebuild(rebuilt)
        return self._bindings | dict(self._free(items, sent))

    def note_reply(self, call: CallStarted, reply: Event) -> None:
        """Bind the thinking of a reply to the request that it answers; of a side request, only this process knows it."""
        with self._lock, suppress(PalimpsestError):
            self._read.add(reply.seq)
            self._bind(call, reply)

    def _bind(self, call: CallStarted, reply: Event) -> None:
        body = reply.body
        if not isinstance(body, ModelReplied | Interrupted) or not call.prefix:
            return
        items = items_of(reply.seq, replace(body, purpose=TURN))
        last = max((place for place, item in enumerate(items) if content_key(item.content)), default=-1)
        blocks = [*self._blocks_sent_back(items[: last + 1], call)]
        wire = wire_called(call.wire)
        bound = reply_bindings(call.prefix, call.after, blocks, "assistant" if wire is None else wire.reply_role)
        self._bindings |= bound
        self._left_out |= dict.fromkeys(bound, frozenset(call.withheld))

    def _blocks_sent_back(self, items: list[Item], call: CallStarted) -> Iterator[object]:
        """The blocks in which a reply is sent back, as the model that made it is sent them."""
        encoder: Encoder | None = None
        for kind, run in groupby(items, partial(_block_kind, wire=call.wire)):
            if kind == "thinking":
                yield from ({"type": "redacted_thinking", "data": _secret(item.content)} for item in run)
            elif kind == "blank":
                yield from ({"type": "text", "text": text_of(item.content)} for item in run)
            else:
                encoder = encoder or self._encoder(call)
                yield from encoder.reply_blocks(run)

    def _encoder(self, call: CallStarted) -> Encoder:
        target = card_on_wire(recorded_card(call.model, self._cards), _sent_wire(call))
        return Encoder(target, recorded_tools(call.tools, self._fetch), _sent_params(call), self._fetch)

    def _free(self, items: Iterable[Item], sent: SentList) -> Iterator[tuple[str, Binding]]:
        """The bindings of thinking whose request is not known and whose model binds it to nothing: to the block before it in the list."""
        makers = {content_key(item.content): _maker(item.content) for item in items}
        before = ""
        for block in sent.thinking:
            maker = makers.get(block.key, "")
            if block.key not in self._bindings and maker and not is_bound(recorded_card(maker, self._cards)):
                yield block.key, Binding(ANY_PREFIX, before)
            before = block.key

    def _rebuild(self, replies: Mapping[int, Event]) -> None:
        """Bind the thinking of replies to calls that recorded no prefix; a request that cannot be rebuilt as it was sent binds nothing."""
        projection = ViewProjection(reader=self._log.reader)
        last, encoder, made = max(replies), None, ("", "")
        for event in self._log.events():
            call = event.body
            if event.seq in replies and isinstance(call, CallStarted):
                if encoder is None or made != (call.model, call.tools):
                    encoder, made = self._encoder(call), (call.model, call.tools)
                request = encoder.revised(_sent_params(call)).encode(projection.view, frozenset(call.withheld))
                if request.digest == call.digest:
                    sent = self._read_body(request, projection.view)
                    end = sent.end if is_bound(recorded_card(call.model, self._cards)) else ANY_PREFIX
                    after = sent.thinking[-1].key if sent.thinking else ""
                    self._bind(replace(call, prefix=end, after=after), replies[event.seq])
            if event.seq >= last:
                return
            projection.take(event)


def is_bound(card: ModelCard) -> bool:
    """Whether the provider accepts, or uses, the thinking of this model only behind what it was made with."""
    return card.binds_thinking if card.wire == "anthropic" else card.wire == "responses" and card.drops_reasoning


# Bindings that are kept in memory; a view has far fewer.
_MOST_BINDINGS: Final = 20_000
# Lists with other thinking left out that are tried for one request.
_MOST_LISTS: Final = 4
# An edit by a compaction follows the reply that brought it; other records may stand between them.
_NEAR_EDIT: Final = 200
_COMPACTION: Final = '"compaction"'


def _compaction_key(content: Content) -> str:
    """The key of a signed compaction block; empty for other contents."""
    if isinstance(content, Opaque) and _COMPACTION in content.data and is_object(content.data):
        return compaction_key(msgspec.json.decode(content.data))
    return ""


_REDACTED: Final = '"redacted_thinking"'


def content_key(content: Content) -> str:
    """The key of a thinking content (`wire.binding`); empty for other contents and for thinking without a signature."""
    if isinstance(content, Thinking):
        return signature_key(content.signature.data) if content.signature is not None and content.signature.data else ""
    if isinstance(content, Opaque) and _REDACTED in content.data and is_object(content.data):
        return thinking_key(msgspec.json.decode(content.data))
    return ""


def _secret(content: Content) -> str:
    if isinstance(content, Thinking):
        return content.signature.data if content.signature is not None else ""
    return str(msgspec.json.decode(content.data).get("data", "")) if isinstance(content, Opaque) else ""


def _maker(content: Content) -> str:
    if isinstance(content, Thinking):
        return content.signature.model if content.signature is not None else ""
    return content.model if isinstance(content, Opaque) else ""


def _block_kind(item: Item, wire: str) -> str:
    """How the block of an item in a reply is found: a text of white space counts, although only Responses is sent it back."""
    if content_key(item.content):
        return "thinking"
    is_blank = wire != "responses" and isinstance(item.content, Text) and not item.content.text.strip()
    return "blank" if is_blank else "other"


def _sent_wire(call: CallStarted) -> WireName | None:
    wire = wire_called(call.wire)
    return None if wire is None else wire.name
