"""Steps of the demo: generates a session, replays it, forks it where its window was nearly full, folds the fork, and undoes the fold."""

from collections.abc import Callable
from contextlib import ExitStack
from itertools import chain, count
from typing import NamedTuple

from msgspec import Raw
from msgspec.structs import replace

from palimpsest.apps.cli.look.edits import AuditedEdit, audited_edits
from palimpsest.apps.cli.opening.counting import count_of, view_tokens
from palimpsest.apps.cli.opening.home import AnyHome
from palimpsest.apps.cli.output.values import progress
from palimpsest.core.events import ModelReplied, Titled, ToolReturned, Usage, UserSaid
from palimpsest.core.items import Text, ToolCall
from palimpsest.core.log.log import Log
from palimpsest.core.log.undo import undo
from palimpsest.core.log.verify import VerifyReport, verify
from palimpsest.core.policy import complete
from palimpsest.core.tokens.estimate import FAMILY_FACTORS, family_of
from palimpsest.core.view import View
from palimpsest.engine.calls.call import call
from palimpsest.engine.calls.moments import compact, end_turn
from palimpsest.engine.environment import Environment, inline
from palimpsest.engine.session import Session
from palimpsest.lab.comparison import ReplayPlan, compared, replay_session
from palimpsest.lab.outcome import Comparison
from palimpsest.lab.report.losses import with_hidden_events
from palimpsest.lab.simulation.loading import load_log
from palimpsest.lab.simulation.simulation import replay_card
from palimpsest.lab.synthetic.sessions import MODEL, synthetic_session
from palimpsest.profiles.named import DEFAULT, profile
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.ephemeral import FixedClock
from palimpsest.wire.models.cards import card
from palimpsest.wire.past_requests import call_events, next_request, past_request
from palimpsest.wire.request import Request, Tool

PROFILES = (DEFAULT, "claude-code-2.1.325", "codex-0.166", "opencode-1.18", "none")
_CYCLES = (1, 2, 5, 10)
_NEARLY_FULL = 150_000
_MINUTE = 60_000
_SCHEMA = Raw(b'{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}')
_TOOLS = (
    Tool("read", "Read a file.", _SCHEMA),
    Tool("bash", "Run a command.", Raw(b'{"type":"object","properties":{"command":{"type":"string"}}}')),
)


class DemoSnapshot(NamedTuple):
    """A view of the demo session, its tokens and its request."""

    view: View
    tokens: int
    request: Request


class DemoOutcome(NamedTuple):
    """Results of the demo: the recording, the fork with its edits and snapshots, and the comparison of profiles."""

    log: Log
    fork: Log
    comparison: Comparison
    before: DemoSnapshot
    edits: tuple[AuditedEdit, ...]
    folded: DemoSnapshot
    after: DemoSnapshot
    calls: int
    verified: bool
    verdicts: tuple[VerifyReport, ...]

    @property
    def snapshots(self) -> dict[str, DemoSnapshot]:
        """The snapshots by the words for their time, in order."""
        return {"before the fold": self.before, "folded": self.folded, "after the undo": self.after}


def run_demo(stack: ExitStack, home: AnyHome, seed: int, tokens: int) -> DemoOutcome:
    """Make the session and its fork, replay, fold and undo. `stack` closes the logs.

    The session id is always the same in an empty home, because it is part of the billed prompt.
    """
    taken = set(home.store.sessions())
    name = next(one for one in chain((f"demo-{seed}",), (f"demo-{seed}-{number}" for number in count(2))) if one not in taken)
    log = stack.enter_context(_create_session(home, name, seed, tokens))
    with progress("replaying") as show_progress:
        comparison = _compare(log, home, show_progress)
    fork: Log = stack.enter_context(_fork_when_full(log, home, f"{name}-fork"))
    before = _snapshot_of(fork, home)
    calls = sum(1 for _ in call_events(fork))
    verified = past_request(fork, calls, home.blobs.get).verified
    edits = _fold(fork, home)
    folded = _snapshot_of(fork, home)
    for edit in reversed(edits):
        undo(fork, edit.event, why="the demo shows that it can")
    fork.sync()
    after = _snapshot_of(fork, home)
    # Fold once more, so that a user who keeps the session can try `pal undo`.
    _fold(fork, home)
    fork.checkpoint()
    verdicts = tuple(verify(home.store, each.session, home.blobs) for each in (log, fork))
    return DemoOutcome(log, fork, comparison, before, tuple(edits), folded, after, calls, verified, verdicts)


