"""Requests that are laid out and never sent, and the summaries that answer those beside the conversation."""

from collections.abc import AsyncIterator, Callable
from typing import Protocol, Self

from msgspec.structs import replace

from palimpsest.core.errors import NoModel
from palimpsest.core.events import TURN, ModelReplied
from palimpsest.core.events.deltas import Delta
from palimpsest.core.items import Value
from palimpsest.core.ports import Sendable
from palimpsest.core.tokens.sizes import palimpsest_size
from palimpsest.core.view import View
from palimpsest.lab.simulation.imitation import Summariser
from palimpsest.wire.encoding.media import Fetch
from palimpsest.wire.models.cards import ModelCard, WireName
from palimpsest.wire.request import Params, Tool


class RealSummaries(Protocol):
    """Asks a real model for the summaries of a replay."""

    async def __call__(self, view: View, tools: tuple[Tool, ...], params: Params, fetch: Fetch, /) -> ModelReplied:
        """The reply to the request that shows a view."""
        ...


class Unsent(Value, frozen=True):
    """A request that never leaves: what it shows, in place of its bytes.

    `digest` is no digest: it only says that `breakpoints` are all the cache breakpoints there were. `aside` says that it shows another view
    than that of the conversation.
    """

    wire: WireName
    view: View
    params: Params
    tools: tuple[Tool, ...] = ()
    breakpoints: tuple[str, ...] = ()
    body: bytes = b""
    digest: str = "replayed"
    aside: bool = False


def no_breakpoints(view: View, params: Params) -> tuple[str, ...]:
    """A layout without cache breakpoints."""
    return ()


class UnsentEncoder:
    """Lays out requests; no bytes are made. `conversation` is the view of the session now."""

    def __init__(
        self,
        card: ModelCard,
        conversation: Callable[[], View],
        breakpoints: Callable[[View, Params], tuple[str, ...]] = no_breakpoints,
        *,
        tools: tuple[Tool, ...] = (),
        params: Params | None = None,
    ) -> None:
        self._card = card
        self._conversation = conversation
        self._breakpoints = breakpoints
        self._tools = tools
        self._params = Params() if params is None else params

    def encode(self, view: View) -> Unsent:
        """The request that shows a view."""
        aside = view is not self._conversation()
        breakpoints = () if aside else self._breakpoints(view, self._params)
        return Unsent(self._card.wire, view, self._params, self._tools, breakpoints, aside=aside)

    def revised(self, params: Params, tools: tuple[Tool, ...] | None = None) -> Self:
        """An encoder for other parameters or tools."""
        tools = self._tools if tools is None else tools
        return type(self)(self._card, self._conversation, self._breakpoints, tools=tools, params=params)


class Summaries:
    """Answers side requests: with a real model, as the imitated program would, or not at all. `scaled` makes tokens of unscaled sizes."""

    def __init__(
        self,
        card: ModelCard,
        summariser: Summariser | None,
        fetch: Fetch,
        scaled: Callable[[int], int] = int,
        *,
        real: RealSummaries | None = None,
    ) -> None:
        self._card = card
        self._summariser = summariser
        self._fetch = fetch
        self._scaled = scaled
        self._real = real

    def provider(self, card: ModelCard, purpose: str) -> "Summaries":
        """Itself, for the model of the replay. Raises `NoModel` for a turn, for another model, and where there are no summaries."""
        if purpose == TURN or card.name != self._card.name or (self._summariser is None and self._real is None):
            raise NoModel(f"the replay has no {card.name} for {purpose}; it goes on without")
        return self

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        """The summary."""
        if not isinstance(request, Unsent):
            raise NoModel("a replay answers only what it laid out itself")
        yield await self.reply(request)

    async def reply(self, request: Unsent) -> ModelReplied:
        """The summary that a request gets, with the tokens that it has."""
        view, params = request.view, request.params
        if self._real is not None:
            reply = await self._real(view, request.tools, params, self._fetch)
            written = reply.usage.output or self._scaled(sum(map(palimpsest_size, reply.parts)))
            return replace(reply, usage=replace(reply.usage, output=written))
        if self._summariser is None:
            raise NoModel("no model is at hand")
        return self._summariser.reply(view, params, self._card)
