"""Synthetic sessions with time stamps and usage, of any length, reproducible from a seed."""

from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

from palimpsest.core.events import (
    Body,
    CallStarted,
    ContextStated,
    ModelReplied,
    SessionOpened,
    Statement,
    ToolStarted,
    TurnEnded,
    Usage,
    UserSaid,
)
from palimpsest.core.events.event_items import items_of
from palimpsest.core.items import Content, Text
from palimpsest.core.log.log import Log
from palimpsest.core.ports import SessionStore
from palimpsest.core.tokens.estimate import FAMILY_FACTORS
from palimpsest.core.tokens.sizes import palimpsest_size
from palimpsest.lab.synthetic.agent import SyntheticAgent
from palimpsest.lab.synthetic.distributions import (
    AWAY_MINUTES,
    CALL_SECONDS,
    CHINESE,
    CONTEXT_STATED,
    PARALLEL_CALLS,
    REPLIES_A_TURN,
    USER_TOKENS,
    sample,
    sample_int,
)
from palimpsest.lab.synthetic.messages import ending, step, user_message
from palimpsest.stores.ephemeral import FixedClock

MODEL: Final = "claude-sonnet-4-5"
# 2031-01-01 09:00 UTC, in milliseconds.
START: Final = 1_925_024_400_000
_FIVE_MINUTES: Final = 300_000
_INSTRUCTIONS: Final = """You are a careful programmer who works in a terminal, together with a user who reads along.
Read before you write, run the tests after you wrote, and say what you did in a few words. Paths are relative to the project.
A command that fails tells more than a guess: show its exit code. Never delete what you did not make, and ask before you change data.
When something is unclear, look at the code first and ask only then. Keep names as they are unless you were told otherwise."""
_ENVIRONMENT: Final = "project: shop (Python 3.12, pytest)\nfolder: /home/dev/shop\nbranch: main\nsystem: Linux"


class TimedBody(NamedTuple):
    """An event body with its time in milliseconds."""

    at: int
    body: Body


def generate_events(seed: int) -> Iterator[TimedBody]:
    """Yield the events of a session after its opening, turn after turn without end."""
    return _SessionGenerator(seed).events()


def synthetic_session(seed: int, tokens: int, store: SessionStore, session: str = "") -> Log:
    """Create a session of at least so many unscaled tokens that ends with a complete turn. Returns its log, open for writing."""
    clock = FixedClock(START)
    log = Log.create(store, SessionOpened(session or f"made-up-{seed}", cwd="/home/dev/shop", origin="generated", model=MODEL), clock)
    tokens_so_far = 0
    for at, body in generate_events(seed):
        log.append(body, at=at)
        tokens_so_far += _tokens_of(body)
        if tokens_so_far >= tokens and isinstance(body, TurnEnded):
            break
    return log


def _tokens_of(body: Body) -> int:
    return sum(palimpsest_size(item.content) for item in items_of(0, body))


class _SessionGenerator:
    """Generates one session: the agent, the clock, and the tokens that the model has read."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"session {seed}")  # noqa: S311 - synthetic sessions hold no secret
        self._agent = SyntheticAgent(self._random)
        self._chinese = self._random.random() < CHINESE * 1.6
        self._now = START
        self._seq = 0
        self._tokens = 0
        self._cached = (0, START)

    def events(self) -> Iterator[TimedBody]:
        """Yield the head, then turns without end."""
        statements = (("base", _INSTRUCTIONS), ("instructions", self._agent.instructions()), ("environment", _ENVIRONMENT))
        yield self._stamp_visible(ContextStated(head=tuple(Statement(source, text, "system") for source, text in statements)))
        while True:
            yield from self._turn()

    def _stamp(self, body: Body) -> TimedBody:
        self._seq += 1
        return TimedBody(self._now, body)

    def _stamp_visible(self, body: Body) -> TimedBody:
        self._tokens += _tokens_of(body)
        return self._stamp(body)

    def _turn(self) -> Iterator[TimedBody]:
        random, agent = self._random, self._agent
        agent.start_turn()
        chinese = self._chinese and random.random() < 0.6
        text = user_message(random, agent.text_variables(), chinese=chinese, tokens=sample_int(random, USER_TOKENS))
        yield self._stamp_visible(UserSaid((Text(text),)))
        if random.random() < CONTEXT_STATED:
            yield self._stamp_visible(ContextStated(items=(Statement("git", agent.git_status(), "user"),)))
        for _ in range(sample_int(random, REPLIES_A_TURN) - 1):
            yield from self._step()
        yield from self._reply((Text(ending(random, agent.text_variables()), "assistant"),), "end_turn")
        yield self._stamp(TurnEnded())
        self._now += int(sample(random, AWAY_MINUTES) * 60_000)

    def _step(self) -> Iterator[TimedBody]:
        """Yield one step: an optional text of the model, and one or more tool calls with their results."""
        random, agent = self._random, self._agent
        uses = [agent.use_tool() for _ in range(random.choice((2, 2, 3)) if random.random() < PARALLEL_CALLS else 1)]
        text_parts: tuple[Content, ...] = (Text(step(random, agent.text_variables()), "assistant"),) if random.random() < 0.7 else ()
        yield from self._reply((*text_parts, *(use.call for use in uses)), "tool_use")
        for use in uses:
            yield self._stamp(ToolStarted(use.call.call_id, use.call.tool))
            self._now += random.randrange(40, 900)
            yield self._stamp_visible(use.returned)

    def _reply(self, parts: tuple[Content, ...], stop: str) -> Iterator[TimedBody]:
        """Yield a request and its reply, with the usage of a provider whose cache entries live five minutes."""
        yield self._stamp(CallStarted(MODEL, "anthropic", estimate=self._tokens))
        started, asked_at = self._seq, self._now
        self._now += int(sample(self._random, CALL_SECONDS) * 1_000)
        factor = FAMILY_FACTORS["claude"]
        prompt = round(self._tokens * factor)
        tokens, at = self._cached
        cached = tokens if asked_at - at < _FIVE_MINUTES else 0
        written = round(sum(map(palimpsest_size, parts)) * factor)
        usage = Usage(input=min(3, prompt - cached), cache_read=cached, cache_write=max(0, prompt - cached - 3), output=written)
        self._cached = (prompt, asked_at)
        yield self._stamp_visible(ModelReplied(parts, started, usage, stop, MODEL, f"msg_{self._seq:08d}"))
