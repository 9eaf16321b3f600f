"""Benchmarks of the engine: logs on disk, preparing requests, errors of token estimates, search, and start times."""

import asyncio
import dataclasses
import json
import os
import pydoc_data.topics
import resource
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import suppress
from functools import cache, partial
from itertools import islice
from pathlib import Path
from random import Random
from statistics import mean, median
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from pal_lab.bench.bars import Bar, bar, peer_value
from pal_lab.bench.peers import Agents, Langchain
from pal_lab.bench.workspace import (
    EXTRA,
    FULL,
    MODEL,
    BenchWorkspace,
    SyntheticRounds,
    frozen_gc,
    import_optional,
    seconds,
    side_by_side,
    write_session,
    write_synced,
)
from palimpsest.agent.calls import call, carry_out_now, compact, end_turn, start_turn
from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Environment, Session, inline
from palimpsest.core.budget import used
from palimpsest.core.deltas import Delta, TextDelta
from palimpsest.core.errors import BadInput, StoreError
from palimpsest.core.events import Body, CallStarted, ModelReplied, SessionOpened, ToolReturned, UserSaid, ViewEdited
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.core.lines import body_bytes, encode_body
from palimpsest.core.log import CHECKPOINT_EVERY, Log
from palimpsest.core.plans import Policy, Situation, complete
from palimpsest.core.ports import Blobs, Clock, Sendable, SessionStore
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.tokens import Calibration, estimate, learn, palimpsest_size
from palimpsest.follow.conversation import Conversation
from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.policies.named import PROFILES, profile
from palimpsest.policies.profile import Profile
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.stores.index import SqliteIndex
from palimpsest.stores.sessions import JsonlSessions
from palimpsest.testing.synthetic import synthetic_session
from palimpsest.wire.models import card

_GROUP = 10
_ROUNDS = 5
# Bytes of a line before its body: numbers, time and a digest of 64 characters.
_ENVELOPE = 130


