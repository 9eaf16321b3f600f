"""Bars of the time to prepare a request, of a turn or of another program, to plan edits, and that the engine blocks an event loop."""

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import suppress
from statistics import median
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from palimpsest.core.events import CallStarted, ModelReplied, SessionOpened, ToolReturned, UserSaid
from palimpsest.core.events.deltas import Delta, TextDelta
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.core.log.log import Log
from palimpsest.core.policy import Policy, complete
from palimpsest.core.ports import Blobs, Clock, Sendable, SessionStore
from palimpsest.core.situation import Situation
from palimpsest.core.tokens.budget import decide
from palimpsest.engine.calls.call import call
from palimpsest.engine.calls.moments import compact, end_turn, start_turn
from palimpsest.engine.calls.plans import carry_out_now
from palimpsest.engine.conversation.conversation import Conversation
from palimpsest.engine.environment import Environment, inline
from palimpsest.engine.policies import run_policies
from palimpsest.engine.session import Session
from palimpsest.lab.bench.bars import Bar, bar, peer_value
from palimpsest.lab.bench.peers import Langchain
from palimpsest.lab.bench.workspace import MODEL, BenchWorkspace, SyntheticRounds
from palimpsest.lab.synthetic.sessions import synthetic_session
from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.profiles.named import PROFILES, profile
from palimpsest.profiles.profile import Profile
from palimpsest.stores.ephemeral import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.wire.models.cards import card

_MODEL = "claude-sonnet-4-5"
_TICK_S = 0.001
# Unscaled tokens of a session whose view has about 200,000 tokens of the model.
_TOKENS = 135_000
_RUNS = 3


class _StreamingProvider:
    """A provider that streams a few words."""

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        words = ("Three ", "files ", "changed.")
        for word in words:
            yield TextDelta(word)
            await asyncio.sleep(0)
        yield ModelReplied((Text("".join(words), "assistant"),), stop="end_turn", model=_MODEL)


async def _longest_delay() -> float:
    """Return how late a timer of one millisecond fired at most until cancelled, in seconds: so long was the event loop blocked."""
    longest = 0.0
    with suppress(asyncio.CancelledError):
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(_TICK_S)
            longest = max(longest, time.perf_counter() - begun - _TICK_S)
    return longest


