"""Simulated requests, which are never sent, and the provider of summaries that answers side requests."""

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
from palimpsest.lab.simulation.imitated_summaries import Summariser
from palimpsest.wire.encoding.media import Fetch
from palimpsest.wire.models.cards import ModelCard, WireName
from palimpsest.wire.request import Params, Tool


class RealSummaries(Protocol):
    """Asks a real model for a summary of a replay."""

    async def __call__(self, view: View, tools: tuple[Tool, ...], params: Params, fetch: Fetch, /) -> ModelReplied:
        """Return the reply to the request for a view. Raises `ProviderError` if the model fails."""
        ...


class SimulatedRequest(Value, frozen=True):
    """A request that is never sent: it holds its view instead of bytes.

    `digest` is a placeholder that marks `breakpoints` as complete. `aside` is true for a side request, which shows another view than
    the conversation.
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
    """Return no cache breakpoints."""
    return ()


class SimulatedEncoder:
    """Creates simulated requests; `conversation` returns the current view of the session."""

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

    def encode(self, view: View) -> SimulatedRequest:
        """Return the request for a view."""
        aside = view is not self._conversation()
        breakpoints = () if aside else self._breakpoints(view, self._params)
        return SimulatedRequest(self._card.wire, view, self._params, self._tools, breakpoints, aside=aside)

    def revised(self, params: Params, tools: tuple[Tool, ...] | None = None) -> Self:
        """Return an encoder with other parameters or tools."""
        tools = self._tools if tools is None else tools
        return type(self)(self._card, self._conversation, self._breakpoints, tools=tools, params=params)


class SummaryProvider:
    """Answers side requests with a real model or with imitated summaries; `scaled` converts unscaled sizes to tokens."""

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

    def provider(self, card: ModelCard, purpose: str) -> "SummaryProvider":
        """Return itself for the model of the replay. Raises `NoModel` for a turn, for another model, and without summaries."""
        if purpose == TURN or card.name != self._card.name or (self._summariser is None and self._real is None):
            raise NoModel(f"the replay has no {card.name} for {purpose} and continues without it")
        return self

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        """Yield the summary."""
        if not isinstance(request, SimulatedRequest):
            raise NoModel("a replay answers only its own simulated requests")
        yield await self.reply(request)

    async def reply(self, request: SimulatedRequest) -> ModelReplied:
        """Return the summary for a request, with its output tokens."""
        view, params = request.view, request.params
        if self._real is not None:
            reply = await self._real(view, request.tools, params, self._fetch)
            written = reply.usage.output or self._scaled(sum(map(palimpsest_size, reply.parts)))
            return replace(reply, usage=replace(reply.usage, output=written))
        if self._summariser is None:
            raise NoModel("the replay has no model")
        return self._summariser.reply(view, params, self._card)
