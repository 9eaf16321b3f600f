"""Homes with finished sessions, and runs of the pipeline over them."""

from collections.abc import Callable, Iterable
from pathlib import Path

from palimpsest.core.events import Body, ModelReplied, SessionOpened, ToolReturned, Usage, UserSaid
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.core.plans import Answer, Ask, Want, run_steps
from palimpsest.memory.consolidation import ScopeResult, drop_lost, scope_steps
from palimpsest.memory.phase_one import ModelUse, SessionResult, session_steps
from palimpsest.memory.pipeline import RunReport, no_announcement, planned, run_without_model
from palimpsest.memory.work import MemoryMeter, PipelinePlaces
from palimpsest.memory.work_store import Tokens
from palimpsest.stores.home import FolderHome
from palimpsest.stores.in_memory import FixedClock
from palimpsest.stores.memory_config import MemoryConfig
from palimpsest.wire.models import card

START = 1_780_000_000_000
HOUR, DAY = 3_600_000, 86_400_000
CWD = "/p"
CARD = card("claude-haiku-4-5")
CONVERSATION: tuple[Body, ...] = (
    UserSaid((Text("fix the parser, and use tabs"),)),
    ModelReplied((Text("I run the tests.", "assistant"), ToolCall("c1", "bash", '{"command": "pytest -q"}'))),
    ToolReturned(ToolResult("c1", (Text("2 passed"),)), "bash", exit=0),
    ModelReplied((Text("Done.", "assistant"),)),
)


def places_in(folder: Path, config: MemoryConfig | None = None, now: int = START + DAY) -> PipelinePlaces:
    """The pipeline of a home whose clock stands at a time: one day after the sessions by default."""
    return PipelinePlaces(FolderHome(folder, FixedClock(now)), config or MemoryConfig())


def add_session(
    folder: Path, session: str, bodies: Iterable[Body] = CONVERSATION, *, at: int = START, opened: SessionOpened | None = None
) -> None:
    """Write a session whose events all have one time."""
    home = FolderHome(folder, FixedClock(at))
    with Log.create(home.store, opened or SessionOpened(session, cwd=CWD), home.clock) as log:
        for body in bodies:
            log.append(body)


def clock_of(places: PipelinePlaces) -> FixedClock:
    """The clock of a home, to be moved."""
    assert isinstance(places.home.clock, FixedClock)
    return places.home.clock


def run_now(places: PipelinePlaces, announce: Callable[[str, str], None] = no_announcement) -> RunReport:
    """Run the pipeline over everything, without a model."""
    drop_lost(places)
    return run_without_model(places, planned(places, by_model=False, everything=True), announce, at_once=True)


def model_use(places: PipelinePlaces, usd: float = 10.0, day: Tokens | None = None) -> ModelUse:
    """A model with budgets."""
    meter = MemoryMeter(CARD, places.spending, places.home.clock, usd=usd, day=day or Tokens(1_000_000, 100_000))
    return ModelUse("", CARD.window, meter)


class Replies:
    """Answers requests in order and remembers them; an error among the replies is raised."""

    def __init__(self, *replies: str | Exception | Callable[[Ask], str]) -> None:
        self._replies = list(replies)
        self.asked: list[Ask] = []

    def __call__(self, want: Want) -> Answer:
        assert isinstance(want, Ask)
        self.asked.append(want)
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        text = reply if isinstance(reply, str) else reply(want)
        return ModelReplied((Text(text, "assistant"),), usage=Usage(input=1_000, output=100), stop="end_turn", purpose=want.purpose)


def read_one(places: PipelinePlaces, session: str, use: ModelUse | None, replies: Replies) -> SessionResult:
    """Do phase one for a session of any age."""
    plan = planned(places, by_model=use is not None, everything=True)
    (due,) = [each for each in plan.sessions if each.session == session]
    return run_steps(session_steps(places, due, use, no_announcement), replies)


def consolidate_one(places: PipelinePlaces, scope: str, use: ModelUse | None, replies: Replies) -> ScopeResult:
    """Do phase two for a scope, whatever was done before."""
    return run_steps(scope_steps(places, scope, use, no_announcement, at_once=True), replies)