def measure_blocking(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `loop_ms`."""
    workspace.announce("how long the event loop is blocked")
    found = [_blocked_seconds(workspace, number) for number in range(_RUNS)]
    yield bar("loop_ms", min(each[0] for each in found) * 1_000, tokens=min(each[1] for each in found))


def _blocked_seconds(workspace: BenchWorkspace, number: int) -> tuple[float, int]:
    """Return the longest block in seconds during a turn with a fold, and the tokens before it."""
    log = synthetic_session(number + 1, _TOKENS, workspace.store, f"blocking-{number}")
    environment = Environment(workspace.store, MemoryBlobs(), workspace.clock, provider=lambda *_: _StreamingProvider())
    with Session(log, profile("palimpsest"), card(_MODEL), environment) as session:
        tokens = session.used
        return asyncio.run(_turn(session)), tokens


async def _turn(session: Session) -> float:
    ticking = asyncio.create_task(_longest_delay())
    await start_turn(session)
    session.log.append(UserSaid((Text("Summarise what you changed, file by file."),)))
    await call(session)
    await compact(session)
    await call(session)
    await end_turn(session)
    ticking.cancel()
    return await ticking


Result = TypeVar("Result")
_CARD = card(MODEL)
# Without policies and without a blocking level, because views of these sessions are sometimes larger than the window.
_PROFILE = Profile("bench", (), lambda model: replace(palimpsest_budget(model.window, model.reply), block_at=None))


class _InstantProvider:
    """A provider that replies at once, and records when the request reached it."""

    def __init__(self) -> None:
        self.reply = ModelReplied(())
        self.reached = 0.0

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        self.reached = time.perf_counter()
        yield self.reply


class Turns:
    """A session that runs through the engine; each sample is one round, timed from the call to the moment its request is sent.

    Disk time is excluded; the bar `append` measures it.
    """

    def __init__(self, log: Log, rounds: SyntheticRounds, blobs: Blobs, clock: Clock, store: SessionStore) -> None:
        self._rounds = rounds
        self._provider = _InstantProvider()
        self._sync_seconds = 0.0
        environment = Environment(store, blobs, clock, provider=lambda *_: self._provider, offload=self._without_disk)
        self._session = Session(log, _PROFILE, _CARD, environment)
        self._decision_seconds = 0.0
        self.run_round()

    def run_round(self) -> float:
        """Run one round. Returns the seconds of its call: projections, view, decision and request."""
        seconds = 0.0
        for body in self._rounds.next_round():
            match body:
                case CallStarted():
                    continue
                case ModelReplied():
                    seconds = self._call(body)
                case _:
                    self._session.log.append(body)
        return seconds

    def _call(self, reply: ModelReplied) -> float:
        session, self._provider.reply, self._sync_seconds = self._session, reply, 0.0
        begun = time.perf_counter()
        session.log.catch_up()
        view = session.log.view
        view_ready = time.perf_counter()
        decide(session.profile.count(view, session.counter, session.tools_tokens), session.budget)
        decided = time.perf_counter()
        complete(call(session))
        self._decision_seconds = decided - view_ready
        return self._provider.reached - begun - self._sync_seconds

    async def _without_disk(self, work: Callable[[], Result], /) -> Result:
        begun = time.perf_counter()
        result = work()
        if work == self._session.log.sync:
            self._sync_seconds += time.perf_counter() - begun
        return result

    def last_decision(self) -> float:
        """Return the seconds of the newest decision."""
        return self._decision_seconds


def measure_turns(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `turn_*` and `decide`."""
    peer = Langchain.find(workspace)
    decision_seconds: dict[str, float] = {}
    for length in workspace.sizes.lengths:
        name = f"turn_{length}"
        if name not in wanted and "decide" not in wanted:
            continue
        workspace.announce(f"turns after {workspace.sizes.lengths[length]:,} events")
        log, rounds = workspace.writer(length)
        with log:
            turns = Turns(log, rounds, MemoryBlobs(), workspace.clock, workspace.store)
            turn_units, decision_seconds[length] = workspace.unit.of_timed(workspace.sizes.rounds, turns.run_round, turns.last_decision)
        if name in wanted:
            yield bar(name, turn_units, peer_value(Langchain.NAME, peer and peer.turn(length)))
    if "decide" in wanted:
        yield bar("decide", max(decision_seconds.values()), peer_value(Langchain.NAME, peer and peer.decide()), **decision_seconds)


# Tool, arguments and output of a call.
_Use = tuple[str, str, str]
_PLANS, _QUICK_PLANS = 20, 200
# Milliseconds after which no prompt cache is warm.
_COLD_MS = 400_000


def measure_planning(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """`plan_ms` and `fold_ms`."""
    if "plan_ms" in wanted:
        workspace.announce("how long plans take")
        by_profile = {name: max(_plan_seconds(_session_of_reads(name)), default=0.0) * 1_000 for name in PROFILES}
        dead = max(_dead_plan_seconds("claude-sonnet-4-5", 800), _dead_plan_seconds("gpt-5", 500)) * 1_000
        yield bar("plan_ms", max(*by_profile.values(), dead), None, **by_profile, small_dead_results=dead)
    if "fold_ms" in wanted:
        workspace.announce("how long a fold takes")
        yield bar("fold_ms", min(_fold_seconds() for _ in range(_RUNS)) * 1_000)


def _session_of_reads(name: str) -> Session:
    """A session of 100 files of 2,000 tokens each, most of them long out of use."""
    reads = [("Read", f'{{"file_path":"f{number}.py"}}', f"value_{number} = 1\n" * 560) for number in range(100)]
    return _session_of(name, _MODEL, reads)


def _session_of(name: str, model: str, uses: Iterable[_Use]) -> Session:
    environment = Environment(MemorySessions(), MemoryBlobs(), FixedClock(1_700_000_000_000, 1_000), offload=inline)
    session = Session.create(SessionOpened("plans", cwd="/repo"), profile(name), card(model), environment)
    log = session.log
    log.append(UserSaid((Text("read all of it, and never touch a.py"),)))
    for number, (tool, args, output) in enumerate(uses):
        started = log.append(CallStarted(session.card.name, session.card.wire, estimate=session.counter.raw(log.view)))
        log.append(ModelReplied((ToolCall(f"c{number}", tool, args),), call=started.seq, stop="end_turn"))
        log.append(ToolReturned(ToolResult(f"c{number}", (Text(output),)), tool=tool))
    return session


def _plan_seconds(session: Session) -> Iterator[float]:
    """Seconds of each policy of a profile: before a call with a full window, and at each moment with a window that is far from full."""
    for policy in session.profile.policies:
        # A plan that folds is another bar; that of `compress` also encodes the whole conversation, to save it.
        if "before_call" in policy.moments and policy.name not in ("fold", "compress"):
            yield _least_seconds(policy, session.situation("before_call"), _PLANS)
    session.switch(replace(session.card, window=3_000_000, input_limit=None))
    for policy in session.profile.policies:
        for moment in policy.moments - {"asked", "overflow"}:
            situation = dataclasses.replace(session.situation(moment, used=40_000), rent=0.0)
            yield _least_seconds(policy, situation, _PLANS)


def _dead_plan_seconds(model: str, count: int) -> float:
    """Seconds of the policy that clears dead results, for hundreds of small ones, with a warm and with a cold cache."""
    uses = [("Bash", f'{{"command":"make t{number}"}}', f"value_{number} = 1\n" * (38_400 // count)) for number in range(count)]
    session = _session_of("palimpsest", model, uses)
    warm = session.situation("before_call", used=150_000)
    warm = dataclasses.replace(warm, now=warm.now + 1, uses={name: replace(use, died=use.died or 2) for name, use in warm.uses.items()})
    cold = dataclasses.replace(warm, now=warm.now + _COLD_MS)
    policy = session.profile.policies[0]
    return max(_least_seconds(policy, situation, _QUICK_PLANS) for situation in (warm, cold))


def _least_seconds(policy: Policy, situation: Situation, times: int) -> float:
    """The least processor time of a plan, up to the first thing that it wants from outside."""
    least = float("inf")
    for _ in range(times):
        begun = time.process_time()
        plan = policy.plan(situation)
        if isinstance(plan, Generator):
            next(plan, None)
        least = min(least, time.process_time() - begun)
    return least


def _fold_seconds() -> float:
    session = _session_of_reads("palimpsest")
    begun = time.process_time()
    carry_out_now(run_policies(session, "asked"), session)
    return time.process_time() - begun


# Rounds of a list that has about 200,000 tokens: a call, its result of 1,300 characters, and a sentence.
_LIST_ROUNDS: Final = 400
_PREPARED: Final = 40


def measure_mirror(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `mirror_ms`."""
    workspace.announce("how long the list of another program takes")
    found: dict[str, float] = {}
    tokens = 0
    for name, settings in (("untouched", {"PAL_THRIFT": "careful"}), ("edited", {"PAL_THRIFT": "thrifty"})):
        for parsed in (False, True):
            # A window in which nothing is folded, because a fold is another bar.
            model = replace(_CARD, window=3_000_000, input_limit=None)
            with Conversation.open(model=model, settings=settings | {"PAL_AUTO_COMPACT": "off"}) as conversation:
                found[f"{name}_parsed" if parsed else name] = _prepare_seconds(conversation, edits=name == "edited", parsed=parsed) * 1_000
                tokens = max(tokens, conversation.session.used)
    yield bar("mirror_ms", max(found.values()), None, tokens=tokens, **found)


def _prepare_seconds(conversation: Conversation, *, edits: bool, parsed: bool) -> float:
    """Seconds of processor time of a request that extends the list by a round: the median, of requests before which nothing is edited."""
    messages: list[dict[str, object]] = [{"role": "user", "content": "Read all of it, and never touch a.py."}]
    messages += [message for number in range(_LIST_ROUNDS) for message in _round(number, edits=edits)]
    conversation.prepare(messages)
    samples: list[float] = []
    for number in range(_LIST_ROUNDS, _LIST_ROUNDS + _PREPARED):
        messages += _round(number, edits=edits)
        given = msgspec.json.decode(msgspec.json.encode(messages)) if parsed else messages
        count = len(conversation.audit())
        begun = time.process_time()
        conversation.prepare(given)
        taken = time.process_time() - begun
        if len(conversation.audit()) == count:
            samples.append(taken)
    return median(samples)


def _round(number: int, *, edits: bool) -> list[dict[str, object]]:
    """A call of a tool and its result, which is soon dead if the list shall be edited; else two sentences as long."""
    words = f"value_{number} = part_{number}.of(main, other)\n" * 32
    if not edits:
        return [{"role": "assistant", "content": f"Part {number}."}, {"role": "user", "content": words}]
    call = {"type": "tool_use", "id": f"c{number}", "name": "Bash", "input": {"command": f"make t{number}"}}
    result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": words}
    return [{"role": "assistant", "content": [{"type": "text", "text": "Next."}, call]}, {"role": "user", "content": [result]}]
