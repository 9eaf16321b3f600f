"""Encodes a view, a model card, tools and parameters as the exact bytes of a request."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from hashlib import sha256
from typing import Final, Self

from msgspec import Raw

from palimpsest.core.items import Item
from palimpsest.core.view import View
from palimpsest.wire.anthropic.encode import AnthropicWire
from palimpsest.wire.chat.encode import ChatWire
from palimpsest.wire.encoding.fragments import BlockKind, FragmentCache, Wire, empty_fragment
from palimpsest.wire.encoding.media import Fetch, no_blobs
from palimpsest.wire.encoding.repair import ProviderCallIds, RepairEncoder, repair_pairs
from palimpsest.wire.encoding.tools import tool_name, wire_names
from palimpsest.wire.models.cards import ModelCard, WireName
from palimpsest.wire.request import DEFAULTS, Params, Request, Tool, fitted_params
from palimpsest.wire.responses.encode import ResponsesWire, reply_items

_WIRES: Mapping[WireName, type[AnthropicWire | ChatWire | ResponsesWire]] = {
    "anthropic": AnthropicWire,
    "responses": ResponsesWire,
    "chat": ChatWire,
}

_NOTHING: Final[frozenset[str]] = frozenset()


class Encoder:
    """Encodes successive views of one session; items of the previous view are not encoded again."""

    def __init__(self, card: ModelCard, tools: tuple[Tool, ...] = (), params: Params = DEFAULTS, fetch: Fetch = no_blobs) -> None:
        params = fitted_params(params, card)
        self._card = card
        self._tools = tools
        self._params = params
        self._fetch = fetch
        self._wire: Wire = _WIRES[card.wire](card, tools, params, fetch)
        names = wire_names(tools, card.wire)
        self._numbered_names = tuple(pair for pair in names.items() if pair[1] != tool_name(pair[0], card.wire))
        self._tool_names = tuple((sent, offered) for offered, sent in names.items() if sent != offered)
        self.heads = FragmentCache(self._wire.head)
        self.items = FragmentCache(self._wire.fragment)
        self.provider_ids = ProviderCallIds(self._wire.fragment)
        self._repair_encoder = RepairEncoder(
            self._wire.fragment, params.interrupted, "claude" if card.wire == "anthropic" else card.call_ids
        )

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
        return self._params.dialect, self._params.echo, self._numbered_names, [tool.name for tool in self._tools if tool.form == "free"]

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
        if self._card.wire == "responses":
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
