"""A session that runs a recording under a profile through the engine: its environment, and the bill of its requests, which are not sent."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace as with_fields
from time import perf_counter
from typing import Final, Literal, TypeVar

from msgspec import Raw
from msgspec.structs import replace

from palimpsest.core.errors import NoModel, PromptTooLong, TooFull
from palimpsest.core.events import TURN, ContextStated, ModelReplied, SessionOpened, Statement, Usage
from palimpsest.core.events.deltas import Delta
from palimpsest.core.items import Content, Signature, Thinking, ToolCall, text_of
from palimpsest.core.policy import Look
from palimpsest.core.ports import Provider, Sendable
from palimpsest.core.situation import Moment
from palimpsest.core.tokens.counter import TokenCounter
from palimpsest.core.tokens.sizes import palimpsest_size
from palimpsest.core.view import View, shown
from palimpsest.engine.calls.call import call, turn_request
from palimpsest.engine.calls.moments import compact, end_turn, start_turn
from palimpsest.engine.calls.sending import send
from palimpsest.engine.environment import Environment, inline
from palimpsest.engine.policies import PolicyRun
from palimpsest.engine.session import Session
from palimpsest.lab.outcome import BilledCall, Purpose
from palimpsest.lab.rereads.visible import VisibleKeys
from palimpsest.lab.simulation.cache_simulator import CacheSimulator
from palimpsest.lab.simulation.imitated_summaries import SummaryStatistics, sampled_names
from palimpsest.lab.simulation.keeping_alive import KEEP_ALIVE_PURPOSE, SHORT_REPLY, KeepAliveProvider
from palimpsest.lab.simulation.recorded_files import RecordedFiles
from palimpsest.lab.simulation.recording import RecordedSession
from palimpsest.lab.simulation.recording_index import RecordingIndex
from palimpsest.lab.simulation.simulated_requests import RealSummaries, SimulatedRequest, SummaryProvider, simulated_encoder
from palimpsest.profiles.profile import Profile
from palimpsest.providers.retrying import NO_RETRIES
from palimpsest.stores.ephemeral import FixedClock, MemorySessions
from palimpsest.stores.overlay import OverlayBlobs
from palimpsest.wire.models.cards import CARDS, ModelCard, card, resized
from palimpsest.wire.models.prices import simulated_cost
from palimpsest.wire.past_requests import is_bound
from palimpsest.wire.request import Params

Result = TypeVar("Result")
WINDOW: Final = 200_000
# Replies are recorded, so the reply limit of a card matters only to the trigger formulas of imitated programs.
_REPLY_LIMIT: Final = 32_000
# Sources of context that reports what happened at the prompt, such as commands of the program itself; it is stated once.
_EVENT_SOURCES: Final = frozenset(
    {"", "command", "command-caveat", "command-output", "developer", "ide", "interrupted", "local_command", "meta"}
)


def replay_card(name: str, cards: Iterable[ModelCard] = CARDS, *, window: int = WINDOW) -> ModelCard:
    """Return a card with a common window and reply limit, so that every profile triggers at the same size for every model.

    Only a model whose calls cost more from a smaller size on is used up to that size.
    """
    return for_replay(card(name, cards), window)


def for_replay(model: ModelCard, window: int) -> ModelCard:
    """Return a card with a window and without a separate prompt limit, so that a formula triggers at the same size for every model."""
    found = resized(model, window)
    return replace(found, reply=max(found.reply, min(_REPLY_LIMIT, window // 2)), input_limit=None)


def lasting_context(recording: RecordedSession) -> tuple[Statement, ...]:
    """Return what the program stated before its first call and states again after a fold: instructions, skills, agents, environment."""
    inputs = recording.steps[0].inputs if recording.steps else ()
    stated = [statement for each in inputs if isinstance(each.body, ContextStated) for statement in each.body.items]
    return tuple(statement for statement in stated if statement.source not in _EVENT_SOURCES)


def as_thought_by(part: Content, card: ModelCard) -> Content:
    """Return thinking with a signature of a model, and any other content as it is."""
    if not isinstance(part, Thinking):
        return part
    data = "" if part.signature is None else part.signature.data
    return replace(part, signature=Signature(card.provider, card.name, data))


class ReplayEnvironment:
    """Recorded time, blobs and files of a replay."""

    def __init__(self, recording: RecordedSession) -> None:
        self.clock = FixedClock(recording.steps[0].at if recording.steps else 0)
        self.blobs = OverlayBlobs(recording.blobs)
        self.files = RecordedFiles(recording.cwd)
        self._saved_names: set[str] = set()
        self._transcript = recording.transcript

    def for_session(self) -> Environment:
        """Return the environment for a session; it has no models."""
        store, transcript = MemorySessions(), self._transcript
        return Environment(
            store, self.blobs, self.clock, self._save_file, self._read_file, offload=inline, retries=NO_RETRIES, transcript=transcript
        )

    def _save_file(self, name: str, data: bytes) -> str:
        self._saved_names.add(name)
        return f"kept/{name}"

    def _read_file(self, want: Look) -> str | None:
        if want.what != "file":
            return None
        return "" if want.name in self._saved_names else self.files.text(want.name)


class Simulation:
    """One recording under one profile: its session, its environment, and all billed calls; it is the provider of the session.

    `answer` returns the reply to a turn call, its output tokens and its purpose; `on_policy_run` gets the policy run of each moment.
    `overflows` counts requests that exceeded the window.
    """

    def __init__(
        self,
        recording: RecordedSession,
        index: RecordingIndex,
        profile: Profile,
        card: ModelCard,
        ttl: Literal["5m", "1h"],
        *,
        real: RealSummaries | None = None,
    ) -> None:
        # Without a separate prompt limit, the same formula triggers at the same size for all cards.
        card = replace(card, input_limit=None)
        self.calibration = recording.calibration
        self.environment = ReplayEnvironment(recording)
        self.visible_keys = {name: VisibleKeys(keys) for name, keys in index.keys.items()}
        self.counter = TokenCounter(palimpsest_size, self.calibration.factor, drops_cached=card.cache_edits)
        self.simulator = CacheSimulator(card, self.counter.item)
        self.session = Session.create(SessionOpened(recording.session, cwd=recording.cwd), profile, card, self.environment.for_session())
        self.session.params = replace(self.session.params, ttl=ttl)
        self.session.derived.remember_names(index.shown, index.used_in)
        self._summaries = SummaryProvider(self.session, self.calibration.factor, real, self._sample_names)
        encoder = simulated_encoder(self.session, self._breakpoints)
        self.session.environment = with_fields(self.session.environment, provider=self._provider, encoder=encoder, offload=self._timed)
        self.answer: Callable[[View], tuple[ModelReplied, int, Purpose]]
        self.on_policy_run: Callable[[Moment, PolicyRun], None] = lambda *_: None
        self.calls: list[BilledCall] = []
        self._lasting_context = lasting_context(recording)
        self.step = 0
        self.stopped = ""
        self.overflows = 0
        self.thinking_blocks = 0
        self._accepts_all = False
        self._offloaded_seconds = 0.0
        self._layout_seconds = 0.0

    def _sample_names(self, marker: str, statistics: SummaryStatistics) -> None:
        """Let a summary keep as many names as those of the imitated program."""
        evidence = self.session.derived.evidence.value()
        for visible_keys in self.visible_keys.values():
            visible_keys.update(self.session.log.view)
            visible_keys.add_sampled(marker, sampled_names(visible_keys.visible(), statistics, evidence))

    @property
    def now(self) -> int:
        """Current time of the recording, in milliseconds."""
        return self.environment.clock.now()

    @property
    def plan_seconds(self) -> float:
        """Seconds spent on planning and checking edits."""
        return self._offloaded_seconds - self._layout_seconds

    async def start_turn(self, incoming: int) -> None:
        """Start a turn with `incoming` tokens of input."""
        await self._record_moment("turn_starts", start_turn(self.session, incoming=incoming))

    async def fold(self) -> None:
        """Fold now, as if the user had asked for it."""
        await self._record_moment("asked", compact(self.session))

    async def end_turn(self) -> None:
        """End the turn."""
        await self._record_moment("turn_ends", end_turn(self.session))

    async def restate_context(self) -> None:
        """State the lasting context of the session again that a fold removed, as every program does."""
        log = self.session.log
        visible = {text_of(content) for item in log.view.items if item.kind == "context" and (content := shown(item)) is not None}
        removed = tuple(statement for statement in self._lasting_context if statement.text not in visible)
        if removed:
            log.append(ContextStated(removed))

    async def call(self) -> ModelReplied:
        """Make one call through the engine. A request that stays too long is sent unchanged, because the recorded work went on."""
        overflows_before = self.overflows
        try:
            reply = await call(self.session, after_policies=self.on_policy_run, after_fold=self.restate_context)
        except (TooFull, PromptTooLong) as error:
            if isinstance(error, TooFull):
                self.stopped = self.stopped or error.message
            # A request that the engine refused never reached the provider, so it is counted here.
            if overflows_before == self.overflows and self.simulator.size(self.session.log.view) > self.session.card.window:
                self.overflows += 1
            reply = await self._send_unchanged()
        for part in reply.parts:
            if isinstance(part, ToolCall):
                self.environment.files.record_call(part)
        return reply

    async def _send_unchanged(self) -> ModelReplied:
        self._accepts_all = True
        try:
            return await send(self.session, turn_request(self.session))
        finally:
            self._accepts_all = False

    async def _record_moment(self, moment: Moment, policy_run: Awaitable[PolicyRun]) -> None:
        try:
            run = await policy_run
            self.on_policy_run(moment, run)
            if run.folded:
                await self.restate_context()
        except TooFull as error:
            self.stopped = self.stopped or error.message

    def _provider(self, card: ModelCard, purpose: str) -> Provider:
        """Return itself for turns and for purposes that have summaries. Raises `NoModel` for others."""
        if purpose == KEEP_ALIVE_PURPOSE:
            return KeepAliveProvider(card.name, self.bill_read)
        if purpose != TURN:
            self._summaries.provider(card, purpose)
        return self

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        """Yield the reply, with the usage that the cache simulator computes. Raises `PromptTooLong` if the window is exceeded."""
        if not isinstance(request, SimulatedRequest):
            raise NoModel("a replay bills only its own simulated requests")
        yield await self._summary(request) if request.aside else self._turn(request)

    def _turn(self, request: SimulatedRequest) -> ModelReplied:
        view, card = self._as_sent(request.view), self.session.card
        if not self._accepts_all and self.simulator.size(view) > card.window:
            self.overflows += 1
            raise PromptTooLong("the request is longer than the window")
        reply, output, purpose = self.answer(request.view)
        usage = replace(self.simulator.turn(view, request.params, self.now), output=output)
        self._bill(usage, purpose)
        reply = replace(reply, usage=usage, model=card.name, foreign=Raw(b"null"))
        return self._with_bound_thinking(reply) if is_bound(card) else reply

    def _as_sent(self, view: View) -> View:
        """Return a view without the thinking that no longer fits what stands before it."""
        withheld = frozenset(self.session.withheld)
        return replace(view, items=tuple(item for item in view.items if item.id not in withheld)) if withheld else view

    def _with_bound_thinking(self, reply: ModelReplied) -> ModelReplied:
        """Return a recorded reply with its thinking as if the model of the replay had thought it, so that edits cost what they would."""
        parts = tuple(as_thought_by(part, self.session.card) for part in reply.parts)
        self.thinking_blocks += sum(isinstance(part, Thinking) for part in parts)
        return replace(reply, parts=parts)

    async def _summary(self, request: SimulatedRequest) -> ModelReplied:
        """Return a summary, billed as if it shared the cache of the conversation."""
        view = request.view
        if sum(map(self.counter.item, (*view.head, *view.items))) > self.session.card.window:
            raise PromptTooLong("the request for the summary is too long")
        usage = self.simulator.aside(view, request.params, self.now)
        reply = await self._summaries.reply(request)
        usage = replace(usage, output=reply.usage.output)
        self._bill(usage, "summary")
        return replace(reply, usage=usage)

    def bill_read(self, request: SimulatedRequest) -> Usage:
        """Bill a request that only keeps the cache alive, which shares the cache of the conversation."""
        usage = replace(self.simulator.aside(request.view, request.params, self.now), output=SHORT_REPLY)
        self._bill(usage, "keep_alive")
        return usage

    def _bill(self, usage: Usage, purpose: Purpose) -> None:
        self.calls.append(BilledCall(self.step, self.now, purpose, usage, simulated_cost(usage, self.session.card)))

    def _breakpoints(self, view: View, params: Params) -> tuple[str, ...]:
        began = perf_counter()
        found = self.simulator.breakpoints(self._as_sent(view), params)
        self._layout_seconds += perf_counter() - began
        return found

    async def _timed(self, work: Callable[[], Result], /) -> Result:
        began = perf_counter()
        try:
            return work()
        finally:
            self._offloaded_seconds += perf_counter() - began
