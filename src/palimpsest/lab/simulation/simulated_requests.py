"""Simulated requests, which are never sent, and the summaries that answer side requests."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from dataclasses import replace as with_fields
from typing import Protocol, Self

from msgspec.structs import replace

from palimpsest.core.errors import NoModel, PalimpsestError
from palimpsest.core.events import TURN, ModelReplied
from palimpsest.core.events.deltas import Delta
from palimpsest.core.items import Value
from palimpsest.core.ports import Sendable
from palimpsest.core.tokens.sizes import palimpsest_size
from palimpsest.core.view import View
from palimpsest.engine.session import Session
from palimpsest.lab.simulation.imitated_summaries import BeforeSummary, Summariser, summary_statistics_of
from palimpsest.wire.encoding.media import Fetch
from palimpsest.wire.models.cards import ModelCard, WireName
from palimpsest.wire.request import Params, Tool


class RealSummaries(Protocol):
    """Asks a real model for a summary of a replay."""

    async def __call__(self, view: View, tools: tuple[Tool, ...], params: Params, fetch: Fetch, /) -> ModelReplied:
        """Return the reply to the request for a view. Raises `ProviderError` if the model fails."""
        ...


class CountedSummaries:
    """Asks a real model for summaries, and counts requests and failures, which policies themselves do not report."""

    def __init__(self, real: RealSummaries) -> None:
        self._real = real
        self.requests = 0
        self.failed = 0
        self.failure = ""

    async def __call__(self, view: View, tools: tuple[Tool, ...], params: Params, fetch: Fetch, /) -> ModelReplied:
        """Return the reply of the model."""
        self.requests += 1
        try:
            return await self._real(view, tools, params, fetch)
        except PalimpsestError as error:
            self.failed += 1
            self.failure = self.failure or error.message
            raise


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


Breakpoints = Callable[[View, Params], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class SimulatedEncoder:
    """Creates simulated requests of a session; `breakpoints` returns the cache breakpoints of a turn call."""

    session: Session
    card: ModelCard
    tools: tuple[Tool, ...]
    params: Params
    breakpoints: Breakpoints

    def encode(self, view: View) -> SimulatedRequest:
        """Return the request for a view."""
        aside = view is not self.session.log.view
        breakpoints = () if aside else self.breakpoints(view, self.params)
        return SimulatedRequest(self.card.wire, view, self.params, self.tools, breakpoints, aside=aside)

    def revised(self, params: Params, tools: tuple[Tool, ...] | None = None) -> Self:
        """Return an encoder with other parameters or tools."""
        return with_fields(self, params=params, tools=self.tools if tools is None else tools)


def simulated_encoder(
    session: Session, breakpoints: Breakpoints = lambda *_: ()
) -> Callable[[ModelCard, tuple[Tool, ...], Params, Fetch], SimulatedEncoder]:
    """Return the `encoder` of an environment in which no request of the session is sent."""
    return lambda card, tools, params, _: SimulatedEncoder(session, card, tools, params, breakpoints)


class SummaryProvider:
    """Answers side requests of a session with a real model, else with the imitated summaries of its profile, if there are any.

    `factor` converts unscaled sizes to tokens.
    """

    def __init__(
        self, session: Session, factor: float, real: RealSummaries | None = None, before_summary: BeforeSummary = lambda *_: None
    ) -> None:
        statistics = summary_statistics_of(session.profile.program)
        self._session = session
        self._factor = factor
        self._real = real
        self._summariser = None if statistics is None else Summariser(statistics, factor, session, before_summary)

    def provider(self, card: ModelCard, purpose: str) -> "SummaryProvider":
        """Return itself for the model of the replay. Raises `NoModel` for a turn, for another model, and without summaries."""
        if purpose == TURN or card.name != self._session.card.name or (self._summariser is None and self._real is None):
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
            reply = await self._real(view, request.tools, params, self._session.environment.blobs.get)
            written = reply.usage.output or round(sum(map(palimpsest_size, reply.parts)) * self._factor)
            return replace(reply, usage=replace(reply.usage, output=written))
        if self._summariser is None:
            raise NoModel("the replay has no model")
        return self._summariser.reply(view, params)
