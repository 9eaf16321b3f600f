"""A recorded session at work under a profile, through the engine itself, with a provider that bills instead of sending."""

from collections.abc import Awaitable, Callable
from dataclasses import replace as with_fields
from time import perf_counter
from typing import Literal, TypeVar

from msgspec.structs import replace

from palimpsest.core.errors import PromptTooLong, TooFull
from palimpsest.core.events import TURN, ModelReplied, SessionOpened, Usage
from palimpsest.core.items import ToolCall
from palimpsest.core.situation import Moment
from palimpsest.core.tokens.counter import TokenCounter
from palimpsest.core.tokens.sizes import palimpsest_size
from palimpsest.core.view import View
from palimpsest.engine.call import call, turn_request
from palimpsest.engine.moments import end_turn, start_turn
from palimpsest.engine.policies import PolicyRun
from palimpsest.engine.sending import send
from palimpsest.engine.session import Session
from palimpsest.lab.outcome import Called, Purpose
from palimpsest.lab.simulation.billing import Billing
from palimpsest.lab.simulation.cache_simulator import CacheSimulator
from palimpsest.lab.simulation.environment import Outside
from palimpsest.lab.simulation.imitation import Summariser, drawn, manner_of
from palimpsest.lab.simulation.recording import Recording
from palimpsest.lab.simulation.rereads import Names, Sight
from palimpsest.lab.simulation.unsent import RealSummaries, Summaries, UnsentEncoder
from palimpsest.profiles.profile import Profile
from palimpsest.wire.encoding.media import Fetch
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.models.prices import cost
from palimpsest.wire.request import Params, Tool

Result = TypeVar("Result")


class Simulation:
    """One recording under one profile: its session, the outside world of the recording, and everything that was billed.

    `answer` gives the reply to a turn call with its tokens and the purpose it is booked for; `ran` hears what came of each moment.
    """

    def __init__(
        self,
        recording: Recording,
        names: Names,
        profile: Profile,
        card: ModelCard,
        ttl: Literal["5m", "1h"],
        *,
        real: RealSummaries | None = None,
    ) -> None:
        # A window is all that counts: with a limit for the prompt alone the same formula would trigger elsewhere for some cards.
        card = replace(card, input_limit=None)
        self.measure = recording.measure
        self.outside = Outside(recording.blobs)
        self.outside.clock.time = recording.steps[0].at if recording.steps else 0
        self.sight = Sight(names)
        self.counter = TokenCounter(palimpsest_size, self.measure.factor, drops_cached=card.cache_edits)
        self.simulator = CacheSimulator(card, self.counter.item, ttl)
        self.session = Session.create(SessionOpened(recording.session, cwd=recording.cwd), profile, card, self.outside.environment())
        self.session.params = replace(self.session.params, ttl=ttl)
        self.session.derived.remember_names(names.shown, names.told)
        self.billing = self._billing(profile, card, real)
        environment = self.session.environment
        self.session.environment = with_fields(environment, provider=self.billing.provider, encoder=self._encoder, offload=self._timed)
        self.answer: Callable[[View], tuple[ModelReplied, int, Purpose]] = _nothing_recorded
        self.ran: Callable[[Moment, PolicyRun], None] = lambda *_: None
        self.calls: list[Called] = []
        self.step = 0
        self.stopped = ""
        self._purpose: Purpose = "turn"
        self._offloaded_seconds = 0.0

    def _billing(self, profile: Profile, card: ModelCard, real: RealSummaries | None) -> Billing:
        manner = manner_of(profile.name)

        def draw(marker: str) -> None:
            # A summary remembers as many names as those of the imitated program do.
            if manner is not None:
                self.sight.look(self.session.log.view)
                self.sight.draw(marker, drawn(self.sight.visible(), manner, self.session.derived.evidence.value()))

        summariser = None if manner is None else Summariser(manner, self.measure.factor, self.session, draw)
        summaries = Summaries(card, summariser, self.outside.blobs.get, self.measure.scaled, real=real)
        return Billing(card, self.simulator, summaries, now=self.outside.clock.now, reply=self._reply, book=self._book)

    def _encoder(self, card: ModelCard, tools: tuple[Tool, ...], params: Params, _: Fetch) -> UnsentEncoder:
        return UnsentEncoder(card, lambda: self.session.log.view, self.billing.breakpoints, tools=tools, params=params)

    @property
    def now(self) -> int:
        """The time of the recording, in milliseconds."""
        return self.outside.clock.now()

    @property
    def plan_seconds(self) -> float:
        """Seconds spent on planning edits and judging them."""
        return self._offloaded_seconds - self.billing.layout_seconds

    async def start_turn(self, incoming: int) -> None:
        """A turn begins, with so many tokens of input."""
        await self._moment("turn_starts", start_turn(self.session, incoming=incoming))

    async def end_turn(self) -> None:
        """The turn ends."""
        await self._moment("turn_ends", end_turn(self.session))

    async def call(self) -> ModelReplied:
        """One call through the engine. A request that no profile makes small enough is sent as it is, for the recorded work went on."""
        refused = self.billing.overflows
        try:
            reply = await call(self.session, after_policies=self.ran)
        except (TooFull, PromptTooLong) as error:
            if isinstance(error, TooFull):
                self.stopped = self.stopped or error.message
            # What the engine itself knew not to fit never reached the provider.
            if refused == self.billing.overflows and self.simulator.size(self.session.log.view) > self.session.card.window:
                self.billing.overflows += 1
            reply = await self._send_as_it_is()
        for part in reply.parts:
            if isinstance(part, ToolCall):
                self.outside.called(part)
        return reply

    async def _send_as_it_is(self) -> ModelReplied:
        self.billing.accepts_all = True
        try:
            return await send(self.session, turn_request(self.session))
        finally:
            self.billing.accepts_all = False

    async def _moment(self, moment: Moment, fired: Awaitable[PolicyRun]) -> None:
        try:
            self.ran(moment, await fired)
        except TooFull as error:
            self.stopped = self.stopped or error.message

    def _reply(self, view: View) -> tuple[ModelReplied, int]:
        reply, output, self._purpose = self.answer(view)
        return reply, output

    def _book(self, usage: Usage, purpose: str) -> None:
        booked: Purpose = self._purpose if purpose == TURN else "summary"
        self.calls.append(Called(self.step, self.now, booked, usage, cost(usage, self.session.card)))

    async def _timed(self, work: Callable[[], Result], /) -> Result:
        began = perf_counter()
        try:
            return work()
        finally:
            self._offloaded_seconds += perf_counter() - began


def _nothing_recorded(_: View) -> tuple[ModelReplied, int, Purpose]:
    return ModelReplied(()), 0, "turn"