def measure_resuming(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `resume_*`."""
    peer = Agents.find(workspace)
    for length, events in workspace.sizes.lengths.items():
        name = f"resume_{length}"
        if name in wanted:
            workspace.announce(f"resuming after {events:,} events")
            yield bar(name, _resume_units(workspace, workspace.store, length), peer_value(Agents.NAME, peer and peer.resume(length)))
    if "resume_edited" in wanted:
        workspace.announce("resuming after an edit")
        _extend_to_edit(workspace)
        yield bar("resume_edited", _resume_units(workspace, workspace.store, "10k"))
    if "resume_crashed" in wanted:
        workspace.announce("resuming after a crash")
        yield bar("resume_crashed", _resume_units(workspace, _copy_before_checkpoint(workspace), "10k"))


def _resume_units(workspace: BenchWorkspace, store: JsonlSessions, length: str) -> float:
    """Return the units from opening a session to a view ready for the model; closing is not counted."""
    session = workspace.session(length)

    def resume() -> float:
        begun = time.perf_counter()
        log = Log.open(store, session, workspace.clock)
        used(log.view, TokenCounter(palimpsest_size))
        took = time.perf_counter() - begun
        log.close()
        return took

    (units,) = workspace.unit.of_timed(workspace.sizes.rounds, resume)
    return units


def _extend_to_edit(workspace: BenchWorkspace) -> None:
    """Extend the log of middle length until its last event is an edit, after which only the edit's own token counts are known."""
    log, rounds = workspace.writer("10k")
    with log:
        edited = False
        while not edited:
            for body in rounds.next_round():
                log.append(body)
                edited = isinstance(body, ViewEdited)


def _copy_before_checkpoint(workspace: BenchWorkspace) -> JsonlSessions:
    """Return a store with a copy of the log of middle length that is as far ahead of its checkpoint as possible."""
    store = JsonlSessions(workspace.folder / "crashed")
    log, rounds = workspace.writer("10k")
    with log:
        log.checkpoint()
        last_seq = rounds.seq + CHECKPOINT_EVERY
        _copy_file(workspace, store, ".checkpoint")
        while rounds.seq < last_seq:
            for body in rounds.next_round():
                log.append(body)
        _copy_file(workspace, store, ".jsonl")
    return store


def measure_load(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `load`: opening a whole log without its checkpoint, against decoding the same lines."""
    workspace.announce("loading without a checkpoint")
    session = workspace.session("10k")
    store = JsonlSessions(workspace.folder / "bare")
    _copy_file(workspace, store, ".jsonl")
    path = store.path_of(session)
    loads = workspace.orjson.loads

    def decode() -> None:
        for line in path.read_bytes().splitlines():
            loads(line)

    opened: list[Log] = []
    whole, plain = side_by_side(
        max(3, workspace.sizes.rounds // 4), lambda: opened.append(Log.open(store, session, workspace.clock)), decode
    )
    for log in opened:
        log.close()
    peer = Agents.find(workspace)
    yield bar("load", whole / plain, peer_value(Agents.NAME, peer and peer.load()), load_ms=whole * 1000, decode_ms=plain * 1000)


def _copy_file(workspace: BenchWorkspace, store: JsonlSessions, suffix: str) -> None:
    session = workspace.session("10k")
    store.folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(workspace.store.path_of(session).with_suffix(suffix), store.path_of(session).with_suffix(suffix))


def measure_writing(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `append`, `append_cpu_us` and `group_commit`."""
    peer = Agents.find(workspace)
    if "append" in wanted:
        workspace.announce("durable appends")
        yield _append_bar(workspace, "append", 1)
    if "append_cpu_us" in wanted:
        workspace.announce("processor time of appends")
        by_length = {length: _cpu_us(workspace, length) for length in ("1k", "100k")}
        yield bar("append_cpu_us", max(by_length.values()), peer_value(Agents.NAME, peer and peer.append_cpu_us()), **by_length)
    if "group_commit" in wanted:
        workspace.announce("group commits")
        yield _append_bar(workspace, "group_commit", _GROUP)


def _append_bar(workspace: BenchWorkspace, name: str, group: int) -> Bar:
    ours, raw = _against_raw(workspace, group)
    peer = Agents.find(workspace)
    return bar(name, ours / raw, peer_value(Agents.NAME, peer and peer.append(group)), ours_us=ours * 1e6, raw_us=raw * 1e6)


def _raw_copy(workspace: BenchWorkspace) -> int:
    """Return a file descriptor of a copy of the log; sync time depends on the length and layout of a file."""
    path = workspace.folder / "raw"
    shutil.copyfile(workspace.store.path_of(workspace.session("10k")), path)
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.fsync(file)
    return file


def _endless_events(rounds: SyntheticRounds) -> Iterator[Body]:
    while True:
        yield from rounds.next_round()


def _against_raw(workspace: BenchWorkspace, group: int) -> tuple[float, float]:
    """Return the median seconds of `group` appends with a sync, and of as many raw writes of the same sizes with a sync."""
    log, rounds = workspace.writer("10k")
    raw = _raw_copy(workspace)
    bodies = _endless_events(rounds)
    ours: list[float] = []
    plain: list[float] = []
    try:
        with log, frozen_gc():
            for number in range(workspace.sizes.syncs):
                group_bodies = list(islice(bodies, group))
                data = [b" " * _ENVELOPE + encode_body(body) + b"\n" for body in group_bodies]
                # A disk answers sooner right after a write, so the two take turns in going first.
                if number % 2:
                    plain.append(seconds(partial(write_synced, raw, *data)))
                ours.append(seconds(partial(log.extend, group_bodies)))
                if not number % 2:
                    plain.append(seconds(partial(write_synced, raw, *data)))
            _finish_open_call(log, bodies)
    finally:
        os.close(raw)
    return median(ours), median(plain)


def _finish_open_call(log: Log, bodies: Iterator[Body]) -> None:
    """Append events until no call is open, so that the next measurement may begin with any event."""
    while log.open_call is not None:
        log.append(next(bodies))


def _cpu_us(workspace: BenchWorkspace, length: str) -> float:
    """Return the CPU microseconds of an append with its sync, checkpoints included: the median over five rounds."""
    log, rounds = workspace.writer(length)
    bodies = _endless_events(rounds)
    cpu_us: list[float] = []
    with log, frozen_gc():
        for _ in range(_ROUNDS):
            group_bodies = list(islice(bodies, workspace.sizes.syncs * 2))
            begun = time.process_time()
            for body in group_bodies:
                log.append(body)
                log.sync()
            cpu_us.append((time.process_time() - begun) / len(group_bodies) * 1e6)
        _finish_open_call(log, bodies)
    return median(cpu_us)


def measure_keeping(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `fork`, `fork_bytes` and `disk_ratio`."""
    if wanted & {"fork", "fork_bytes"}:
        workspace.announce("forking")
        units, create_units, size = _fork(workspace)
        if "fork" in wanted:
            yield bar("fork", units, create_file_u=create_units)
        if "fork_bytes" in wanted:
            yield bar("fork_bytes", size)
    if "disk_ratio" in wanted:
        workspace.announce("measuring file sizes")
        path = workspace.store.path_of(workspace.session("10k"))
        lines = path.read_bytes().splitlines(keepends=True)
        plain = sum(len(body_bytes(line)) + 1 for line in lines)
        kept = path.stat().st_size + path.with_suffix(".checkpoint").stat().st_size
        peer = Agents.find(workspace)
        yield bar("disk_ratio", kept / plain, peer_value(Agents.NAME, peer and peer.disk_ratio()), log=kept, plain=plain)


def _fork(workspace: BenchWorkspace) -> tuple[float, float, int]:
    """Return the units of a fork and of creating an empty file, and the bytes of all files of a closed fork."""
    # The log of the unit must exist before the files are counted.
    unit = workspace.unit
    log = workspace.reader("10k")
    numbers = iter(range(1_000_000))
    before = _files(workspace)

    def fork() -> float:
        begun = time.perf_counter()
        fresh = log.fork(workspace.store, f"fork-{next(numbers)}")
        took = time.perf_counter() - begun
        fresh.close()
        return took

    def create() -> float:
        path = workspace.store.folder / "empty"
        took = seconds(partial(path.touch, exist_ok=False))
        path.unlink()
        return took

    units, create_units = unit.of_timed(workspace.sizes.rounds, fork, create)
    log.close()
    fork_files = {name: size for name, size in _files(workspace).items() if name not in before}
    return units, create_units, sum(fork_files.values()) // next(numbers)


def _files(workspace: BenchWorkspace) -> dict[str, int]:
    return {str(path): path.stat().st_size for path in workspace.store.folder.rglob("*") if path.is_file()}


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
_TURN_CARD = card(MODEL)
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
        self._session = Session(log, _PROFILE, _TURN_CARD, environment)
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
        session.profile.count(view, session.counter, session.tools_tokens)
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
            model = replace(_TURN_CARD, window=3_000_000, input_limit=None)
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


_MODULES = ("argparse", "dataclasses", "difflib", "heapq", "shutil", "statistics", "tarfile", "textwrap", "threading", "typing")
_WORDS = ("order", "invoice", "ledger", "router", "session", "worker", "report", "schema", "cache", "window", "token", "batch")
_LEVELS = ("INFO", "DEBUG", "WARNING", "ERROR")
_CHINESE = (
    "上下文引擎把发生过的一切都写进日志,模型看到的只是日志的一个投影。",
    "如果压缩之后丢失了用户说过的话,后面的每一步都可能走错方向。",
    "请先阅读相关文件,再修改代码,最后运行全部测试并报告退出码。",
    "昨天下午三点开始,订单服务的响应时间从两百毫秒上升到四秒左右。",
    "这个函数在列表为空时会抛出异常,因此需要补充一个能够重现问题的测试。",
    "我们决定暂时保留旧的接口名称,等下一个版本发布之后再把它删除。",
    "数据库连接没有及时关闭,导致连接池在高峰时段被耗尽。",
    "注意:不要改动迁移目录里的任何文件,也不要提交本地的配置。",
)


@cache
def _prose() -> str:
    """Return the Python language reference."""
    topics: dict[str, str] = pydoc_data.topics.topics
    return "\n\n".join(topics[name] for name in sorted(topics))


@cache
def _code() -> str:
    """Return some modules of the Python standard library."""
    folder = Path(sysconfig.get_path("stdlib"))
    return "\n".join((folder / f"{name}.py").read_text(encoding="utf-8") for name in _MODULES)


def _records(random: Random) -> str:
    """Return a JSON response of an API."""
    rows = [
        {
            "id": random.randrange(10**9),
            "kind": random.choice(_WORDS),
            "created_at": f"2031-{random.randrange(1, 13):02d}-{random.randrange(1, 29):02d}T09:{random.randrange(60):02d}:00Z",
            "amount": random.randrange(10**6) / 100,
            "tags": random.sample(_WORDS, 3),
            "owner": {"name": f"{random.choice(_WORDS)}-{random.randrange(100)}", "active": random.random() < 0.5, "note": None},
        }
        for _ in range(20)
    ]
    text = msgspec.json.encode(rows)
    return (msgspec.json.format(text, indent=2) if random.random() < 0.5 else text).decode()


def _logs(random: Random) -> str:
    """Return log lines of a service."""
    return "\n".join(
        f"2031-04-{random.randrange(1, 29):02d} 09:{random.randrange(60):02d}:{random.randrange(60):02d},{random.randrange(1000):03d} "
        f"{random.choice(_LEVELS)} [{random.choice(_WORDS)}.{random.choice(_WORDS)}] {random.choice(_WORDS)} {random.randrange(10**6)} "
        f"from 10.0.{random.randrange(256)}.{random.randrange(256)} took {random.randrange(4000)} ms"
        for _ in range(50)
    )


def _chinese(random: Random) -> str:
    """Return Chinese sentences of a user or a model."""
    return "".join(random.choice(_CHINESE) for _ in range(50))


def _excerpt(text: str, random: Random) -> str:
    start = random.randrange(len(text) - 4_000)
    return text[start : start + 4_000]


KINDS: dict[str, Callable[[Random], str]] = {
    "prose": lambda random: _excerpt(_prose(), random),
    "code": lambda random: _excerpt(_code(), random),
    "json": _records,
    "logs": _logs,
    "chinese": _chinese,
}
_COUNTING_MODEL = "gpt-5.5"
_CALLS = 60


def measure_counting(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `tokens_error`; without a value if the exact tokenizer is not installed."""
    workspace.announce("counting tokens")
    library = import_optional("rs_bpe.bpe")
    if library is None:
        yield bar("tokens_error", None)
        return
    exact: Callable[[str], int] = library.openai.o200k_base().count
    calls = list(_calls())
    errors: dict[str, list[float]] = {}
    calibration = Calibration()
    for kind, text in calls:
        raw, counted = estimate(text), exact(text)
        guess = raw * calibration.factor(_COUNTING_MODEL)
        errors.setdefault(kind, []).append(abs(guess - counted) / counted * 100)
        calibration = learn(calibration, _COUNTING_MODEL, raw, counted)
    langchain = Langchain.find(workspace)
    peer = langchain and mean(abs(langchain.count_text(text) - exact(text)) / exact(text) * 100 for _, text in calls)
    all_errors = [error for kind_errors in errors.values() for error in kind_errors]
    by_kind = {kind: mean(kind_errors) for kind, kind_errors in errors.items()}
    yield bar("tokens_error", mean(all_errors), peer_value(Langchain.NAME, peer), **by_kind)


def _calls() -> Iterator[tuple[str, str]]:
    """Yield 60 calls with their main kind of text; each also holds two texts of other kinds."""
    random = Random(5)  # noqa: S311 - synthetic calls hold no secret
    for number in range(_CALLS):
        main = list(KINDS)[number % len(KINDS)]
        others = [kind for kind in KINDS if kind != main]
        parts = [KINDS[main](random) for _ in range(6)] + [KINDS[kind](random) for kind in random.sample(others, 2)]
        yield main, "\n".join(parts)


START_BARS: Final = frozenset({"help_ms", "hook_ms", "mcp_initialize_ms"})
_STARTS: Final = 5
_LINES_MB: Final = 100
_TIME: Final = "2026-01-02T03:04:05.000Z"
_INITIALIZE: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}


def measure_start(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `help_ms`, `hook_ms` and `mcp_initialize_ms`."""
    if "help_ms" in wanted:
        workspace.announce("starting")
        command = (*workspace.pal_command, "--help")

        def start() -> None:
            subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - the command that is being measured

        start()
        yield bar("help_ms", median(seconds(start) for _ in range(min(_STARTS, workspace.sizes.rounds))) * 1000)
    if "hook_ms" in wanted:
        yield _hook(workspace)
    if "mcp_initialize_ms" in wanted:
        workspace.announce("starting the MCP server")
        _initialize_seconds(workspace)
        yield bar("mcp_initialize_ms", median(_initialize_seconds(workspace) for _ in range(min(_STARTS, workspace.sizes.rounds))) * 1000)


def _hook(workspace: BenchWorkspace) -> Bar:
    """Measure the evidence hook with the digest that earlier turns have kept, and without one; the slower is the value."""
    megabytes = max(1, _LINES_MB * workspace.sizes.sessions // FULL.sessions)
    workspace.announce(f"a hook after a transcript of {megabytes} MB")
    home, transcript = workspace.folder / "hook-home", workspace.folder / "transcript.jsonl"
    home.mkdir()
    _write_transcript(transcript, megabytes)
    variables = {**os.environ, "PAL_HOME": str(home)}
    command = (*workspace.pal_command, "hook")
    given = {"hook_event_name": "SessionStart", "source": "compact", "session_id": "bench", "transcript_path": str(transcript)}

    def run() -> None:
        done = subprocess.run(  # noqa: S603 - measured
            (*command, "SessionStart"), check=True, capture_output=True, env=variables, input=json.dumps(given).encode()
        )
        if b"[Added by pal" not in done.stdout:
            raise StoreError("the hook ran out of time, and printed nothing", where=str(transcript))

    run()
    without = [_process_times(run) for _ in range(min(_STARTS, workspace.sizes.rounds))]
    subprocess.run((*command, "--background", "read", "--transcript", str(transcript)), check=True, env=variables)  # noqa: S603 - measured
    kept = [_process_times(run) for _ in range(min(_STARTS, workspace.sizes.rounds))]
    rows = {"without_digest": without, "with_digest": kept}
    detail = {
        f"{name}_{kind}_ms": median(pair[at] for pair in pairs) * 1000
        for name, pairs in rows.items()
        for at, kind in enumerate(("wall", "cpu"))
    }
    return bar("hook_ms", max(detail[f"{name}_cpu_ms"] for name in rows), None, megabytes=megabytes, **detail)


def _process_times(run: Callable[[], None]) -> tuple[float, float]:
    """Return the seconds of a run, and the processor time of the processes that it started and waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = seconds(run)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _write_transcript(path: Path, megabytes: int) -> None:
    """Write a made-up transcript of Claude Code: prompts, commands, and results of 8 kB."""
    number, before = 0, None
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < megabytes * 1_000_000:
            for kind, content in _finding_round(number):
                entry = {"role": kind, "content": content, **({"id": f"msg_{number}", "model": MODEL} if kind == "assistant" else {})}
                link = f"{kind}-{number}-{isinstance(content, str):d}"
                line = {"type": kind, "uuid": link, "parentUuid": before, "sessionId": "bench", "timestamp": _TIME, "message": entry}
                file.write(json.dumps(line) + "\n")
                before = link
            number += 1


def _finding_round(number: int) -> Iterator[tuple[str, object]]:
    call, text = f"toolu_{number}", f"line of run {number}\n" * 400
    yield "user", f"Message {number}: look at src/module_{number % 400}.py and run its tests."
    yield "assistant", [{"type": "tool_use", "id": call, "name": "Bash", "input": {"command": f"pytest tests/test_{number % 400}.py"}}]
    yield "user", [{"type": "tool_result", "tool_use_id": call, "content": text}]


def _initialize_seconds(workspace: BenchWorkspace) -> float:
    """Return the seconds from starting the MCP server to its first reply."""
    variables = {**os.environ, "PAL_HOME": str(workspace.folder / "mcp-home")}
    begun = time.perf_counter()
    with subprocess.Popen(  # noqa: S603 - measured
        (*workspace.pal_command, "mcp"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=variables
    ) as server:
        if server.stdin is None or server.stdout is None:
            raise StoreError("the MCP server has no pipes", where="pal mcp")
        server.stdin.write(json.dumps(_INITIALIZE).encode() + b"\n")
        server.stdin.flush()
        reply = server.stdout.readline()
        took = time.perf_counter() - begun
        server.stdin.close()
        server.kill()
    if b"serverInfo" not in reply:
        raise StoreError("the MCP server did not answer", where="pal mcp")
    return took


RARE = "quokkasaurus"
_HOLDERS = 3
_SEARCHES = 5


def measure_finding(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `index_*`, `search_vs_ripgrep` and `list_2000`."""
    ripgrep = find_ripgrep() if "search_vs_ripgrep" in wanted else ""
    store = _write_sessions(workspace)
    size = sum(size for _, _, size, _ in store.stats())
    workspace.announce(f"indexing {size / 1e6:,.0f} MB")
    database = workspace.folder / "index.sqlite"
    with SqliteIndex(database, store) as index:
        took = seconds(index.refresh)
        if "index_mb_s" in wanted:
            yield bar("index_mb_s", size / 1e6 / took, seconds=took)
        if "search_vs_ripgrep" in wanted:
            workspace.announce("searching")
            yield _search(workspace, index, store, ripgrep)
        if "list_2000" in wanted:
            workspace.announce("listing")
            (units,) = workspace.unit.of(workspace.sizes.rounds, index.list)
            yield bar("list_2000", units, sessions=workspace.sizes.sessions)
    if "index_ratio" in wanted:
        kept = sum(path.stat().st_size for path in workspace.folder.glob("index.sqlite*"))
        yield bar("index_ratio", kept / size, index_mb=kept / 1e6, logs_mb=size / 1e6)


def _write_sessions(workspace: BenchWorkspace) -> JsonlSessions:
    sizes = workspace.sizes
    workspace.announce(f"writing {sizes.sessions:,} sessions")
    store = JsonlSessions(workspace.folder / "sessions")
    holders = {sizes.sessions * part // (_HOLDERS + 1) for part in range(1, _HOLDERS + 1)}
    for number in range(sizes.sessions):
        log, _ = write_session(store, f"session-{number:05d}", sizes.session_events, workspace.clock, seed=number % 50)
        if number in holders:
            log.append(UserSaid((Text(f"Why does the {RARE} not start?"),)))
        log.close()
    return store


def _search(workspace: BenchWorkspace, index: SqliteIndex, store: JsonlSessions, ripgrep: str) -> Bar:
    command = (ripgrep, "-F", "-c", RARE, str(store.folder))
    run = partial(subprocess.run, command, check=True, capture_output=True)
    counted, found = len(run().stdout.splitlines()), len(index.search(RARE))
    if not counted == found == _HOLDERS:
        raise StoreError(f"ripgrep found the rare word {counted} times and the index {found} times; it was written {_HOLDERS} times")
    first: list[float] = []
    next_ones: list[float] = []
    theirs: list[float] = []
    # Both run on a warm page cache. The first search after ripgrep pays for CPU caches that ripgrep filled, so it is listed apart.
    with frozen_gc():
        for _ in range(max(5, workspace.sizes.rounds // 4)):
            theirs.append(seconds(run))
            first.append(seconds(partial(index.search, RARE)))
            next_ones += [seconds(partial(index.search, RARE)) for _ in range(_SEARCHES)]
    ours, ripgrep_s = median(next_ones), median(theirs)
    return bar("search_vs_ripgrep", ripgrep_s / ours, ours_ms=ours * 1000, ours_first_ms=median(first) * 1000, ripgrep_ms=ripgrep_s * 1000)


def find_ripgrep(beside: Path = Path(sys.executable).parent, path: str | None = None) -> str:
    """Return the ripgrep of this environment, else of the machine. Raises `BadInput` if there is none."""
    own = beside / "rg"
    found = str(own) if own.is_file() else shutil.which("rg", path=path)
    if found is None:
        raise BadInput(EXTRA)
    return found
