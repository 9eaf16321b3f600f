"""Encodes a view, a model card, tools and parameters as the exact bytes of a request."""

from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING, Self

from palimpsest.core.view import View
from palimpsest.wire.encoding.fragments import FragmentCache, Wire
from palimpsest.wire.encoding.media import Fetch, no_blobs
from palimpsest.wire.encoding.repair import ProviderCallIds, RepairEncoder, repair_pairs
from palimpsest.wire.encoding.tools import tool_name, wire_names
from palimpsest.wire.models.cards import ModelCard, WireName
from palimpsest.wire.request import DEFAULTS, Params, Request, Tool

if TYPE_CHECKING:
    from palimpsest.wire.anthropic.encode import AnthropicWire
    from palimpsest.wire.chat.encode import ChatWire
    from palimpsest.wire.responses.encode import ResponsesWire


class Encoder:
    """Encodes successive views of one session; items of the previous view are not encoded again."""

    def __init__(self, card: ModelCard, tools: tuple[Tool, ...] = (), params: Params = DEFAULTS, fetch: Fetch = no_blobs) -> None:
        self._card = card
        self._tools = tools
        self._params = params
        self._fetch = fetch
        self._wire: Wire = _wire_type(card.wire)(card, tools, params, fetch)
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

    def encode(self, view: View) -> Request:
        """Encode a view; a text takes the place of a blob that is missing or damaged."""
        heads = self.heads.fragments_of(view.head)
        fragments, repairs = repair_pairs(self.provider_ids.apply(self.items.fragments_of(view.items)), self._repair_encoder)
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
        )


def encode(view: View, card: ModelCard, tools: tuple[Tool, ...] = (), params: Params = DEFAULTS, fetch: Fetch = no_blobs) -> Request:
    """Encode a single view without a reusable `Encoder`."""
    return Encoder(card, tools, params, fetch).encode(view)


def _wire_type(name: WireName) -> "type[AnthropicWire | ChatWire | ResponsesWire]":
    # Imported with its first use, because a session has one of them.
    found: type[AnthropicWire | ChatWire | ResponsesWire]
    found = getattr(import_module(f"palimpsest.wire.{name}.encode"), f"{name.capitalize()}Wire")
    return found
