"""A session that runs a recording under a profile through the engine, with a provider that bills instead of sending."""

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
from palimpsest.lab.outcome import BilledCall, Purpose
from palimpsest.lab.simulation.billing import Billing
from palimpsest.lab.simulation.cache_simulator import CacheSimulator
from palimpsest.lab.simulation.environment import ReplayEnvironment
from palimpsest.lab.simulation.imitated_summaries import Summariser, sampled_names, summary_statistics_of
from palimpsest.lab.simulation.recording import RecordedSession
from palimpsest.lab.simulation.rereads import NameIndex, VisibleNames
from palimpsest.lab.simulation.simulated_requests import RealSummaries, SimulatedEncoder, SummaryProvider
from palimpsest.profiles.profile import Profile
from palimpsest.wire.encoding.media import Fetch
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.models.prices import cost
from palimpsest.wire.request import Params, Tool

Result = TypeVar("Result")


class Simulation:
    """One recording under one profile: its session, its environment, and all billed calls.

    `answer` returns the reply to a turn call, its output tokens and its purpose; `on_policy_run` gets the policy run of each moment.
    """

    def __init__(
        self,
        recording: RecordedSession,
        names: NameIndex,
        profile: Profile,
        card: ModelCard,
        ttl: Literal["5m", "1h"],
        *,
        real: RealSummaries | None = None,
    ) -> None:
        # Without a separate prompt limit, the same formula triggers at the same size for all cards.
        card = replace(card, input_limit=None)
        self.calibration = recording.calibration
        self.environment = ReplayEnvironment(recording.blobs)
        self.environment.clock.time = recording.steps[0].at if recording.steps else 0
        self.visible_names = VisibleNames(names)
        self.counter = TokenCounter(palimpsest_size, self.calibration.factor, drops_cached=card.cache_edits)
        self.simulator = CacheSimulator(card, self.counter.item, ttl)
        self.session = Session.create(SessionOpened(recording.session, cwd=recording.cwd), profile, card, self.environment.for_session())
        self.session.params = replace(self.session.params, ttl=ttl)
        self.session.derived.remember_names(names.shown, names.used_in)
        self.billing = self._create_billing(profile, card, real)
        environment = self.session.environment
        self.session.environment = with_fields(environment, provider=self.billing.provider, encoder=self._encoder, offload=self._timed)
        self.answer: Callable[[View], tuple[ModelReplied, int, Purpose]] = _nothing_recorded
        self.on_policy_run: Callable[[Moment, PolicyRun], None] = lambda *_: None
        self.calls: list[BilledCall] = []
        self.step = 0
        self.stopped = ""
        self._purpose: Purpose = "turn"
        self._offloaded_seconds = 0.0

    def _create_billing(self, profile: Profile, card: ModelCard, real: RealSummaries | None) -> Billing:
        statistics = summary_statistics_of(profile.name)

        def sample_names(marker: str) -> None:
            # A summary keeps as many names as those of the imitated program.
            if statistics is not None:
                self.visible_names.update(self.session.log.view)
                self.visible_names.add_sampled(
                    marker, sampled_names(self.visible_names.visible(), statistics, self.session.derived.evidence.value())
                )

        summariser = None if statistics is None else Summariser(statistics, self.calibration.factor, self.session, sample_names)
        summaries = SummaryProvider(card, summariser, self.environment.blobs.get, self.calibration.scaled, real=real)
        return Billing(card, self.simulator, summaries, now=self.environment.clock.now, reply=self._reply, book=self._book)

    def _encoder(self, card: ModelCard, tools: tuple[Tool, ...], params: Params, _: Fetch) -> SimulatedEncoder:
        return SimulatedEncoder(card, lambda: self.session.log.view, self.billing.breakpoints, tools=tools, params=params)

    @property
    def now(self) -> int:
        """Current time of the recording, in milliseconds."""
        return self.environment.clock.now()

    @property
    def plan_seconds(self) -> float:
        """Seconds spent on planning and checking edits."""
        return self._offloaded_seconds - self.billing.layout_seconds

    async def start_turn(self, incoming: int) -> None:
        """Start a turn with `incoming` tokens of input."""
        await self._record_moment("turn_starts", start_turn(self.session, incoming=incoming))

    async def end_turn(self) -> None:
        """End the turn."""
        await self._record_moment("turn_ends", end_turn(self.session))

    async def call(self) -> ModelReplied:
        """Make one call through the engine. A request that stays too long is sent unchanged, because the recorded work went on."""
        overflows_before = self.billing.overflows
        try:
            reply = await call(self.session, after_policies=self.on_policy_run)
        except (TooFull, PromptTooLong) as error:
            if isinstance(error, TooFull):
                self.stopped = self.stopped or error.message
            # A request that the engine refused never reached the provider, so it is counted here.
            if overflows_before == self.billing.overflows and self.simulator.size(self.session.log.view) > self.session.card.window:
                self.billing.overflows += 1
            reply = await self._send_unchanged()
        for part in reply.parts:
            if isinstance(part, ToolCall):
                self.environment.record_call(part)
        return reply

    async def _send_unchanged(self) -> ModelReplied:
        self.billing.accepts_all = True
        try:
            return await send(self.session, turn_request(self.session))
        finally:
            self.billing.accepts_all = False

    async def _record_moment(self, moment: Moment, policy_run: Awaitable[PolicyRun]) -> None:
        try:
            self.on_policy_run(moment, await policy_run)
        except TooFull as error:
            self.stopped = self.stopped or error.message

    def _reply(self, view: View) -> tuple[ModelReplied, int]:
        reply, output, self._purpose = self.answer(view)
        return reply, output

    def _book(self, usage: Usage, purpose: str) -> None:
        booked: Purpose = self._purpose if purpose == TURN else "summary"
        self.calls.append(BilledCall(self.step, self.now, booked, usage, cost(usage, self.session.card)))

    async def _timed(self, work: Callable[[], Result], /) -> Result:
        began = perf_counter()
        try:
            return work()
        finally:
            self._offloaded_seconds += perf_counter() - began


def _nothing_recorded(_: View) -> tuple[ModelReplied, int, Purpose]:
    return ModelReplied(()), 0, "turn"
