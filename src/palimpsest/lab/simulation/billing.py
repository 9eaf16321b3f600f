"""Providers of a replay: one bills requests instead of sending them, one counts the requests to a real model."""

from collections.abc import AsyncIterator, Callable
from time import perf_counter

from msgspec import Raw
from msgspec.structs import replace

from palimpsest.core.errors import NoModel, PalimpsestError, PromptTooLong
from palimpsest.core.events import TURN, ModelReplied, Usage
from palimpsest.core.events.deltas import Delta
from palimpsest.core.ports import Provider, Sendable
from palimpsest.core.view import View
from palimpsest.lab.simulation.cache_simulator import CacheSimulator
from palimpsest.lab.simulation.simulated_requests import RealSummaries, SimulatedRequest, SummaryProvider
from palimpsest.wire.encoding.media import Fetch
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.request import Params, Tool


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


class Billing:
    """Answers turn calls by `reply` and side calls with summaries, and bills each request.

    `reply` returns the next reply to a view and its output tokens; `book` gets the usage and the purpose of every request.
    """

    def __init__(
        self,
        card: ModelCard,
        simulator: CacheSimulator,
        summaries: SummaryProvider,
        *,
        now: Callable[[], int],
        reply: Callable[[View], tuple[ModelReplied, int]],
        book: Callable[[Usage, str], None],
    ) -> None:
        self._card = card
        self._simulator = simulator
        self._summaries = summaries
        self._now = now
        self._reply = reply
        self._book = book
        self.layout_seconds = 0.0
        self.accepts_all = False
        self.overflows = 0

    def breakpoints(self, view: View, params: Params) -> tuple[str, ...]:
        """Return the cache breakpoints of a turn call."""
        began = perf_counter()
        found = self._simulator.breakpoints(view, params)
        self.layout_seconds += perf_counter() - began
        return found

    def provider(self, card: ModelCard, purpose: str) -> Provider:
        """Return itself for turns and for purposes that have summaries. Raises `NoModel` for others."""
        if purpose != TURN:
            self._summaries.provider(card, purpose)
        return self

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        """Yield the reply, with the usage that the cache simulator computes. Raises `PromptTooLong` if the window is exceeded."""
        if not isinstance(request, SimulatedRequest):
            raise NoModel("a replay bills only its own simulated requests")
        yield await self._summary(request) if request.aside else self._turn(request)

    def _turn(self, request: SimulatedRequest) -> ModelReplied:
        view = request.view
        if not self.accepts_all and self._simulator.size(view) > self._card.window:
            self.overflows += 1
            raise PromptTooLong("the request is longer than the window")
        reply, output = self._reply(view)
        usage = replace(self._simulator.turn(view, request.params, self._now()).usage, output=output)
        self._book(usage, TURN)
        return replace(reply, usage=usage, model=self._card.name, foreign=Raw(b"null"))

    async def _summary(self, request: SimulatedRequest) -> ModelReplied:
        """Return a summary, billed as if it shared the cache of the conversation."""
        view, params = request.view, request.params
        if self._simulator.tokens((*view.head, *view.items)) > self._card.window:
            raise PromptTooLong("the request for the summary is too long")
        usage = self._simulator.aside(view.head, view.items, params.breakpoint_rule, self._now()).usage
        reply = await self._summaries.reply(request)
        usage = replace(usage, output=reply.usage.output)
        self._book(usage, "summary")
        return replace(reply, usage=usage)
