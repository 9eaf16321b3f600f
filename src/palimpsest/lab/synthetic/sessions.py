"""Made-up sessions that look like recorded ones to every policy: with time stamps and usage, of any length, always the same from a seed."""

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
    ToolReturned,
    ToolStarted,
    TurnEnded,
    Usage,
    UserSaid,
)
from palimpsest.core.items import Content, Text
from palimpsest.core.log.log import Log
from palimpsest.core.ports import SessionStore
from palimpsest.core.tokens.estimate import FAMILY_FACTORS
from palimpsest.core.tokens.sizes import palimpsest_size
from palimpsest.lab.synthetic import wording
from palimpsest.lab.synthetic.acts import Acts
from palimpsest.lab.synthetic.fitted import (
    AWAY_MINUTES,
    CALL_SECONDS,
    CHINESE,
    REMINDED,
    REPLIES_A_TURN,
    SIDE_BY_SIDE,
    USER_TOKENS,
    drawn,
    whole,
)
from palimpsest.stores.ephemeral import FixedClock

MODEL: Final = "claude-sonnet-4-5"
# The first of January 2031, 09:00 UTC.
START: Final = 1_925_024_400_000
_FIVE_MINUTES: Final = 300_000
_RULES: Final = """You are a careful programmer who works in a terminal, together with a user who reads along.
Read before you write, run the tests after you wrote, and say what you did in a few words. Paths are relative to the project.
A command that fails tells more than a guess: show its exit code. Never delete what you did not make, and ask before you change data.
When something is unclear, look at the code first and ask only then. Keep names as they are unless you were told otherwise."""
_WORLD: Final = "project: shop (Python 3.12, pytest)\nfolder: /home/dev/shop\nbranch: main\nsystem: Linux"


class Stamped(NamedTuple):
    """What happened, and when."""

    at: int
    body: Body


def story(seed: int) -> Iterator[Stamped]:
    """The facts of a session after its opening, turn after turn without end."""
    return _Story(seed).tell()


def made_up(seed: int, tokens: int, store: SessionStore, session: str = "") -> Log:
    """A session in which at least so many tokens were said and printed (unscaled), ended with a whole turn; held for writing."""
    clock = FixedClock(START)
    log = Log.create(store, SessionOpened(session or f"made-up-{seed}", cwd="/home/dev/shop", origin="generated", model=MODEL), clock)
    told = 0
    for at, body in story(seed):
        log.append(body, at=at)
        told += _weight(body)
        if told >= tokens and isinstance(body, TurnEnded):
            break
    return log


def _weight(body: Body) -> int:
    match body:
        case ModelReplied(parts=parts) | UserSaid(parts=parts):
            return sum(map(palimpsest_size, parts))
        case ToolReturned(result=result):
            return palimpsest_size(result)
        case ContextStated():
            return sum(palimpsest_size(Text(each.text)) for each in (*(body.head or ()), *body.items))
        case _:
            return 0


class _Story:
    """One session in the making: the work, the time, and what the model has read."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"session {seed}")  # noqa: S311 - made-up sessions keep no secret
        self._acts = Acts(self._random)
        self._chinese = self._random.random() < CHINESE * 1.6
        self._now = START
        self._seq = 0
        self._tokens = 0
        self._cached = (0, START)

    def tell(self) -> Iterator[Stamped]:
        """Turns without end."""
        told = (("base", _RULES), ("instructions", self._acts.instructions()), ("environment", _WORLD))
        yield self._shown(ContextStated(head=tuple(Statement(source, text, "system") for source, text in told)))
        while True:
            yield from self._turn()

    def _at(self, body: Body) -> Stamped:
        self._seq += 1
        return Stamped(self._now, body)

    def _shown(self, body: Body) -> Stamped:
        self._tokens += _weight(body)
        return self._at(body)

    def _turn(self) -> Iterator[Stamped]:
        random, acts = self._random, self._acts
        acts.begin()
        chinese = self._chinese and random.random() < 0.6
        text = wording.said(random, acts.about(), chinese=chinese, tokens=whole(random, USER_TOKENS))
        yield self._shown(UserSaid((Text(text),)))
        if random.random() < REMINDED:
            yield self._shown(ContextStated(items=(Statement("git", acts.changes(), "user"),)))
        for _ in range(whole(random, REPLIES_A_TURN) - 1):
            yield from self._step()
        yield from self._reply((Text(wording.ending(random, acts.about()), "assistant"),), "end_turn")
        yield self._at(TurnEnded())
        self._now += int(drawn(random, AWAY_MINUTES) * 60_000)

    def _step(self) -> Iterator[Stamped]:
        """The model says something or nothing, and uses one tool or several at once."""
        random, acts = self._random, self._acts
        uses = [acts.act() for _ in range(random.choice((2, 2, 3)) if random.random() < SIDE_BY_SIDE else 1)]
        said: tuple[Content, ...] = (Text(wording.step(random, acts.about()), "assistant"),) if random.random() < 0.7 else ()
        yield from self._reply((*said, *(act.call for act in uses)), "tool_use")
        for act in uses:
            yield self._at(ToolStarted(act.call.call_id, act.call.tool))
            self._now += random.randrange(40, 900)
            yield self._shown(act.returned)

    def _reply(self, parts: tuple[Content, ...], stop: str) -> Iterator[Stamped]:
        """A request and its reply, with the usage that a provider would report whose cache lives for five minutes."""
        yield self._at(CallStarted(MODEL, "anthropic", estimate=self._tokens))
        started, asked_at = self._seq, self._now
        self._now += int(drawn(self._random, CALL_SECONDS) * 1_000)
        factor = FAMILY_FACTORS["claude"]
        prompt = round(self._tokens * factor)
        tokens, at = self._cached
        cached = tokens if asked_at - at < _FIVE_MINUTES else 0
        written = round(sum(map(palimpsest_size, parts)) * factor)
        usage = Usage(input=min(3, prompt - cached), cache_read=cached, cache_write=max(0, prompt - cached - 3), output=written)
        self._cached = (prompt, asked_at)
        yield self._shown(ModelReplied(parts, started, usage, stop, MODEL, f"msg_{self._seq:08d}"))
