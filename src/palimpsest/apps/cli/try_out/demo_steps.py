"""What the demo does: a session is made up, replayed, forked where its window was nearly full, folded there, and the fold is undone."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, count

from msgspec import Raw
from msgspec.structs import replace

from palimpsest.apps.cli.home import AnyHome
from palimpsest.apps.cli.look.edits import AuditedEdit, audited_edits
from palimpsest.apps.cli.opening import counter_of
from palimpsest.core.events import ModelReplied, Titled, ToolReturned, Usage, UserSaid
from palimpsest.core.items import Text, ToolCall
from palimpsest.core.log.log import Log
from palimpsest.core.log.undo import undo
from palimpsest.core.policy import complete
from palimpsest.core.tokens.estimate import FAMILY_FACTORS, family_of
from palimpsest.core.view import View
from palimpsest.engine.call import call
from palimpsest.engine.environment import Environment, inline
from palimpsest.engine.moments import compact, end_turn
from palimpsest.engine.session import Session
from palimpsest.lab.comparison import ReplayPlan, compared, replay_session
from palimpsest.lab.outcome import Comparison
from palimpsest.lab.report.losses import with_hidden_events
from palimpsest.lab.simulation.environment import replay_card
from palimpsest.lab.simulation.loading import load_log
from palimpsest.lab.synthetic.sessions import MODEL, synthetic_session
from palimpsest.profiles.named import DEFAULT, profile
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.ephemeral import FixedClock
from palimpsest.wire.models.cards import card
from palimpsest.wire.past import next_request
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


@dataclass(frozen=True)
class Stage:
    """A view of the demo's session and the request that shows it."""

    view: View
    tokens: int
    request: Request


def free_name(home: AnyHome, name: str) -> str:
    """A name that no session of the home has; always the same in an empty one, for a session is shown its own name and billed for it."""
    taken = set(home.store.sessions())
    return next(one for one in chain((name,), (f"{name}-{number}" for number in count(2))) if one not in taken)


def make_session(home: AnyHome, session: str, seed: int, tokens: int) -> Log:
    """A made-up session of some turns and at least so many tokens, in which the context grows without bound, as it was recorded."""
    log = synthetic_session(seed, round(tokens / FAMILY_FACTORS[family_of(MODEL)]), home.store, session)
    log.append(Titled(f"A made-up day at a shop, seed {seed}", by="demo"))
    log.checkpoint()
    return log


def compare(log: Log, home: AnyHome, tell: Callable[[int, int], None]) -> Comparison:
    """The session under each profile of the demo; `tell` hears how far it is, in hundredths of a replay."""
    plan = ReplayPlan(tuple(profile(name) for name in PROFILES), (replay_card(MODEL),), cycles=_CYCLES)
    taken = load_log(log, home.blobs, "made up")
    found = replay_session(taken, plan, lambda done: tell(round(done * 100), plan.replays * 100))
    return compared([{name: with_hidden_events(each, taken.recording) for name, each in found.items()}], plan)


def fork_when_full(log: Log, home: AnyHome, session: str) -> Log:
    """A fork of the session as it was when its window was nearly full; it has one turn more, its request recorded with its digest."""
    at = _nearly_full(log)
    clock = FixedClock(log.event(at).at + _MINUTE, 2_000)
    with Log.open(home.store, log.session, clock) as base:
        fork = base.fork(home.store, session, at)
    fork.append(UserSaid((Text("Summarise what you changed today, file by file. 用中文也写一句。"),)))
    counter = counter_of(fork.view, fork.ledger.calibration)
    text = Text("Three files changed; the tests pass. 改了三个文件,测试全部通过。", "assistant")
    usage = Usage(input=3, cache_write=counter.total(fork.view), output=40)
    model = Scripted(ModelReplied((text,), usage=usage, stop="end_turn", model=MODEL))
    environment = Environment(home.store, home.blobs, clock, provider=lambda *_: model, offload=inline)
    at_work = Session(fork, profile("none"), card(MODEL), environment, _TOOLS)
    at_work.params = replace(at_work.params, max_tokens=8192)
    complete(call(at_work))
    complete(end_turn(at_work))
    return fork


def _nearly_full(log: Log) -> int:
    """The last event at which the context still had some room and no call waited for its result."""
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


def stage_of(log: Log, home: AnyHome) -> Stage:
    """The view as it is, weighed and encoded."""
    counter = counter_of(log.view, log.ledger.calibration)
    return Stage(log.view, counter.total(log.view), next_request(log.view, home.blobs.get))


def fold(log: Log, home: AnyHome) -> list[AuditedEdit]:
    """What our profile does when asked to fold, without a model: the edits it made, as `pal audit` tells them."""
    clock = FixedClock(log.event(log.tip).at + _MINUTE, 1_000)
    session = Session(log, profile(DEFAULT), card(MODEL), Environment(home.store, home.blobs, clock, offload=inline), _TOOLS)
    first = log.tip + 1
    complete(compact(session))
    log.sync()
    return [edit for edit in audited_edits(log, session.counter, session.card) if edit.event >= first]


def take_back(log: Log, edits: list[AuditedEdit]) -> None:
    """Undo them, the newest first."""
    for edit in reversed(edits):
        undo(log, edit.event, why="the demo shows that it can")
    log.sync()
