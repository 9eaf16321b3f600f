"""Providers of a replay: one that bills requests instead of sending them, and one that counts the requests to a real model."""

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
from palimpsest.lab.simulation.unsent import RealSummaries, Summaries, Unsent
from palimpsest.wire.encoding.media import Fetch
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.request import Params, Tool


class Asked:
    """The requests that one profile sent to a model; a policy that gets no answer goes on without, so that only this tells."""

    def __init__(self, real: RealSummaries) -> None:
        self._real = real
        self.requests = 0
        self.failed = 0
        self.failure = ""

    async def __call__(self, view: View, tools: tuple[Tool, ...], params: Params, fetch: Fetch, /) -> ModelReplied:
        """The model's reply."""
        self.requests += 1
        try:
            return await self._real(view, tools, params, fetch)
        except PalimpsestError as error:
            self.failed += 1
            self.failure = self.failure or error.message
            raise


class Billing:
    """Answers turn calls by `reply` and side calls with summaries, and books what each would have cost.

    `reply` gives the next reply to a view and the tokens that the model wrote; `book` gets every bill with the purpose of its call.
    """

    def __init__(
        self,
        card: ModelCard,
        simulator: CacheSimulator,
        summaries: Summaries,
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
        """The cache breakpoints of a turn call."""
        began = perf_counter()
        found = self._simulator.breakpoints(view, params)
        self.layout_seconds += perf_counter() - began
        return found

    def provider(self, card: ModelCard, purpose: str) -> Provider:
        """Itself, for turns and for the purposes that have summaries. Raises `NoModel` for others."""
        if purpose != TURN:
            self._summaries.provider(card, purpose)
        return self

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        """The reply, with the usage that the simulated cache makes of the request."""
        if not isinstance(request, Unsent):
            raise NoModel("a replay bills only what it laid out itself")
        yield await self._summary(request) if request.aside else self._turn(request)

    def _turn(self, request: Unsent) -> ModelReplied:
        view = request.view
        if not self.accepts_all and self._simulator.size(view) > self._card.window:
            self.overflows += 1
            raise PromptTooLong("the request is longer than the window")
        reply, output = self._reply(view)
        usage = replace(self._simulator.turn(view, request.params, self._now()).usage, output=output)
        self._book(usage, TURN)
        return replace(reply, usage=usage, model=self._card.name, foreign=Raw(b"null"))

    async def _summary(self, request: Unsent) -> ModelReplied:
        """A summary, billed as if it had shared the cache of the conversation."""
        view, params = request.view, request.params
        if self._simulator.tokens((*view.head, *view.items)) > self._card.window:
            raise PromptTooLong("the request for the summary is too long")
        usage = self._simulator.aside(view.head, view.items, params.breakpoint_rule, self._now()).usage
        reply = await self._summaries.reply(request)
        usage = replace(usage, output=reply.usage.output)
        self._book(usage, "summary")
        return replace(reply, usage=usage)