def _create_session(home: AnyHome, session: str, seed: int, tokens: int) -> Log:
    """Create a synthetic session of at least so many tokens without any edits."""
    log = synthetic_session(seed, round(tokens / FAMILY_FACTORS[family_of(MODEL)]), home.store, session)
    log.append(Titled(f"A synthetic day at a shop, seed {seed}", by="demo"))
    log.checkpoint()
    return log


def _compare(log: Log, home: AnyHome, on_progress: Callable[[int, int], None]) -> Comparison:
    """Replay the session under each profile of the demo; `on_progress` gets done and total, in hundredths of a replay."""
    plan = ReplayPlan(tuple(profile(name) for name in PROFILES), (replay_card(MODEL),), cycles=_CYCLES)
    loaded = load_log(log, home.blobs, "synthetic")
    found = replay_session(loaded, plan, lambda done: on_progress(round(done * 100), plan.replays * 100))
    return compared([{name: with_hidden_events(each, loaded.recording) for name, each in found.items()}], plan)


def _fork_when_full(log: Log, home: AnyHome, session: str) -> Log:
    """Fork the session where its window was nearly full, and add a turn whose request is recorded with its digest."""
    at = _nearly_full_event(log)
    # After the newest event of the recording and of earlier demos in the same home, so that the fork is the newest session.
    clock = FixedClock(max(event.at for event in log.events()) + _MINUTE * len(home.store.sessions()), 2_000)
    with Log.open(home.store, log.session, clock) as base:
        fork = base.fork(home.store, session, at)
    fork.append(UserSaid((Text("Summarise what you changed today, file by file. 用中文也写一句。"),)))
    counter = count_of(fork.view, fork, home.blobs).counter
    text = Text("Three files changed; the tests pass. 改了三个文件,测试全部通过。", "assistant")
    usage = Usage(input=3, cache_write=counter.total(fork.view), output=40)
    model = Scripted(ModelReplied((text,), usage=usage, stop="end_turn", model=MODEL))
    environment = Environment(home.store, home.blobs, clock, provider=lambda *_: model, offload=inline)
    engine = Session(fork, profile("none"), card(MODEL), environment, _TOOLS)
    engine.params = replace(engine.params, max_tokens=8192)
    complete(call(engine))
    complete(end_turn(engine))
    return fork


def _nearly_full_event(log: Log) -> int:
    """Return the last event below 150,000 tokens of context at which no call was pending."""
    found, size = log.tip, 0
    waiting: set[str] = set()
    for event in log.events():
        match event.body:
            case ModelReplied(parts=parts, usage=usage):
                size = usage.prompt
                waiting = {part.call_id for part in parts if isinstance(part, ToolCall)}
            case ToolReturned(result=result):
                waiting.discard(result.call_id)
                if size > _NEARLY_FULL:
                    return found
                found = found if waiting else event.seq
            case _:
                pass
    return log.tip


def _snapshot_of(log: Log, home: AnyHome) -> DemoSnapshot:
    """Return the current view with its tokens and its request."""
    return DemoSnapshot(log.view, view_tokens(log.view, log, home.blobs), next_request(log.view, home.blobs.get))


def _fold(log: Log, home: AnyHome) -> list[AuditedEdit]:
    """Fold with our profile, without a model. Returns the edits, as `pal audit` shows them."""
    clock = FixedClock(log.event(log.tip).at + _MINUTE, 1_000)
    session = Session(log, profile(DEFAULT), card(MODEL), Environment(home.store, home.blobs, clock, offload=inline), _TOOLS)
    first = log.tip + 1
    complete(compact(session))
    log.sync()
    count = count_of(log.view, log, home.blobs)
    return [edit for edit in audited_edits(log, count.used, session.card) if edit.event >= first]
